"""Exploring a study: its bundle in a temporary folder, served to this machine's browser or to a notebook's cell."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from html import escape
from pathlib import Path

from detoklens.explorer.bundle import add_cards, write_bundle
from detoklens.explorer.server import Server, serving
from detoklens.progress import in_notebook
from detoklens.questions.study import Study
from detoklens.scratch import scratch_folder

HEIGHT = 760  # pixels of a notebook's cell
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # who says on Linux that a browser can be seen


class Explorer:
    """An explorer that is open: at `url`, until `close()` or the end of this process; a notebook shows it."""

    def __init__(self, name: str, server: Server, stack: ExitStack) -> None:
        self.name, self.url = name, server.url
        self._stack = stack
        atexit.register(self.close)  # also keeps it open while nobody holds it

    def __repr__(self) -> str:
        return f"Explorer of {self.name} at {self.url}; close() ends it"

    def _repr_html_(self) -> str:
        title, address = escape(f"Explorer of {self.name}"), escape(self.url)
        return (
            f'<iframe src="{address}" title="{title}" width="100%" height="{HEIGHT}" style="border:0"></iframe>'
            f'<p><a href="{address}" target="_blank" rel="noopener">{title}</a></p>'
        )

    def close(self) -> None:
        """End the server and remove what it served."""
        atexit.unregister(self.close)
        self._stack.close()


@contextmanager
def served(study: Study, port: int = 0, framed: bool = False) -> Iterator[Server]:
    """A study's explorer on a port for as long as this lasts, its head cards yet to come.

    The port is taken before the work begins.
    """
    with scratch_folder() as scratch, Server(scratch / "explorer", port, framed) as server:
        write_bundle(study, server.folder, cards_later=True)
        with serving(server):
            yield server


def explore(study: Study, port: int = 0) -> Explorer:
    """Open the explorer in the background: in the cell of a notebook, or in the browser.

    Head cards are computed meanwhile, by a study of their own: this one may be asked other things.
    """
    notebook, stack = in_notebook(), ExitStack()
    server = stack.enter_context(served(study, port, framed=notebook))
    apart = Study(study.layer, study.counts, study.texts, study.seed, study.work, study.model_words)
    threading.Thread(target=_add_cards, args=(apart, server.folder), daemon=True).start()
    if not notebook:
        open_browser(server.url)
    return Explorer(study.layer.name, server, stack)


def _add_cards(study: Study, folder: Path) -> None:
    with suppress(Exception):  # the explorer may have been closed, its folder gone
        add_cards(study, folder)


def open_browser(url: str) -> bool:
    """Show an address to the person at this machine; False where there is no screen."""
    dark = sys.platform.startswith("linux") and not any(os.environ.get(name) for name in SCREENS)
    return not dark and webbrowser.open(url)
