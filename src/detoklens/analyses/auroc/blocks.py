"""The heavy part: T^ee of a block of query tokens against all keys, tile by tile, and what its ranks say.

Workers share the arrays as memory-mapped files. A matrix product rounds a score by its place in the product: in another
row or column it may differ in the last bit. So a query token always stands in the same row of the same block, padded to
the same shape, and a score has the same bits whichever tokens are asked about, on whichever worker or engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Int64

from detoklens.analyses.auroc.positives import Positives
from detoklens.analyses.block_runs import Arrays, one_thread
from detoklens.kernels.ranking import MEASURES, measure_rows
from detoklens.scores.affinity import Affinity

TILE_KEYS = 2048
LANES = 32
"""Rows and columns of a product come in multiples of this: no edges, which are slower."""

FEWEST_ROWS, MOST_ROWS = 64, 128
BLOCK_BYTES = 1 << 25
"""The scores of a block: 128 query tokens of GPT-2's vocabulary take 26 MB; of larger vocabularies fewer."""


@dataclass(frozen=True)
class Scorer:
    """Anything that scores keys for queries as a product of thin factors: a head, or a baseline of one column."""

    query: Float[np.ndarray, "token d_head"]
    key: Float[np.ndarray, "token d_head"]


@dataclass(frozen=True)
class Trial:
    """One way to judge: whose positives are asked of each token's scores (−1: nobody's), which key stands for each."""

    asked: Int64[np.ndarray, "token"]
    stand_ins: Int64[np.ndarray, "token"]


@dataclass(frozen=True)
class Block:
    """A task: the query tokens from number · rows on, for so many scorers and trials."""

    folder: Path
    number: int
    n_scorers: int
    n_trials: int
    k: int


def rows_of_block(vocab_size: int) -> int:
    """How many query tokens are computed together?"""
    return int(np.clip(BLOCK_BYTES // (4 * vocab_size) // LANES * LANES, FEWEST_ROWS, MOST_ROWS))


def tile_width(vocab_size: int) -> int:
    """The width of the product's tiles: at most 2048 keys, all tiles alike, little of the last one wasted."""
    tiles = -(-vocab_size // TILE_KEYS)
    return -(-vocab_size // (tiles * LANES)) * LANES


def columns_of(vocab_size: int) -> int:
    """How many columns do whole tiles have?"""
    width = tile_width(vocab_size)
    return -(-vocab_size // width) * width


def share(
    folder: Path,
    scorers: Iterable[Scorer],
    positives: Positives,
    trials: Sequence[Trial],
    order: Int64[np.ndarray, "token"],
    bounds: Int64[np.ndarray, "stratum_and_end"],
) -> None:
    """Write what blocks need into a folder, one scorer after the other; key order[c] gets column c."""
    column_of = np.empty_like(order)
    column_of[order] = np.arange(len(order))
    np.save(folder / "bounds.npy", bounds)
    np.save(folder / "indptr.npy", positives.indptr)
    np.save(folder / "keys.npy", positives.keys)
    np.save(folder / "weights.npy", positives.weights)
    for number, trial in enumerate(trials):
        np.save(folder / f"asked-{number}.npy", trial.asked)
        np.save(folder / f"columns-{number}.npy", column_of[trial.stand_ins])
    for number, scorer in enumerate(scorers):
        np.save(folder / f"query-{number}.npy", np.ascontiguousarray(scorer.query, np.float32))
        np.save(folder / f"key-{number}.npy", padded_keys(scorer.key[order]))


def padded_keys(key: Float[np.ndarray, "token d_head"]) -> Float32[np.ndarray, "d_head column"]:
    """Keys as columns, with zero columns up to whole tiles."""
    padded = np.zeros((key.shape[1], columns_of(len(key))), np.float32)
    padded[:, : len(key)] = key.T
    return padded


def score_rows(
    query: Float[np.ndarray, "query d_head"],
    key: Float32[np.ndarray, "d_head column"],
    scores: Float32[np.ndarray, "row column"],
) -> None:
    """Fill the rows of `scores` with query · key, tile by tile; rows past the queries are padding."""
    padded = np.zeros((len(scores), query.shape[1]), np.float32)
    padded[: len(query)] = query
    width = tile_width(key.shape[1])
    for first in range(0, key.shape[1], width):
        tile = slice(first, first + width)
        np.matmul(padded, key[:, tile], out=scores[:, tile])


def scores_of(affinity: Affinity, token: int) -> Float32[np.ndarray, "head key"]:
    """T^ee of one query token in every head, to the bit what blocks compute."""
    scores = np.empty((rows_of_block(affinity.vocab_size), columns_of(affinity.vocab_size)), np.float32)
    found = np.empty((affinity.n_heads, affinity.vocab_size), np.float32)
    first, row = token - token % len(scores), token % len(scores)
    with one_thread():
        for head, (query, key) in enumerate(zip(affinity.query, affinity.key, strict=True)):
            score_rows(query[first : first + len(scores)], padded_keys(key), scores)
            found[head] = scores[row, : affinity.vocab_size]
    return found


class Shared:
    """The shared arrays as one worker sees them: each file mapped once, one place for the scores of a block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._arrays: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        """Mapped copy-on-write only because compiled loops know one kind of array, the writable."""
        if name not in self._arrays:
            self._arrays[name] = np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="c"))
        return self._arrays[name]

    @cached_property
    def scores(self) -> Float32[np.ndarray, "row column"]:
        vocab_size = len(self["indptr"]) - 1
        return np.empty((rows_of_block(vocab_size), columns_of(vocab_size)), np.float32)


@lru_cache(maxsize=1)
def shared_in(folder: Path) -> Shared:
    """What a worker keeps from block to block: mapping everything anew would cost a twentieth of the time."""
    return Shared(folder)


def judge_block(block: Block) -> Arrays:
    """The measures of one block of query tokens: scorer × trial × token × measure, NaN where nothing was asked."""
    shared = shared_in(block.folder)
    n_rows = len(shared.scores)
    rows = slice(block.number * n_rows, (block.number + 1) * n_rows)
    trials = [(shared[f"asked-{number}"][rows], shared[f"columns-{number}"]) for number in range(block.n_trials)]
    pairs = shared["indptr"], shared["keys"], shared["weights"]
    measures = np.empty((block.n_scorers, block.n_trials, len(trials[0][0]), MEASURES))
    with one_thread():
        for scorer in range(block.n_scorers):
            score_rows(shared[f"query-{scorer}"][rows], shared[f"key-{scorer}"], shared.scores)
            for trial, (asked, columns) in enumerate(trials):
                found = measures[scorer, trial]
                measure_rows(shared.scores, asked, *pairs, columns, shared["bounds"], block.k, found)
    return {"measures": measures}
