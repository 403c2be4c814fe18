"""The last position of texts, computed without the others, attends as it does in the whole text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detoklens.scores.block import last_place
from tests.layers import as_layer, random_first_layer


@pytest.mark.parametrize("window", [None, 1, 3, 20])
def test_the_last_position_attends_as_in_the_text(window: int | None) -> None:
    layer = as_layer(replace(random_first_layer(), window=window))
    texts = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
    attention = last_place(layer, texts, layer.common_part(None)).attention()
    for place, text in enumerate(texts):
        np.testing.assert_allclose(attention[:, place], layer.terms(text).attention()[:, -1], atol=1e-12)
