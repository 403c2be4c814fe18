"""How near does a row of attention look? Its mass on the last tokens, its entropy, and a class by rule.

With the keys 0 to i of a query at i, the first rule that holds decides:

| class          | rule                                                                                        |
|----------------|---------------------------------------------------------------------------------------------|
| self           | at least half of the mass on the query itself                                               |
| previous token | at least half on the token before it                                                        |
| first          | at least half on position 0                                                                 |
| local          | at least half on the last 15 tokens, or on the last quarter of the keys where that is fewer |
| broad          | none of these                                                                               |
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

NEAR = (1, 5, 15)
MOST = 0.5


def mass_on_last(attention: Float[np.ndarray, "head key"], count: int) -> Float[np.ndarray, "head"]:
    """Attention on the last `count` keys, of which the query itself is the last."""
    return attention[:, -count:].sum(axis=1)


def mass_on_previous(attention: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "head"]:
    """Attention on the token before the query; NaN where there is none."""
    return attention[:, -2] if attention.shape[1] > 1 else np.full(len(attention), np.nan)


def entropy(attention: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "head"]:
    """−Σ α log2 α, in bits; a key without attention adds nothing."""
    bits = -np.log2(attention, out=np.zeros_like(attention), where=attention > 0)
    return np.einsum("hj,hj->h", attention, bits)


def classes(attention: Float[np.ndarray, "head key"]) -> list[str]:
    """The class of each head, by the rules above."""
    n_keys = attention.shape[1]
    nearby = min(NEAR[-1], max(1, n_keys // 4))
    rules = {
        "self": mass_on_last(attention, 1),
        "previous token": mass_on_previous(attention),
        "first": attention[:, 0],
        "local": mass_on_last(attention, nearby),
    }
    return [
        next((name for name, mass in rules.items() if mass[head] >= MOST), "broad") for head in range(len(attention))
    ]
