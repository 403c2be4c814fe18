"""Ranks of twins, their controls, and intervals over words.

1. Each side (words in pieces; candidates) is standardised per dimension by its own mean and standard deviation and
   clipped at ±5. Otherwise a few huge dimensions and the difference between two positions would dominate.
2. The twin's rank among all candidates by cosine is 1 + the number of nearer ones + ties with a smaller index.
3. Controls: `exchanged_first` is the null, `partner_words` and `mean_over_partners` make the additive control.
4. Over words: median rank, shares of rank 1 and of the first ten, mean reciprocal rank, and the geometric mean of the
   ratio to the first condition's rank. Intervals resample words, identically for all conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CheckpointError
from detoklens.kernels.ranking import rank_rows
from detoklens.measures.chance import Measured, medians, over_words
from detoklens.measures.ranking import BLOCK_BYTES, HeadScores
from detoklens.measures.words import exchange_within
from detoklens.parallel import thread_map

CLIP = 5.0  # standard deviations
PARTNERS = 16  # words that the additive control averages over
WORDS_AT_ONCE = 256  # in the additive control: at most 4,096 texts, 64 MB at a width of 4,096

Place = TypeVar("Place")


def standardised(vectors: Float[np.ndarray, "row dimension"]) -> Float[np.ndarray, "row dimension"]:
    """Rows of length 1 in float32, after centring, scaling and clipping each dimension; constant ones become 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = vectors.mean(axis=0, dtype=np.float64)
        deviation = vectors.std(axis=0, dtype=np.float64)
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
        raise CheckpointError(
            f"the residual stream is not finite in {vectors.dtype}: the model's numbers overflow their type; check the "
            'checkpoint, or load it with dtype="float64"'
        )
    per_unit = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    directions = np.empty(vectors.shape, np.float32)
    rows = max(1, BLOCK_BYTES // (8 * max(1, vectors.shape[1])))
    for begin in range(0, len(vectors), rows):
        block = slice(begin, begin + rows)
        clipped = np.clip((vectors[block] - mean) * per_unit, -CLIP, CLIP)
        length = np.sqrt(np.einsum("rd,rd->r", clipped, clipped))
        directions[block] = clipped / np.where(length > 0, length, 1.0)[:, None]
    return directions


@dataclass(frozen=True)
class Candidates:
    """All tokens that the twin is ranked among, standardised among themselves."""

    scores: HeadScores

    @classmethod
    def of(cls, vectors: Float[np.ndarray, "candidate dimension"]) -> Candidates:
        return cls(HeadScores.of(standardised(vectors)))

    def ranks(
        self,
        vectors: Float[np.ndarray, "word dimension"],
        twins: Int[np.ndarray, "word"],
        threads: int = 1,
    ) -> Int[np.ndarray, "word"]:
        """The rank of each word's twin, given by its index among the candidates."""
        return self.ranks_by_direction(standardised(vectors), twins, threads)

    def ranks_by_direction(
        self,
        directions: Float[np.ndarray, "word dimension"],
        twins: Int[np.ndarray, "word"],
        threads: int = 1,
    ) -> Int[np.ndarray, "word"]:
        """The same for float32 vectors that are already standardised."""
        ranks = np.empty(len(twins), np.int64)
        step = max(1, BLOCK_BYTES // (4 * max(1, self.scores.n_keys)))

        def rank(begin: int) -> None:
            block = slice(begin, begin + step)
            rank_rows(self.scores.rows(directions[block]), twins[block], ranks[block])

        list(thread_map(rank, range(0, len(twins), step), threads))
        return ranks


def exchanged_first(
    pieces: Int[np.ndarray, "word piece"], seed: int, classes: Sequence[Int[np.ndarray, "word"]] = ()
) -> Int[np.ndarray, "word piece"]:
    """The null: every word with the first piece of another word of its class."""
    return np.concatenate([exchange_within(pieces[:, 0], classes, seed)[:, None], pieces[:, 1:]], axis=1)


def partner_words(pieces: Int[np.ndarray, "word piece"], seed: int) -> Int[np.ndarray, "word partner"] | None:
    """The partners of each word in the additive control: the first 16 that differ in first piece and in rest.

    All words use the same random order, so they share most texts. None if a word has fewer than 16.
    """
    order = np.random.default_rng(seed).permutation(len(pieces))
    first = pieces[:, 0]
    rest = np.unique(pieces[:, 1:], axis=0, return_inverse=True)[1].ravel()
    partners = np.empty((len(pieces), PARTNERS), np.int64)
    for word in range(len(pieces)):
        others = order[(first[order] != first[word]) & (rest[order] != rest[word])]
        if len(others) < PARTNERS:
            return None
        partners[word] = others[:PARTNERS]
    return partners


PartnerTexts = tuple[Int[np.ndarray, "row"], Int[np.ndarray, "row partner piece"]]


def partner_texts(
    pieces: Int[np.ndarray, "word piece"], partners: Int[np.ndarray, "word partner"], at_once: int = WORDS_AT_ONCE
) -> list[PartnerTexts]:
    """The texts (a, b_k), then (a_k, b), in batches of words; words that share a piece are adjacent."""
    shape = (*partners.shape, -1)
    first, rest = pieces[:, None, :1], pieces[:, None, 1:]
    own_first = np.concatenate([np.broadcast_to(first, (*partners.shape, 1)), pieces[partners, 1:]], axis=2)
    own_rest = np.concatenate([pieces[partners, :1], np.broadcast_to(rest, (*shape[:2], rest.shape[2]))], axis=2)
    sides = (own_first, np.argsort(pieces[:, 0], kind="stable")), (own_rest, np.lexsort(pieces[:, 1:].T))
    return [
        (rows, texts[rows])
        for texts, order in sides
        for rows in (order[begin : begin + at_once] for begin in range(0, len(order), at_once))
    ]


def mean_over_partners(
    texts: Int[np.ndarray, "row partner piece"],
    vectors: Callable[[Int[np.ndarray, "text piece"]], Mapping[Place, Float[np.ndarray, "text dimension"]]],
) -> dict[Place, Float[np.ndarray, "row dimension"]]:
    """The mean vector over partners at each place; each text is computed once."""
    unique, inverse = np.unique(texts.reshape(-1, texts.shape[2]), axis=0, return_inverse=True)
    inverse = inverse.reshape(texts.shape[:2])
    return {place: rows[inverse].mean(axis=1) for place, rows in vectors(unique).items()}


def add_means(
    whole: Float[np.ndarray, "word dimension"],
    partners: Int[np.ndarray, "word partner"],
    means: Sequence[tuple[Int[np.ndarray, "row"], Float[np.ndarray, "row dimension"]]],
) -> Float[np.ndarray, "word dimension"]:
    """The additive control x̂(a, b) = mean_k x(a, b_k) + mean_k x(a_k, b) − mean_k x(a_k, b_k).

    This is a bag of pieces: each piece's mean effect without their interaction. `whole` contains x(a, b) of every word,
    `means` the results of `mean_over_partners` for each of `partner_texts`.
    """
    total = np.stack([-whole[some].mean(axis=0) for some in partners])
    for rows, mean in means:
        total[rows] += mean
    return total


RANK_MEASURES = ("median_rank", "first", "first_ten", "mean_reciprocal_rank", "rank_lost", "rank_ratio")


def rank_measures(
    ranks: Int[np.ndarray, "condition word"], resamples: int = 1000, seed: int = 0
) -> dict[str, Measured]:
    """The measures of each condition by name; the last two compare with the first condition, for the same words."""
    logarithms = np.log(ranks)
    means = [ranks == 1, ranks <= 10, 1 / ranks, logarithms - logarithms[:1]]

    def all_measures(times: Float[np.ndarray, "resample word"]) -> Float[np.ndarray, "resample row"]:
        middle = np.stack([medians(row, times) for row in ranks], axis=1)
        first, first_ten, reciprocal, logarithm = (times @ each.T / ranks.shape[1] for each in means)
        measures = [middle, first, first_ten, reciprocal, middle - middle[:, :1], np.exp(logarithm)]
        return np.concatenate(measures, axis=1)

    found = over_words(all_measures, ranks.shape[1], resamples, seed)
    split = (np.split(each, len(RANK_MEASURES)) for each in (found.value, found.low, found.high))
    return {name: Measured(*ends) for name, *ends in zip(RANK_MEASURES, *split, strict=True)}


def geometric_means(ratios: Float[np.ndarray, "row word"], resamples: int = 1000, seed: int = 0) -> Measured:
    """The geometric mean of each row."""
    logarithms, n_words = np.log(ratios), ratios.shape[1]
    found = over_words(lambda times: times @ logarithms.T / n_words, n_words, resamples, seed)
    return Measured(*map(np.exp, (found.value, found.low, found.high)))


def shares_lost(
    lost: Float[np.ndarray, "row word"],
    gains: Float[np.ndarray, "control word"],
    resamples: int = 1000,
    seed: int = 0,
    behind: int | None = None,
) -> Measured:
    """The share of the smallest gain that each row loses; all arguments are logarithms of rank ratios per word.

    With `behind`, how much less than that row each row loses, for the same words. NaN without a gain; no interval if a
    resample has none.
    """

    def shares(times: Float[np.ndarray, "resample word"]) -> Float[np.ndarray, "resample row"]:
        gain = (times @ gains.T).min(axis=1, keepdims=True)
        found = np.divide(times @ lost.T, gain, out=np.full((len(times), len(lost)), np.nan), where=gain > 0)
        return found if behind is None else found[:, behind, None] - found

    return over_words(shares, lost.shape[1], resamples, seed)
