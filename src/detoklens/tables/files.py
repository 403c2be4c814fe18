"""Tables as files: parquet with provenance and a checksum, and the same table as CSV; partial results as files.

The parquet metadata holds the SHA-256 of the whole file, computed with zeros in place of the checksum itself, so a
flipped bit is detected anywhere: in a column, a page header, the provenance or the checksum.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from detoklens.errors import OutputError, first_line
from detoklens.tokens.tokenizer_files import library_call
from detoklens.version import __version__
from detoklens.writing import make_folder, plain_output_errors, refuse_link, whole_files, write_whole

if TYPE_CHECKING:
    from detoklens.tables.schema import Schema


FORMULA = r"^'*[=+\-@\t\r\n＝＋－＠]"
NOTE = (
    "In CSV, text that starts with `=`, `+`, `-`, `@`, a tab or a line break (possibly after apostrophes) is prefixed "
    "with an apostrophe, so spreadsheets don't run it as a formula. Numbers, and all values in parquet, are unchanged."
)


def csv_bytes(frame: pl.DataFrame) -> bytes:
    """The table as CSV, with text escaped that looks like a formula."""
    looks_like_formula = pl.col(pl.String).str.contains(FORMULA)
    safe = pl.when(looks_like_formula).then(pl.lit("'") + pl.col(pl.String)).otherwise(pl.col(pl.String))
    return frame.with_columns(safe.name.keep()).write_csv().encode()


@dataclass(frozen=True)
class Provenance:
    """Everything that determines a table's numbers and nothing else; the same question has the same provenance."""

    command: str
    model: str
    model_fingerprint: str
    tokenizer_fingerprint: str | None = None
    counts_fingerprint: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """Parse what `to_json` wrote; raise a ValueError or TypeError for anything else."""
        fields = json.loads(text)
        if not isinstance(fields, dict) or not isinstance(fields.get("options"), dict):
            raise ValueError("its provenance is not an object with options")
        found = cls(**fields)
        texts = (found.command, found.model, found.model_fingerprint, found.version)
        optional = (found.tokenizer_fingerprint, found.counts_fingerprint)
        if not all(isinstance(each, str) for each in (*texts, *(each for each in optional if each is not None))):
            raise ValueError("its provenance has fields of other types")
        if found.to_json() != text:
            raise ValueError("its provenance is not written as detoklens writes it")
        return found

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, default=str)


MARK, ABOUT, TABLE = "detoklens", "detoklens.answer", "detoklens.table"
"""Metadata keys: the provenance, the description of the answer, and the name of the table."""
CSV_SHA256, SHA256 = "detoklens.csv_sha256", "detoklens.sha256"
"""Metadata keys: the checksums of the CSV file and of the parquet file itself."""
NO_DIGEST = b"0" * 64


class DamagedTableError(OutputError):
    """A table written by detoklens has been changed or damaged."""


@dataclass(frozen=True)
class StoredTable:
    """A parquet file with a valid checksum."""

    path: Path
    content: bytes
    metadata: dict[str, str]

    def frame(self) -> pl.DataFrame:
        """Read the table, with pyarrow: polars ends the process if a page states a negative number of values."""
        with _polars_call(self.path):
            return pl.read_parquet(BytesIO(self.content), use_pyarrow=True)

    def check_csv(self) -> None:
        """Raise a DamagedTableError if the CSV file is missing or changed."""
        path = self.path.with_suffix(".csv")
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        except OSError as error:
            raise DamagedTableError(f"{path}: {error.strerror}") from error
        if digest != self.metadata.get(CSV_SHA256):
            raise DamagedTableError(f"{path} is {'missing' if digest is None else 'damaged'}")


def write_tables(
    tables: Mapping[Path, tuple[Schema, pl.DataFrame]], provenance: Provenance, about: str = "", claimed: bool = False
) -> list[Path]:
    """Write each table as parquet and as CSV, all of them or none; `claimed` as for `read_stored`."""
    contents: dict[Path, bytes | memoryview] = {}
    for path, (schema, frame) in tables.items():
        conformed = schema.conform(frame)
        csv = csv_bytes(conformed)
        metadata = {MARK: provenance.to_json(), ABOUT: about, TABLE: schema.name}
        contents[path] = sealed(conformed, metadata | {CSV_SHA256: hashlib.sha256(csv).hexdigest()})
        contents[path.with_suffix(".csv")] = csv
    for folder in {path.parent for path in tables}:
        make_folder(folder)
    for path in tables:
        _refuse_foreign(path, claimed)
    with whole_files(*contents) as partial_paths:
        for partial, content in zip(partial_paths, contents.values(), strict=True):
            partial.write_bytes(content)
    return list(tables)


