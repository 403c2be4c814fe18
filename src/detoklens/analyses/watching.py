"""How far is it? Long analyses tell whoever asked to be told."""

from __future__ import annotations

from collections.abc import Callable

Watcher = Callable[[int, int], None]  # steps done, steps in all


def unwatched(done: int, total: int) -> None:
    """Nobody asked."""
