"""Partial results on disk: after an interruption, the same question continues where it stopped.

The folder's name contains a hash of the question (model, options, documents, version) and of the format, so different
questions never mix. Each part is a SHA-256 followed by an npz file, written atomically. Damaged parts are recomputed;
all parts are removed when the answer is finished.
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

FORMAT = 4
"""Increased when blocks change; parts of older versions are then ignored."""


class Parts:
    """A folder of numbered sets of arrays."""

    def __init__(self, folder: Path, question: str = "", within: Path | None = None) -> None:
        self.folder, self._question, self._top = folder, question, within or folder

    @classmethod
    def of_question(cls, out: Path, provenance: Provenance) -> Parts:
        """The parts of this question under `out`; the folder is created with the first part."""
        question = provenance.to_json()
        digest = hashlib.sha256(f"{FORMAT} {question}".encode()).hexdigest()
        name = f".{provenance.command}-{digest[:16]}.parts"
        return cls(out / name, question)

    def under(self, name: str) -> Parts:
        """A subfolder of parts of another kind, removed together with these."""
        return Parts(self.folder / name, self._question, self._top)

    def of_nested(self, provenance: Provenance) -> Parts:
        """A subfolder of parts of a question that this one asks, removed together with these."""
        nested = Parts.of_question(self.folder, provenance)
        return Parts(nested.folder, nested._question, self._top)

    def __contains__(self, number: int) -> bool:
        return self._path(number).is_file()

    def load(self, number: int) -> dict[str, np.ndarray] | None:
        """The arrays of one part; None if missing, or, with a warning, if damaged."""
        path = self._path(number)
        if not path.is_file():
            return None
        try:
            stored = path.read_bytes()
            content = memoryview(stored)[DIGEST_SIZE:]
            if hashlib.sha256(content).digest() != stored[:DIGEST_SIZE]:
                raise ValueError("wrong checksum")
            with np.load(BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception:  # numpy raises errors of many types at an archive that isn't one
            note_recomputed(f"{path} is damaged")
            return None

    def save(self, number: int, arrays: Arrays) -> None:
        """Store one part; the first also stores the question as question.json."""
        for folder in (self.folder, *self.folder.parents):
            refuse_link(folder)
            if folder == self._top:
                break
        make_folder(self.folder)
        described = self.folder / "question.json"
        if self._question and not described.is_file():  # the folder may exist for the parts of nested questions
            write_whole(described, self._question.encode())
        content = BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        write_whole(self._path(number), hashlib.sha256(content.getbuffer()).digest() + content.getvalue())

    def remove(self) -> None:
        """Remove all parts of a finished answer."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.npz"
