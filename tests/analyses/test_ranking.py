"""Ranks and the top of a list against sorting everything, ties included."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from detoklens.analyses.ranking import rank_of, top_keys

# Few distinct values, so that ties are everywhere.
tied_scores = hnp.arrays(np.float32, st.integers(1, 30), elements=st.sampled_from([-1.5, 0.0, 0.25, 7.0]))


@given(tied_scores, st.integers(1, 40))
def test_top_keys_are_the_start_of_the_sorted_list(scores, top):
    expected = sorted(range(len(scores)), key=lambda key: (-scores[key], key))[:top]
    assert top_keys(scores, top).tolist() == expected


@given(tied_scores, st.data())
def test_rank_is_the_place_in_the_sorted_list(scores, data):
    keys = data.draw(st.lists(st.integers(0, len(scores) - 1), min_size=1, max_size=4))
    order = sorted(range(len(scores)), key=lambda key: (-scores[key], key))
    rows = np.tile(scores, (len(keys), 1))
    assert rank_of(rows, np.array(keys)).tolist() == [order.index(key) + 1 for key in keys]
