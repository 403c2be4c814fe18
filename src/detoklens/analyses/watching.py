"""How far is it? Long analyses tell a watcher, where there is one."""

from __future__ import annotations

from collections.abc import Callable

Watcher = Callable[[int, int], None]  # steps done, steps in all
