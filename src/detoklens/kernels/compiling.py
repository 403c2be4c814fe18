"""Compile loops with numba, and cache them if any folder is writable.

numba caches compiled loops next to the source or in the user's home, and refuses to cache if it can write to neither,
as in some containers. Then a temporary folder is used for this run and its workers. If there is none, or the disk is
full, every process compiles its own loops. The numbers are the same.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

from detoklens.parallel import WORKER_VARIABLE
from detoklens.writing import scratch_folder

FOLDER_VARIABLE = "NUMBA_CACHE_DIR"


class LoopCache(FunctionCache):  # type: ignore[misc]
    """numba's cache of compiled loops, but a full disk is not an error."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The cached loop; None if it has to be compiled, which is announced on a terminal.

        A loop that is compiled already needs neither numba's compiler, which takes a fifth of a second to load, nor its
        extensions: importing awkward takes longer than most questions on the demo.
        """
        rtsys.initialize(target_context)  # arrays
        try:
            loop = self._load_overload(sig, target_context)
        except OSError:
            loop = None
        if loop is None and sys.stderr.isatty():
            _warn_once("compiling the loops of this command, once; it starts at once from then on", by_worker=True)
        return loop

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            # An index without its data could name the data of an older source.
            Path(self.cache_path, f"{self._impl.filename_base}.nbi").unlink(missing_ok=True)
            _warn_once(f"compiled loops are not kept: {error.strerror or error}; every process compiles its own")


def compiled(from_python: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba.njit that releases the GIL and caches what it compiles.

    A loop that only other loops call needs no wrapper to be called `from_python`, which takes time to compile.
    """

    def compile_loop(function: Callable[..., Any]) -> Any:
        loop = numba.njit(nogil=True, no_cfunc_wrapper=True, no_cpython_wrapper=not from_python, **options)(function)
        loop._compilation_chain_init_hook = lambda: None  # loads numba's extensions
        if not from_python:  # a call without the wrapper would end the process

            def refuse(*_: Any, **__: Any) -> None:
                raise TypeError(f"{function.__name__} is only compiled for other loops; call it from one")

            loop._insert, loop._compile_for_args = lambda *_, **__: None, refuse
        if (cache_of_loop := _cache_of(function)) is not None:
            loop._cache = cache_of_loop
        return loop

    return compile_loop


def _cache_of(function: Callable[..., Any]) -> LoopCache | None:
    """Where a loop is cached; None if no folder can be written to."""
    try:
        return LoopCache(function)
    except RuntimeError:
        return LoopCache(function) if _use_temporary_folder() else None


@cache
def _use_temporary_folder() -> bool:
    """Let numba and the workers of this process use a temporary folder; False if there is none."""
    problem = "neither its folder nor a home can be written to, so loops are compiled"
    try:
        folder = ExitStack()
        os.environ[FOLDER_VARIABLE] = str(folder.enter_context(scratch_folder()))
    except OSError:
        _warn_once(f"{problem} again in every process; set {FOLDER_VARIABLE} to a folder that keeps them")
        return False
    atexit.register(folder.close)
    numba.config.CACHE_DIR = os.environ[FOLDER_VARIABLE]
    _warn_once(f"{problem} for this run only; set {FOLDER_VARIABLE} to a folder that keeps them")
    return True


@cache
def _warn_once(message: str, by_worker: bool = False) -> None:
    """Log one line, from the process that the user started or, with `by_worker`, also from the first worker."""
    if os.environ.get(WORKER_VARIABLE) in ({None, "1"} if by_worker else {None}):
        logging.getLogger("detoklens").warning("detoklens: %s", message)
