"""The heavy part: T^ee of a block of query tokens against all keys, and what its ranks say.

Workers share the arrays as memory-mapped files, factors in the order in which `kernels.product` reads them. A score has
the same bits whichever tokens are asked about, in whichever block, on whichever worker or engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Int64

from detoklens.analyses.auroc.positives import Positives
from detoklens.analyses.block_runs import Arrays
from detoklens.kernels import product
from detoklens.kernels.ranking import MEASURES, measure_rows
from detoklens.scores.affinity import Affinity

FEWEST_PANELS, MOST_PANELS = 8, 20
BLOCK_BYTES = 1 << 25
"""The scores of a block: 120 query tokens of GPT-2's vocabulary take 24 MB; of larger vocabularies fewer."""


@dataclass(frozen=True)
class Scorer:
    """Anything that scores keys for queries as a product of thin factors: a head, or a baseline of one column."""

    query: Float[np.ndarray, "token d_head"]
    key: Float[np.ndarray, "token d_head"]


@dataclass(frozen=True)
class Trial:
    """One way to judge: whose positives are asked of each query's scores, and which key stands for each key."""

    asked: Int64[np.ndarray, "query"]
    stand_ins: Int64[np.ndarray, "token"]


@dataclass(frozen=True)
class Block:
    """A task: so many queries from number · rows on, for so many scorers and trials."""

    folder: Path
    number: int
    n_scorers: int
    n_trials: int
    k: int


def panels_of_block(vocab_size: int) -> int:
    """How many panels of query tokens are computed together?"""
    return int(np.clip(BLOCK_BYTES // (4 * vocab_size * product.QUERIES), FEWEST_PANELS, MOST_PANELS))


def rows_of_block(vocab_size: int) -> int:
    """How many query tokens are computed together?"""
    return panels_of_block(vocab_size) * product.QUERIES


def share(
    folder: Path,
    queries: Int64[np.ndarray, "query"],
    scorers: Iterable[Scorer],
    positives: Positives,
    trials: Sequence[Trial],
    order: Int64[np.ndarray, "token"],
    bounds: Int64[np.ndarray, "stratum_and_end"],
) -> None:
    """Write what blocks of these queries need into a folder, on two threads; key order[c] gets column c."""
    column_of = np.empty_like(order)
    column_of[order] = np.arange(len(order))
    arrays = {"bounds": bounds, "indptr": positives.indptr, "keys": positives.keys, "weights": positives.weights}
    for number, trial in enumerate(trials):
        arrays |= {f"asked-{number}": trial.asked, f"columns-{number}": column_of[trial.stand_ins]}

    def save_factors(number: int, scorer: Scorer) -> None:
        np.save(folder / f"query-{number}.npy", product.query_panels(_single(scorer.query[queries])))
        np.save(folder / f"key-{number}.npy", product.key_panels(_single(scorer.key[order])))

    with ThreadPoolExecutor(2) as threads:
        saved = [threads.submit(np.save, folder / f"{name}.npy", array) for name, array in arrays.items()]
        saved += [threads.submit(save_factors, number, scorer) for number, scorer in enumerate(scorers)]
    for each in saved:
        each.result()


def scores_of(affinity: Affinity, token: int) -> Float32[np.ndarray, "head key"]:
    """T^ee of one query token in every head, to the bit what blocks compute."""
    found = np.empty((affinity.n_heads, affinity.vocab_size), np.float32)
    for head, (query, key) in enumerate(zip(affinity.query, affinity.key, strict=True)):
        queries, keys = product.query_panels(_single(query[[token]])), product.key_panels(_single(key))
        found[head] = product.multiply(queries, keys)[0, : affinity.vocab_size]
    return found


def _single(vectors: Float[np.ndarray, "token d_head"]) -> Float32[np.ndarray, "token d_head"]:
    return vectors.astype(np.float32, copy=False)


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
    def room(self) -> Float32[np.ndarray, "score"]:
        return np.empty(rows_of_block(len(self["indptr"]) - 1) * self["key-0"][:, 0].size, np.float32)


@lru_cache(maxsize=1)
def shared_in(folder: Path) -> Shared:
    """What a worker keeps from block to block: mapping everything anew would cost a twentieth of the time."""
    return Shared(folder)


def judge_block(block: Block) -> Arrays:
    """The measures of one block of query tokens: scorer × trial × query × measure."""
    shared = shared_in(block.folder)
    n_panels = panels_of_block(len(shared["indptr"]) - 1)
    panels = slice(block.number * n_panels, (block.number + 1) * n_panels)
    rows = slice(panels.start * product.QUERIES, panels.stop * product.QUERIES)
    trials = [(shared[f"asked-{number}"][rows], shared[f"columns-{number}"]) for number in range(block.n_trials)]
    pairs = shared["indptr"], shared["keys"], shared["weights"]
    measures = np.empty((block.n_scorers, block.n_trials, len(trials[0][0]), MEASURES))
    for scorer in range(block.n_scorers):
        scores = product.multiply(shared[f"query-{scorer}"][panels], shared[f"key-{scorer}"], shared.room)
        for trial, (asked, columns) in enumerate(trials):
            found = measures[scorer, trial]
            measure_rows(scores, asked, *pairs, columns, shared["bounds"], block.k, found)
    return {"measures": measures}
