"""Tables as files: parquet with provenance and a checksum inside, and the same table as CSV.

The parquet metadata holds the SHA-256 of the whole file, computed with zeros in its own place, so that a flipped bit is
noticed wherever it is: in a column, in a page header, in the provenance or in the checksum.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from detoklens.errors import OutputError, first_line
from detoklens.tokens.tokenizer_files import library_call
from detoklens.version import __version__
from detoklens.writing import make_folder, plain_output_errors, whole_files

if TYPE_CHECKING:
    from detoklens.tables.schema import Schema


FORMULA = r"^'*[=+\-@\t\r\n＝＋－＠]"
NOTE = (
    "In CSV, a text that begins with `=`, `+`, `-`, `@`, a tab or a line break (also behind apostrophes) has an "
    "apostrophe in front, so that no spreadsheet takes it for a formula; numbers are as they are. Parquet has every "
    "text as it is."
)


def csv_bytes(frame: pl.DataFrame) -> bytes:
    """The table as the content of a CSV file."""
    looks_like_formula = pl.col(pl.String).str.contains(FORMULA)
    safe = pl.when(looks_like_formula).then(pl.lit("'") + pl.col(pl.String)).otherwise(pl.col(pl.String))
    return frame.with_columns(safe.name.keep()).write_csv().encode()


@dataclass(frozen=True)
class Provenance:
    """All that decides a table's numbers, and nothing that does not: the same question has the same provenance."""

    command: str
    model: str
    model_fingerprint: str
    tokenizer_fingerprint: str | None = None
    counts_fingerprint: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """A provenance as `to_json` wrote it; a ValueError or TypeError where it is something else."""
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
"""Metadata keys: the provenance, the description of the answer, and which of its tables this is."""
CSV_SHA256, SHA256 = "detoklens.csv_sha256", "detoklens.sha256"
"""Metadata keys: the checksum of the CSV file written with the table, and that of the parquet file itself."""
NO_DIGEST = b"0" * 64


class DamagedTableError(OutputError):
    """A table that detoklens wrote is no longer what was written."""


@dataclass(frozen=True)
class StoredTable:
    """A parquet file whose checksum is right."""

    path: Path
    content: bytes
    metadata: dict[str, str]

    def frame(self) -> pl.DataFrame:
        """The table itself."""
        with _polars_call(self.path):
            return pl.read_parquet(BytesIO(self.content))

    def check_csv(self) -> None:
        """Refuse a table whose CSV file is missing, or is no longer what was written."""
        path = self.path.with_suffix(".csv")
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        except OSError as error:
            raise DamagedTableError(f"{path}: {error.strerror}") from error
        if digest != self.metadata.get(CSV_SHA256):
            raise DamagedTableError(f"{path} is {'missing' if digest is None else 'damaged'}")


def write_tables(
    tables: Mapping[Path, tuple[Schema, pl.DataFrame]], provenance: Provenance, about: str = ""
) -> list[Path]:
    """Write each table to its parquet file and to a CSV file of the same name, all of them or none."""
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
        _refuse_foreign(path)
    with whole_files(*contents) as partial_paths:
        for partial, content in zip(partial_paths, contents.values(), strict=True):
            partial.write_bytes(content)
    return list(tables)


def parquet_bytes(frame: pl.DataFrame, metadata: dict[str, str] | None = None) -> memoryview:
    """A table as the content of a parquet file, made in memory: Python's own writing then meets a full disk."""
    content = BytesIO()
    frame.write_parquet(content, compression="zstd", metadata=metadata)
    return content.getbuffer()


def sealed(frame: pl.DataFrame, metadata: dict[str, str]) -> bytes:
    """A table as the content of a parquet file with its own checksum in its metadata."""
    content = bytearray(parquet_bytes(frame, metadata | {SHA256: NO_DIGEST.decode()}))
    place = _place_of_digest(content)
    if place is None:
        raise ValueError("polars did not write the checksum's metadata entry as the parquet format says")
    content[place] = hashlib.sha256(content).hexdigest().encode()
    return bytes(content)


def read_stored(path: Path) -> StoredTable | None:
    """A table that detoklens wrote; None for any other file, a DamagedTableError where the checksum is wrong."""
    if not path.is_file():
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedTableError(f"{path}: {error.strerror}") from error
    if not _is_ours(content):
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


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a table that detoklens wrote; empty for any other file."""
    try:
        stored = read_stored(path)
    except DamagedTableError:
        return {}
    return {} if stored is None else stored.metadata


def note_recomputed(reason: object) -> None:
    """Tell the user that kept work is not used; not as a note of the answer, which is the same without the damage."""
    logging.getLogger("detoklens").warning("detoklens: %s; computing it again", reason)


@contextmanager
def _polars_call(path: Path) -> Iterator[None]:
    """Whatever polars makes of a hostile file, a panic of its Rust code too, is one line."""

    def refusal(reason: str) -> DamagedTableError:
        return DamagedTableError(f"{path} can't be read ({reason})")

    try:
        with library_call(refusal):
            yield
    except OSError as error:
        raise refusal(first_line(error)) from error


def _entry(key: str) -> bytes:
    """How a parquet footer spells a metadata key before its value: thrift's compact protocol, two fields of text.

    JSON escapes control characters, so no provenance or description can imitate it, and columns come before the footer.
    """
    return b"\x18" + bytes([len(key)]) + key.encode() + b"\x18"


def _is_ours(content: bytes) -> bool:
    """Whether any of the metadata keys is there: damage seldom hits all of them."""
    return any(_entry(key) in content for key in (MARK, ABOUT, TABLE, CSV_SHA256, SHA256))


def _place_of_digest(content: bytes | bytearray) -> slice | None:
    """Where a file keeps its checksum."""
    entry = _entry(SHA256) + bytes([len(NO_DIGEST)])
    found = content.rfind(entry)
    return None if found < 0 else slice(found + len(entry), found + len(entry) + len(NO_DIGEST))


def _refuse_foreign(path: Path) -> None:
    """Refuse to overwrite a file that detoklens did not write; damaged tables of ours are overwritten."""
    refusal = "was not written by detoklens and is not overwritten; choose another folder, or delete it"
    with plain_output_errors(path):
        csv = path.with_suffix(".csv")
        if not path.exists() and csv.exists():
            raise OutputError(f"{csv} {refusal}")
        if path.exists() and not (path.is_file() and _is_ours(path.read_bytes())):
            raise OutputError(f"{path} {refusal}")
