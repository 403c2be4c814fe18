"""The section that sets the paper's numbers beside ours, on made-up tables: the real model is too large for tests."""

from __future__ import annotations

import polars as pl
import pytest

from detoklens.questions.auroc import compute as auroc
from detoklens.questions.frequency import question as frequency
from detoklens.questions.heatmap import question as heatmap
from detoklens.questions.variance import question as variance
from detoklens.questions.words.question import PAPER_RANKS
from detoklens.report.report import numbers_of_the_paper
from tests.figures.synthetic import _by_head, _filled, np


@pytest.fixture
def tables():
    random = np.random.default_rng(0)
    keys = pl.DataFrame({"head": range(12)}).join(pl.DataFrame({"layer_norm": [True, False]}), how="cross")
    made = [
        _by_head(auroc.AUROC_BY_HEAD, random, range(12), seen=[0.9 if head == 7 else 0.6 for head in range(12)]),
        _by_head(frequency.FREQUENCY_BY_HEAD, random, range(12), spearman=lambda head: -0.7 if head == 7 else -0.3),
        _filled(
            frequency.EMBEDDING_VARIANCE,
            pl.DataFrame({"tokens": [50257]}),
            random,
            spearman=[None],
            norm_variance=0.2,
            divided_norm_variance=0.0,
            variance_to_covariance=45.5,
        ),
        _filled(variance.POSITION_VARIANCE, pl.DataFrame({"position": range(5)}), random, variance=[8.0, 2, 2, 2, 1]),
        _filled(
            auroc.AUROC_BY_TOKEN, pl.DataFrame({"head": [0, 0, 1], "token_id": [0, 1, 0]}), random, positives=[3, 4, 3]
        ),
        _filled(frequency.FREQUENCY_BY_TOKEN, pl.DataFrame({"token_id": [0, 1]}), random, count=[5, 6]),
        _filled(heatmap.HEATMAP_BY_HEAD, keys, random, minimum=-40.0, maximum=100.0),
        (
            PAPER_RANKS,
            pl.DataFrame(
                {
                    "head": [7, 1],
                    "query_token": ["iens", "<b>"],
                    "key_token": [" sap", "a"],
                    "joined": [" sapiens", "a<b>"],
                    "paper_rank": [1, 2],
                    "rank": [1, 5],
                    "difference": [0, 3],
                    "score": [9.0, 1.0],
                }
            ),
        ),
    ]
    return {schema.name: frame for schema, frame in made}


def rows(section):
    return {row[0]: row[1:] for row in section.grids[0].rows}


def test_each_number_stands_beside_the_papers_with_the_difference(tables):
    part = numbers_of_the_paper(tables, 1000)
    found = rows(part)
    assert found["documents counted"][:3] == (8_013_769, 1000, 1000 - 8_013_769)
    assert part.sentence.startswith("16 numbers from the paper's text")
    assert found["head with the largest mean AUROC"][:3] == (7, 7, 0)
    paper, here, difference, depends = found["Spearman of Tᵉ with token frequency, L0H7"]
    assert (paper, here) == (-0.68, -0.7)
    assert difference == pytest.approx(-0.02)
    assert "OpenWebText" in depends
    assert found["largest Tᵉᵉ of sampled tokens, L0H1"][:3] == (127, 100.0, -27.0)
    assert found["mean Var(e) over mean |Cov(e, p)|"][2] == pytest.approx(-0.5)
    assert found["Spearman of Var(e) with token frequency"][1:3] == (None, None)
    assert found["Var(p) over its median, first: exceptionally large in the paper"][:3] == (None, 4.0, None)
    assert found["Var(p) over its median, last: exceptionally small in the paper"][1] == 0.5
    assert found["tokens counted"][1] == 11
    assert found["distinct bigrams counted"][1] == 7


def test_without_counts_the_numbers_of_the_corpus_are_left_open(tables):
    found = rows(numbers_of_the_paper({name: frame for name, frame in tables.items() if not name.startswith("auroc")}))
    assert not {"head with the largest mean AUROC", "tokens counted"} & set(found)


def test_other_models_have_no_such_section():
    from detoklens.questions.study import study
    from detoklens.report.sections import PAPER

    assert PAPER.entries(study("demo")) == []
