"""Are finished counts whole? Their files are those that were written, and their totals agree with each other.

A file's sha256 is computed once for each state of the file: the state (its path, device, inode, size and times of
change) that was found right is remembered, in this process and in the user's cache folder where that can be written to.
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
YOUNG = 2 * 10**9
"""Nanoseconds: a file that was just written may be written again without another time of change."""

REMEMBERED = 1024
"""So many states are kept in the cache folder, an empty file each; the oldest ones go."""

_checked: set[str] = set()


def check_finished(folder: Path, manifest: JsonObject) -> None:
    """Refuse counts of which something is missing, damaged or contradicts the rest."""
    try:
        expected = {name: (int(pin["size"]), str(pin["sha256"])) for name, pin in _pins(manifest).items()}
        int(manifest["tokenizer"]["vocabulary_size"]), str(manifest["tokenizer"]["fingerprint"])
        contradiction = _contradiction(manifest["totals"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CountsError(f"{folder / MANIFEST}: incomplete ({error}); count again into another folder") from error
    if contradiction:
        raise CountsError(f"{folder / MANIFEST}: {contradiction}; delete {folder} and count again")
    for name, (size, sha256) in expected.items():
        _check_file(folder / name, size, sha256)


def _pins(manifest: JsonObject) -> JsonObject:
    return {name: manifest["files"][name] for name in (BIGRAMS, TOKENS)}


def _contradiction(totals: JsonObject) -> str | None:
    """What can't be in these totals: every token but the first of its document is the second of a bigram."""
    damaged = [name for name in TOTALS if not _is_count(totals[name])]
    if damaged:
        raise ValueError(f"totals: {damaged[0]} is no count")
    tokens, bigrams = totals["tokens"], totals["bigrams"]
    with_tokens = totals.get("documents_with_tokens")
    fewest = tokens - (totals["documents"] if with_tokens is None else with_tokens)
    most = tokens if with_tokens is None else fewest  # counts of format 1 don't say how many documents are empty
    if fewest <= bigrams <= most:
        return None
    return f"{bigrams} bigrams of {tokens} tokens in {totals['documents']} documents, where at least {fewest} must be"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 2**63


def _check_file(path: Path, size: int, sha256: str) -> None:
    """Refuse a file that is not the one that was written."""
    advice = f"delete {path.parent} and count again"
    if not path.is_file():
        raise CountsError(f"{path}: missing; {advice}")
    state = path.stat()
    if state.st_size != size:
        raise CountsError(f"{path}: {state.st_size} bytes long instead of {size}; {advice}")
    name = _name_of(path, state, sha256)
    if _is_remembered(name):
        return
    if file_hash(path)["sha256"] != sha256:
        raise CountsError(f"{path}: damaged (its sha256 is not the manifest's); {advice}")
    is_young = time.time_ns() - max(state.st_mtime_ns, state.st_ctime_ns) < YOUNG
    if not is_young and _name_of(path, path.stat(), sha256) == name:
        _remember(name)


def _name_of(path: Path, state: os.stat_result, sha256: str) -> str:
    """One word for a state of a file and what its content was found to be."""
    times = (state.st_mtime_ns, state.st_ctime_ns)
    described = (os.path.realpath(path), state.st_dev, state.st_ino, state.st_size, *times, sha256)
    return hashlib.sha256(ascii(described).encode()).hexdigest()


def _is_remembered(name: str) -> bool:
    folder = _cache_folder()
    if name in _checked or folder is None:
        return name in _checked
    try:
        open_cached(folder / name).close()
    except OSError:
        return False
    return True


def _remember(name: str) -> None:
    """In vain where there is no cache folder: then the next process computes again."""
    _checked.add(name)
    folder = _cache_folder()
    if folder is None:
        return
    try:
        make_cache_folder(folder)
        open_cached(folder / name, os.O_CREAT).close()
        oldest_first = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in oldest_first[:-REMEMBERED]:
            path.unlink(missing_ok=True)
    except OSError:
        return


def _cache_folder() -> Path | None:
    return cache_folder("checked")
