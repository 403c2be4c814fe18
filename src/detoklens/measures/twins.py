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

from detoklens.kernels.ranking import rank_rows
from detoklens.measures.auroc.means import COVERED
from detoklens.measures.ranking import BLOCK_BYTES, HeadScores
from detoklens.parallel import thread_map


def geometric_means(ratios: Float[np.ndarray, "row word"], resamples: int = 1000, seed: int = 0) -> Measured:
    """Each row's geometric mean with its 95 % interval over shared resamples; no interval below 30 words."""
    logarithms, n_words = np.log(ratios), ratios.shape[1]
    value = np.exp(logarithms.mean(axis=1))
    if resamples == 0 or n_words < FEWEST:
        unknown = np.full(len(ratios), np.nan)
        return Measured(value, unknown, unknown)
    random = np.random.default_rng(seed)
    samples = [logarithms[:, random.integers(n_words, size=n_words)].mean(axis=1) for _ in range(resamples)]
    low, high = np.quantile(samples, [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    return Measured(value, np.exp(low), np.exp(high))


CLIP = 5.0  # standard deviations
FEWEST = 30  # words needed for an interval
TRIES = 100
PARTNERS = 16  # words that the additive control averages over
WORDS_AT_ONCE = 256  # in the additive control: at most 4,096 texts, 64 MB at a width of 4,096

Place = TypeVar("Place")


def standardised(vectors: Float[np.ndarray, "row dimension"]) -> Float[np.ndarray, "row dimension"]:
    """Rows of length 1 in float32, after centring, scaling and clipping each dimension; constant ones become 0."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    deviation = vectors.std(axis=0, dtype=np.float64)
    per_unit = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    directions = np.empty(vectors.shape, np.float32)
    rows = max(1, BLOCK_BYTES // (8 * max(1, vectors.shape[1])))
    for begin in range(0, len(vectors), rows):
        block = slice(begin, begin + rows)
        directions[block] = _directions((vectors[block] - mean) * per_unit)
    return directions


def _directions(scaled: Float[np.ndarray, "row dimension"]) -> Float[np.ndarray, "row dimension"]:
    clipped = np.clip(scaled, -CLIP, CLIP)
    length = np.sqrt(np.einsum("rd,rd->r", clipped, clipped))
    return clipped / np.where(length > 0, length, 1.0)[:, None]


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
    """The null: every word with the first piece of another word of its class.

    First pieces are permuted within the first of `classes`. A word that would keep its own piece draws one from its
    class, otherwise from the next, coarser class, otherwise from all words.
    """
    random, first = np.random.default_rng(seed), pieces[:, 0]
    levels = [*classes, np.zeros(len(pieces), np.int64)]
    dealt = np.arange(len(pieces))
    for one in np.unique(levels[0]):
        members = np.flatnonzero(levels[0] == one)
        dealt[members] = _deranged(first, members, random)
    given = first[dealt]
    for word in np.flatnonzero(given == first):
        pools = (np.flatnonzero((level == level[word]) & (first != first[word])) for level in levels)
        pool = next((some for some in pools if len(some)), None)
        given[word] = first[word if pool is None else random.choice(pool)]
    return np.concatenate([given[:, None], pieces[:, 1:]], axis=1)


def _deranged(
    first: Int[np.ndarray, "word"], members: Int[np.ndarray, "member"], random: np.random.Generator
) -> Int[np.ndarray, "member"]:
    """A permutation of one class in which as few members as possible keep their first piece."""
    dealt = random.permutation(members)
    for _ in range(TRIES):
        same = np.flatnonzero(first[dealt] == first[members])
        if not len(same):
            break
        for place, other in zip(same, random.integers(len(members), size=len(same)), strict=True):
            dealt[[place, other]] = dealt[[other, place]]
    return dealt


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


@dataclass(frozen=True)
class Measured:
    """A number per condition with the ends of its interval, which are NaN without resamples."""

    value: Float[np.ndarray, "condition"]
    low: Float[np.ndarray, "condition"]
    high: Float[np.ndarray, "condition"]


@dataclass(frozen=True)
class Summary:
    """Results per condition over all words; the last two are relative to the first condition."""

    median_rank: Measured
    first: Measured
    first_ten: Measured
    mean_reciprocal_rank: Measured
    rank_lost: Measured
    rank_ratio: Measured


def summary(ranks: Int[np.ndarray, "condition word"], resamples: int = 1000, seed: int = 0) -> Summary:
    """Medians, shares, and differences from the first condition; no intervals below 30 words or without resamples.

    All conditions share the resamples, so differences are between the same words.
    """
    once = np.ones((1, ranks.shape[1]))
    enough = resamples > 0 and ranks.shape[1] >= FEWEST
    times = _times_drawn(ranks.shape[1], resamples, seed) if enough else np.empty((0, ranks.shape[1]))
    values, samples = _measures(ranks, once), _measures(ranks, times)
    return Summary(*(_measured(value[0], some) for value, some in zip(values, samples, strict=True)))


def shares_lost(
    lost: Float[np.ndarray, "row word"], gains: Float[np.ndarray, "control word"], resamples: int = 1000, seed: int = 0
) -> Measured:
    """The share of the smallest gain that each row loses; all arguments are logarithms of rank ratios per word.

    NaN without a gain; no interval if a resample has none.
    """
    n_words = lost.shape[1]
    enough = resamples > 0 and n_words >= FEWEST
    times = _times_drawn(n_words, resamples, seed) if enough else np.empty((0, n_words))

    def shares(drawn: Float[np.ndarray, "resample word"]) -> Float[np.ndarray, "resample row"]:
        gain = (drawn @ gains.T).min(axis=1, keepdims=True)
        return np.divide(drawn @ lost.T, gain, out=np.full((len(drawn), len(lost)), np.nan), where=gain > 0)

    return _measured(shares(np.ones((1, n_words)))[0], shares(times))


def _times_drawn(n_words: int, resamples: int, seed: int) -> Float[np.ndarray, "resample word"]:
    random = np.random.default_rng(seed)
    times = [np.bincount(random.integers(n_words, size=n_words), minlength=n_words) for _ in range(resamples)]
    return np.array(times, np.float64)


def _measures(
    ranks: Int[np.ndarray, "condition word"], times: Float[np.ndarray, "resample word"]
) -> list[Float[np.ndarray, "resample condition"]]:
    """The six measures of each resample, in the order of `Summary`."""
    medians = np.stack([_medians(row, times) for row in ranks], axis=1)
    logarithms = np.log(ranks)
    means = [(ranks == 1).astype(float), (ranks <= 10).astype(float), 1 / ranks, logarithms - logarithms[:1]]
    first, first_ten, reciprocal, logarithm = (times @ each.T / ranks.shape[1] for each in means)
    return [medians, first, first_ten, reciprocal, medians - medians[:, :1], np.exp(logarithm)]


def _medians(
    ranks: Int[np.ndarray, "word"], times: Float[np.ndarray, "resample word"]
) -> Float[np.ndarray, "resample"]:
    """The median rank of each resample."""
    order = np.argsort(ranks, kind="stable")
    passed = np.cumsum(times[:, order], axis=1)
    middles = (len(ranks) - 1) // 2, len(ranks) // 2
    return np.mean([ranks[order][(passed > middle).argmax(axis=1)] for middle in middles], axis=0)


def _measured(value: Float[np.ndarray, "condition"], samples: Float[np.ndarray, "resample condition"]) -> Measured:
    if not len(samples):
        return Measured(value, np.full(len(value), np.nan), np.full(len(value), np.nan))
    low, high = np.quantile(samples, [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    return Measured(value, low, high)
