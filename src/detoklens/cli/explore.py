"""`detoklens explore`: the first layer, live in the browser."""

from __future__ import annotations

import contextlib
import time
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


def explore(model: AnalysedModel, options: Explore, corpus: Corpus) -> None:
    """Explore a model's first layer in the browser.

    Serves a page with views of heads, tokens, texts and positions, reachable from this machine only, until Ctrl-C. The
    head cards appear once they are computed. MODEL can also be a folder written by --export.

    Example: detoklens explore gpt2 --counts counts --export gpt2-explorer
    """
    if options.export is not None and (options.port or options.no_open):
        raise DetokLensError("--export does not serve, so --port and --no-open don't apply; leave them out")
    folder, study = Path(model.model), None
    if is_bundle(folder):
        check_bundle(folder)
        if options.export is not None or corpus.counts is not None:
            raise DetokLensError(
                f"{folder} is an exported explorer and can only be served; name its model to export it again"
            )
    else:
        if options.export is not None:
            refuse_foreign(options.export)
        study = open_study(model, corpus)
    if study is not None and options.export is not None:
        write_bundle(study, options.export)
        say(f"upload {options.export} to a web host, or open it with `detoklens explore {options.export}`")
        typer.echo(options.export)
        return
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        if study is None:
            server = stack.enter_context(Server(folder, options.port))
            stack.enter_context(serving(server))
        else:
            server = stack.enter_context(served(study, options.port))
        typer.echo(server.url)
        if options.no_open or not open_browser(server.url):
            say("open this address in a browser on this machine; press Ctrl-C to stop")
        else:
            say("press Ctrl-C to stop")
        if study is not None:
            add_cards(study, server.folder)
        while True:  # polls for Ctrl-C, because polars' signal handler lets a blocking system call continue
            time.sleep(POLL)


command = command_of(explore, (AnalysedModel, Explore, Corpus))
