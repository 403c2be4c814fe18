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

With rotary positions each of four terms is a function of the offset δ = i − j, since only R_δ stands between query and
key; a and b are what all queries and all keys share: the biases, or the means over the vocabulary.

| term | value                | reads as                            |
|------|----------------------|-------------------------------------|
| ee   | Q_e[t_i] R_δ K_e[t_j] | token looks for token               |
| e    | a R_δ K_e[t_j]        | token asserts itself, whoever asks  |
| ep   | Q_e[t_i] R_δ b        | query looks for an offset           |
| p    | a R_δ b              | position kernel                     |

ALiBi has ee and e as above without R, and p is the given −slope · δ (over the attention scale, as it is added after).
`Terms` itself knows no number six: other families bring other sets of terms under their own names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from jaxtyping import Float

from detoklens.errors import RangeError
from detoklens.scores.softmax import masked, softcapped, softmax


class Term(StrEnum):
    """The six terms of learned absolute positions."""

    EE = "ee"
    PP = "pp"
    PE = "pe"
    EP = "ep"
    E = "e"
    P = "p"


MEANINGS: Mapping[str, Mapping[str, str]] = {
    "learned": {
        Term.EE: "token compares itself with token",
        Term.PP: "position compares itself with position",
        Term.PE: "position looks for token",
        Term.EP: "token looks for position",
        Term.E: "token asserts itself, whoever asks",
        Term.P: "position asserts itself, whoever asks",
    },
    "rotary": {
        Term.EE: "token looks for token",
        Term.E: "token asserts itself, whoever asks",
        Term.EP: "query looks for an offset",
        Term.P: "position kernel",
    },
    "alibi": {
        Term.EE: "token looks for token",
        Term.E: "token asserts itself, whoever asks",
        Term.P: "distance lowers the score by a given slope",
    },
}
"""What each term means, by the kind of positions."""


@dataclass(frozen=True)
class Terms:
    """Named parts of a score, each [head, query, key], or [head, key] where it is the same for every query."""

    parts: Mapping[str, np.ndarray]
    attention_scale: float
    is_causal: bool = True
    window: int | None = None
    softcap: float | None = None
    meanings: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The terms that there are."""
        return tuple(str(name) for name in self.parts)

    def __repr__(self) -> str:
        names_by_shape: dict[tuple[int, ...], list[str]] = {}
        for name, part in self.parts.items():
            names_by_shape.setdefault(part.shape, []).append(name)
        said = [f"{', '.join(names)} {_shape_shown(shape)}" for shape, names in names_by_shape.items()]
        return f"Terms: {'; '.join(said)}; attention scale {self.attention_scale:g}"

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
        """α = softmax over the keys that i sees of s / sqrt(d')."""
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
        scaled = scores * scores.dtype.type(self.attention_scale)
        return softmax(masked(softcapped(scaled, self.softcap), self.is_causal, self.window))


def _shape_shown(shape: tuple[int, ...]) -> str:
    """`[head 12, query 5, key 5]`, or `[head 12, key 5]` for what is the same for every query."""
    axes = ("head", "query", "key") if len(shape) == 3 else ("head", "key")
    return "[" + ", ".join(f"{axis} {size}" for axis, size in zip(axes, shape, strict=True)) + "]"
