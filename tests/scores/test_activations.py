"""The MLP's activations are torch's."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional

from detoklens.scores.block import ACTIVATIONS

TORCH = {
    "gelu": functional.gelu,
    "gelu_short": partial(functional.gelu, approximate="tanh"),
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_that_of_torch(name: str) -> None:
    inputs = np.linspace(-6, 6, 61)
    expected = TORCH[name](torch.from_numpy(inputs)).numpy()
    np.testing.assert_allclose(
        ACTIVATIONS[name](inputs), expected, rtol=0, atol=1e-8 if name == "gelu_short" else 1e-14
    )