def parquet_bytes(frame: pl.DataFrame, metadata: dict[str, str] | None = None) -> memoryview:
    """The table as parquet, in memory, so that Python's file writing reports a full disk."""
    content = BytesIO()
    frame.write_parquet(content, compression="zstd", metadata=metadata)
    return content.getbuffer()


def sealed(frame: pl.DataFrame, metadata: dict[str, str]) -> bytes:
    """The table as parquet with its own checksum in the metadata."""
    content = bytearray(parquet_bytes(frame, metadata | {SHA256: NO_DIGEST.decode()}))
    place = _place_of_digest(content)
    if place is None:
        raise ValueError("polars did not write the checksum's metadata entry as the parquet format specifies")
    content[place] = hashlib.sha256(content).hexdigest().encode()
    return bytes(content)


def read_stored(path: Path, claimed: bool = False) -> StoredTable | None:
    """Read a table written by detoklens; None for other files, a DamagedTableError if the checksum is wrong.

    In a folder that a report has `claimed`, what isn't a parquet file at all (cut off, emptied) is a damaged table too.
    """
    if not path.is_file():
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedTableError(f"{path}: {error.strerror}") from error
    return _stored(path, content, claimed)


def _stored(path: Path, content: bytes, claimed: bool) -> StoredTable | None:
    keys = (MARK, ABOUT, TABLE, CSV_SHA256, SHA256)
    if not any(_entry(key) in content for key in keys):  # damage rarely affects all of them
        if claimed:
            with _polars_call(path):
                pl.read_parquet_schema(BytesIO(content))
        return None
    place = _place_of_digest(content)
    if place is None:
        raise DamagedTableError(f"{path} was written by an earlier version of detoklens, or is damaged")
    blank = content[: place.start] + NO_DIGEST + content[place.stop :]
    if hashlib.sha256(blank).hexdigest().encode() != content[place]:
        raise DamagedTableError(f"{path} is damaged")
    with _polars_call(path):
        metadata = pl.read_parquet_metadata(BytesIO(content))
    return StoredTable(path, content, metadata) if {MARK, ABOUT, TABLE} <= set(metadata) else None


def note_recomputed(reason: object) -> None:
    """Warn that stored work is recomputed; not a note of the answer, which does not change."""
    logging.getLogger("detoklens").warning("detoklens: %s; computing it again", reason)


@contextmanager
def _polars_call(path: Path) -> Iterator[None]:
    """Turn any error of polars, including panics of its Rust code, into a DamagedTableError."""

    def refusal(reason: str) -> DamagedTableError:
        return DamagedTableError(f"{path} can't be read ({reason})")

    try:
        with library_call(refusal):
            yield
    except OSError as error:
        raise refusal(first_line(error)) from error


def _entry(key: str) -> bytes:
    """The bytes of a metadata key in a parquet footer: two string fields in thrift's compact protocol.

    Neither JSON, which escapes control characters, nor the columns, which precede the footer, can imitate them.
    """
    return b"\x18" + bytes([len(key)]) + key.encode() + b"\x18"


def _place_of_digest(content: bytes | bytearray) -> slice | None:
    """The bytes of a file that hold its checksum."""
    entry = _entry(SHA256) + bytes([len(NO_DIGEST)])
    found = content.rfind(entry)
    return None if found < 0 else slice(found + len(entry), found + len(entry) + len(NO_DIGEST))


def _refuse_foreign(path: Path, claimed: bool) -> None:
    """Refuse to overwrite files not written by detoklens; its own damaged tables are overwritten."""
    refusal = "was not written by detoklens and is not overwritten; choose another folder, or delete it"
    csv = path.with_suffix(".csv")
    with plain_output_errors(path):
        if not path.exists():
            if csv.exists() and not claimed:
                raise OutputError(f"{csv} {refusal}")
            return
        try:
            is_foreign = not path.is_file() or _stored(path, path.read_bytes(), claimed) is None
        except DamagedTableError:
            is_foreign = False
        if is_foreign:
            raise OutputError(f"{path} {refusal}")


Arrays = Mapping[str, np.ndarray]
DIGEST_SIZE = hashlib.sha256().digest_size

PARTS_FORMAT = 4
"""Increased when blocks change; parts of older versions are then ignored."""


class Parts:
    """A folder of partial results, with which the same question continues after an interruption.

    Its name contains a hash of the question (model, options, documents, version) and of the format, so different
    questions never mix. Each part is a SHA-256 followed by an npz file, written atomically. Damaged parts are
    recomputed; all parts are removed when the answer is finished.
    """

    def __init__(self, folder: Path, question: str = "", within: Path | None = None) -> None:
        self.folder, self._question, self._top = folder, question, within or folder

    @classmethod
    def of_question(cls, out: Path, provenance: Provenance) -> Parts:
        """The parts of this question under `out`; the folder is created with the first part."""
        question = provenance.to_json()
        digest = hashlib.sha256(f"{PARTS_FORMAT} {question}".encode()).hexdigest()
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
