"""`detoklens explore`: the first layer in a browser, live, with nothing computed outside it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from detoklens.cli.adapter import Corpus, Model, command_of, open_study
from detoklens.cli.output import say
from detoklens.errors import DetokLensError
from detoklens.explorer.server import Server, serving
from detoklens.questions.parameters import Parameter

OFTEN = 0.2  # seconds between two looks for Ctrl-C


@dataclass(frozen=True)
class Explore:
    """Where the explorer goes."""

    export: Annotated[
        Path | None,
        Parameter("Write it as a static site that any web host can serve, and end.", metavar="DIR"),
    ] = None
    port: Annotated[int, Parameter("Of 127.0.0.1. Default: a free one.", least=0)] = 0
    no_open: Annotated[bool, Parameter("Do not open the browser.")] = False


def explore(model: Model, asked: Explore, corpus: Corpus) -> None:
    """Explore a model's first layer in the browser: tokens, texts, positions, heads.

    Writes a folder of numbers with a page and serves it to this machine alone until Ctrl-C; head cards come while the
    page is open already. A folder that --export wrote can be named in place of a model: it is served as it is.

    Example: detoklens explore gpt2 --counts counts --export gpt2-explorer
    """
    from detoklens.explorer.bundle import is_bundle

    if asked.export is not None and (asked.port or asked.no_open):
        raise DetokLensError("--export serves nothing, so --port and --no-open have no part in it; leave them out")
    if is_bundle(Path(model.model)):
        _serve_exported(Path(model.model), asked, corpus)
    elif asked.export is not None:
        _export(model, asked.export, corpus)
    else:
        _serve_model(model, asked, corpus)


def _export(model: Model, folder: Path, corpus: Corpus) -> None:
    from detoklens.explorer.bundle import refuse_foreign, write_bundle

    refuse_foreign(folder)
    write_bundle(open_study(model, corpus, None, None, None), folder)
    say(f"put {folder} on a web host, or look at it with `detoklens explore {folder}`")
    typer.echo(folder)


def _serve_exported(folder: Path, asked: Explore, corpus: Corpus) -> None:
    from detoklens.explorer.bundle import check_bundle

    check_bundle(folder)
    if asked.export is not None or corpus.counts is not None:
        raise DetokLensError(f"{folder} is an explorer already and is only served; name its model to export it anew")
    with Server(folder, asked.port) as server, serving(server), _until_interrupted():
        _show(server.url, asked)
        _wait()


def _serve_model(model: Model, asked: Explore, corpus: Corpus) -> None:
    from detoklens.explorer.bundle import add_cards
    from detoklens.explorer.explore import served

    study = open_study(model, corpus, None, None, None)
    with _until_interrupted(), served(study, asked.port) as server:
        _show(server.url, asked)
        add_cards(study, server.folder)
        _wait()


def _show(url: str, asked: Explore) -> None:
    from detoklens.explorer.explore import open_browser

    typer.echo(url)
    opened = not asked.no_open and open_browser(url)
    say("Ctrl-C ends it" if opened else "open this address in a browser of this machine; Ctrl-C ends it")


def _wait() -> None:
    """Until Ctrl-C, looked for now and then: once polars has set its own handler a system call goes on after it."""
    while True:
        time.sleep(OFTEN)


@contextlib.contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ctrl-C is the way to end, not an accident."""
    with contextlib.suppress(KeyboardInterrupt):
        yield


command = command_of(explore, (Model, Explore, Corpus))
