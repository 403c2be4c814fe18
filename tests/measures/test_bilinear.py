"""W_QK's numbers against the d × d matrix itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from detoklens.measures.bilinear import bilinear_form
from tests.layers import random_layer, sizes


@settings(max_examples=60)
@given(sizes)
def test_the_form_is_that_of_the_whole_matrix(size):
    layer = random_layer(**size)
    weights = layer.weights
    d_model = layer.d_model
    norm = (np.eye(d_model) - 1 / d_model) @ np.diag(weights.norm_gain)
    for head in range(layer.n_heads):
        whole = norm @ weights.query_weight[:, head] @ weights.key_weight[:, head].T @ norm.T
        symmetric, antisymmetric = (whole + whole.T) / 2, (whole - whole.T) / 2
        values = np.linalg.svd(whole, compute_uv=False)
        values[values < 1e-12 * values[0]] = 0
        shares = values[values > 0] / values.sum()
        found = bilinear_form(layer, head)
        assert found.symmetric_share == pytest.approx(np.sum(symmetric**2) / np.sum(whole**2), abs=1e-9)
        assert found.antisymmetric_share == pytest.approx(np.sum(antisymmetric**2) / np.sum(whole**2), abs=1e-9)
        assert found.effective_rank == pytest.approx(np.exp(-np.sum(shares * np.log(shares))), rel=1e-6)
        assert found.participation_ratio == pytest.approx(np.sum(values**2) ** 2 / np.sum(values**4))
        assert found.spectral_norm == pytest.approx(values[0])


def test_a_symmetric_head_is_all_symmetric_and_a_dead_one_is_undefined():
    layer = random_layer()
    layer.folded.key_weight[0] = layer.folded.query_weight[0]
    layer.folded.key_weight[1] = 0
    assert bilinear_form(layer, 0).symmetric_share == pytest.approx(1)
    assert np.isnan(bilinear_form(layer, 1).symmetric_share)
    assert bilinear_form(layer, 1).spectral_norm == 0
