"""The compiled divergences: the same bits wherever the code comes from, and nothing where there is one key."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from detoklens.kernels.contributions import term_divergences

SEVERAL_LENGTHS = """
import hashlib
import numpy as np
from detoklens.kernels.contributions import term_divergences

random, found = np.random.default_rng(0), hashlib.sha256()
for keys in (2, 3, 7, 8, 17, 31, 100):
    pair_scores = random.normal(size=(4, 1, keys)).astype(np.float32)
    key_scores = random.normal(size=(2, keys)).astype(np.float32)
    divergence, changed = np.empty((1, 6)), np.empty((1, 6), np.bool_)
    seen = np.array([0]), np.array([keys])
    term_divergences(pair_scores, key_scores, np.arange(6), np.empty((0, 6), np.bool_), *seen, 0.0, True, divergence, changed)
    found.update(divergence.tobytes())
print(found.hexdigest())
"""


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
    random = np.random.default_rng(1)
    pair_scores = (50 * random.normal(size=(4, 2, 2))).astype(number)
    key_scores = (50 * random.normal(size=(2, 2))).astype(number)
    divergence, changed = np.full((2, 6), np.nan), np.ones((2, 6), np.bool_)
    seen = np.array([0, 0]), np.array([1, 2])
    term_divergences(
        pair_scores, key_scores, np.arange(6), np.empty((0, 6), np.bool_), *seen, 0.0, True, divergence, changed
    )
    assert not divergence[0].any()
    assert not changed[0].any()
    assert np.isfinite(divergence[1]).all()
    assert divergence[1].any()
