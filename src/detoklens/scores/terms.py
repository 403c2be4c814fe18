"""The attention score of layer 0 as a sum of named terms.

`TERMS` declares each term once: its name, from which its symbol follows, what it means, and the query factor and key
factor whose product it is. Texts (`text_terms`), documents (`measures.documents`) and last positions (`scores.block`)
multiply the factors that `scores.factors.side_factors` computes.

For learned absolute positions three query factors meet two key factors, which makes six terms. With σ_i = σ(e_i + p_i):

| term | value                           |
|------|---------------------------------|
| ee   | Q_e[t_i] · K_e[t_j] / (σ_i σ_j) |
| pp   | Q_p[i] · K_p[j] / (σ_i σ_j)     |
| pe   | Q_p[i] · K_e[t_j] / (σ_i σ_j)   |
| ep   | Q_e[t_i] · K_p[j] / (σ_i σ_j)   |
| e    | q_b · K_e[t_j] / σ_j            |
| p    | q_b · K_p[j] / σ_j              |

With rotary positions, each of four terms depends on positions only through the offset δ = i − j. a and b are what all
queries and all keys have in common: their biases, or their means over the vocabulary.

| term | value                 |
|------|-----------------------|
| ee   | Q_e[t_i] R_δ K_e[t_j] |
| e    | a R_δ K_e[t_j]        |
| ep   | Q_e[t_i] R_δ b        |
| p    | a R_δ b               |

ALiBi has ee and e as above without R; p is the given −slope · δ, divided by the attention scale because the model adds
it to scores that are already scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import RangeError
from detoklens.scores.factors import Common, Factor, for_each_head, rotated_by_offset, rotated_factors, side_factors
from detoklens.scores.softmax import masked, softcapped, softmax
from detoklens.weights.first_layer import FirstLayer, Positions
from detoklens.wording import term_symbol

if TYPE_CHECKING:
    from detoklens.scores.layer import Layer


class Term(StrEnum):
    """Names of the terms: e for embedding (token), p for position; the query's letter first.

    Attributes
    ----------
    EE
        Token and token.
    PP
        Position and position.
    PE
        Query position and key token.
    EP
        Query token and key position.
    E
        Key token alone.
    P
        Key position alone.

    Examples
    --------
    >>> import detoklens as dl
    >>> dl.load("demo").terms("the priest")[dl.Term.E].shape  # head, key
    (4, 3)
    """

    EE = "ee"
    PP = "pp"
    PE = "pe"
    EP = "ep"
    E = "e"
    P = "p"


class ScoreTerm(NamedTuple):
    """One term of the score: its name, its meaning, and the factors that are multiplied."""

    name: Term
    meaning: str
    query: Factor
    key: Factor

    @property
    def symbol(self) -> str:
        """`Tᵉᵖ`."""
        return term_symbol(self.name)


TERMS: Mapping[Positions, tuple[ScoreTerm, ...]] = {
    "learned": (
        ScoreTerm(Term.EE, "token compares itself with token", Factor.TOKEN, Factor.TOKEN),
        ScoreTerm(Term.PP, "position compares itself with position", Factor.POSITION, Factor.POSITION),
        ScoreTerm(Term.PE, "position looks for token", Factor.POSITION, Factor.TOKEN),
        ScoreTerm(Term.EP, "token looks for position", Factor.TOKEN, Factor.POSITION),
        ScoreTerm(Term.E, "token preferred by every query", Factor.CONSTANT, Factor.TOKEN),
        ScoreTerm(Term.P, "position preferred by every query", Factor.CONSTANT, Factor.POSITION),
    ),
    "rotary": (
        ScoreTerm(Term.EE, "token looks for token", Factor.TOKEN, Factor.TOKEN),
        ScoreTerm(Term.E, "token preferred by every query", Factor.COMMON, Factor.TOKEN),
        ScoreTerm(Term.EP, "query looks for an offset", Factor.TOKEN, Factor.COMMON),
        ScoreTerm(Term.P, "position kernel", Factor.COMMON, Factor.COMMON),
    ),
    "alibi": (
        ScoreTerm(Term.EE, "token looks for token", Factor.TOKEN, Factor.TOKEN),
        ScoreTerm(Term.E, "token preferred by every query", Factor.CONSTANT, Factor.TOKEN),
        ScoreTerm(Term.P, "distance lowers the score by a given slope", Factor.DISTANCE, Factor.DISTANCE),
    ),
}

MEANINGS: Mapping[Positions, Mapping[str, str]] = {
    positions: {term.name: term.meaning for term in terms} for positions, terms in TERMS.items()
}
"""The meaning of each term, by the kind of positions."""


def terms_present(positions: Positions, common: Common) -> tuple[ScoreTerm, ...]:
    """The declared terms, without those of a common part that is zero."""
    terms = TERMS[positions]
    if positions == "rotary" and common.is_nothing:
        return tuple(term for term in terms if Factor.COMMON not in (term.query, term.key))
    if positions == "alibi" and not common.query.any():
        return tuple(term for term in terms if term.query is not Factor.CONSTANT)
    return terms


def multiply_factors(
    terms: Iterable[ScoreTerm],
    queries: Mapping[Factor, np.ndarray],
    keys: Mapping[Factor, np.ndarray],
    multiply: Callable[[np.ndarray, np.ndarray], np.ndarray],
    distance: Callable[[], np.ndarray],
) -> dict[str, np.ndarray]:
    """Each term by name: the product of its factors, or the distance term."""
    return {
        term.name: distance() if term.query is Factor.DISTANCE else multiply(queries[term.query], keys[term.key])
        for term in terms
    }


def text_terms(layer: Layer, token_ids: Int[np.ndarray, "query"], common: Common) -> Terms:
    """All terms of a text that starts at position 0."""
    weights, positions, terms = layer.weights, np.arange(len(token_ids)), terms_present(layer.positions, common)
    scales = layer.scales.at(positions, token_ids)[:, None]
    places = weights.position_embeddings[positions] / scales if layer.positions == "learned" else None
    queries, keys = (
        rotated_factors(
            weights,
            side_factors(weights, side, constant, weights.token_embeddings[token_ids] / scales, places),
            positions,
        )
        for side, constant in zip(layer.sides, common, strict=True)
    )
    parts = multiply_factors(
        terms,
        queries,
        {factor: for_each_head(vectors, weights) for factor, vectors in keys.items()},
        lambda query, key: np.einsum("hk,hjk->hj", query, key) if query.ndim == 2 else query @ key.transpose(0, 2, 1),
        lambda: slope_term(weights, positions[:, None] - positions),
    )
    meanings = {str(term.name): term.meaning for term in terms}
    return Terms(parts, weights.attention_scale, weights.is_causal, weights.window, weights.softcap, meanings)


def kernel(layer: FirstLayer, common: Common, offsets: Int[np.ndarray, "offset"]) -> Float[np.ndarray, "head offset"]:
    """The position kernel: the purely positional part of the score at these offsets i − j."""
    if layer.alibi_slopes is not None:
        return slope_term(layer, offsets)
    key = for_each_head(common.key[:, None], layer)[:, 0]
    queries = [rotated_by_offset(layer, common.query, int(offset)) for offset in offsets]
    return np.einsum("ohd,hd->ho", np.stack(queries), key)


def slope_term(layer: FirstLayer, offsets: Int[np.ndarray, "*offsets"]) -> Float[np.ndarray, "head *offsets"]:
    """ALiBi's term: −slope · δ, divided by the attention scale because it is added to scaled scores."""
    assert layer.alibi_slopes is not None
    slopes = -np.multiply.outer(layer.alibi_slopes.astype(np.float64), offsets) / layer.attention_scale
    return slopes.astype(layer.token_embeddings.dtype)


