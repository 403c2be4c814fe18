"""Integrity of finished counts: their files are the ones that were written, and their totals agree.

The sha256 of a file is computed once per state of the file (its path, device, inode, size and change times). States
found correct are remembered in this process and, if it is writable, in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from detoklens.caches import cache_folder, make_cache_folder, open_cached
from detoklens.corpus.manifest import BIGRAMS, MANIFEST, TOKENS, JsonObject, file_hash
from detoklens.errors import CountsError

TOTALS = ("documents", "tokens", "bigrams", "distinct_bigrams", "replaced_characters", "skipped_records", "text_bytes")
RECENT = 2 * 10**9
"""Nanoseconds: a file written this recently may change again without a new change time."""

MAX_REMEMBERED = 1024
"""States kept in the cache folder, as one empty file each; the oldest are removed first."""

_checked: set[str] = set()


def check_integrity(folder: Path, manifest: JsonObject) -> None:
    """Refuse counts with missing, damaged or contradictory parts."""
    try:
        expected = {name: (int(pin["size"]), str(pin["sha256"])) for name, pin in _pins(manifest).items()}
        int(manifest["tokenizer"]["vocabulary_size"]), str(manifest["tokenizer"]["fingerprint"])
        contradiction = _find_contradiction(manifest["totals"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CountsError(f"{folder / MANIFEST}: incomplete ({error}); count again into another folder") from error
    if contradiction:
        raise CountsError(f"{folder / MANIFEST}: {contradiction}; delete {folder} and count again")
    for name, (size, sha256) in expected.items():
        _check_file(folder / name, size, sha256)


def _pins(manifest: JsonObject) -> JsonObject:
    return {name: manifest["files"][name] for name in (BIGRAMS, TOKENS)}


def _find_contradiction(totals: JsonObject) -> str | None:
    """Check that every token but the first of its document is the second of a bigram."""
    damaged = [name for name in (*TOTALS, "documents_with_tokens") if not _is_count(totals[name])]
    if damaged:
        raise ValueError(f"totals: {damaged[0]} is not a count")
    tokens, bigrams, documents = totals["tokens"], totals["bigrams"], totals["documents_with_tokens"]
    if bigrams == tokens - documents:
        return None
    return f"{bigrams} bigrams, but {tokens} tokens in {documents} documents have {tokens - documents}"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 2**63


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
