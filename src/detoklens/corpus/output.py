"""The output folder of a count: lock, finished files and leftovers.

While a corpus is counted, everything is in COUNTS/.counting: the lock, the plan, a copy of the tokenizer, the parts. At
the end, the folder holds the three files of the counts and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int64

from detoklens.corpus.manifest import (
    BIGRAM_SCHEMA,
    BIGRAMS,
    MANIFEST,
    TOKEN_SCHEMA,
    TOKENS,
    WORK,
    JsonObject,
    json_text,
    read_json,
)
from detoklens.corpus.pairs import TEMPORARY, WHEN_FULL, Run
from detoklens.errors import OutputError
from detoklens.writing import refuse_links, remove_leftovers, whole_files, write_whole

ROW_GROUP = 1 << 20
"""Rows per row group: what a lookup of one token reads, about 2 MB on disk."""

BIGRAM_ENCODING = {
    "suffix": "DELTA_BINARY_PACKED",
    "prefix": "DELTA_BINARY_PACKED",
    "count": "BYTE_STREAM_SPLIT",  # counts are unordered: delta encoding would double their size
}
COMPRESSION: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "use_dictionary": False}


def write_bigrams(path: Path, groups: Iterable[Run], vocabulary_size: int) -> tuple[int, int]:
    """Write the pairs, streamed as `row_groups`; return the numbers of distinct and of all pairs."""
    rows = total = 0
    with (
        whole_files(path, when_full=WHEN_FULL) as (temporary,),
        pa.OSFile(os.fsencode(temporary), "wb") as file,
        pq.ParquetWriter(file, BIGRAM_SCHEMA, column_encoding=BIGRAM_ENCODING, **COMPRESSION) as writer,
    ):
        for run in groups:
            writer.write_table(_bigram_table(run, vocabulary_size), row_group_size=ROW_GROUP)
            rows += len(run.keys)
            total += int(run.counts.sum())
    return rows, total


def row_groups(blocks: Iterable[Run]) -> Iterator[Run]:
    """Regroup pairs into runs of ROW_GROUP, so that the file's bytes depend on the pairs alone."""
    waiting: list[Run] = []
    rows = 0
    for block in blocks:
        waiting.append(block)
        rows += len(block.keys)
        while rows >= ROW_GROUP:
            joined = _joined(waiting)
            yield Run(joined.keys[:ROW_GROUP], joined.counts[:ROW_GROUP])
            waiting, rows = [Run(joined.keys[ROW_GROUP:], joined.counts[ROW_GROUP:])], rows - ROW_GROUP
    if rows:
        yield _joined(waiting)


def _joined(runs: list[Run]) -> Run:
    return Run(np.concatenate([run.keys for run in runs]), np.concatenate([run.counts for run in runs]))


def _bigram_table(run: Run, vocabulary_size: int) -> pa.Table:
    """A separate function, so that its arrays are freed before the next run is merged."""
    suffixes, prefixes = np.divmod(run.keys, run.keys.dtype.type(vocabulary_size))
    columns = [suffixes.astype(np.uint32), prefixes.astype(np.uint32), run.counts]
    return pa.table(columns, schema=BIGRAM_SCHEMA)


def write_tokens(path: Path, counts: Int64[np.ndarray, "token"], texts: list[str]) -> None:
    """Write every token's count and text, so that counts can be read without the tokenizer."""
    columns = [np.arange(len(counts), dtype=np.uint32), counts, pa.array(texts, pa.string())]
    delta = {"token": "DELTA_BINARY_PACKED", "count": "DELTA_BINARY_PACKED"}
    with (
        whole_files(path, when_full=WHEN_FULL) as (temporary,),
        pa.OSFile(os.fsencode(temporary), "wb") as file,
    ):
        pq.write_table(pa.table(columns, schema=TOKEN_SCHEMA), file, column_encoding=delta, **COMPRESSION)


