"""Results of finished blocks that outlive an interruption: a rerun of the same question continues where it stopped.

The folder's name carries a hash of the question (model, options, documents, version) and of how work is cut and kept,
so work on another question is neither mixed in nor lost. Each part is an npz file after its SHA-256, written whole or
not at all. A damaged part is computed again. Parts of a finished answer are removed.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np

from detoklens.tables.files import Provenance, note_recomputed
from detoklens.writing import make_folder, refuse_link, write_whole

Arrays = Mapping[str, np.ndarray]
DIGEST_SIZE = hashlib.sha256().digest_size

FORMAT = 3
"""Raised whenever blocks are cut differently or hold something else: parts of an older detoklens are then ignored."""


class Parts:
    """Numbered sets of arrays in a folder of their own."""

    def __init__(self, folder: Path, question: str = "", within: Path | None = None) -> None:
        self.folder, self._question, self._top = folder, question, within or folder

    @classmethod
    def of_question(cls, out: Path, provenance: Provenance) -> Parts:
        """The parts of this very question under `out`; nothing is written before the first of them is kept."""
        question = provenance.to_json()
        digest = hashlib.sha256(f"{FORMAT} {question}".encode()).hexdigest()
        name = f".{provenance.command}-{digest[:16]}.parts"
        return cls(out / name, question)

    def under(self, name: str) -> Parts:
        """Parts of another kind, removed together with these."""
        return Parts(self.folder / name, self._question, self._top)

    def __contains__(self, number: int) -> bool:
        return self._path(number).is_file()

    def load(self, number: int) -> dict[str, np.ndarray] | None:
        """The arrays of one part; None where they are missing, and where they are damaged, which the user is told."""
        path = self._path(number)
        try:
            stored = path.read_bytes() if path.is_file() else None
        except OSError:
            stored = b""
        if stored is None:
            return None
        content = memoryview(stored)[DIGEST_SIZE:]
        if hashlib.sha256(content).digest() != stored[:DIGEST_SIZE]:
            note_recomputed(f"{path} is damaged")
            return None
        arrays = np.load(BytesIO(content), allow_pickle=False)
        return {name: arrays[name] for name in arrays.files}

    def save(self, number: int, arrays: Arrays) -> None:
        """Keep one part; next to the first one lies the question, for people to read."""
        for folder in (self.folder, *self.folder.parents):
            refuse_link(folder)
            if folder == self._top:
                break
        is_first = not self.folder.is_dir()
        make_folder(self.folder)
        if is_first and self._question:
            write_whole(self.folder / "question.json", self._question.encode())
        content = BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        write_whole(self._path(number), hashlib.sha256(content.getbuffer()).digest() + content.getvalue())

    def remove(self) -> None:
        """The work is finished: remove its parts."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.npz"
