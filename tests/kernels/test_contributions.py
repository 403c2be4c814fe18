"""The compiled divergences: the same bits wherever the code comes from, and nothing where there is one key."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from detoklens.kernels.contributions import term_divergences
from detoklens.kernels.product import key_panels, query_panels

SEVERAL_LENGTHS = """
import hashlib
import numpy as np
from tests.kernels.test_contributions import divergences

random, found = np.random.default_rng(0), hashlib.sha256()
for keys in (2, 3, 7, 8, 17, 31, 100):
    divergence, _ = divergences(random, [keys], np.float32)
    found.update(divergence.tobytes())
print(found.hexdigest())
"""


def divergences(random, ends, number, times=1.0):
    """Those of six random terms for a query that sees so many keys, for each of `ends`."""
    numbers = [times * random.normal(size=(2, len(ends), 3)), random.normal(size=(2, max(ends), 3))]
    queries, keys = (
        np.stack([pack(factor.astype(number)) for factor in factors])
        for pack, factors in zip((query_panels, key_panels), numbers, strict=True)
    )
    key_scores = np.zeros((2, keys.shape[1] * keys.shape[3]), number)
    key_scores[:, : max(ends)] = times * random.normal(size=(2, max(ends)))
    divergence, changed = np.full((len(ends), 6), np.nan), np.ones((len(ends), 6), np.bool_)
    begins, positions, no_groups = np.zeros(len(ends), np.int64), np.arange(len(ends)), np.empty((0, 6), np.bool_)
    given = queries, keys, key_scores, 0.0, positions, np.arange(6), no_groups, begins, np.array(ends)
    term_divergences(*given, 0.0, True, divergence, changed)
    return divergence, changed


def test_code_just_compiled_and_code_from_the_cache_give_the_same_bits(tmp_path):
    here = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    compiled, cached = (
        subprocess.run(
            [sys.executable, "-c", SEVERAL_LENGTHS], env=here, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    )
    assert compiled == cached
    assert list(tmp_path.rglob("*.nbc"))


@pytest.mark.parametrize("number", [np.float32, np.float64])
def test_a_query_that_sees_one_key_loses_nothing(number):
    divergence, changed = divergences(np.random.default_rng(1), [1, 2], number, times=50)
    assert not divergence[0].any()
    assert not changed[0].any()
    assert np.isfinite(divergence[1]).all()
    assert divergence[1].any()


def test_a_term_that_hid_much_larger_scores_is_removed_in_single_precision():
    """Relative to the key that had been on top, the sums would overflow."""
    single, double = (
        divergences(np.random.default_rng(2), [100, 100], number, times=300) for number in (np.float32, np.float64)
    )
    np.testing.assert_allclose(single[0], double[0], rtol=1e-5, atol=1e-3)
    assert double[0].max() > 300
    np.testing.assert_array_equal(single[1], double[1])
