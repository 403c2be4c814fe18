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
from jaxtyping import Float, Int

from detoklens.errors import RangeError
from detoklens.scores.factors import Common, for_each_head, key_side, project, query_side, rotated, rotated_by_offset
from detoklens.scores.softmax import masked, softcapped, softmax
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.folding import FoldedLayer


def six_terms(
    layer: FirstLayer,
    folded: FoldedLayer,
    token_ids: Int[np.ndarray, "query"],
    scales: Float[np.ndarray, "query"],
) -> Terms:
    """All six terms for a text whose first token stands at position 0; `scales` is σ of each of its places."""
    tokens = layer.token_embeddings[token_ids] / scales[:, None]
    positions = layer.position_embeddings[: len(token_ids)] / scales[:, None]
    query_token, query_position = (
        project(tokens, folded.query_weight),
        project(positions, folded.query_weight),
    )
    key_token, key_position = project(tokens, folded.key_weight), project(positions, folded.key_weight)
    parts: dict[str, np.ndarray] = {
        Term.EE: query_token @ key_token.transpose(0, 2, 1),
        Term.PP: query_position @ key_position.transpose(0, 2, 1),
        Term.PE: query_position @ key_token.transpose(0, 2, 1),
        Term.EP: query_token @ key_position.transpose(0, 2, 1),
        Term.E: np.einsum("hk,hjk->hj", folded.query_bias, key_token),
        Term.P: np.einsum("hk,hjk->hj", folded.query_bias, key_position),
    }
    return Terms(parts, layer.attention_scale, layer.is_causal, layer.window, layer.softcap, MEANINGS["learned"])


def head_outputs(
    layer: FirstLayer,
    folded: FoldedLayer,
    inputs: Float[np.ndarray, "query d_model"],
    attention: Float[np.ndarray, "head query key"],
) -> Float[np.ndarray, "head query d_model"]:
    """What each head writes: (Σ_j α[h,i,j] (x_j / σ_j) W̃_V[h] + b̃_V[h]) W_O[h]; `inputs` are the x / σ.

    The sum over heads plus b_O is the layer's output Σ_h Σ_j α (x_j / σ_j) W_VO + b_VO, since Σ_j α = 1.
    """
    values = for_each_head(project(inputs, folded.value_weight), layer)
    mixed = attention @ values + for_each_head(folded.value_bias[:, None], layer)
    return mixed @ folded.output_weight


def offset_terms(
    layer: FirstLayer,
    folded: FoldedLayer,
    token_ids: Int[np.ndarray, "query"],
    scales: Float[np.ndarray, "query"],
    common: Common,
) -> Terms:
    """All terms of a text whose first token stands at position 0; `scales` is σ of each of its tokens."""
    inputs = layer.token_embeddings[token_ids] / scales[:, None]
    query = query_side(layer, folded).less_constant(inputs, common.query)
    key = key_side(layer, folded).less_constant(inputs, common.key)
    parts = _alibi(layer, query, key, common) if layer.positions == "alibi" else _rotary(layer, query, key, common)
    meanings = {name: MEANINGS[layer.positions][name] for name in parts}
    return Terms(parts, layer.attention_scale, layer.is_causal, layer.window, layer.softcap, meanings)


def kernel(layer: FirstLayer, common: Common, offsets: Int[np.ndarray, "offset"]) -> Float[np.ndarray, "head offset"]:
    """The purely positional part of the score at these offsets i − j."""
    if layer.alibi_slopes is not None:
        return _slope_term(layer, offsets)
    key = for_each_head(common.key[:, None], layer)[:, 0]
    queries = [rotated_by_offset(layer, common.query, int(offset)) for offset in offsets]
    return np.einsum("ohd,hd->ho", np.stack(queries), key)


def _rotary(
    layer: FirstLayer,
    query: Float[np.ndarray, "head query d_head"],
    key: Float[np.ndarray, "key_head query d_head"],
    common: Common,
) -> dict[str, np.ndarray]:
    places = np.arange(query.shape[1])
    query_token, key_token = rotated(layer, query, places), _rotated_keys(layer, key, places)
    parts: dict[str, np.ndarray] = {Term.EE: query_token @ key_token.transpose(0, 2, 1)}
    if common.is_nothing:
        return parts
    shape = (1, len(places), 1)
    query_common = rotated(layer, np.tile(common.query[:, None], shape), places)
    key_common = _rotated_keys(layer, np.tile(common.key[:, None], shape), places)
    parts[Term.E] = query_common @ key_token.transpose(0, 2, 1)
    parts[Term.EP] = query_token @ key_common.transpose(0, 2, 1)
    parts[Term.P] = query_common @ key_common.transpose(0, 2, 1)
    return parts


def _rotated_keys(
    layer: FirstLayer, keys: Float[np.ndarray, "key_head query d_head"], places: Int[np.ndarray, "query"]
) -> Float[np.ndarray, "head query d_head"]:
    return for_each_head(rotated(layer, keys, places), layer)


def _alibi(
    layer: FirstLayer,
    query: Float[np.ndarray, "head query d_head"],
    key: Float[np.ndarray, "key_head query d_head"],
    common: Common,
) -> dict[str, np.ndarray]:
    """b is the same for each key, so the softmax cancels it: it is dropped."""
    key_token = for_each_head(key, layer)
    parts: dict[str, np.ndarray] = {Term.EE: query @ key_token.transpose(0, 2, 1)}
    if common.query.any():
        parts[Term.E] = np.einsum("hk,hjk->hj", common.query, key_token)
    places = np.arange(query.shape[1])
    offsets = places[:, None] - places
    parts[Term.P] = _slope_term(layer, offsets.ravel()).reshape(-1, *offsets.shape)
    return parts


def _slope_term(layer: FirstLayer, offsets: Int[np.ndarray, "offset"]) -> Float[np.ndarray, "head offset"]:
    """ALiBi lowers a score that is already scaled, so as a term it is divided by the attention scale."""
    assert layer.alibi_slopes is not None
    slopes = -np.multiply.outer(layer.alibi_slopes.astype(np.float64), offsets) / layer.attention_scale
    return slopes.astype(layer.token_embeddings.dtype)


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
