"""matplotlib's modules, each imported when it is first used: most answers are never drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib import font_manager, lines, patches, style, text, textpath, ticker

    __all__ = ["font_manager", "lines", "patches", "style", "text", "textpath", "ticker"]
else:
    from importlib import import_module

    def __getattr__(name):
        return import_module(f"matplotlib.{name}")
