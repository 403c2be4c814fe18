"""Ranks of word pieces against sorting all scores, and what their summary says."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from detoklens.errors import MissingError, RangeError, TokenError
from detoklens.loading import load
from detoklens.measures.words import given_words, split_words
from detoklens.questions.study import Study
from detoklens.questions.words import Words
from detoklens.tables.files import Provenance
from tests.layers import random_layer
from tests.questions.faces import check_faces, check_kept, check_shown, shown_columns
from tests.spelled import counts_of, spelled_layer, write_spelled

WORDS = ["sapiens", "patient", "chloride", "a", "Einstein Korea", "sapient"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return Study(spelled_layer(tmp_path_factory.mktemp("spelled")))


@pytest.fixture(scope="module")
def layer(study):
    return study.layer


def split(layer, words=WORDS):
    return split_words(layer.vocabulary, words)


@pytest.mark.parametrize("centred", [False, True])
def test_ranks_are_places_in_the_sorted_row(study, layer, centred):
    ranks = study.ask(Words(WORDS, centred=centred)).tables["word_ranks"]
    scores = layer.affinity(range(layer.vocab_size)).astype(np.float64)
    if centred:
        scores -= scores.mean(axis=1, keepdims=True)
    for row in ranks.iter_rows(named=True):
        own = scores[row["head"], row["query_token_id"]]
        assert row["rank"] == 1 + (own[layer.meaningful_tokens] > own[row["key_token_id"]]).sum()
        assert row["score"] == pytest.approx(own[row["key_token_id"]], abs=1e-3)
        assert row["key_token"] == layer.token(row["key_token_id"])
        assert row["query_token"] == layer.token(row["query_token_id"])


def test_a_word_of_several_pieces_gives_each_adjacent_pair(study, layer):
    tables = study.ask(Words(WORDS, heads=[2])).tables
    for word in split(layer):
        rows = tables["word_ranks"].filter(word=word.word).sort("pair")
        assert rows["key_token_id"].to_list() == list(word.token_ids[:-1])
        assert rows["query_token_id"].to_list() == list(word.token_ids[1:])
    assert max(len(word.token_ids) for word in split(layer)) > 2
    assert tables["words_by_head"]["pairs"].to_list() == [len(tables["word_ranks"])]


def test_summary_is_that_of_the_ranks(study, layer):
    tables = study.ask(Words(WORDS)).tables
    size = len(layer.meaningful_tokens)
    expected = (
        tables["word_ranks"]
        .group_by("head", maintain_order=True)
        .agg(
            pl.col("rank").median().alias("median_rank"),
            (pl.col("rank") == 1).mean().alias("first"),
            (pl.col("rank") <= 0.01 * size).mean().alias("top_1_percent"),
            (pl.col("rank") <= 0.1 * size).mean().alias("top_10_percent"),
            (pl.col("rank").median() / size).alias("median_share"),
        )
    )
    for name in expected.columns:
        assert tables["words_by_head"][name].to_list() == pytest.approx(expected[name].to_list())


def test_one_word_has_no_other_word_to_be_its_null(study):
    answer = study.ask(Words(["sapiens"]))
    by_head = answer.tables["words_by_head"]
    assert by_head["null_median_share"].null_count() == len(by_head)
    assert by_head["median_share"].null_count() == 0
    assert answer.sentence.startswith("Untestable: one word has no other word as a control. L0H")
    assert " ranks a word's preceding piece highest: its median rank is in the top " in answer.sentence
    assert answer.verdict.value == "untestable"


def test_pieces_of_words_count_single_tokens(study):
    pieces = study.ask(Words(["century", "sapiens"])).tables["word_pieces"]
    assert pieces["pieces"].to_list()[0] == 1
    assert pieces["split"].to_list()[1].replace("|", "") == " sapiens"
    without_space = study.ask(Words(["sapiens"], no_space=True)).tables["word_pieces"]
    assert without_space["split"][0].replace("|", "") == "sapiens"


def test_a_list_of_the_users_with_nothing_that_splits_is_refused(study):
    with pytest.raises(TokenError, match="splits none of the 1 words"):
        study.ask(Words(["century"]))
    with pytest.raises(TokenError, match="none of the 0 words"):
        study.ask(Words([]))


def test_the_shipped_list_may_have_nothing_that_splits(study, monkeypatch, tmp_path):
    monkeypatch.setattr("detoklens.measures.words.shipped_words", lambda: ["century"])
    answer = study.ask(Words())
    assert [len(answer.tables[name]) for name in ("words_by_head", "word_ranks", "word_pieces")] == [0, 0, 1]
    assert answer.sentence == "Untestable: the tokenizer splits none of the words."
    assert Words().summarize_comparison({"one": answer.tables}) == answer.sentence
    assert answer.figures == {}
    check_kept(answer, tmp_path)
    check_shown(answer)


def test_what_is_wrong_is_one_line(study):
    with pytest.raises(RangeError, match="head 7 does not exist"):
        study.ask(Words(heads=[7]))
    with pytest.raises(RangeError, match="position 11 does not exist"):
        study.ask(Words(scale=11))
    with pytest.raises(RangeError, match="word_list is a path or a list, each text or None"):
        Words(5)
    with pytest.raises(MissingError, match="Words needs a tokenizer"):
        Study(random_layer()).ask(Words())


def test_provenance_holds_the_list_by_its_fingerprint_and_no_counts(study, layer, tmp_path):
    (tmp_path / "mine.txt").write_text("sapiens\n# a note\npatient\n", encoding="utf-8")

    def provenance(question, of=study) -> Provenance:
        return of.provenance(question)

    by_file, by_name = provenance(Words(tmp_path / "mine.txt")), provenance(Words(["sapiens", "patient"]))
    assert by_file == by_name == provenance(Words(["sapiens", "patient"]), Study(layer, counts_of(layer), seed=3))
    assert by_file != provenance(Words(["sapiens"]))
    assert by_file.tokenizer_fingerprint == layer.tokenizer_fingerprint
    assert (by_file.counts_fingerprint, "seed" in by_file.options) == (None, False)


def test_the_sentence_names_the_best_head_its_null_and_chance(study):
    by_head = pl.DataFrame(
        {"head": [0, 1], "pairs": [1200, 1200], "median_share": [0.4, 0.0823], "null_median_share": [0.5, 0.2344]}
    ).with_columns(null_ratio_low=0.33, null_ratio_high=0.38)
    assert Words().summarize({"words_by_head": by_head}) == (
        "L0H1 finds a word's preceding piece: its median rank (top 8.2 % of the vocabulary) is 0.35 [0.33, 0.38] times "
        "that of another word's piece; we require at most 0.50."
    )
    assert Words().summarize_comparison(
        {"start": {"words_by_head": by_head[:1]}, "end": {"words_by_head": by_head}}
    ) == (
        "Median rank of a word's preceding piece in the best head, as a share of the vocabulary: "
        "40.0 % in start (L0H0; another word's piece 50.0 %) and "
        "8.2 % in end (L0H1; another word's piece 23.4 %)."
    )


@pytest.mark.parametrize(
    ("shares", "nulls", "pairs", "named"),
    [
        ([0.03, 0.4], [0.03, 0.9], 15_865, "L0H1 finds"),
        ([0.09, 0.4], [0.2, 0.5], 15_865, "L0H0 finds"),
        (
            [0.03, 0.4],
            [0.03, 0.5],
            15_865,
            "No head finds a word's preceding piece: the closest is L0H1, whose median rank (top 40.0 % of the vocabulary)",
        ),
        ([0.143, 0.24], [0.205, 0.323], 1_355, "No head"),  # whisper-tiny.en
        ([0.09, 0.4], [0.2, 0.5], 40, "No head"),
        ([0.02, 0.4], [0.2, 0.5], 40, "L0H0 finds"),
    ],
)
def test_a_head_is_named_only_if_it_is_clearly_better_than_its_null(shares, nulls, pairs, named):
    columns = {"head": [0, 1], "pairs": [pairs] * 2, "median_share": shares, "null_median_share": nulls}
    tables = {"words_by_head": pl.DataFrame(columns)}
    said, found = Words().summarize(tables), Words().verdict(tables)
    assert said.startswith(named)
    assert found.heads == (() if named.startswith("No head") else (named[:4],))
    assert found.value == ("yes" if found.heads else "no")
    assert "chance" not in said


def test_tied_heads_and_other_heads_that_find_the_piece_are_named():
    columns = {"head": [0, 1, 2, 3], "pairs": [2000] * 4, "median_share": [0.05, 0.04, 0.1, 0.2]}
    nulls = {"null_median_share": [0.4, 0.3, 0.4, 0.2], "class_null_median_share": [0.4, 0.3, 0.45, 0.3]}
    behind = {"behind": [0.01, 0.0, 0.06, 0.16], "behind_low": [-0.01, 0.0, 0.03, -0.5]}
    tables = {"words_by_head": pl.DataFrame(columns | nulls | behind)}
    assert Words().verdict(tables).heads == ("L0H0", "L0H1", "L0H2")
    assert Words().summarize(tables) == (
        "L0H1 (tied: L0H0) finds a word's preceding piece: its median rank (top 4.0 % of the vocabulary) is 0.13 times "
        "that of another word's piece of the same class; we require at most 0.50. So does L0H2."
    )
    assert len(Words().summarize(tables).split()) <= 40


def test_the_table_has_ties_by_the_paired_interval(study):
    by_head = study.ask(Words()).tables["words_by_head"]
    (best,) = by_head.filter(behind=0, behind_low=0, behind_high=0)["head"]
    others = by_head.filter(pl.col("head") != best)
    assert (others["behind_low"] <= others["behind_high"]).all()
    assert (
        by_head["null_median_share"] == by_head.select(pl.min_horizontal("^.*_null_median_share$")).to_series()
    ).all()


def test_how_many_words_were_split_is_told(study):
    notes = study.ask(Words(["century", "sapiens"])).notes
    assert "2 words: 1 of one token (skipped), 1 of two, 0 of more; pairs to rank: 1" in notes


@pytest.mark.parametrize("question", [{}, {"centred": True, "heads": [2, 0], "no_space": True}])
def test_python_command_line_folder_and_notebook_say_the_same(tmp_path, question):
    folder = write_spelled(tmp_path / "model")
    check_faces(Study(load(folder)).ask(Words(**question)), tmp_path)


def test_words_of_a_file_are_named_by_the_command_and_others_by_a_file_to_be_made(tmp_path):
    folder = write_spelled(tmp_path / "model")
    (tmp_path / "my words.txt").write_text("sapiens\ncentury\n", encoding="utf-8")
    answer = Study(load(folder)).ask(Words(tmp_path / "my words.txt"))
    check_faces(answer, tmp_path)
    given = Study(load(folder)).ask(Words(["sapiens", "century"]))
    assert given.command.endswith(" WORDS.txt")
    assert given.tables["word_ranks"].equals(answer.tables["word_ranks"])
    check_kept(given, tmp_path / "given")


def test_a_narrow_terminal_shows_the_shares_and_the_ranks(study):
    answer = study.ask(Words())
    by_head, by_word = (answer.question.view(answer.tables, name).frame for name in ("words_by_head", "word_ranks"))
    assert shown_columns(by_head)[:4] == ["head", "median_share", "null_median_share", "first"]
    assert {"word", "head", "rank", "score"} <= set(shown_columns(by_word.head(300)))


def test_list_in_python_is_that_of_a_file(tmp_path):
    (tmp_path / "mine.txt").write_text("sapiens\n", encoding="utf-8")
    assert given_words(Words(str(tmp_path / "mine.txt")).word_list) == ["sapiens"]