class OutputFolder:
    """An output folder that only this process may write to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / WORK
        self.parts = self.work / "parts"
        self.tokenizer = self.work / "tokenizer.json"
        self._plan = self.work / "plan.json"

    @property
    def is_complete(self) -> bool:
        return (self.folder / MANIFEST).exists()

    def check_plan(self, plan: JsonObject) -> None:
        """Refuse to mix two different counts; parts without a plan are deleted."""
        if not self.is_complete and not self._plan.exists():
            self.forget_parts()
        if not self.is_complete and not self.finished_parts():
            return
        saved = read_json(self.folder / MANIFEST if self.is_complete else self._plan)
        try:
            changes = _differences(saved, plan, compare_versions=not self.is_complete)
        except (KeyError, TypeError, AttributeError) as error:
            raise OutputError(
                f"{self.folder}: its record of the run is damaged ({error}); choose another folder, or delete it"
            ) from error
        if changes:
            raise OutputError(
                f"{self.folder}: holds counts made with different inputs or options: {'; '.join(changes)}; "
                "choose another folder, or delete it"
            )

    def save_plan(self, plan: JsonObject, tokenizer_json: str) -> None:
        self.parts.mkdir(exist_ok=True)
        write_whole(self.tokenizer, tokenizer_json.encode(), WHEN_FULL)
        write_whole(self._plan, json_text(plan).encode(), WHEN_FULL)

    def finished_parts(self) -> list[Path]:
        return list(self.parts.glob("*.arrow")) if self.parts.is_dir() else []

    def forget_parts(self) -> None:
        shutil.rmtree(self.parts, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Remove the half-written and the spilled files of a killed run, and nothing else."""
        for name in (BIGRAMS, TOKENS, MANIFEST):
            remove_leftovers(self.folder, name)
        remove_leftovers(self.work, "*")
        remove_leftovers(self.parts, "*")
        for path in self.parts.glob(f"*{TEMPORARY}*"):
            path.unlink(missing_ok=True)


def _differences(old: JsonObject, new: JsonObject, compare_versions: bool) -> list[str]:
    """Describe how a new plan differs from an old one; empty if the old run can be resumed."""
    before, now = ({pin["path"]: pin for pin in plan["inputs"]} for plan in (old, new))
    changes = [f"input {path} is missing" for path in before if path not in now]
    changes += [f"input {path} was not there before" for path in now if path not in before]
    changes += [
        f"input {path} has changed ({before[path]['size']} bytes before, {now[path]['size']} now)"
        for path in now
        if path in before and before[path] != now[path]
    ]
    if not changes and list(before) != list(now):
        changes = ["the inputs are in another order"]
    if compare_versions and "tokenized_with" in new and new["tokenized_with"] != old["tokenized_with"]:
        changes.append(f"tokenized with {old['tokenized_with']} before, {new['tokenized_with']} now")
    for section in ("tokenizer", "options") + (("versions",) if compare_versions else ()):
        for name, value in new[section].items():
            saved = old[section].get(name)
            only_laxer = name == "skip_bad" and saved is False and value is True  # finished parts had no bad record
            if saved != value and not only_laxer:
                changes.append(f"{section.removesuffix('s')} {name.replace('_', ' ')} was {saved}, now {value}")
    return changes


@contextlib.contextmanager
def open_output(folder: Path) -> Iterator[OutputFolder]:
    """Create and lock the folder for this run; remove it again if nothing was written."""
    _check_content(folder)
    is_new = not folder.exists()
    output = OutputFolder(folder)
    try:
        output.work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: can't be created ({error.strerror}); choose another folder") from error
    with _locked(output.work / "lock", folder):
        try:
            output.remove_leftovers()
            yield output
        finally:
            if output.is_complete or not output.finished_parts():
                shutil.rmtree(output.work, ignore_errors=True)
            if is_new and not any(folder.iterdir()):
                folder.rmdir()


def _check_content(folder: Path) -> None:
    """Refuse a folder that is neither empty nor one of an earlier count."""
    try:
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder}: is a file; pass a folder")
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    except OSError as error:
        raise OutputError(f"{folder}: can't be read ({error.strerror}); choose another folder") from error
    if names and MANIFEST not in names and WORK not in names:
        shown = ", ".join(sorted(names)[:3])
        raise OutputError(f"{folder}: contains other files ({shown}); choose an empty or a new folder")
    refuse_links(folder)


@contextlib.contextmanager
def _locked(path: Path, folder: Path) -> Iterator[None]:
    """Hold the lock file; the system releases it when this process ends."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except FileNotFoundError:  # a run that just finished removed its folder
            continue
        except OSError as error:
            raise OutputError(f"{path}: can't be opened ({error.strerror}); delete {path.parent}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise OutputError(
                f"{folder}: another run is counting into it; wait for it, or choose another folder"
            ) from error
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                break
        os.close(descriptor)  # the run that held it has removed the file, so this lock is void
    try:
        yield
    finally:
        os.close(descriptor)
