"""Does the place of a word's last piece look like the place of the whole word? Ranks of the twin, with intervals.

1. Each side (the words in pieces; the candidates) is standardised per dimension by its own mean and standard deviation
   and clipped at ±5: otherwise a few huge dimensions, and the difference between two places, decide everything.
2. The twin's rank among all candidates by cosine: 1 + the candidates that are nearer + those as near that come before.
3. The null: each word's first piece exchanged for another word's.
4. Over words: median rank, shares of rank 1 and of the first ten, mean reciprocal rank, and, word by word, the ratio of
   the rank to the rank in the first condition; intervals over words resampled with replacement, the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from detoklens.kernels.rank_rows import rank_rows
from detoklens.measures.auroc.means import COVERED
from detoklens.measures.ranking import BLOCK_BYTES, HeadScores
from detoklens.parallel import thread_map

CLIP = 5.0  # standard deviations
FEWEST = 30  # words: below, no interval says anything
TRIES = 100


def standardised(vectors: Float[np.ndarray, "row dimension"]) -> Float[np.ndarray, "row dimension"]:
    """Rows of length 1 in float32, after each dimension is centred, scaled and clipped; what does not vary is 0."""
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
    """All tokens that might be the twin, each at the place of a whole word, standardised among themselves."""

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
        """At which rank does each word's twin (by its place among the candidates) stand?"""
        return self.ranks_by_direction(standardised(vectors), twins, threads)

    def ranks_by_direction(
        self,
        directions: Float[np.ndarray, "word dimension"],
        twins: Int[np.ndarray, "word"],
        threads: int = 1,
    ) -> Int[np.ndarray, "word"]:
        """The same of vectors in float32 as they are; the same numbers for any number of threads."""
        ranks = np.empty(len(twins), np.int64)
        step = max(1, BLOCK_BYTES // (4 * max(1, self.scores.n_keys)))

        def rank(begin: int) -> None:
            block = slice(begin, begin + step)
            rank_rows(self.scores.rows(directions[block]), twins[block], ranks[block])

        list(thread_map(rank, range(0, len(twins), step), threads))
        return ranks


def exchanged_first(pieces: Int[np.ndarray, "word piece"], seed: int) -> Int[np.ndarray, "word piece"]:
    """The null: every word with another word's first piece, each used once; another piece wherever there is one."""
    random, first = np.random.default_rng(seed), pieces[:, 0]
    dealt = random.permutation(len(pieces))
    for _ in range(TRIES):
        same = np.flatnonzero(first[dealt] == first)
        if not len(same):
            break
        for place, other in zip(same, random.integers(len(pieces), size=len(same)), strict=True):
            dealt[[place, other]] = dealt[[other, place]]
    return np.concatenate([first[dealt][:, None], pieces[:, 1:]], axis=1)


@dataclass(frozen=True)
class Measured:
    """A number for each condition, with the ends of its interval; NaN where none was asked for."""

    value: Float[np.ndarray, "condition"]
    low: Float[np.ndarray, "condition"]
    high: Float[np.ndarray, "condition"]


@dataclass(frozen=True)
class Summary:
    """How each condition does over all words; the last two against the first condition, word by word."""

    median_rank: Measured
    first: Measured
    first_ten: Measured
    mean_reciprocal_rank: Measured
    rank_lost: Measured
    rank_ratio: Measured


def summary(ranks: Int[np.ndarray, "condition word"], resamples: int = 1000, seed: int = 0) -> Summary:
    """Medians, shares, and differences to the first condition; no intervals below 30 words or without resamples.

    Every condition sees the same resamples, so that the differences are those of the same words.
    """
    once = np.ones((1, ranks.shape[1]))
    enough = resamples > 0 and ranks.shape[1] >= FEWEST
    times = _times_drawn(ranks.shape[1], resamples, seed) if enough else np.empty((0, ranks.shape[1]))
    values, samples = _measures(ranks, once), _measures(ranks, times)
    return Summary(*(_measured(value[0], some) for value, some in zip(values, samples, strict=True)))


def _times_drawn(n_words: int, resamples: int, seed: int) -> Float[np.ndarray, "resample word"]:
    """How often does each word come up in each resample?"""
    random = np.random.default_rng(seed)
    times = [np.bincount(random.integers(n_words, size=n_words), minlength=n_words) for _ in range(resamples)]
    return np.array(times, np.float64)


def _measures(
    ranks: Int[np.ndarray, "condition word"], times: Float[np.ndarray, "resample word"]
) -> list[Float[np.ndarray, "resample condition"]]:
    """The six numbers of each resample, in the order of `Summary`."""
    medians = np.stack([_medians(row, times) for row in ranks], axis=1)
    logarithms = np.log(ranks)
    means = [(ranks == 1).astype(float), (ranks <= 10).astype(float), 1 / ranks, logarithms - logarithms[:1]]
    first, first_ten, reciprocal, logarithm = (times @ each.T / ranks.shape[1] for each in means)
    return [medians, first, first_ten, reciprocal, medians - medians[:, :1], np.exp(logarithm)]


def _medians(
    ranks: Int[np.ndarray, "word"], times: Float[np.ndarray, "resample word"]
) -> Float[np.ndarray, "resample"]:
    """The median rank of each resample: the mean of the two in its middle."""
    order = np.argsort(ranks, kind="stable")
    passed = np.cumsum(times[:, order], axis=1)
    middles = (len(ranks) - 1) // 2, len(ranks) // 2
    return np.mean([ranks[order][(passed > middle).argmax(axis=1)] for middle in middles], axis=0)


def _measured(value: Float[np.ndarray, "condition"], samples: Float[np.ndarray, "resample condition"]) -> Measured:
    """A number with the middle 95 % of its resamples."""
    if not len(samples):
        return Measured(value, np.full(len(value), np.nan), np.full(len(value), np.nan))
    low, high = np.quantile(samples, [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    return Measured(value, low, high)
