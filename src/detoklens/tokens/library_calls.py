"""How do the tokenizing libraries fail? Both are written in Rust, and a panic of theirs is no `Exception`.

Whatever they raise, a panic too, becomes one line here. A panic also writes to descriptor 2 by itself: three lines, or
a hundred where RUST_BACKTRACE is set. That is kept away where a stranger's tokenizer is first tried.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from detoklens.errors import DetokLensError, first_line

STDERR = 2
_STDERR_IS_AWAY = threading.RLock()


@contextmanager
def library_call(refusal: Callable[[str], DetokLensError]) -> Iterator[None]:
    """Raise what `refusal` makes of the library's reason, for any failure of a tokenizing library inside."""
    try:
        yield
    except (DetokLensError, OSError, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, Exception) or _is_panic(error):
            raise refusal(first_line(error)) from error
        raise


@contextmanager
def unheard_panics() -> Iterator[None]:
    """Nothing that is written to descriptor 2 is seen: for short calls, since other threads are not heard either."""
    with _STDERR_IS_AWAY:
        try:
            kept = os.dup(STDERR)
        except OSError:  # closed: nobody would hear it
            yield
            return
        try:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), STDERR)
            yield
        finally:
            os.dup2(kept, STDERR)
            os.close(kept)


def _is_panic(error: BaseException) -> bool:
    """Each library brings a class of its own for its panics, which can't be imported: it is known by its name."""
    return type(error).__name__ == "PanicException"
