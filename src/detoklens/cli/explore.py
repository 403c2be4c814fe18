"""`detoklens explore`: the first layer, live in the browser."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from detoklens.cli.adapter import AnalysedModel, Corpus, command_of, open_study
from detoklens.cli.output import say
from detoklens.errors import DetokLensError
from detoklens.explorer.bundle import add_cards, check_bundle, is_bundle, refuse_foreign, write_bundle
from detoklens.explorer.explore import open_browser, served
from detoklens.explorer.server import Server, serving
from detoklens.questions.parameters import Parameter

POLL = 0.2  # seconds between two checks for Ctrl-C


@dataclass(frozen=True)
class Explore:
    """Options of the explorer."""

    export: Annotated[
        Path | None,
        Parameter("Write a static site for any web host instead of serving.", metavar="DIR"),
    ] = None
    port: Annotated[int, Parameter("Port on 127.0.0.1. Default: a free one.", least=0)] = 0
    no_open: Annotated[bool, Parameter("Don't open the browser.")] = False


def explore(model: AnalysedModel, asked: Explore, corpus: Corpus) -> None:
    """Explore a model's first layer in the browser.

    Shows tokens, texts, positions and heads, and serves them on this machine only, until Ctrl-C. Head cards appear once
    they are computed. MODEL can also be a folder written by --export.

    Example: detoklens explore gpt2 --counts counts --export gpt2-explorer
    """
    if asked.export is not None and (asked.port or asked.no_open):
        raise DetokLensError("--export does not serve, so --port and --no-open don't apply; leave them out")
    if is_bundle(Path(model.model)):
        _serve_exported(Path(model.model), asked, corpus)
    elif asked.export is not None:
        _export(model, asked.export, corpus)
    else:
        _serve_model(model, asked, corpus)


def _export(model: AnalysedModel, folder: Path, corpus: Corpus) -> None:
    refuse_foreign(folder)
    write_bundle(open_study(model, corpus, None, None, None), folder)
    say(f"upload {folder} to a web host, or open it with `detoklens explore {folder}`")
    typer.echo(folder)


def _serve_exported(folder: Path, asked: Explore, corpus: Corpus) -> None:
    check_bundle(folder)
    if asked.export is not None or corpus.counts is not None:
        raise DetokLensError(
            f"{folder} is an exported explorer and can only be served; name its model to export it again"
        )
    with Server(folder, asked.port) as server, serving(server), _until_interrupted():
        _show(server.url, asked)
        _wait()


def _serve_model(model: AnalysedModel, asked: Explore, corpus: Corpus) -> None:
    study = open_study(model, corpus, None, None, None)
    with _until_interrupted(), served(study, asked.port) as server:
        _show(server.url, asked)
        add_cards(study, server.folder)
        _wait()


def _show(url: str, asked: Explore) -> None:
    typer.echo(url)
    opened = not asked.no_open and open_browser(url)
    say("press Ctrl-C to stop" if opened else "open this address in a browser on this machine; press Ctrl-C to stop")


def _wait() -> None:
    """Wait for Ctrl-C; polls, because polars' signal handler lets a blocking system call continue."""
    while True:
        time.sleep(POLL)


@contextlib.contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ctrl-C is the normal way to stop."""
    with contextlib.suppress(KeyboardInterrupt):
        yield


command = command_of(explore, (AnalysedModel, Explore, Corpus))
