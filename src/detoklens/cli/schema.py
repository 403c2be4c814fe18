"""`detoklens schema`: questions and tables for other programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import typer

from detoklens.cli.adapter import command_of
from detoklens.questions.json_schema import schema
from detoklens.questions.parameters import Parameter


@dataclass(frozen=True)
class Chosen:
    """Which schema is printed."""

    question: Annotated[
        str | None,
        Parameter("Name of a question, or verify, count or counts. Default: all.", metavar="QUESTION", positional=True),
    ] = None


def print_schema(chosen: Chosen) -> None:
    """Print the JSON schema of a question's parameters, tables and JSON output.

    Example: detoklens schema auroc
    """
    typer.echo(json.dumps(schema(chosen.question), indent=1, ensure_ascii=False))


command = command_of(print_schema, [Chosen])
