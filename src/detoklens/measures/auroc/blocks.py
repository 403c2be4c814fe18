"""The heavy part: Tᵉᵉ of a block of query tokens against all keys, and what its ranks say.

Threads share the arrays, factors in the order in which `kernels.product` reads them; each has a buffer of its own for
the scores of a block. A score has the same bits whichever tokens are asked about, in whichever block, on any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int64

from detoklens.kernels import product
from detoklens.kernels.ranking import CELLS, MEASURES, measure_rows
from detoklens.measures.auroc.positives import Positives
from detoklens.parallel import Arrays, thread_map

FEWEST_PANELS, MOST_PANELS = 8, 20
BLOCK_BYTES = 1 << 25
"""The scores of a block: 120 query tokens of GPT-2's vocabulary take 24 MB; of larger vocabularies fewer."""


@dataclass(frozen=True)
class Scorer:
    """Anything that scores keys for queries as a product of thin factors: a head, or a baseline of one column."""

    query: Float[np.ndarray, "token d_head"]
    key: Float[np.ndarray, "token d_head"]


@dataclass(frozen=True)
class Columns:
    """Where keys stand: key order[c] in column c, strata side by side, stratum s from bounds[s] to bounds[s + 1]."""

    order: Int64[np.ndarray, "token"]
    bounds: Int64[np.ndarray, "stratum_and_end"]

    @classmethod
    def by_stratum(cls, strata: Int64[np.ndarray, "token"]) -> Columns:
        order = np.argsort(strata, kind="stable")
        return cls(order, np.concatenate([[0], np.cumsum(np.bincount(strata))]))

    def arrays(self) -> Arrays:
        """As the compiled loops read them."""
        column_of = np.empty_like(self.order)
        column_of[self.order] = np.arange(len(self.order))
        strata = np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))
        return {"columns": column_of, "bounds": self.bounds, "strata": strata}


@dataclass(frozen=True)
class Block:
    """A task: so many queries from number · rows on, for so many scorers, the first of which have nulls too."""

    shared: Shared
    number: int
    n_scorers: int
    n_with_nulls: int
    matched: bool
    partners_matched: bool
    seed: int
    k: int


def panels_of_block(vocab_size: int) -> int:
    """How many panels of query tokens are computed together?"""
    return int(np.clip(BLOCK_BYTES // (4 * vocab_size * product.QUERIES), FEWEST_PANELS, MOST_PANELS))


def rows_of_block(vocab_size: int) -> int:
    """How many query tokens are computed together?"""
    return panels_of_block(vocab_size) * product.QUERIES


def share(
    queries: Int64[np.ndarray, "query"],
    another: Int64[np.ndarray, "query"],
    partners: Int64[np.ndarray, "draw query"],
    scorers: Iterable[Scorer],
    positives: Positives,
    columns: Columns,
    workers: int = 1,
) -> Shared:
    """What blocks of these queries need.

    Row r is also asked for the positives of another[r] and of partners[draw, r].
    """
    arrays = {"indptr": positives.indptr, "keys": positives.keys, "weights": positives.weights}
    arrays |= {"asked": queries, "another": another, "partners": partners, **columns.arrays()}

    def panels(scorer: Scorer) -> tuple[np.ndarray, np.ndarray]:
        query, key = _single(scorer.query[queries]), _single(scorer.key[columns.order])
        return product.query_panels(query), product.key_panels(key)

    for number, (query, key) in enumerate(thread_map(panels, scorers, workers)):
        arrays |= {f"query-{number}": query, f"key-{number}": key}
    return Shared(arrays)


def _single(vectors: Float[np.ndarray, "token d_head"]) -> Float32[np.ndarray, "token d_head"]:
    return vectors.astype(np.float32, copy=False)


class Shared:
    """The arrays that all threads read, by name, and one buffer a thread for the scores of a block."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._of_thread = threading.local()

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    @property
    def room(self) -> Float32[np.ndarray, "score"]:
        """Made once a thread: memory that is new for every block would cost a tenth of the time."""
        if not hasattr(self._of_thread, "room"):
            size = rows_of_block(len(self["indptr"]) - 1) * self["key-0"][:, 0].size
            self._of_thread.room = np.empty(size, np.float32)
        room: np.ndarray = self._of_thread.room
        return room


def judge_block(block: Block) -> Arrays:
    """The measures of one block of query tokens: scorer × cell × query × measure; a baseline has no nulls.

    `partner_aurocs` are scorer × draw × query.
    """
    shared = block.shared
    n_panels = panels_of_block(len(shared["indptr"]) - 1)
    panels = slice(block.number * n_panels, (block.number + 1) * n_panels)
    rows = slice(panels.start * product.QUERIES, panels.stop * product.QUERIES)
    asked, another = shared["asked"][rows], shared["another"][rows]
    given = [shared[name] for name in ("indptr", "keys", "weights", "columns", "bounds", "strata")]
    partners = np.ascontiguousarray(shared["partners"][:, rows])
    measures = np.empty((block.n_scorers, CELLS, len(asked), MEASURES))
    partner_aurocs = np.empty((block.n_with_nulls, len(partners), len(asked)))
    for scorer in range(block.n_scorers):
        scores = product.multiply(shared[f"query-{scorer}"][panels], shared[f"key-{scorer}"], shared.room)
        nulls = scorer < block.n_with_nulls
        others = (another, partners) if nulls else (another[:0], partners[:0])
        how = (block.matched, nulls and block.matched, block.partners_matched, block.seed, block.k)
        into = partner_aurocs[scorer] if nulls else np.empty((0, len(asked)))
        measure_rows(scores, asked, *others, *given, *how, measures[scorer], into)
    return {"measures": measures, "partner_aurocs": partner_aurocs}