@dataclass(frozen=True)
class Terms:
    """The terms of a text's scores, each [head, query, key], or [head, key] if it is the same for every query.

    `terms.ee` and `terms["ee"]` are the same array.

    Attributes
    ----------
    parts
        The terms by name.
    attention_scale
        The factor on scores before the softmax.
    is_causal
        Whether a query sees no later keys.
    window
        The number of keys that a query sees, or None for all.
    softcap
        The bound of capped scores, or None.
    meanings
        What each term means.

    Examples
    --------
    >>> import detoklens as dl
    >>> terms = dl.load("demo").terms("the priest was descending")
    >>> terms
    Terms: ee, pp, pe, ep [head 4, query 6, key 6]; e, p [head 4, key 6]; attention scale 0.176777
    >>> bool(abs(terms.attention().sum(axis=-1) - 1).max() < 1e-6)
    True
    """

    parts: Mapping[str, np.ndarray]
    attention_scale: float
    is_causal: bool = True
    window: int | None = None
    softcap: float | None = None
    meanings: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the terms."""
        return tuple(str(name) for name in self.parts)

    def __repr__(self) -> str:
        names_by_shape: dict[tuple[int, ...], list[str]] = {}
        for name, part in self.parts.items():
            names_by_shape.setdefault(part.shape, []).append(name)
        described = []
        for shape, names in names_by_shape.items():
            axes = ("head", "query", "key") if len(shape) == 3 else ("head", "key")
            sizes = ", ".join(f"{axis} {size}" for axis, size in zip(axes, shape, strict=True))
            described.append(f"{', '.join(names)} [{sizes}]")
        return f"Terms: {'; '.join(described)}; attention scale {self.attention_scale:g}"

    def __getitem__(self, term: str) -> np.ndarray:
        if term not in self.parts:
            raise RangeError(f"no term {str(term)!r}; the terms are {', '.join(self.parts)}")
        return self.parts[term]

    def __getattr__(self, term: str) -> np.ndarray:
        parts = self.__dict__.get("parts", {})
        if term in parts:
            part: np.ndarray = parts[term]
            return part
        raise AttributeError(f"Terms has no term {term!r}; the terms are {', '.join(parts)}")

    def full(self, term: str) -> Float[np.ndarray, "head query key"]:
        """Return one term as [head, query, key], broadcast if it is the same for every query.

        Parameters
        ----------
        term
            The term's name.

        Returns
        -------
        numpy.ndarray
            The term.

        Raises
        ------
        RangeError
            The model has no such term.
        """
        part = self[term]
        if part.ndim == 3:
            return part
        n_heads, n_keys = part.shape
        return np.broadcast_to(part[:, None, :], (n_heads, n_keys, n_keys))

    def to_dict(self) -> dict[str, Float[np.ndarray, "head query key"]]:
        """Every term by name, each as [head, query, key]; their sum is `total()`."""
        return {name: self.full(name) for name in self.names}

    def total(self) -> Float[np.ndarray, "head query key"]:
        """The score s: the sum of all terms, not yet divided by sqrt(d')."""
        return self._sum(list(self.parts))

    def without(self, term: str) -> Float[np.ndarray, "head query key"]:
        """Return the score without one term, not yet divided by sqrt(d').

        Parameters
        ----------
        term
            The term's name.

        Returns
        -------
        numpy.ndarray
            The sum of the other terms, [head, query, key].

        Raises
        ------
        RangeError
            The model has no such term.
        """
        self[term]
        return self._sum([name for name in self.parts if name != term])

    def attention(self) -> Float[np.ndarray, "head query key"]:
        """α = softmax of s / sqrt(d') over the keys that query i sees."""
        return self._softmax(self.total())

    def attention_without(self, term: str) -> Float[np.ndarray, "head query key"]:
        """Return the attention without one term.

        Parameters
        ----------
        term
            The term's name.

        Returns
        -------
        numpy.ndarray
            The softmax of `without(term)`, [head, query, key].

        Raises
        ------
        RangeError
            The model has no such term.

        Examples
        --------
        >>> import detoklens as dl
        >>> terms = dl.load("demo").terms("the priest was descending")
        >>> kept = terms.attention_without("ee")[1, 5, 4]  # head 1, from "ing" to " descend"
        >>> print(f"{terms.attention()[1, 5, 4]:.2f}, without Tᵉᵉ {kept:.2f}")
        0.89, without Tᵉᵉ 0.36
        """
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
