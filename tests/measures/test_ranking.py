"""Ranks and the top of a list against sorting everything, ties included."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from detoklens.kernels.ranking import rank_rows
from detoklens.measures.ranking import top_keys

# Few distinct values, so that ties are everywhere.
tied_scores = hnp.arrays(np.float32, st.integers(1, 30), elements=st.sampled_from([-1.5, 0.0, 0.25, 7.0]))


@given(tied_scores, st.integers(1, 40))
def test_top_keys_are_the_start_of_the_sorted_list(scores, top):
    expected = sorted(range(len(scores)), key=lambda key: (-scores[key], key))[:top]
    assert top_keys(scores[None], top)[0].tolist() == expected


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(1, 25), st.booleans())
def test_the_top_of_many_rows_is_the_top_of_each(seed, keys, top, tied):
    random = np.random.default_rng(seed)
    scores = random.integers(0, 4, (5, keys)).astype(np.float32) if tied else random.normal(size=(5, keys))
    expected = [sorted(range(keys), key=lambda key: (-row[key], key))[:top] for row in scores]
    np.testing.assert_array_equal(top_keys(scores, top), expected)


@given(tied_scores, st.data())
def test_rank_is_the_place_in_the_sorted_list(scores, data):
    keys = data.draw(st.lists(st.integers(0, len(scores) - 1), min_size=1, max_size=4))
    order = sorted(range(len(scores)), key=lambda key: (-scores[key], key))
    ranks = np.empty(len(keys), np.int64)
    rank_rows(np.tile(scores, (len(keys), 1)), np.array(keys), ranks)
    assert ranks.tolist() == [order.index(key) + 1 for key in keys]
