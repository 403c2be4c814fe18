"""The product by panels: equal to numpy's, each score with the same bits in every place, nothing written outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.kernels.product import QUERIES, key_panels, keys_of_panel, multiply, query_panels

WIDTH = keys_of_panel(np.dtype(np.float32))
DTYPES = st.sampled_from([np.float32, np.float64])


def factors(n_queries: int, n_keys: int, dimensions: int, dtype: type, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return tuple(random.standard_normal((n, dimensions)).astype(dtype) for n in (n_queries, n_keys))


def scores_of(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    return multiply(query_panels(query), key_panels(key))[: len(query), : len(key)]


@settings(max_examples=60)
@given(st.integers(1, 40), st.integers(1, 90), st.integers(1, 300), DTYPES, st.integers(0, 2**32 - 1))
def test_equals_the_product_within_rounding(n_queries, n_keys, dimensions, dtype, seed) -> None:
    query, key = factors(n_queries, n_keys, dimensions, dtype, seed)
    found = scores_of(query, key)
    assert found.dtype == dtype
    exact = query.astype(np.longdouble) @ key.astype(np.longdouble).T
    bound = dimensions * np.finfo(dtype).eps * (np.abs(query) @ np.abs(key).T)
    assert (np.abs(found - exact) <= bound).all()


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 90), st.integers(1, 80), DTYPES, st.integers(0, 2**32 - 1))
def test_whole_numbers_are_exact(n_queries, n_keys, dimensions, dtype, seed) -> None:
    query, key = (np.round(3 * side) for side in factors(n_queries, n_keys, dimensions, dtype, seed))
    np.testing.assert_array_equal(scores_of(query, key), query @ key.T)


@settings(max_examples=40)
@given(st.data(), DTYPES, st.integers(0, 2**32 - 1))
def test_a_score_has_the_same_bits_in_every_place(data, dtype, seed) -> None:
    query, key = factors(31, 4000, 70, dtype, seed)
    whole = scores_of(query, key)
    rows = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=20))
    columns = data.draw(st.lists(st.integers(0, 3999), min_size=1, max_size=40))
    np.testing.assert_array_equal(scores_of(query[rows], key[columns]), whole[np.ix_(rows, columns)])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row_and_column(value: float) -> None:
    query, key = factors(9, 40, 5, np.float32, 1)
    clean = scores_of(query, key)
    query[7, 2], key[33, 1] = value, value
    found = scores_of(query, key)
    touched = np.zeros((9, 40), bool)
    touched[7], touched[:, 33] = True, True
    assert not np.isfinite(found[touched]).any()
    np.testing.assert_array_equal(found[~touched], clean[~touched])


def test_nothing_times_nothing_is_nothing() -> None:
    assert scores_of(np.empty((0, 4), np.float32), np.ones((5, 4), np.float32)).shape == (0, 5)
    assert scores_of(np.ones((5, 4), np.float32), np.empty((0, 4), np.float32)).shape == (5, 0)
    np.testing.assert_array_equal(
        scores_of(np.empty((3, 0), np.float32), np.empty((5, 0), np.float32)), np.zeros((3, 5))
    )


@settings(max_examples=40)
@given(st.integers(0, 200), st.integers(1, 9), DTYPES, st.booleans(), st.integers(1, 2000))
def test_panels_are_packed_some_at_a_time(n_keys, dimensions, dtype, overwrite, at_once) -> None:
    width = keys_of_panel(np.dtype(dtype))
    n_keys -= n_keys % width if overwrite else 0
    key = factors(1, n_keys, dimensions, dtype, 5)[1]
    padded = np.concatenate([key, np.zeros((-n_keys % width, dimensions), dtype)])
    expected = padded.reshape(-(-n_keys // width), width, dimensions).transpose(0, 2, 1)
    with patch("detoklens.kernels.product.PACKED_AT_ONCE", at_once):
        found = key_panels(key, overwrite)
    np.testing.assert_array_equal(found, expected)
    assert found.flags.c_contiguous
    assert np.shares_memory(found, key) == (overwrite and n_keys > 0)


def test_only_whole_panels_are_packed_in_place() -> None:
    for key in (np.ones((WIDTH + 1, 3), np.float32), np.ones((WIDTH, 6), np.float32)[:, ::2]):
        with pytest.raises(ValueError, match="don't fill panels"):
            key_panels(key, overwrite=True)


OTHER_PROCESSOR = """
import numpy as np
from tests.kernels.test_product import factors, scores_of
query, key = factors(13, 50, 64, np.float32, 3)
exact = query.astype(float) @ key.astype(float).T
assert np.abs(scores_of(query, key) - exact).max() < 1e-4
order = np.random.default_rng(0).permutation(50)
np.testing.assert_array_equal(scores_of(query, key[order]), scores_of(query, key)[:, order])
"""


def test_a_processor_without_fused_multiply_adds_can_do_it(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", OTHER_PROCESSOR], cwd=root, env=os.environ | generic, check=True)


def test_only_the_first_part_of_the_buffer_is_written() -> None:
    query, key = factors(7, WIDTH + 4, 3, np.float32, 2)
    buffer = np.full(1000, 9.5, np.float32)
    scores = multiply(query_panels(query), key_panels(key), buffer)
    assert scores.shape == (2 * QUERIES, 2 * WIDTH)
    assert np.shares_memory(scores, buffer)
    np.testing.assert_array_equal(buffer[scores.size :], 9.5)
    np.testing.assert_array_equal(scores[7:], 0)
    np.testing.assert_array_equal(scores[:, WIDTH + 4 :], 0)


@pytest.mark.parametrize(
    ("queries", "keys", "buffer"),
    [
        (np.zeros((1, 3, 6), "f4"), np.zeros((1, 3, WIDTH), "f4"), np.zeros(6 * WIDTH - 1, "f4")),
        (np.zeros((1, 3, 6), "f4"), np.zeros((1, 3, WIDTH), "f4"), np.zeros(6 * WIDTH, "f8")),
        (np.zeros((1, 3, 6), "f4"), np.zeros((1, 3, WIDTH), "f4"), np.zeros(12 * WIDTH + 8, "f4")[::2]),
        (np.zeros((1, 3, 6), "f4"), np.zeros((1, 3, WIDTH), "f4"), np.zeros((6 * WIDTH, 1), "f4")),
        (np.zeros((1, 3, 6), "f4"), np.zeros((1, 4, WIDTH), "f4"), None),
        (np.zeros((1, 3, 5), "f4"), np.zeros((1, 3, WIDTH), "f4"), None),
        (np.zeros((1, 3, 6), "f4"), np.zeros((1, 3, WIDTH // 2), "f4"), None),
        (np.zeros((1, 3, 6), "f8"), np.zeros((1, 3, WIDTH), "f4"), None),
        (np.zeros((1, 6, 3), "f4").transpose(0, 2, 1), np.zeros((1, 3, WIDTH), "f4"), None),
        (np.zeros((1, 3, 6), "f4"), np.zeros((1, WIDTH, 3), "f4").transpose(0, 2, 1), None),
        (np.zeros((1, 3, 6), "f4"), np.zeros((1, 3, WIDTH), "f4"), np.frombuffer(bytes(4 * 6 * WIDTH), "f4")),
        (np.zeros((1, 3, 6), "i4"), np.zeros((1, 3, WIDTH), "i4"), None),
        (np.zeros((1, 3, 6), ">f4"), np.zeros((1, 3, WIDTH), ">f4"), None),
    ],
)
def test_what_does_not_fit_is_refused(queries, keys, buffer) -> None:
    with pytest.raises(ValueError, match=r"multiply|contiguous|reshape|written|read-only"):
        multiply(queries, keys, buffer)
