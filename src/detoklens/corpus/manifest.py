"""Plan, manifest and integrity: what was counted, and whether a folder's files are still the ones that were written.

The plan records the inputs, the tokenizer, the options and the versions before the first part is written. The manifest,
written last, adds the totals and the hashes of the files. Neither depends on how the work was distributed: the same
inputs and options give the same bytes.

The sha256 of a finished file is computed once per state of the file (its path, device, inode, size and change times).
States found correct are remembered in this process and, if it is writable, in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from detoklens.errors import CountsError, parse_json
from detoklens.writing import cache_folder, make_cache_folder, open_cached

FORMAT, FORMAT_VERSION = "detoklens counts", 2
BIGRAMS, TOKENS, MANIFEST = "bigrams.parquet", "tokens.parquet", "manifest.json"
WORK = ".counting"
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
