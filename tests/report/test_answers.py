"""Sentences read off made-up tables, with numbers that are known, and with what is not known."""

from __future__ import annotations

import polars as pl
import pytest

from detoklens.figures.registry import QUESTIONS
from detoklens.report import answers
from detoklens.report.choosing import chosen_heads, gluing_head
from detoklens.report.compared_answers import gluing, mattering
from tests.figures.synthetic import tables as made_tables


def controls(*above: float | None, auroc: float = 0.8) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "head": list(range(len(above))),
            "auroc": [None if each is None else auroc for each in above],
            "above_null": above,
            "frequency": [0.7] * len(above),
        },
        schema_overrides={"above_null": pl.Float64, "auroc": pl.Float64},
    )


def ends(n_heads: int, low: float | None = 0.79, high: float | None = 0.81) -> pl.DataFrame:
    return pl.DataFrame({"head": list(range(n_heads)), "seen_low": [low] * n_heads, "seen_high": [high] * n_heads})


def test_pieces_decide_which_head_glues_and_both_numbers_are_said():
    found = {
        "auroc_controls": controls(0.3, 0.1),
        "auroc_by_head": ends(2),
        "auroc_pieces_controls": controls(0.05, 0.25, auroc=0.9),
        "auroc_pieces_by_head": ends(2, 0.88, 0.92),
    }
    said = answers.which_heads_glue(found)
    assert said.startswith("L0H1 stands highest above its nulls: asked from pieces that go on with a word, ")
    assert "is 0.900 [0.880, 0.920], its null 0.650 (frequency alone 0.700)" in said
    assert "over all query tokens its mean AUROC against corpus bigrams is 0.800 [0.790, 0.810], its null 0.700" in said


def test_a_head_near_its_null_is_not_praised():
    said = answers.which_heads_glue({"auroc_controls": controls(0.01, -0.2), "auroc_by_head": ends(2, None, None)})
    assert said.startswith("No head stands clearly above its nulls; the nearest is L0H0")
    assert "[" not in said


def test_no_head_can_be_judged_without_any_defined_auroc():
    said = answers.which_heads_glue({"auroc_controls": controls(None, None), "auroc_by_head": ends(2)})
    assert "no head can be judged" in said


def test_words_judge_where_there_is_no_corpus():
    words = pl.DataFrame({"head": [0, 1], "median_share": [0.4, 0.031], "pairs": [1200, 1200]})
    said = answers.which_heads_glue({"words_by_head": words})
    assert said.startswith("L0H1 finds a word's piece before best: median rank in the top 3.1 %")
    assert "1,200 pairs" in said
    assert "--counts" in said
    assert "neither words nor a corpus" in answers.which_heads_glue({"words_by_head": words.clear()})


def test_without_text_the_answers_say_so():
    assert answers.what_text_says({}) == answers.which_term_matters({}) == answers.NO_TEXT


@pytest.mark.parametrize(
    ("outliers", "expected"),
    [
        ([], "No position embedding departs from its neighbours by its variance; position 0's variance is 4.0 times"),
        ([0], "One position embedding departs from its neighbours by variance (position 0); "),
        ([0, 9], "2 position embeddings depart from their neighbours by variance (positions 0 and 9); "),
        (list(range(8)), "(positions 0, 1, 2, 3, 4, 5 and 2 more)"),
    ],
)
def test_odd_positions_are_counted_and_named(outliers, expected):
    variance = pl.DataFrame(
        {
            "position": range(10),
            "variance": [4.0] + [1.0] * 9,
            "outlier": [place in outliers for place in range(10)],
        }
    )
    assert expected in answers.what_is_odd({"position_variance": variance})


@pytest.mark.parametrize("n_heads", [1, 7])
def test_every_question_has_an_answer_of_one_paragraph(n_heads):
    found = made_tables(n_heads) | {
        "lexicon_by_head": pl.DataFrame(
            {"head": range(n_heads), "pairs": 100, "seen_share": 0.5, "word_share": [None] * n_heads}
        )
    }
    for question in QUESTIONS:
        said = answers.answer(question, found)
        assert said.endswith(".")
        assert "\n" not in said
        assert any(letter.isdigit() for letter in said), said


def test_chosen_heads_are_those_asked_for_or_the_gluing_and_the_self_matching():
    found = {
        "heads": pl.DataFrame({"head": [0, 1, 2], "self_match": [None, 3.0, 1.0]}),
        "auroc_controls": controls(0.1, 0.2, 0.3),
    }
    assert gluing_head(found) == 2
    assert chosen_heads(None, found) == [2, 1]
    assert chosen_heads([0, 0, 2], found) == [0, 2]
    assert chosen_heads(None, {"heads": found["heads"]}) == [1, 2]


def test_a_comparison_says_how_far_the_best_heads_stand_above_their_nulls():
    said = gluing({"auroc_controls": {"so-early": controls(-0.02, -0.01), "late": controls(0.2, 0.1)}})
    assert said.endswith("−0.010 in so-early (L0H1) and +0.200 in late (L0H0).")
    assert "--text" in mattering({})
