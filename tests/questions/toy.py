"""A question that comes from outside: all that belongs to it is in this file, and everything else finds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl

from detoklens.figures import theme
from detoklens.figures.panels import head_rows, points
from detoklens.figures.spec import FigureSpec
from detoklens.questions.base import Question
from detoklens.questions.parameters import Heads, Parameter
from detoklens.tables.schema import HEAD, Column, Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = Schema(
    "lengths",
    "How long are the query vectors of a head, on average?",
    HEAD,
    Column("length", "mean length of Q_e over the first tokens"),
)


def draw_lengths(lengths: pl.DataFrame, *, width: str | float = "page") -> Figure:
    figure, (axes,) = head_rows(lengths["head"].to_list(), width, ["mean length"])
    points(axes, lengths["length"], theme.SERIES[0])
    return figure


@dataclass(frozen=True, repr=False)
class Lengths(Question):
    """Measure the query vectors of every head.

    Example: detoklens lengths demo --tokens 50
    """

    heads: Heads = None
    tokens: Annotated[int, Parameter("How many tokens, from the first.", least=1)] = 10

    report_section = "How long are they?"
    tables = (LENGTHS,)
    equation = "|Q_e|, averaged over tokens"
    figures = (
        FigureSpec("lengths", ("lengths",), "Lengths", "The mean length of query vectors.", function=draw_lengths),
    )

    def ask(self, study: Any, runner: Any) -> dict[str, pl.DataFrame]:
        heads = study.heads(self.heads)
        query = study.layer.token_affinity().query[heads][:, : self.tokens]
        runner.say(f"{query.shape[1]} tokens were measured")
        return {"lengths": LENGTHS.frame({"head": heads, "length": np.linalg.norm(query, axis=2).mean(axis=1)})}

    def summarize(self, tables: Any) -> str:
        longest = tables["lengths"].sort("length", descending=True).row(0, named=True)
        return f"L0H{longest['head']} has the longest query vectors: {longest['length']:.3g}."
