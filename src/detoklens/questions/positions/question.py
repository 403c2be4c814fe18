"""Show where position alone directs attention: Tᵖ, Tᵖᵖ and their softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl

from detoklens.errors import MissingError, RangeError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.positions import (
    OffsetScores,
    chosen_queries,
    position_curves,
    trained_length,
    trained_range,
)
from detoklens.parallel import Runner
from detoklens.questions.base import ByLabel, Frames, Question, ReportEntry, View
from detoklens.questions.options import TermQuestion
from detoklens.questions.parameters import Heads, Parameter, QueryPositions
from detoklens.questions.study import Study
from detoklens.questions.texts import check_reachable
from detoklens.scores.factors import Mean
from detoklens.scores.layer import Layer
from detoklens.tables.rendering import sparkline
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, percent

DRAWN_PLACES = 22  # width of a sparkline: the row then fits 80 characters, even with six-digit positions
SHOWN_DIGITS = 3

POSITIONS = Schema(
    "positions",
    "Position terms along the keys",
    HEAD,
    Column("quantity", "p, pp, their sum (p+pp), or attention: softmax of the sum over the visible keys", "String"),
    Column("query_position", "position of the query, from 0; null for p, which does not depend on it", "Int32"),
    Column("key_position", "position of the key, at most the query's own in causal models", "Int32"),
    Column("layer_norm", "whether the values are divided by σ", "Boolean"),
    Column("mean", "value with σ averaged over the vocabulary, see the option `average`", defined=True),
    Column("low", "lower end of the band of most tokens (pp, p+pp: pairs of tokens); null for attention"),
    Column("high", "upper end of that band"),
    Column("at_smallest_scale", "value with the vocabulary's smallest σ, at the key or as set by `extremes`"),
    Column("at_largest_scale", "value with the vocabulary's largest σ, likewise"),
)


POSITIONS_BY_OFFSET = Schema(
    "positions_by_offset",
    "Position kernel by offset",
    HEAD,
    Column("quantity", "p: the position kernel; attention: its softmax over the visible keys", "String"),
    Column("query_position", "position of the query, from 0; null for the kernel", "Int32"),
    Column("offset", "query position − key position; negative for keys after the query", "Int32"),
    Column("value", "the kernel before multiplication by the attention scale, or the attention"),
)

EXTREMES = {"key": "at the keys", "query": "at the query", "both": "at query and keys"}


@dataclass(frozen=True, repr=False)
class OverVocabulary(Question):
    """A question about positions: σ depends on the token, so its numbers summarize the whole vocabulary.

    Counts only matter if they weight the vocabulary.
    """

    average: Annotated[
        Literal["ratio-of-mean", "mean-of-ratio"],
        Parameter("Mean over the vocabulary: score / mean σ, or mean of score / σ.", advanced=True),
    ] = field(default="ratio-of-mean", kw_only=True)
    weights: Annotated[
        Literal["even", "frequency"],
        Parameter("Weight tokens evenly or by their corpus counts.", advanced=True),
    ] = field(default="even", kw_only=True)

    progress_label = "computing σ"
    uses = frozenset({"counts"})
    reads_counts = False

    def note_trained_range(self, study: Study, runner: Runner) -> None:
        """Note if only the first positions are trained; defaults stay within them."""
        found = trained_range(study.layer)
        if not found.is_whole:
            runner.say(
                f"only the first {found.trained:,} of {found.positions:,} positions are trained: default query "
                "positions and fitted lines use these"
            )

    def token_weights(self, study: Study) -> np.ndarray | None:
        """The weight of each token; None for equal weights."""
        if self.weights == "even":
            return None
        if study.counts is None:
            raise MissingError("counts", "weights by frequency need corpus counts")
        return study.counts.tokens.astype("float64")


@dataclass(frozen=True, repr=False)
class OfPositions(OverVocabulary, TermQuestion):
    """The same for every family: the kernel of rotary and ALiBi positions depends on a mean instead of σ."""

    query_positions: QueryPositions = None
    heads: Heads = None
    length: Annotated[
        int | None,
        Parameter("Text length for bidirectional models. Default: all positions.", least=1, advanced=True),
    ] = field(default=None, kw_only=True)

    def queries(self, study: Study) -> list[int]:
        """The query positions, by default spread over the trained range."""
        if self.length is not None:
            study.layer.check(positions=[self.length - 1])
        queries = chosen_queries(study.layer, self.query_positions, self.length)
        check_reachable(queries, self.length)
        return queries

    def settings(self, study: Study) -> dict[str, Any]:
        """Omit the mean over σ for rotary and ALiBi positions."""
        given = super().settings(study) | {"query_positions": self.queries(study)}
        if study.layer.positions == "learned":
            return given
        if (self.average, self.weights) != ("ratio-of-mean", "even"):
            raise RangeError(
                f"{study.layer.name}: the kernel of {study.layer.positions} positions does not depend on σ; omit "
                "average and weights"
            )
        common = study.layer.common_part(None)
        has_kernel = study.layer.positions != "rotary" or (common.query.any() and common.key.any())
        if self.mean == "none" and not has_kernel:  # it is the product of the common parts of queries and keys
            raise RangeError(
                f"{study.layer.name}: without query and key biases, rotary positions only have a kernel if a mean is "
                "split off; use the mean over the vocabulary or by frequency"
            )
        return {name: given[name] for name in given if name not in ("average", "weights")}


@dataclass(frozen=True, repr=False)
class Positions(OfPositions):
    """Show where position alone directs attention: Tᵖ, Tᵖᵖ and their softmax.

    The text table draws each curve in one line; csv, json and parquet contain every key position, with and without
    LayerNorm: mean, band, and the values at the vocabulary's smallest and largest σ. For rotary and ALiBi positions,
    the kernel (a function of distance) and its softmax are shown.

    Example: detoklens positions gpt2 --query-positions 50,500,1000 --heads 1,7
    """

    band: Annotated[float, Parameter("Share of the vocabulary within the band.", advanced=True)] = 0.95
    extremes: Annotated[
        Literal["key", "query", "both"],
        Parameter(
            "Which σ to vary over the vocabulary: the key's, as in the caption of the paper's Figure 3, the query's, "
            "as in its code, or both.",
            advanced=True,
        ),
    ] = "key"

    report_section = "Position terms"
    tables = (POSITIONS, POSITIONS_BY_OFFSET)
    equation = (
        "Tᵖ[h, j] = b̃_Q·(pⱼ W̃_K) / σⱼ,  Tᵖᵖ[h, i, j] = (pᵢ W̃_Q)·(pⱼ W̃_K) / (σᵢ σⱼ),  α = softmax((Tᵖ + Tᵖᵖ) / √d′);  "
        "rotary positions: Tᵖ[h, i, j] = a R_δ b, δ = i − j, a and b common to all queries and all keys;  "
        "ALiBi: Tᵖ = −slope · δ · √d′"
    )
    figures = (
        FigureSpec(
            "position_alone",
            ("positions",),
            "Position alone (Tᵖ)",
            "Tᵖ of each key position: with mean σ over the vocabulary and the band of {band} of the tokens, and "
            "without LayerNorm's division. The paper's Figure 3A and appendix.",
            per_head=True,
        ),
        *(
            FigureSpec(
                name,
                ("positions",),
                title,
                f"{what}: one column per query position, with the mean σ of the vocabulary, and with the largest and "
                f"the smallest σ {{extremes}}. {where}",
                function="position_curves",
                per_head=True,
                options=(("quantity", quantity),),
            )
            for name, quantity, title, what, where in (
                (
                    "position_comparison",
                    "pp",
                    "Position and position (Tᵖᵖ)",
                    "Tᵖᵖ along the keys, with the band of {band} of the pairs of tokens",
                    "The paper's Figure 3B and appendix.",
                ),
                (
                    "position_sum",
                    "p+pp",
                    "Sum of the position terms (Tᵖ + Tᵖᵖ)",
                    "Tᵖ + Tᵖᵖ along the keys, with the band of {band} of the pairs of tokens",
                    "The paper's Figure 3C.",
                ),
                (
                    "position_attention",
                    "attention",
                    "Attention by position alone",
                    "Softmax of Tᵖ + Tᵖᵖ over the visible keys, the attention if only positions mattered",
                    "The paper's Figure 3D and appendix.",
                ),
            )
        ),
        FigureSpec(
            "kernel",
            ("positions_by_offset",),
            "The position kernel (Tᵖ)",
            "What the distance from query to key adds to the score of any two tokens, before multiplication by the "
            "attention scale. Not in the paper, which has learned positions only.",
            per_head=True,
        ),
        FigureSpec(
            "kernel_attention",
            ("positions_by_offset",),
            "Attention by distance alone",
            "Softmax of the kernel over the visible keys: the attention if only distance mattered. Not in the paper, "
            "which has learned positions only.",
            per_head=True,
        ),
    )
    compared_figures = (
        *(
            FigureSpec(
                f"compare_positions_{quantity}",
                ("positions",),
                f"Positions in several checkpoints: {words}",
                f"{meaning} in each head, one line per checkpoint.",
                function="compare_positions",
                optional=("positions_by_offset",),
                per_head=True,
                options=(("quantity", quantity),),
            )
            for quantity, words, meaning in (
                ("p", "position alone (Tᵖ)", "Tᵖ of each key position"),
                ("attention", "attention by position alone", "Softmax of Tᵖ + Tᵖᵖ from a shared query position"),
            )
        ),
        FigureSpec(
            "compare_kernels",
            ("positions_by_offset",),
            "Position kernels of several checkpoints",
            "What the distance from query to key adds to the score in each head, one line per checkpoint.",
            per_head=True,
        ),
    )

    @classmethod
    def report_entries(cls, study: Study) -> Sequence[ReportEntry]:
        figure = "position_attention" if study.layer.positions == "learned" else "kernel_attention"
        return [ReportEntry(cls(), compared=True, figure=figure)]

    def settings(self, study: Study) -> dict[str, Any]:
        given = super().settings(study)
        only_learned = () if study.layer.positions == "learned" else ("band", "extremes")
        return {name: given[name] for name in given if name not in only_learned}

    def specs(self) -> Sequence[FigureSpec]:
        specs = [spec.with_band(self.band) for spec in self.figures]
        return [
            replace(
                spec,
                caption=spec.caption.replace("{extremes}", EXTREMES[self.extremes]),
                options=(*spec.options, ("extremes", self.extremes)),
            )
            if "{extremes}" in spec.caption
            else spec
            for spec in specs
        ]

    def ask(self, study: Study, runner: Runner) -> Frames:
        asked = pl.col("head").is_in(study.heads(self.heads))
        if study.layer.positions != "learned":
            by_offset = _by_offset(study.layer, self.queries(study), self.split_off(study))
            return {"positions_by_offset": by_offset.filter(asked)}
        self.note_trained_range(study, runner)
        curves = position_curves(
            study.layer,
            self.queries(study),
            self.average,
            self.token_weights(study),
            self.band,
            runner.watch,
            self.length,
            self.extremes,
        )
        by_key = pl.concat(
            POSITIONS.grid(
                {"head": range(len(curve.mean)), "key_position": np.arange(curve.mean.shape[1]) + curve.first_key},
                {
                    column: getattr(curve, column)
                    for column in POSITIONS.names
                    if column not in ("head", "key_position")
                },
            )
            for curve in curves
        )
        return {"positions": by_key.filter(asked)}

    def summarize(self, tables: Frames) -> str:
        """The sharpest and the broadest head from the middle query position."""
        peaks, middle = _peaks(tables)
        shown = [
            f"{head_name(peak['head'])} ({_share(peak['mean'])} on key {peak['key_position']})"
            for peak in (peaks.row(0, named=True), peaks.row(-1, named=True))
        ]
        of_all = f"sharpest in {shown[0]} and broadest in {shown[1]}" if len(peaks) > 1 else f"highest in {shown[0]}"
        return f"By position alone, attention from position {middle} is {of_all}."

    def summarize_comparison(self, by_label: ByLabel) -> str:
        sharpest = {label: _peaks(tables)[0].row(0, named=True) for label, tables in by_label.items()}
        clauses = [f"{_share(row['mean'])} in {label} ({head_name(row['head'])})" for label, row in sharpest.items()]
        return f"Largest attention by position alone on a single key: {listed(clauses)}."

    def views(self, tables: Frames) -> Sequence[View]:
        """One line per curve, with LayerNorm: range, peak and sparkline."""
        if "positions" in tables:
            shown = tables["positions"].filter(pl.col("layer_norm") & (pl.col("quantity") != "p+pp"))
            return [View(POSITIONS.question, _curve_lines(shown, "mean", "key_position", "key"))]
        by_offset = tables["positions_by_offset"]
        return [View(POSITIONS_BY_OFFSET.question, _curve_lines(by_offset, "value", "offset", "offset"))]


def _by_offset(layer: Layer, queries: Sequence[int], mean: Mean) -> pl.DataFrame:
    """The kernel of rotary or ALiBi positions, and its softmax from each query position."""
    scores = OffsetScores.of(layer, max(queries) + 1 if layer.is_causal else trained_length(layer), mean)
    curves: list[tuple[str, int | None, int, np.ndarray]] = [("p", None, scores.first_offset, scores.kernel)]
    for query in queries:
        nearest = query - scores.seen(query).stop + 1
        curves.append(("attention", query, nearest, scores.attention(query)[:, ::-1]))
    return pl.concat(
        POSITIONS_BY_OFFSET.grid(
            {"head": range(len(values)), "offset": range(first, first + values.shape[1])},
            {"quantity": quantity, "query_position": query, "value": values},
        )
        for quantity, query, first, values in curves
    )


def _peaks(tables: Frames) -> tuple[pl.DataFrame, int]:
    """Each head's largest attention from the middle query position and its key, the sharpest head first."""
    if len(tables.get("positions", ())):
        positions = tables["positions"]
    else:
        key = (pl.col("query_position") - pl.col("offset")).alias("key_position")
        positions = tables["positions_by_offset"].with_columns(key).rename({"value": "mean"})
    attention = positions.filter(quantity="attention")
    queries = attention["query_position"].unique().sort()
    middle = queries[len(queries) // 2]
    there = attention.filter(query_position=middle).sort("mean", "key_position", descending=[True, True])
    peaks = there.unique("head", keep="first", maintain_order=True)
    return peaks.sort("mean", "head", descending=[True, False]), middle


def _share(share: float) -> str:
    """A percentage; below one percent with one digit, since uniform attention over many keys is that small."""
    return percent(share) if share >= 0.01 else f"{100 * share:.1g} %"


def _curve_lines(curves: pl.DataFrame, value: str, place: str, place_name: str) -> pl.DataFrame:
    """One line per curve: range, peak and sparkline."""
    along = f"along the {place_name}s"
    by_curve = curves.sort("head", maintain_order=True).group_by(
        "head", "quantity", "query_position", maintain_order=True
    )
    lines = by_curve.agg(
        pl.col(value).min().round_sig_figs(SHOWN_DIGITS).alias("lowest"),
        pl.col(value).max().round_sig_figs(SHOWN_DIGITS).alias("highest"),
        pl.col(place).get(pl.col(value).arg_max()).alias(f"at {place_name}"),
        pl.col(value).alias(along),
    )
    drawn = [sparkline(curve.drop_nulls().to_list(), DRAWN_PLACES) for curve in lines[along]]
    return lines.rename({"query_position": "query"}).with_columns(pl.Series(along, drawn, pl.String))
