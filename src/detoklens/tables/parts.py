"""Results of finished blocks that outlive an interruption: a rerun of the same question goes on where it stopped.

The folder's name carries a hash of the question (model, options, documents, version) and of how work is cut and kept,
so work on another question is neither mixed in nor lost. Each part is written under a temporary name and renamed;
finished work is removed.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from detoklens.tables.provenance import Provenance
from detoklens.writing import make_folder, whole_files, write_whole

Arrays = Mapping[str, np.ndarray]

FORMAT = 2
"""Goes up whenever blocks are cut otherwise or hold something else: parts of an older detoklens are then left alone."""


class Parts:
    """Numbered sets of arrays in a folder of their own."""

    def __init__(self, folder: Path, question: str = "") -> None:
        self.folder, self._question = folder, question

    @classmethod
    def of_question(cls, out: Path, provenance: Provenance) -> Parts:
        """The parts of this very question under `out`; nothing is written before the first of them is kept."""
        question = provenance.to_json()
        digest = hashlib.sha256(f"{FORMAT} {question}".encode()).hexdigest()
        name = f".{provenance.command}-{digest[:16]}.parts"
        return cls(out / name, question)

    def under(self, name: str) -> Parts:
        """Parts of another kind, which go when these do."""
        return Parts(self.folder / name, self._question)

    def __contains__(self, number: int) -> bool:
        return self._path(number).is_file()

    def load(self, number: int) -> dict[str, np.ndarray] | None:
        """The arrays of one part; None where they are missing or can't be read."""
        with suppress(OSError, ValueError, EOFError, BadZipFile), self._path(number).open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            return {name: stored[name] for name in stored.files}
        return None

    def save(self, number: int, arrays: Arrays) -> None:
        """Keep one part, whole or not at all; the question lies beside the first one for people to read."""
        is_first = not self.folder.is_dir()
        make_folder(self.folder)
        if is_first and self._question:
            write_whole(self.folder / "question.json", self._question.encode())
        with whole_files(self._path(number)) as (partial,), partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    def remove(self) -> None:
        """The work is finished: its parts go."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.npz"
