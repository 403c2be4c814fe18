"""Ranks of word pieces against sorting all scores, and what their summary says."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from detoklens.analyses.paper_table import PAPER_TABLE, paper_ranks
from detoklens.analyses.word_list import SplitWord, listed_words, shipped_words, split_words, word_pairs
from detoklens.analyses.words import word_pieces, word_ranks
from detoklens.errors import TokenError
from tests.layers import random_layer
from tests.spelled import spelled_layer

WORDS = ["sapiens", "patient", "chloride", "a", "Einstein Korea", "sapient"]


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    return spelled_layer(tmp_path_factory.mktemp("spelled"))


@pytest.mark.parametrize("centred", [False, True])
def test_ranks_are_places_in_the_sorted_row(layer, centred):
    ranks, _ = word_ranks(layer, split_words(layer.vocabulary, WORDS), centred=centred)
    scores = layer.affinity(range(layer.vocab_size)).astype(np.float64)
    if centred:
        scores -= scores.mean(axis=1, keepdims=True)
    for row in ranks.iter_rows(named=True):
        own = scores[row["head"], row["query_token_id"]]
        assert row["rank"] == 1 + (own > own[row["key_token_id"]]).sum()
        assert row["score"] == pytest.approx(own[row["key_token_id"]], abs=1e-3)


def test_a_word_of_several_pieces_gives_each_adjacent_pair(layer):
    split = split_words(layer.vocabulary, WORDS)
    ranks, by_head = word_ranks(layer, split, heads=[2])
    for word in split:
        rows = ranks.filter(word=word.word).sort("pair")
        assert rows["key_token_id"].to_list() == list(word.token_ids[:-1])
        assert rows["query_token_id"].to_list() == list(word.token_ids[1:])
    assert max(len(word.token_ids) for word in split) > 2
    assert by_head["pairs"].to_list() == [len(ranks)]


def test_summary_is_that_of_the_ranks(layer):
    ranks, by_head = word_ranks(layer, split_words(layer.vocabulary, WORDS))
    size = layer.vocab_size
    expected = ranks.group_by("head", maintain_order=True).agg(
        pl.col("rank").median().alias("median_rank"),
        (pl.col("rank") == 1).mean().alias("first"),
        (pl.col("rank") <= 0.01 * size).mean().alias("top_1_percent"),
        (pl.col("rank") <= 0.1 * size).mean().alias("top_10_percent"),
        (pl.col("rank").median() / size).alias("median_share"),
    )
    for name in expected.columns:
        assert by_head[name].to_list() == pytest.approx(expected[name].to_list())


def test_a_head_built_to_join_pieces_has_rank_one_and_a_null_at_chance():
    """Keys equal to the queries' own vectors of the pairs: T^ee is largest where key and query belong together."""
    layer, words = joining_layer()
    _, by_head = word_ranks(layer, words)
    joined, other = by_head.filter(head=0).row(0, named=True), by_head.filter(head=1).row(0, named=True)
    assert joined["median_rank"] == 1
    assert joined["null_median_share"] > 0.3
    assert other["median_rank"] > 10


def joining_layer():
    layer = random_layer(n_heads=2, d_head=40, vocab_size=200, seed=3)
    # Token 2n + 1 asks for token 2n: head 0's query of the one is the other's key.
    even = np.arange(0, 200, 2)
    layer.factors.query_token[0, even + 1] = layer.factors.key_token[0, even]
    layer.factors.key_token[0] /= np.linalg.norm(layer.factors.key_token[0], axis=1, keepdims=True)
    layer.factors.key_token[0] *= layer.token_scale()[:, None]
    return layer, [SplitWord(f"w{n}", (int(n), int(n) + 1)) for n in even]


def test_one_word_has_no_other_word_to_be_its_null(layer):
    _, by_head = word_ranks(layer, split_words(layer.vocabulary, ["sapiens"]))
    assert by_head["null_median_share"].null_count() == len(by_head)
    assert by_head["median_share"].null_count() == 0


def test_pieces_of_words_count_single_tokens(layer):
    pieces = word_pieces(layer, split_words(layer.vocabulary, ["century", "sapiens"]))
    assert pieces["pieces"].to_list()[0] == 1
    assert pieces["split"].to_list()[1].replace("|", "") == " sapiens"
    without_space = word_pieces(layer, split_words(layer.vocabulary, ["sapiens"], leading_space=False))
    assert without_space["split"][0].replace("|", "") == "sapiens"


def test_a_list_with_nothing_that_splits_is_refused(layer):
    with pytest.raises(TokenError, match="none of the 1 words is split by this tokenizer"):
        word_pairs(split_words(layer.vocabulary, ["century"]))


def test_comments_blank_lines_and_repetitions_are_no_words():
    assert listed_words("# names\n\n Tokyo \r\nOslo\nTokyo\n#Rome\n") == ["Tokyo", "Oslo"]


def test_the_shipped_list_has_several_hundred_entries_of_every_kind():
    words = shipped_words()
    assert 900 < len(words) == len(set(words))
    assert {"sapiens", "Albert Einstein", "sodium chloride", "North Korea", "Tokyo", "handkerchief"} <= set(words)


def test_the_papers_table_has_34_rows_and_its_misprint_is_mended():
    assert len(PAPER_TABLE) == 34
    assert PAPER_TABLE[-1] == (7, " century", " twentieth", 6)


def test_paper_ranks_on_a_model_with_gpt2s_vocabulary(whisper_folder):
    import detoklens

    layer = detoklens.load(whisper_folder)
    found = paper_ranks(layer)
    absent = found["head"] >= layer.n_heads
    assert (found["rank"].is_null() == absent).all()
    row = found.row(0, named=True)
    scores = layer.affinity([layer.token_id("yo")])[3, 0]
    assert row["rank"] == 1 + (scores > scores[layer.token_id("Tok")]).sum()
    assert row["difference"] == row["rank"] - 1


def test_paper_ranks_need_some_of_its_tokens():
    with pytest.raises(TokenError, match="none of the heads and tokens of the paper's Table 1"):
        paper_ranks(random_layer())
