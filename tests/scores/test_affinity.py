"""T^ee over the vocabulary is refused where a token has no σ to divide by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detoklens.errors import CheckpointError
from tests.layers import as_layer, random_first_layer


def test_scores_beyond_their_type_are_refused() -> None:
    first_layer = random_first_layer(dtype="float32")
    huge = replace(first_layer, query_weight=first_layer.query_weight * 1e20, key_weight=first_layer.key_weight * 1e20)
    with pytest.raises(CheckpointError, match="beyond float32"):
        as_layer(huge).token_affinity()


def test_a_token_without_scale_is_refused_and_named() -> None:
    first_layer = random_first_layer(epsilon=0.0)
    embeddings = first_layer.token_embeddings.copy()
    embeddings[5] = 0.25
    layer = as_layer(replace(first_layer, token_embeddings=embeddings))
    for centred in (False, True):
        with pytest.raises(CheckpointError, match="token id 5 is not finite"):
            layer.token_affinity("bare", centred)
    for scale in ("mean", None):
        assert np.isfinite(layer.token_affinity(scale).scores(np.arange(layer.vocab_size))).all()
