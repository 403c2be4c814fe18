"""matplotlib's modules, each imported when it is first used: most answers are never drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["font_manager", "lines", "patches", "style", "text", "textpath", "ticker"]

if TYPE_CHECKING:
    from matplotlib import font_manager, lines, patches, style, text, textpath, ticker
else:
    from importlib import import_module

    def __getattr__(name):
        if name not in __all__:  # pickle asks every module for names
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"matplotlib.{name}")
