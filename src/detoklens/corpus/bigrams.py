"""Bigrams as rows of predecessors: which tokens stand before a token, and how often?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt32


class Predecessors(NamedTuple):
    """The tokens that stand before one token, by id, and how often each does."""

    prefixes: UInt32[np.ndarray, "predecessor"]
    counts: Int64[np.ndarray, "predecessor"]


@dataclass(frozen=True)
class Bigrams:
    """Pairs by suffix in compressed rows: row t of `prefixes` and `counts` is [indptr[t] : indptr[t + 1]]."""

    indptr: Int64[np.ndarray, "token_and_end"]
    prefixes: UInt32[np.ndarray, "pair"]
    counts: Int64[np.ndarray, "pair"]

    def predecessors(self, token: int) -> Predecessors:
        row = slice(self.indptr[token], self.indptr[token + 1])
        return Predecessors(self.prefixes[row], self.counts[row])

    @property
    def suffixes(self) -> UInt32[np.ndarray, "pair"]:
        """The suffix of every pair."""
        rows = np.arange(len(self.indptr) - 1, dtype=np.uint32)
        return np.repeat(rows, np.diff(self.indptr))
