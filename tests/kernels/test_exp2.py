"""The compiled 2^x is as exact as its type."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.kernels.contributions import LOWEST, exp2


@numba.njit
def apply(exponents):
    powers = np.empty_like(exponents)
    for place in range(len(exponents)):
        powers[place] = exp2(exponents[place])
    return powers


def test_single_precision_is_exact_to_two_in_ten_million():
    exponents = np.linspace(-125.9, 0, 2_000_001).astype(np.float32)
    error = apply(exponents) / np.exp2(exponents.astype(np.float64)) - 1
    assert np.abs(error).max() < 2e-7


def test_whole_numbers_are_exact_powers():
    exponents = np.arange(-126, 1)
    np.testing.assert_array_equal(apply(exponents.astype(np.float32)), np.exp2(exponents))


@given(st.floats(-(2.0**100), float(LOWEST), width=32))
def test_what_is_too_small_for_the_type_is_next_to_nothing(exponent):
    assert 0 <= apply(np.array([exponent], np.float32))[0] <= 2.0**-126


@given(st.floats(-1000, 0))
def test_double_precision_is_the_power(exponent):
    assert apply(np.array([exponent]))[0] == pytest.approx(np.exp2(exponent), rel=1e-12, abs=1e-300)
