"""Short texts through the first blocks of the real model, and a cache of the vectors it computes, one file per set.

A cache file starts with one line of JSON, which holds everything that determines the vectors and their sha256; the
vectors follow. Files are written atomically. A file is only read if it belongs to this user, its first line is the one
expected, and the sha256 matches.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int

from detoklens.errors import OutputError
from detoklens.model.checks import is_in_a_file
from detoklens.weights.blocks import real_model
from detoklens.weights.checkpoint import Checkpoint
from detoklens.writing import (
    CACHE_VARIABLE,
    OWNER,
    cache_folder,
    keeps_nothing,
    make_cache_folder,
    open_cached,
    remove_leftovers,
    whole_files,
)

BATCH = 256  # texts: with 3 tokens each and a width of 4,096, the states of a block take 12 MB
FOLDER = "vectors"
SUFFIX = ".vectors"
FORMAT = 1
"""Increase it whenever the same description yields other numbers; older files are then ignored."""
MOST_BYTES = 4 * 10**9
"""Size limit of the cache; the least recently used files are removed first."""
LONGEST_LINE = 1 << 20

Texts = Int[np.ndarray, "text place"]
Vectors = Float32[np.ndarray, "row d_model"]


def batches(texts: Texts, beginning: tuple[int, ...]) -> list[Texts]:
    """Texts with the BOS token in front, in batches."""
    texts = np.concatenate([np.tile(np.array(beginning, np.int64), (len(texts), 1)), texts], axis=1)
    return [texts[begin : begin + BATCH] for begin in range(0, len(texts), BATCH)]


def describe_vectors(checkpoint: Checkpoint, layer: int, beginning: tuple[int, ...], dtype: str) -> dict[str, Any]:
    """Everything that determines, to the last bit, what enters a layer at the position of each token after BOS."""
    import torch

    readers = ("torch", "transformers", "gguf") if is_in_a_file(checkpoint) else ("torch", "transformers")
    return {
        "vectors": "what enters the layer at the place of each token behind the beginning",
        "layer": layer,
        "model": real_model(checkpoint, layer + 1),
        "beginning": beginning,
        "dtype": dtype,
        "batch": BATCH,
        "computed_with": {name: version(name) for name in readers},
        "precision": torch.get_float32_matmul_precision(),
        "processor": torch.backends.cpu.get_cpu_capability(),
    }


def cached_vectors(
    described: Mapping[str, Any],
    shape: tuple[int, int],
    compute: Callable[[], Vectors],
    say: Callable[[str], None],
    is_still_so: Callable[[], bool] = lambda: True,
) -> Vectors:
    """The cached vectors of this description; computed, and cached if possible, where there are none.

    After computing, `is_still_so` tells whether the model has stayed the same.
    """
    folder = cache_folder(FOLDER)
    line = json.dumps({"format": FORMAT, "shape": shape, **described}, sort_keys=True)
    if folder is None:
        if not keeps_nothing():
            say(f"vectors are not cached without a home folder; set {CACHE_VARIABLE} to a folder for them")
        return compute()
    path = folder / f"{hashlib.sha256(line.encode()).hexdigest()[:32]}{SUFFIX}"
    found = _read(path, line, shape, say)
    if found is not None:
        return found
    vectors = np.ascontiguousarray(compute(), dtype="<f4")
    not_cached = f"the {len(vectors):,} vectors are not cached"
    if not is_still_so():
        say(f"{not_cached}: the model changed during the run, so the results may mix two states; run again")
        return vectors
    if vectors.nbytes > MOST_BYTES:
        say(f"{not_cached}: {_gigabytes(vectors)} exceed the cache's limit of {MOST_BYTES / 1e9:.0f} GB")
        return vectors
    try:
        _keep(path, line, vectors)
    except (OSError, OutputError) as error:
        reason = error if isinstance(error, OutputError) else f"{error.strerror or error} ({folder})"
        say(f"{not_cached}: {reason}; set {CACHE_VARIABLE} to another folder")
        return vectors
    try:
        _remove_oldest(folder)
    except OSError as error:
        say(f"older cached vectors can't be removed: {error.strerror or error} ({folder}); remove them by hand")
    return vectors


def _first_line(line: str, vectors: Vectors) -> bytes:
    digest = hashlib.sha256(vectors.data.cast("B")).hexdigest()
    return f'{{"of": {line}, "sha256": "{digest}"}}\n'.encode()


def _read(path: Path, line: str, shape: tuple[int, int], say: Callable[[str], None]) -> Vectors | None:
    """The vectors in a file; None if it does not exist or, with a note, if it is damaged."""
    try:
        with open_cached(path) as file:
            first = file.readline(LONGEST_LINE)
            is_whole = os.fstat(file.fileno()).st_size == len(first) + 4 * shape[0] * shape[1]
            vectors = np.fromfile(file, "<f4").reshape(shape) if is_whole else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        say(f"{path} is not used ({error.strerror or error}); computing its vectors again")
        return None
    if vectors is None or first != _first_line(line, vectors):
        say(f"{path} is damaged; computing its vectors again")
        return None
    with suppress(OSError):
        os.utime(path)  # recently used
    return vectors


def _keep(path: Path, line: str, vectors: Vectors) -> None:
    make_cache_folder(path.parent)
    remove_leftovers(path.parent, "*")
    if 2 * vectors.nbytes > shutil.disk_usage(path.parent).free:
        raise OSError(f"{_gigabytes(vectors)} are more than half of the disk's free space")
    with whole_files(path, mode=OWNER) as (partial,), partial.open("wb") as file:
        file.write(_first_line(line, vectors))
        vectors.tofile(file)


def _gigabytes(vectors: Vectors) -> str:
    return f"{vectors.nbytes / 1e9:.1f} GB"


def _remove_oldest(folder: Path) -> None:
    """Keep the most recently used files up to the limit; other processes may do the same at the same time."""
    states = []
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(FileNotFoundError):
            states.append((path.stat(), path))
    kept = 0
    for state, path in sorted(states, key=lambda each: each[0].st_mtime_ns, reverse=True):
        kept += state.st_size
        if kept > MOST_BYTES:
            path.unlink(missing_ok=True)
