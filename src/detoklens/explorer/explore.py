"""Open the explorer in the browser or in a notebook."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from html import escape
from importlib import import_module

from detoklens.explorer.bundle import add_cards, write_bundle
from detoklens.explorer.server import Server, serving
from detoklens.progress import in_notebook
from detoklens.questions.study import Study
from detoklens.writing import scratch_folder

HEIGHT = 760  # pixels in a notebook
COLAB = "google.colab"  # imported in every notebook there
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # on Linux, one is set if a browser can be shown


class Explorer:
    """A running explorer at `url`, until `close()` or the end of this process; notebooks display it."""

    def __init__(self, name: str, server: Server, stack: ExitStack) -> None:
        self.name, self.url, self.port = name, server.url, server.server_port
        self._stack = stack
        if COLAB in sys.modules:
            self._ipython_display_ = self._show_in_colab
        atexit.register(self.close)  # also keeps it open when nothing else refers to it

    def __repr__(self) -> str:
        return f"Explorer of {self.name} at {self.url}; call close() to stop it"

    def _show_in_colab(self) -> None:
        """Let Colab's own proxy show the page: it strips frames from an output's HTML."""
        import_module(f"{COLAB}.output").serve_kernel_port_as_iframe(self.port, height=str(HEIGHT))

    def _repr_html_(self) -> str:
        title, address = escape(f"Explorer of {self.name}"), escape(self.url)
        return (
            f'<iframe src="{address}" title="{title}" width="100%" height="{HEIGHT}" style="border:0"></iframe>'
            f'<p><a href="{address}" target="_blank" rel="noopener">{title}</a></p>'
        )

    def close(self) -> None:
        """Stop the server and remove its files."""
        atexit.unregister(self.close)
        self._stack.close()


@contextmanager
def served(study: Study, port: int = 0, framed: bool = False, proxied: bool = False) -> Iterator[Server]:
    """Serve a study's explorer, without head cards, inside a `with` block. The port is reserved first."""
    with scratch_folder() as scratch, Server(scratch / "explorer", port, framed, proxied) as server:
        write_bundle(study, server.folder, cards_later=True)
        with serving(server):
            yield server


def explore(study: Study, port: int = 0) -> Explorer:
    """Open the explorer in a notebook or the browser, served in the background; head cards follow when computed."""
    notebook, stack = in_notebook(), ExitStack()
    server = stack.enter_context(served(study, port, framed=notebook, proxied=COLAB in sys.modules))
    separate = Study(study.layer, study.counts, study.texts, study.seed, study.work, study.model_words)

    def add_cards_later() -> None:
        with suppress(Exception):  # the explorer may have been closed and its folder removed
            add_cards(separate, server.folder)

    threading.Thread(target=add_cards_later, daemon=True).start()
    if not notebook:
        open_browser(server.url)
    return Explorer(study.layer.name, server, stack)


def open_browser(url: str) -> bool:
    """Open a URL in the browser; return False without a screen."""
    headless = sys.platform.startswith("linux") and not any(os.environ.get(name) for name in SCREENS)
    return not headless and webbrowser.open(url)
