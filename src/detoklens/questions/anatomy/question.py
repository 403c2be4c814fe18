"""What kind of head is this? Six shares of its score's variance that mean the same in every architecture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import polars as pl

from detoklens.errors import RangeError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.positions import trained_length
from detoklens.parallel import Runner
from detoklens.questions.anatomy.compute import SHARES, anatomies, visible_offsets
from detoklens.questions.base import ByLabel, Frames, Question, View
from detoklens.questions.parameters import Heads, Parameter
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, percent, plural

SHARE_NAMES = dict(
    zip(SHARES, ("offset", "key", "key × offset", "query × offset", "query × key", "three-way"), strict=True)
)
HEADINGS = {
    "key_offset": "key×offset",
    "query_offset": "query×offset",
    "query_key": "query×key",
    "three_way": "3-way",
    "lexical_sd": "lexical",
}
NAMED = 3  # shares in a summary

ANATOMY_BY_HEAD = Schema(
    "anatomy_by_head",
    "What makes the score of each head vary?",
    HEAD,
    Column(
        "sd",
        "standard deviation of the scaled score, without the part that depends on the query token alone",
        defined=True,
    ),
    Column("offset", "share of its variance due to the offset alone; the six shares add up to 1"),
    Column("key", "share due to the key token alone, for any query and offset"),
    Column("key_offset", "share due to key tokens that matter at some offsets only"),
    Column("query_offset", "share due to query tokens that decide how far to look"),
    Column("query_key", "share due to query tokens that look for key tokens, at any offset"),
    Column("three_way", "share due to query tokens that look for key tokens at some offsets"),
    Column(
        "lexical_sd",
        "standard deviation due to the pair of tokens at offset 1 (query × key there); null if offset 1 is hidden",
    ),
)

ANATOMY_BY_ROTARY_PAIR = Schema(
    "anatomy_by_rotary_pair",
    "Which rotary frequencies make up the offset share?",
    HEAD,
    Column("pair", "rotary pair, from 0", "Int32"),
    Column("period", "tokens per full turn; null for a pair that does not turn"),
    Column("sd", "standard deviation over offsets of the pair's part of the mean scaled score", defined=True),
    Column(
        "share",
        "covariance of that part with the whole, over the whole's variance: shares add up to 1, and a pair that "
        "opposes the others has a negative share; null if the offset has no effect",
    ),
)


@dataclass(frozen=True, repr=False)
class Anatomy(Question):
    """Split the variance of every head's score into six shares.

    Query and key tokens are drawn independently, by their frequency in corpus counts (evenly without counts), and
    offsets evenly from 0 to 31. The shares: offset, key, key × offset, query × offset, query × key, and the interaction
    of all three. Read them together with the standard deviation: if it is small, the head attends almost evenly and its
    shares say little. In bidirectional models offsets have both signs. Softcapping is not applied. The shares are
    exact: they follow from means and covariances, so no pair of tokens is scored.

    Example: detoklens anatomy gpt2 --counts counts
    """

    heads: Heads = None
    offsets: Annotated[int, Parameter("Number of offsets, from 0.", least=1)] = 32
    query_position: Annotated[
        int | None,
        Parameter("Learned positions: position of the query. Default: the middle of the trained range.", least=0),
    ] = None

    progress_label = "splitting the variance"
    report_section = "Anatomy of heads"
    uses = frozenset({"counts", "vocabulary"})
    parallel = True
    compared_tables = ("anatomy_by_head",)
    tables = (ANATOMY_BY_HEAD, ANATOMY_BY_ROTARY_PAIR)
    by: ClassVar[Mapping[str, str]] = {"head": "anatomy_by_head", "pair": "anatomy_by_rotary_pair"}
    equation = (
        "s(t, u, δ) = scale · q(t)·k(u, δ);  offset: Var_δ(q̄·k̄_δ);  key: q̄ C q̄;  "
        "key × offset: mean_δ q̄ C_δ q̄ − q̄ C q̄;  query × offset: mean_δ (k̄_δ − k̄) Σ (k̄_δ − k̄);  "
        "query × key: tr(Σ C);  three-way: mean_δ tr(Σ C_δ) − tr(Σ C);  "
        "Σ covariance of queries, C_δ of keys at an offset, C of keys averaged over offsets"
    )
    figures = (
        FigureSpec(
            "anatomy",
            ("anatomy_by_head",),
            "Anatomy of the heads",
            "Left: shares of the variance of each head's score. Right: its strength, the standard deviation of the "
            "scaled score, and the part at offset 1 that depends on the pair of tokens.",
        ),
        FigureSpec(
            "head_map",
            ("anatomy_by_head",),
            "Map of heads",
            "Share of each head's score variance due to the offset alone, and share due to pairs of tokens; the area "
            "is the head's strength.",
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_head_maps",
            ("anatomy_by_head",),
            "Maps of heads of several checkpoints",
            "Share of each head's score variance due to the offset alone, and share due to pairs of tokens; the area "
            "is the head's strength, on the same scale for all checkpoints.",
        ),
    )

    def settings(self, study: Study) -> dict[str, Any]:
        """With the query position that is used; without one where positions are not learned."""
        given = super().settings(study) | {"query_position": self._position(study.layer)}
        return {name: value for name, value in given.items() if name != "query_position" or value is not None}

    def _position(self, layer: Layer) -> int | None:
        if layer.positions == "learned":
            position = trained_length(layer) // 2 if self.query_position is None else self.query_position
            layer.check(positions=[position])
            return position
        if self.query_position is not None:
            raise RangeError(
                f"{layer.name}: with {layer.positions} positions the score depends on the offset only; leave "
                "query_position out"
            )
        return None

    def ask(self, study: Study, runner: Runner) -> Frames:
        layer, heads, position = study.layer, study.heads(self.heads), self._position(study.layer)
        offsets = visible_offsets(layer, self.offsets, position)
        if offsets.max() + 1 < self.offsets:
            runner.say(f"a query sees only {plural(int(offsets.max()) + 1, 'offset')}, not {self.offsets}")
        if study.counts is None:
            runner.say("no corpus counts: every token has the same weight")
        if layer.weights.softcap is not None:
            runner.say("scores are taken before softcapping")
        if study.counts is None:
            study.meaningful_tokens()  # notes how many are left out
        shares = layer.token_shares("vocabulary" if study.counts is None else "frequency")
        found = anatomies(layer, heads, shares, self.offsets, position, runner)
        by_head = {
            "sd": np.array([each.sd for each in found]),
            **dict(zip(SHARES, np.array([each.shares for each in found]).T, strict=True)),
        }
        by_head["lexical_sd"] = np.array([each.lexical_sd for each in found])
        tables = {"anatomy_by_head": ANATOMY_BY_HEAD.grid({"head": heads}, by_head)}
        frequencies = layer.weights.rotary_frequencies
        if frequencies is not None:
            periods = np.divide(2 * np.pi, frequencies, out=np.full(len(frequencies), np.nan), where=frequencies != 0)
            pairs = {"period": periods, "sd": np.array([each.pair_sd for each in found])}
            pairs["share"] = np.array([each.pair_share for each in found])
            axes = {"head": heads, "pair": range(len(frequencies))}
            tables["anatomy_by_rotary_pair"] = ANATOMY_BY_ROTARY_PAIR.grid(axes, pairs)
        return tables

    def summarize(self, tables: Frames) -> str:
        """How many heads have which largest share, with the clearest head of each, and the strongest head."""
        largest = _largest(tables)
        if largest.is_empty():
            return "No score varies."
        clearest = largest.group_by("name", maintain_order=True).agg(pl.len().alias("heads"), pl.first("head", "share"))
        clearest = clearest.sort("heads", "share", descending=True)
        rows = list(clearest.head(NAMED).iter_rows(named=True))
        numbers = [f"{rows[0]['heads']} of {plural(len(largest), 'head')}", *(str(row["heads"]) for row in rows[1:])]
        clauses = [
            f"with {row['name']} in {number} ({head_name(row['head'])}: {percent(row['share'])})"
            for number, row in zip(numbers, rows, strict=True)
        ]
        if rest := clearest["heads"][NAMED:].sum():
            clauses.append(f"with another part in {rest}")
        strongest = largest.sort("sd", descending=True).row(0, named=True)
        return (
            f"The score varies most {listed(clauses)}. The strongest head is {head_name(strongest['head'])} "
            f"(sd {strongest['sd']:.3g})."
        )

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """The strongest head of each model and its largest share."""
        clauses = []
        for label, tables in by_label.items():
            for row in _largest(tables).sort("sd", descending=True).head(1).iter_rows(named=True):
                share = f"{percent(row['share'])} {row['name']}"
                clauses.append(f"{head_name(row['head'])} in {label} (sd {row['sd']:.3g}, {share})")
        return f"Heads whose score varies most: {listed(clauses)}." if clauses else "No score varies."

    def views(self, tables: Frames) -> Sequence[View]:
        """One row per head, narrow enough for a terminal."""
        rounded = tables["anatomy_by_head"].with_columns(
            pl.col(SHARES).round(3), pl.col("sd", "lexical_sd").round_sig_figs(2)
        )
        return [View(ANATOMY_BY_HEAD.question, rounded.rename(HEADINGS))]


def _largest(tables: Frames) -> pl.DataFrame:
    """The largest share of every head whose score varies, with its name, the clearest head first."""
    by_head = tables["anatomy_by_head"].drop_nulls(SHARES[0]).rename(SHARE_NAMES)
    long = by_head.unpivot(list(SHARE_NAMES.values()), index=["head", "sd"], variable_name="name", value_name="share")
    return long.sort("share", descending=True, maintain_order=True).unique("head", keep="first", maintain_order=True)
