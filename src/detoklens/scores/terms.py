"""The score of layer 0 as a sum of named terms.

For learned absolute positions three query factors meet two key factors, which makes six terms. With σ_i = σ(e_i + p_i):

| term | value                          | reads as                                       |
|------|--------------------------------|------------------------------------------------|
| ee   | Q_e[t_i] · K_e[t_j] / (σ_i σ_j) | token compares itself with token               |
| pp   | Q_p[i] · K_p[j] / (σ_i σ_j)     | position compares itself with position         |
| pe   | Q_p[i] · K_e[t_j] / (σ_i σ_j)   | position looks for token                       |
| ep   | Q_e[t_i] · K_p[j] / (σ_i σ_j)   | token looks for position                       |
| e    | q_b · K_e[t_j] / σ_j            | token asserts itself, whoever asks             |
| p    | q_b · K_p[j] / σ_j              | position asserts itself, whoever asks          |

`Terms` itself knows no number six: other families bring other sets of terms under their own names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float

from detoklens.errors import RangeError
from detoklens.scores.softmax import causal, softmax


class Term(StrEnum):
    """The six terms of learned absolute positions."""

    EE = "ee"
    PP = "pp"
    PE = "pe"
    EP = "ep"
    E = "e"
    P = "p"


@dataclass(frozen=True)
class Terms:
    """Named parts of a score, each [head, query, key], or [head, key] where it is the same for every query."""

    parts: Mapping[str, np.ndarray]
    attention_scale: float

    def __getitem__(self, term: str) -> np.ndarray:
        if term not in self.parts:
            raise RangeError(f"no term {str(term)!r}; the terms are {', '.join(self.parts)}")
        return self.parts[term]

    def __getattr__(self, term: str) -> np.ndarray:
        parts = self.__dict__.get("parts", {})
        if term in parts:
            part: np.ndarray = parts[term]
            return part
        raise AttributeError(f"Terms has no part {term!r}; the parts are {', '.join(parts)}")

    def full(self, term: str) -> Float[np.ndarray, "head query key"]:
        """One term as [head, query, key], also where it is the same for every query."""
        part = self[term]
        if part.ndim == 3:
            return part
        n_heads, n_keys = part.shape
        return np.broadcast_to(part[:, None, :], (n_heads, n_keys, n_keys))

    def total(self) -> Float[np.ndarray, "head query key"]:
        """The score s: all terms added, not yet divided by sqrt(d')."""
        return self._sum(list(self.parts))

    def without(self, term: str) -> Float[np.ndarray, "head query key"]:
        """The score with one term left out."""
        self[term]
        return self._sum([name for name in self.parts if name != term])

    def attention(self) -> Float[np.ndarray, "head query key"]:
        """α = softmax over keys j ≤ i of s / sqrt(d')."""
        return self._softmax(self.total())

    def attention_without(self, term: str) -> Float[np.ndarray, "head query key"]:
        """What the attention would be without one term."""
        return self._softmax(self.without(term))

    def _sum(self, names: list[str]) -> Float[np.ndarray, "head query key"]:
        some = next(iter(self.parts.values()))
        total = np.zeros((some.shape[0], some.shape[-1], some.shape[-1]), some.dtype)
        for name in names:
            total += self.full(name)
        return total

    def _softmax(self, scores: Float[np.ndarray, "head query key"]) -> Float[np.ndarray, "head query key"]:
        return softmax(causal(scores * scores.dtype.type(self.attention_scale)))
