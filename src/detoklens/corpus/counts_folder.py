"""The folder of counts: its lock, plan, parts and manifest, and whether its files are still the ones that were written.

While a corpus is counted, everything is in COUNTS/.counting: the lock, the plan, a copy of the tokenizer, the parts. At
the end, the folder holds the three files of the counts and nothing else.

The plan records the inputs, the tokenizer, the options and the versions before the first part is written. The manifest,
written last, adds the totals and the hashes of the files. Neither depends on how the work was distributed: the same
inputs and options give the same bytes.

The sha256 of a finished file is computed once per state of the file (its path, device, inode, size and change times).
States found correct are remembered in this process and, if it is writable, in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from detoklens.errors import CountsError, OutputError, parse_json
from detoklens.writing import (
    cache_folder,
    make_cache_folder,
    open_cached,
    refuse_links,
    remove_leftovers,
    write_whole,
)

FORMAT, FORMAT_VERSION = "detoklens counts", 2
BIGRAMS, TOKENS, MANIFEST = "bigrams.parquet", "tokens.parquet", "manifest.json"
WORK = ".counting"
SPILLED = ".part-"
"""Part of every spilled file's name, so that a later run finds what a killed one left."""
WHEN_FULL = "finished parts are kept: free some space and run the same command again to continue"
BIGRAM_SCHEMA = pa.schema([("suffix", pa.uint32()), ("prefix", pa.uint32()), ("count", pa.int64())])
TOKEN_SCHEMA = pa.schema([("token", pa.uint32()), ("count", pa.int64()), ("text", pa.string())])

TOTALS = ("documents", "tokens", "bigrams", "distinct_bigrams", "replaced_characters", "skipped_records", "text_bytes")

RECENT = 2 * 10**9
"""Nanoseconds: a file written this recently may change again without a new change time."""
MAX_REMEMBERED = 1024
"""States kept in the cache folder, as one empty file each; the oldest are removed first."""

JsonObject = dict[str, Any]
_checked: set[str] = set()


def read_json(path: Path) -> JsonObject:
    """Return a plan or manifest without its checksum; refuse any other or damaged file."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        is_undamaged = content.pop("checksum", None) == _checksum(content)
    except (OSError, ValueError) as error:
        raise CountsError(f"{path}: can't be read as JSON ({error}); count again into another folder") from error
    if content.get("format") != FORMAT:
        raise CountsError(f"{path}: not a manifest of counts; pass a folder written by `detoklens count`")
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise CountsError(f"{path}: counts format {version} is not supported (expected {FORMAT_VERSION}); count again")
    if not is_undamaged:
        raise CountsError(f"{path}: damaged (its checksum is wrong); count again into another folder")
    return content


def json_text(content: JsonObject) -> str:
    """Return the file content of a plan or manifest, including its checksum."""
    return json.dumps(content | {"checksum": _checksum(content)}, indent=2) + "\n"


def _checksum(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_hash(path: Path) -> JsonObject:
    """Return size and sha256 of a finished file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": digest}


def check_integrity(folder: Path, manifest: JsonObject) -> None:
    """Refuse counts with missing, damaged or contradictory parts."""
    try:
        pins = {name: manifest["files"][name] for name in (BIGRAMS, TOKENS)}
        expected = {name: (int(pin["size"]), str(pin["sha256"])) for name, pin in pins.items()}
        int(manifest["tokenizer"]["vocabulary_size"]), str(manifest["tokenizer"]["fingerprint"])
        totals = manifest["totals"]
        for name in (*TOTALS, "documents_with_tokens"):
            if not isinstance(totals[name], int) or not 0 <= totals[name] < 2**63:
                raise ValueError(f"totals: {name} is not a count")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CountsError(f"{folder / MANIFEST}: incomplete ({error}); count again into another folder") from error
    tokens, bigrams, documents = totals["tokens"], totals["bigrams"], totals["documents_with_tokens"]
    if bigrams != tokens - documents:  # every token but the first of its document is the second of a bigram
        raise CountsError(
            f"{folder / MANIFEST}: {bigrams} bigrams, but {tokens} tokens in {documents} documents have "
            f"{tokens - documents}; delete {folder} and count again"
        )
    for name, (size, sha256) in expected.items():
        _check_file(folder / name, size, sha256)


def _check_file(path: Path, size: int, sha256: str) -> None:
    """Refuse a file other than the one that was written."""
    advice = f"delete {path.parent} and count again"
    if not path.is_file():
        raise CountsError(f"{path}: missing; {advice}")
    state = path.stat()
    if state.st_size != size:
        raise CountsError(f"{path}: {state.st_size} bytes long instead of {size}; {advice}")
    key = _state_key(path, state, sha256)
    if _is_remembered(key):
        return
    if file_hash(path)["sha256"] != sha256:
        raise CountsError(f"{path}: damaged (its sha256 is not the manifest's); {advice}")
    is_recent = time.time_ns() - max(state.st_mtime_ns, state.st_ctime_ns) < RECENT
    if not is_recent and _state_key(path, path.stat(), sha256) == key:
        _remember(key)


def _state_key(path: Path, state: os.stat_result, sha256: str) -> str:
    """Return a hash of a file's state and of its content's sha256."""
    times = (state.st_mtime_ns, state.st_ctime_ns)
    described = (os.path.realpath(path), state.st_dev, state.st_ino, state.st_size, *times, sha256)
    return hashlib.sha256(ascii(described).encode()).hexdigest()


def _is_remembered(key: str) -> bool:
    folder = cache_folder("checked")
    if key in _checked or folder is None:
        return key in _checked
    try:
        open_cached(folder / key).close()
    except OSError:
        return False
    return True


def _remember(key: str) -> None:
    """Remember a state in the cache folder; without one, the next process computes the hash again."""
    _checked.add(key)
    folder = cache_folder("checked")
    if folder is None:
        return
    try:
        make_cache_folder(folder)
        open_cached(folder / key, os.O_CREAT).close()
        oldest_first = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in oldest_first[:-MAX_REMEMBERED]:
            path.unlink(missing_ok=True)
    except OSError:
        return


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
        for path in self.parts.glob(f"*{SPILLED}*"):
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
