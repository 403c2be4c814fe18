"""Keys exchanged within strata: none leaves its stratum, none is taken twice, every choice is equally likely."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.kernels.ranking import draw_stand_ins


def drawn(columns: np.ndarray, sizes: np.ndarray, seed: int, token: int) -> np.ndarray:
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    strata = np.repeat(np.arange(len(sizes)), sizes)
    members, taken = np.arange(bounds[-1]), np.zeros(len(bounds), np.int64)
    stand_ins, room = np.empty(len(columns), np.int64), np.empty(len(columns), np.int64)
    draw_stand_ins(columns, len(columns), strata, bounds, seed, token, members, taken, room, stand_ins)
    np.testing.assert_array_equal(members, np.arange(bounds[-1]))
    assert not taken.any()
    return stand_ins


@settings(max_examples=50)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_keys_move_within_their_stratum_and_none_is_taken_twice(sizes: list[int], seed: int, token: int) -> None:
    random = np.random.default_rng(seed)
    total = sum(sizes)
    columns = random.permutation(total)[: random.integers(total + 1)]
    stand_ins = drawn(columns, np.array(sizes), seed, token)
    strata = np.repeat(np.arange(len(sizes)), sizes)
    np.testing.assert_array_equal(strata[stand_ins], strata[columns])
    assert len(set(stand_ins.tolist())) == len(columns)
    np.testing.assert_array_equal(stand_ins, drawn(columns, np.array(sizes), seed, token))


def test_every_choice_is_equally_likely_and_tokens_differ() -> None:
    """Two of five: twenty ordered pairs, each 500 times in 10,000 within five standard deviations."""
    pairs = [tuple(drawn(np.array([4, 7]), np.array([3, 5]), 11, token)) for token in range(10_000)]
    _, times = np.unique(pairs, axis=0, return_counts=True)
    assert len(times) == 20
    assert abs(times - 500).max() < 5 * np.sqrt(500)
