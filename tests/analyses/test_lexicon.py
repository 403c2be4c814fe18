"""The lexicon against a brute-force search over all pairs, on any engine, interrupted or not."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.analyses import top_pairs
from detoklens.analyses.block_runs import Runner
from detoklens.analyses.lexicon import lexicon, lexicon_by_head
from detoklens.analyses.top_pairs import PairBlock, TopPairs, search_block
from detoklens.analyses.word_check import in_list, known_to_wordfreq
from detoklens.engines import open_engine
from detoklens.errors import DetokLensError, RangeError
from detoklens.tables.parts import Parts
from tests.layers import random_layer, sizes
from tests.spelled import counts_of, spelled_layer

PAIR = ["query_token_id", "key_token_id"]


@pytest.fixture(scope="module")
def spelled(tmp_path_factory):
    return spelled_layer(tmp_path_factory.mktemp("spelled"))


def brute_force(scores, top, identical=True):
    """(query, key) of the largest scores of one head, sorted one by one."""
    size = len(scores)
    pairs = [(query, key) for query in range(size) for key in range(size) if identical or query != key]
    return sorted(pairs, key=lambda pair: (-scores[pair], pair))[:top]


def test_top_pairs_of_2000_tokens_equal_a_brute_force_search():
    layer = random_layer(n_heads=3, d_head=8, vocab_size=2000, n_positions=5, dtype="float32", seed=5)
    found = lexicon(layer, top=3000)
    affinity = layer.token_affinity()
    for head in range(3):
        scores = affinity.query[head] @ affinity.key[head].T
        order = np.argsort(-scores, axis=None, kind="stable")[:3000]
        rows = found.filter(head=head)
        assert rows["rank"].to_list() == list(range(1, 3001))
        np.testing.assert_allclose(rows["score"], scores.ravel()[order], rtol=1e-6)
        # Pairs whose scores differ in the last bit only may change places between two ways to multiply.
        assert set(rows.select(PAIR).rows()) ^ set(zip(*np.divmod(order, 2000), strict=True)) == set()


@settings(max_examples=40)
@given(sizes, st.integers(1, 60), st.booleans(), st.booleans())
def test_pairs_ties_and_order_are_those_of_sorting(size, top, identical, centred):
    layer = random_layer(**size)
    layer.factors.query_token[:] = np.round(layer.factors.query_token)
    layer.factors.key_token[:] = np.round(layer.factors.key_token)
    layer._mean_token_scale = np.ones(layer.vocab_size)
    affinity = layer.token_affinity(centred=centred)
    scores = affinity.scores(np.arange(layer.vocab_size))
    found = lexicon(layer, top=top, identical=identical, centred=centred)
    for head in range(layer.n_heads):
        rows = found.filter(head=head)
        expected = brute_force(scores[head], top, identical)
        assert len(rows) == len(expected)
        if centred:  # means are no whole numbers, so sums may differ in the last bit
            np.testing.assert_allclose(rows["score"], [scores[head][pair] for pair in expected], atol=1e-5)
        else:
            assert rows.select(PAIR).rows() == expected


@given(st.data())
def test_the_floor_of_earlier_blocks_loses_nothing(data):
    scores = data.draw(st.lists(st.integers(-3, 3), min_size=1, max_size=40))
    top = data.draw(st.integers(1, 10))
    best = TopPairs(top)
    for number, score in enumerate(scores):
        if score >= best.floor:
            best.offer({"score": np.float32([score]), "query": np.array([number]), "key": np.array([0])})
    expected = sorted(range(len(scores)), key=lambda number: (-scores[number], number))[:top]
    assert best.best()["query"].tolist() == expected


def test_blocks_and_tiles_leave_no_pair_out(monkeypatch):
    layer = random_layer(n_heads=1, vocab_size=97, dtype="float32")
    whole = lexicon(layer, top=500)
    monkeypatch.setattr(top_pairs, "QUERY_PANELS", 1)
    monkeypatch.setattr(top_pairs, "KEY_PANELS", 2)
    monkeypatch.setattr("detoklens.analyses.lexicon.BLOCK_QUERIES", 10)
    assert lexicon(layer, top=500).equals(whole)


@pytest.mark.parametrize(("engine", "workers"), [("local", 1), ("local", 2), ("ray", 2)])
def test_the_same_table_whatever_the_engine(engine, workers, monkeypatch):
    if engine == "ray":
        pytest.importorskip("ray", reason="Ray is not installed: the lexicon on the ray engine is NOT TESTED")
    monkeypatch.setattr("detoklens.analyses.lexicon.BLOCK_QUERIES", 128)
    layer = random_layer(n_heads=2, vocab_size=300, dtype="float32")
    with open_engine(engine, workers) as running:
        assert lexicon(layer, top=200, runner=Runner(running)).equals(lexicon(layer, top=200))


def test_an_interrupted_search_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("detoklens.analyses.lexicon.BLOCK_QUERIES", 100)
    layer = random_layer(n_heads=2, vocab_size=300, dtype="float32")
    searched = []

    def interrupted(block: PairBlock):
        searched.append(block.first_query)
        if len(searched) == 4:
            raise KeyboardInterrupt
        return search_block(block)

    monkeypatch.setattr("detoklens.analyses.lexicon.search_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lexicon(layer, top=50, runner=Runner(parts=Parts(tmp_path / "parts")))
    continued = lexicon(layer, top=50, runner=Runner(parts=Parts(tmp_path / "parts")))
    assert len(searched) == 4 + 3
    assert continued.equals(lexicon(layer, top=50))


def test_text_words_and_counts(spelled):
    counts = counts_of(spelled)
    found = lexicon(spelled, top=400, heads=[1], is_word=in_list(["The", "in"]), counts=counts, identical=False)
    vocabulary = spelled.vocabulary
    for row in found.sample(50, seed=1).iter_rows(named=True):
        assert row["joined"] == vocabulary.join([row["key_token_id"], row["query_token_id"]])
        assert row["is_word"] == (row["joined"].strip().lower() in ("the", "in"))
        before = counts.predecessors(row["query_token_id"])
        assert row["count"] == before.counts[before.prefixes == row["key_token_id"]].sum()
        assert row["key_token_id"] != row["query_token_id"]
    summary = lexicon_by_head(found).row(0, named=True)
    assert summary["seen_share"] == pytest.approx((found["count"] > 0).mean())
    assert summary["word_share"] == pytest.approx(found["is_word"].mean())
    assert (summary["identical_share"], summary["pairs"]) == (0, 400)


def test_without_list_counts_and_tokenizer_the_columns_are_null_or_absent():
    found = lexicon(random_layer(), top=5)
    assert "count" not in found.columns
    assert found["is_word"].null_count() == found["joined"].null_count() == len(found) == 15
    summary = lexicon_by_head(found)
    assert summary["word_share"].null_count() == summary["seen_share"].null_count() == 3


def test_wordfreq_knows_words_and_only_words():
    pytest.importorskip("wordfreq", reason="wordfreq is not installed: its word check is NOT TESTED")
    check = known_to_wordfreq()
    assert [text for text in [" sapiens", "Tokyo", " don't"] if not check(text)] == []
    assert [text for text in ["iensiens", ",iens", " North Korea", "1999", " "] if check(text)] == []


@pytest.mark.parametrize("language", ["xx", "?"])
def test_a_language_without_words_is_refused(language):
    pytest.importorskip("wordfreq", reason="wordfreq is not installed: its word check is NOT TESTED")
    with pytest.raises(DetokLensError, match="no words of the language"):
        known_to_wordfreq(language)


def test_without_wordfreq_nothing_is_known(monkeypatch):
    monkeypatch.setattr("detoklens.analyses.word_check.find_spec", lambda name: None)
    assert known_to_wordfreq() is None


def test_fewer_pairs_than_asked_for_are_all_given():
    assert len(lexicon(random_layer(n_heads=1, vocab_size=6), top=100)) == 36
    assert len(lexicon(random_layer(n_heads=1, vocab_size=6), top=100, identical=False)) == 30


def test_no_pairs_too_many_and_heads_that_do_not_exist_are_refused():
    with pytest.raises(RangeError, match="the top 0 pairs were asked for"):
        lexicon(random_layer(), top=0)
    with pytest.raises(RangeError, match=r"the top 30,000,000 pairs, heads: 1, are more than .* lower --top"):
        lexicon(random_layer(vocab_size=6000), top=30_000_000, heads=[0])
    with pytest.raises(RangeError, match="head 5 does not exist"):
        lexicon(random_layer(), heads=[5])


def test_scores_are_those_of_partners():
    from detoklens.analyses.partners import partners

    layer = random_layer(dtype="float32")
    best = lexicon(layer, top=1)
    for row in best.iter_rows(named=True):
        found = partners(layer, [row["query_token_id"]], top=1, heads=[row["head"]])
        assert found["key_token_id"][0] == row["key_token_id"]
        assert found["score"][0] == pytest.approx(row["score"], rel=1e-6)
    assert best["score"].dtype == pl.Float32
