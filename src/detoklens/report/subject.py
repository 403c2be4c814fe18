"""What is a report about? A model, and what is known of text: corpus counts, sampled documents, or neither."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detoklens.corpus.counts import Counts
from detoklens.scores.layer import Layer


@dataclass(frozen=True)
class Subject:
    """The model and the text of one report, and the words to name them on the command line."""

    layer: Layer
    counts: Counts | None = None
    documents: Sequence[np.ndarray] = ()
    model_words: Sequence[str] = ()
    counts_words: Sequence[str] = ()
    text_words: Sequence[str] = ()
    text_note: str = ""
    heads: Sequence[int] | None = None
    seed: int = 0

    def command(self, name: str, *more: object, counts: bool = False, text: bool = False, seed: bool = False) -> str:
        """The command that gives the same numbers as one of the report's steps."""
        words = ["detoklens", name, *self.model_words, *map(str, more)]
        words += self.counts_words if counts else []
        words += self.text_words if text else []
        words += ["--seed", str(self.seed)] if (seed or text) and self.seed else []
        return shlex.join(words)
