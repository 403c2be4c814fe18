"""p-values of draws, and Holm's correction against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.measures.chance import ALPHA, draws_for, holm, medians, tail_probability


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=20))
def test_holm_rejects_as_his_procedure_does(p_values: list[float]) -> None:
    """The smallest p against ALPHA / n, the next against ALPHA / (n - 1), and so on until one is larger."""
    adjusted, rejected = holm(np.array(p_values)), set()
    for step, head in enumerate(sorted(range(len(p_values)), key=lambda head: p_values[head])):
        if p_values[head] * (len(p_values) - step) > ALPHA:
            break
        rejected.add(head)
    assert set(np.flatnonzero(adjusted <= ALPHA)) == rejected
    assert (adjusted >= p_values).all()


def test_heads_that_were_not_tested_do_not_count() -> None:
    np.testing.assert_allclose(holm(np.array([0.01, np.nan, 0.02])), [0.02, np.nan, 0.02])


def test_p_is_never_zero_and_counts_ties() -> None:
    null = np.arange(9.0)
    assert tail_probability(100, null) == pytest.approx(0.1)
    assert tail_probability(8, null) == pytest.approx(0.2)
    assert tail_probability(-1, null) == 1


@pytest.mark.parametrize("n_heads", [1, 12, 32, 128])
def test_draws_suffice_to_reject_one_of_many_heads(n_heads: int) -> None:
    assert n_heads / (1 + draws_for(n_heads)) <= ALPHA / 2


def test_the_median_of_no_values_is_undefined() -> None:
    assert np.isnan(medians(np.empty(0, np.int64), np.empty((3, 0)))).all()
