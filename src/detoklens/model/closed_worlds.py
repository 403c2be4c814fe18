"""Vectors that the real model computed, kept for other questions about the same model: one file for each set of them.

A file begins with one line of JSON, which says what decides its numbers and what their sha256 is; the numbers follow.
It is written whole or not at all, and read only where it belongs to this user, its first line is exactly the one that
was asked for, and the numbers have that sha256.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int

from detoklens.caches import VARIABLE, cache_folder, keeps_nothing, make_cache_folder, open_cached
from detoklens.errors import OutputError
from detoklens.model.first_blocks import Component, FirstBlocks, Passed, is_in_a_file
from detoklens.weights.blocks import real_model
from detoklens.weights.checkpoint import Checkpoint
from detoklens.writing import OWNER, remove_leftovers, whole_files

BATCH = 256  # texts at once: 3 tokens each at a width of 4,096 are 12 MB a state

Texts = Int[np.ndarray, "text place"]


@dataclass(frozen=True)
class ClosedWorlds:
    """Texts of one length through the first blocks, in batches, with what is needed to run them again from any block.

    `beginning` is the token in front of every text; nothing where the model has none.
    """

    blocks: FirstBlocks
    texts: Texts
    beginning: tuple[int, ...]

    @cached_property
    def _passed(self) -> Sequence[Passed]:
        return [self.blocks.run(batch) for batch in batches(self.texts, self.beginning)]

    def last_places(self, after: int) -> Float[np.ndarray, "text d_model"]:
        """The last place of each text after a block."""
        return np.concatenate([passed.last_places(after) for passed in self._passed])

    def without(self, component: Component, after: int) -> Float[np.ndarray, "text d_model"]:
        """The same with a head or an MLP off."""
        return np.concatenate([self.blocks.again(passed, component, after) for passed in self._passed])

    def attention_back(self, layer: int) -> Float[np.ndarray, "head"]:
        """How much does each head of a block attend from the last place to the one before, on average?"""
        looks = [self.blocks.scores(passed, layer)[1][:, :, -1, -2] for passed in self._passed]
        return np.asarray(np.concatenate(looks).mean(axis=0, dtype=np.float64))


def batches(texts: Texts, beginning: tuple[int, ...]) -> list[Texts]:
    """Texts with their beginning, so many at once."""
    texts = np.concatenate([np.tile(np.array(beginning, np.int64), (len(texts), 1)), texts], axis=1)
    return [texts[begin : begin + BATCH] for begin in range(0, len(texts), BATCH)]


def states_alone(blocks: FirstBlocks, batch: Texts, after: Sequence[int]) -> Float[np.ndarray, "block text d_model"]:
    """The last places of one batch after some blocks."""
    passed = blocks.run(batch)
    return np.stack([passed.last_places(layer) for layer in after])


Vectors = Float32[np.ndarray, "row d_model"]

FOLDER = "vectors"
SUFFIX = ".vectors"
FORMAT = 1
"""Goes up whenever the same description stands for other numbers: older files are then left alone."""
MOST_BYTES = 4 * 10**9
"""Of all files together: those that were not asked for the longest go."""
LONGEST_LINE = 1 << 20


def decided_by(checkpoint: Checkpoint, layer: int, beginning: tuple[int, ...], dtype: str) -> dict[str, Any]:
    """All that decides the bits of what enters a layer at the place of each token behind a beginning."""
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


def kept_vectors(
    described: Mapping[str, Any],
    shape: tuple[int, int],
    compute: Callable[[], Vectors],
    say: Callable[[str], None],
    is_still_so: Callable[[], bool] = lambda: True,
) -> Vectors:
    """The vectors of this description: those that were kept, else computed, and kept where that can be done.

    Whether the description still holds is asked when they are computed: else they may be those of another model.
    """
    folder, line = cache_folder(FOLDER), _in_one_line(described, shape)
    if folder is None:
        if not keeps_nothing():
            say(f"vectors are not kept for other questions: there is no home; {VARIABLE} names a folder for them")
        return compute()
    path = folder / f"{hashlib.sha256(line.encode()).hexdigest()[:32]}{SUFFIX}"
    found = _read(path, line, shape, say)
    if found is not None:
        return found
    vectors = np.ascontiguousarray(compute(), dtype="<f4")
    not_kept = f"the {len(vectors):,} vectors are not kept for other questions"
    if not is_still_so():
        say(f"{not_kept}: the model was changed while it was asked; ask again for numbers of one state")
        return vectors
    if vectors.nbytes > MOST_BYTES:
        say(f"{not_kept}: {_gigabytes(vectors)} are more than the {MOST_BYTES / 1e9:.0f} GB that are kept")
        return vectors
    try:
        _keep(path, line, vectors)
    except (OSError, OutputError) as error:
        reason = error if isinstance(error, OutputError) else f"{error.strerror or error} ({folder})"
        say(f"{not_kept}: {reason}; {VARIABLE} names another folder")
        return vectors
    try:
        _remove_oldest(folder)
    except OSError as error:
        say(f"older vectors of other questions can't be removed: {error.strerror or error} ({folder}); remove them")
    return vectors


def _in_one_line(described: Mapping[str, Any], shape: tuple[int, int]) -> str:
    return json.dumps({"format": FORMAT, "shape": shape, **described}, sort_keys=True)


def _first_line(line: str, vectors: Vectors) -> bytes:
    digest = hashlib.sha256(vectors.data.cast("B")).hexdigest()
    return f'{{"of": {line}, "sha256": "{digest}"}}\n'.encode()


def _read(path: Path, line: str, shape: tuple[int, int], say: Callable[[str], None]) -> Vectors | None:
    """The vectors of a file; None where there is none, and where it is damaged, which is said."""
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
        os.utime(path)  # it was asked for
    return vectors


def _keep(path: Path, line: str, vectors: Vectors) -> None:
    """Write them, whole or not at all."""
    make_cache_folder(path.parent)
    remove_leftovers(path.parent, "*")
    if 2 * vectors.nbytes > shutil.disk_usage(path.parent).free:
        raise OSError(f"{_gigabytes(vectors)} are more than half of what the disk has left")
    with whole_files(path, mode=OWNER) as (partial,), partial.open("wb") as file:
        file.write(_first_line(line, vectors))
        vectors.tofile(file)


def _gigabytes(vectors: Vectors) -> str:
    return f"{vectors.nbytes / 1e9:.1f} GB"


def _remove_oldest(folder: Path) -> None:
    """Those that were asked for last stay, as many as there is room for. Others may do the same at the same time."""
    states = []
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(FileNotFoundError):
            states.append((path.stat(), path))
    kept = 0
    for state, path in sorted(states, key=lambda each: each[0].st_mtime_ns, reverse=True):
        kept += state.st_size
        if kept > MOST_BYTES:
            path.unlink(missing_ok=True)
