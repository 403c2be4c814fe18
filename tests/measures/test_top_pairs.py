"""The largest pairs against a brute-force search over all of them, on any number of threads, interrupted or not."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.kernels import product
from detoklens.measures import ranking as top_pairs
from detoklens.measures.ranking import ALONE, BoundedScores, HeadScores, TopPairs, largest_pairs, search_block
from detoklens.parallel import Runner
from detoklens.scores.affinity import Affinity
from detoklens.tables.files import Parts
from tests.layers import random_layer, sizes


def brute_force(scores, top, identical=True):
    """(query, key) of the largest scores of one head, sorted one by one."""
    size = len(scores)
    pairs = [(query, key) for query in range(size) for key in range(size) if identical or query != key]
    return sorted(pairs, key=lambda pair: (-scores[pair], pair))[:top]


def find_pairs(affinity, top, identical=True, runner=ALONE, tokens=None):
    """The largest pairs of every head, by default over all tokens."""
    ids = np.arange(affinity.vocab_size) if tokens is None else tokens
    return largest_pairs(
        lambda head: (affinity.query[head], affinity.key_of(head)), affinity.n_heads, ids, top, identical, runner
    )


def ids(pairs):
    return list(zip(pairs["query"].tolist(), pairs["key"].tolist(), strict=True))


def assert_equal(one, other):
    for some, others in zip(one, other, strict=True):
        for name in ("query", "key", "score"):
            np.testing.assert_array_equal(some[name], others[name])


def test_top_pairs_of_2000_tokens_equal_a_brute_force_search():
    layer = random_layer(n_heads=3, d_head=8, vocab_size=2000, n_positions=5, dtype="float32", seed=5)
    affinity = layer.token_affinity()
    for head, pairs in enumerate(find_pairs(affinity, 3000)):
        scores = affinity.query[head] @ affinity.key[head].T
        order = np.argsort(-scores, axis=None, kind="stable")[:3000]
        np.testing.assert_allclose(pairs["score"], scores.ravel()[order], rtol=1e-6)
        # Pairs whose scores differ in the last bit only may change places between two ways to multiply.
        assert set(ids(pairs)) ^ set(zip(*np.divmod(order, 2000), strict=True)) == set()


@settings(max_examples=40)
@given(sizes, st.integers(1, 60), st.booleans(), st.booleans())
def test_pairs_ties_and_order_are_those_of_sorting(size, top, identical, centred):
    layer = random_layer(**size)
    for head in range(layer.n_heads):
        for side in (layer.token_factors(head).query, layer.token_factors(head).key):
            side[:] = np.round(side)
    layer._mean_token_scale = np.ones(layer.vocab_size)
    affinity = layer.token_affinity(centred=centred)
    scores = affinity.scores(np.arange(layer.vocab_size))
    for head, pairs in enumerate(find_pairs(affinity, top, identical)):
        expected = brute_force(scores[head], top, identical)
        assert len(pairs["score"]) == len(expected)
        if centred:  # means are no whole numbers, so sums may differ in the last bit
            np.testing.assert_allclose(pairs["score"], [scores[head][pair] for pair in expected], atol=1e-5)
        else:
            assert ids(pairs) == expected


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


@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.floats(0, 3),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([0.0, 5.0, -50.0]),
    st.integers(1, 300),
)
def test_bounds_skip_no_pair_of_any_vectors(seed, dimensions, skew, dtype, common, top):
    """Lengths that differ by orders of magnitude, a common direction, dependent dimensions; bits equal to a whole row."""
    random = np.random.default_rng(seed)
    query, key = random.normal(size=(2, 150, dimensions)) * np.exp(skew * random.normal(size=(2, 150, 1)))
    query[:, 0], key[:, 0] = query[:, 0] + common, key[:, 0] + 1
    query[:, -1], key[::7] = query[:, 0], key[3]
    affinity = Affinity(query[None].astype(dtype), key[None].astype(dtype))
    kept = np.flatnonzero(random.random(150) < 0.8)
    scores = HeadScores.of(affinity.key[0]).rows(affinity.query[0])
    with patch.multiple(top_pairs, BOUNDING=2, TILE_QUERIES=6, TILE_KEYS=32, BLOCK_QUERIES=60):
        (pairs,) = find_pairs(affinity, top, tokens=kept)
        bounded = BoundedScores.of(affinity.query[0], affinity.key[0], kept)
    expected = [(kept[one], kept[other]) for one, other in brute_force(scores[np.ix_(kept, kept)], top)]
    assert ids(pairs) == expected
    np.testing.assert_array_equal(pairs["score"], [scores[pair] for pair in expected])
    bounds = product.multiply(bounded.query.bounding, bounded.key.bounding)[: len(kept), : len(kept)]
    assert (bounds + bounded.slack >= scores[np.ix_(bounded.query.ids, bounded.key.ids)]).all()


def test_most_tiles_are_skipped(monkeypatch):
    random = np.random.default_rng(0)
    falling = 0.7 ** np.arange(32)
    query, key = random.normal(size=(2, 1, 3000, 32)).astype(np.float32) * falling.astype(np.float32)
    rows = []
    counted = product.pairs_reaching

    def counting(queries, keys, *others):
        rows.append(queries[:, 0].size * keys[:, 0].size)
        return counted(queries, keys, *others)

    monkeypatch.setattr(top_pairs.product, "pairs_reaching", counting)
    monkeypatch.setattr(top_pairs, "TILE_KEYS", 256)
    find_pairs(Affinity(query, key), 10)
    assert sum(rows) < 0.5 * 3000**2


def test_blocks_and_tiles_leave_no_pair_out(monkeypatch):
    affinity = random_layer(n_heads=1, vocab_size=97, dtype="float32").token_affinity()
    whole = find_pairs(affinity, 500)
    monkeypatch.setattr(top_pairs, "TILE_QUERIES", 6)
    monkeypatch.setattr(top_pairs, "TILE_KEYS", 32)
    monkeypatch.setattr(top_pairs, "BLOCK_QUERIES", 12)
    assert_equal(find_pairs(affinity, 500), whole)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_same_pairs_for_any_number_of_workers(workers, monkeypatch):
    monkeypatch.setattr(top_pairs, "BLOCK_QUERIES", 126)
    affinity = random_layer(n_heads=2, vocab_size=300, dtype="float32").token_affinity()
    assert_equal(find_pairs(affinity, 200, runner=Runner(workers)), find_pairs(affinity, 200))


def test_an_interrupted_search_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(top_pairs, "BLOCK_QUERIES", 102)
    affinity = random_layer(n_heads=2, vocab_size=300, dtype="float32").token_affinity()
    searched = []

    def interrupted(*block):
        searched.append(block)
        if len(searched) == 4:
            raise KeyboardInterrupt
        return search_block(*block)

    monkeypatch.setattr(top_pairs, "search_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        find_pairs(affinity, 50, runner=Runner(parts=Parts(tmp_path / "parts")))
    continued = find_pairs(affinity, 50, runner=Runner(parts=Parts(tmp_path / "parts")))
    assert len(searched) == 4 + 3
    assert_equal(continued, find_pairs(affinity, 50))


def test_fewer_pairs_than_asked_for_are_all_given():
    affinity = random_layer(n_heads=1, vocab_size=6).token_affinity()
    assert len(find_pairs(affinity, 100)[0]["score"]) == 36
    assert len(find_pairs(affinity, 100, identical=False)[0]["score"]) == 30
