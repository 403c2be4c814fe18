"""Show the variance of position embeddings, the switch at position 0, and the last position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
import polars.selectors as cs

from detoklens.figures import theme
from detoklens.figures.labels import KEY_POSITION
from detoklens.figures.marks import line, line_entry, numbers, point_entry, reference
from detoklens.figures.panels import (
    PAIRS_PER_INCH,
    chosen_heads,
    drawn_queries,
    head_rows,
    in_order,
    intervals,
    points,
    titled_panels,
)
from detoklens.figures.spec import FigureSpec
from detoklens.measures.positions import PositionScores, ScaleSummary, summarise_scales, trained_range
from detoklens.measures.variance import (
    departure_of_last,
    deviations,
    last_rows,
    outliers,
    switch,
    undertrained,
    value_norms,
)
from detoklens.parallel import Runner
from detoklens.questions.base import ByLabel, Frames, View
from detoklens.questions.positions.question import OverVocabulary
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, listed_some

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_ENDS = 10  # positions shown from either end
NAMED = 6  # outliers in a summary
SHOWN_DIGITS = 3

POSITION_VARIANCE = Schema(
    "position_variance",
    "Variance of position embeddings",
    Column("position", "row of the position table, from 0", "Int32"),
    Column("variance", "population variance of the embedding over its features", defined=True),
    Column("scale", "mean over the vocabulary of σ(e + p), LayerNorm's divisor", defined=True),
    Column("deviation", "modified z-score of log variance relative to its neighbours; null if most are equal"),
    Column("outlier", "deviation beyond ±5 and variance more than a quarter from its neighbours'", "Boolean"),
)

SWITCH = Schema(
    "switch",
    "LayerNorm's part of position 0's jump in Tᵖ",
    HEAD,
    Column("first_without_norm", "Tᵖ at position 0 without the division by σ"),
    Column("next_without_norm", "the same, mean of the next ten positions"),
    Column("first", "Tᵖ at position 0", defined=True),
    Column("next", "Tᵖ, mean of the next ten positions"),
    Column("jump_without_norm", "first − next, both without the division by σ"),
    Column("jump", "first − next"),
    Column("by_scale", "part of the jump due to the difference in σ"),
    Column("by_score", "part due to the difference in undivided scores"),
    Column("scale_share", "by_scale / jump; null without a jump"),
    Column("value_norm_first", "norm of the value vectors at position 0, mean over the vocabulary"),
    Column("value_norm_next", "the same, mean of the next ten positions"),
    Column("value_norm_ratio", "value_norm_first / value_norm_next; null with one position"),
)

UNDERTRAINED = Schema(
    "undertrained",
    "Deviation of the last query position",
    HEAD,
    Column("size", "root mean square of Tᵖᵖ without LayerNorm at the last query position"),
    Column("usual_size", "the same for the mean of the four queries before it"),
    Column("departure", "‖last − m‖ / ‖m‖, m the mean of the four rows before, over keys visible to all five"),
    Column("usual_departure", "the largest departure of one of the four from the mean of the other three"),
    Column(
        "undertrained",
        "usual_departure at most 0.5, departure at least 0.5 and three times that; null if untestable",
        "Boolean",
    ),
)

TRAINED_RANGE = Schema(
    "trained_range",
    "Trained positions",
    Column("positions", "rows of the position table", "Int32"),
    Column("trained", "number of trained rows, from 0; later rows still have their initial values", "Int32"),
    Column("trained_variance", "median variance of the trained rows"),
    Column("untrained_variance", "median variance of the untrained rows; null if there are none"),
    Column("initial_variance", "initial variance of rows by config.json; null if not given"),
    Column("trained_correlation", "median correlation of neighbouring trained rows"),
    Column("untrained_correlation", "the same for untrained rows: about 0, since rows are drawn independently"),
)

LAST_QUERIES = Schema(
    "last_queries",
    "Tᵖᵖ of the last query positions without LayerNorm",
    HEAD,
    Column("query_position", "one of the last five positions", "Int32"),
    Column("key_position", "position of the key, from 0 to the query's own", "Int32"),
    Column("comparison", "Tᵖᵖ without the division by σ", defined=True),
)


@dataclass(frozen=True, repr=False)
class Variance(OverVocabulary):
    """Measure the variance of position embeddings and find anomalies.

    The text table shows the first ten positions, the last ten, and the outliers; csv, json and parquet contain all.

    Example: detoklens variance gpt2
    """

    needs = frozenset({"position_table"})
    report_section = "Checkpoint anomalies"
    reported: ClassVar[Mapping[str, Any]] = {"compared": True, "figure": None}
    tables = (POSITION_VARIANCE, SWITCH, UNDERTRAINED, TRAINED_RANGE, LAST_QUERIES)
    compared_tables = ("position_variance",)
    equation = "Var(pⱼ) over the features;  σ(x) = √(Var(x) + ε)"
    figures = (
        FigureSpec(
            "position_variance",
            ("position_variance",),
            "Variance of position embeddings",
            "Variance of all, the first ten and the last ten position embeddings; squares mark outliers. The paper's "
            "Figure 6, right.",
        ),
        FigureSpec(
            "first_position",
            ("switch",),
            "The switch at position 0",
            "Tᵖ at position 0 and its mean over the next ten positions, without and with LayerNorm's division. The "
            "paper's section 6.4.",
        ),
        FigureSpec(
            "last_positions",
            ("last_queries",),
            "The last query positions",
            "Tᵖᵖ without LayerNorm for the last five query positions. A head is marked undertrained (* in narrow "
            "panels) if the last one departs from the others, and untestable (?) if the others are untrained, too, or "
            "too few. The paper's Figure 7.",
            optional=("undertrained",),
            per_head=True,
        ),
    )

    def ask(self, study: Study, runner: Runner) -> Frames:
        layer, trained = study.layer, trained_range(study.layer)
        summary = summarise_scales(layer.scales, self.token_weights(study), watch=runner.watch)
        scores = PositionScores.of(layer, summary.inverse(self.average))
        rows, norms, heads = last_rows(scores), value_norms(layer), range(layer.n_heads)
        first, following = norms[:, 0], np.full(len(norms), np.nan)
        if norms.shape[1] > 1:
            following = norms[:, 1:].mean(axis=1)
        values = {
            "value_norm_first": first,
            "value_norm_next": following,
            "value_norm_ratio": np.divide(first, following, out=np.full(len(norms), np.nan), where=following > 0),
        }
        departs = departure_of_last(rows)
        odd: list[bool | None] = [None] * layer.n_heads
        if trained.is_whole:  # else the rows before the last one are untrained, too
            odd = undertrained(departs["departure"], departs["usual_departure"])
        return {
            "position_variance": _position_variance(layer, summary, trained.trained),
            "switch": SWITCH.grid({"head": heads}, switch(scores) | values),
            "undertrained": UNDERTRAINED.grid({"head": heads}, departs | {"undertrained": odd}),
            "trained_range": TRAINED_RANGE.of_rows([trained]),
            "last_queries": pl.concat(
                LAST_QUERIES.grid(
                    {"head": heads, "key_position": range(row.shape[1])},
                    {"comparison": row, "query_position": query},
                )
                for query, row in rows.items()
            ),
        }

    def summarize(self, tables: Frames) -> str:
        """Where training ended, if it did before the last position, and the outliers before it."""
        found = tables["trained_range"].row(0, named=True)
        training = ""
        if found["trained"] < found["positions"]:
            initial = found["initial_variance"]
            training = (
                f"Only the first {found['trained']} of {found['positions']} positions are trained: later ones have "
                f"variance {found['untrained_variance']:.2g} (trained {found['trained_variance']:.2g}"
                + ("" if initial is None else f", initializer {initial:.2g}")
                + f") and neighbour correlation {found['untrained_correlation']:.2f} (trained "
                f"{found['trained_correlation']:.2f}). "
            )
        variance = tables["position_variance"].head(found["trained"])
        median, first = float(variance["variance"].median() or 0.0), variance["variance"][0]  # type: ignore[arg-type]
        ratio = f"; position 0 has {first / median:.1f} times the median variance" if median else ""
        outliers = list(map(str, variance.filter(outlier=True)["position"]))
        if not outliers:
            return f"{training}No position embedding is a variance outlier{ratio}."
        one = len(outliers) == 1
        number = "One position embedding is" if one else f"{len(outliers)} position embeddings are"
        kind = "a variance outlier" if one else "variance outliers"
        return f"{training}{number} {kind} ({listed_some(outliers, NAMED)}){ratio}."

    def summarize_comparison(self, by_label: ByLabel) -> str:
        found = {label: tables["position_variance"]["outlier"] for label, tables in by_label.items()}
        clauses = [f"{int(outlier.sum())} of {len(outlier)} in {label}" for label, outlier in found.items()]
        return f"Variance outliers among position embeddings: {listed(clauses)}."

    def views(self, tables: Frames) -> Sequence[View]:
        variance, place = tables["position_variance"], pl.col("position")
        shown = variance.filter((place < SHOWN_ENDS) | (place >= len(variance) - SHOWN_ENDS) | pl.col("outlier"))
        switch = tables["switch"].select(
            "head", "first", "next", "jump", "by_scale", "value_norm_ratio", **{"first, no LN": "first_without_norm"}
        )
        return [
            View("outliers and both ends of the position table", shown),
            View(SWITCH.question, switch.with_columns(cs.float().round_sig_figs(SHOWN_DIGITS))),
            View("deviation of the last query position in Tᵖᵖ without LayerNorm", tables["undertrained"]),
        ]


def _position_variance(layer: Layer, summary: ScaleSummary, trained: int) -> pl.DataFrame:
    """Trained rows are compared with trained rows, untrained rows with untrained ones."""
    variances = layer.scales.position_variance.astype(np.float64)
    parts = [part for part in (variances[:trained], variances[trained:]) if len(part)]
    return POSITION_VARIANCE.frame(
        {
            "position": np.arange(len(variances)),
            "variance": variances,
            "scale": summary.mean,
            "deviation": np.concatenate([deviations(part) for part in parts]),
            "outlier": np.concatenate([outliers(part) for part in parts]),
        }
    )


USUAL, OUTLIER = theme.SERIES[0], theme.SERIES[1]
FIRST, NEXT = theme.SERIES[0], theme.SERIES[1]
LAST = theme.Style(theme.INK, "solid", "o", "")
PANELS = {"Tᵖ without LayerNorm": "_without_norm", "Tᵖ with LayerNorm": ""}
FEW = 10
VERDICTS = {True: " (undertrained)", False: "", None: " (untestable)"}
BRIEF = {True: " *", False: "", None: " ?"}  # in narrow panels


def position_variance(position_variance: pl.DataFrame, *, width: theme.Width = "page") -> Figure:
    """Variance of all, the first ten and the last ten position embeddings."""
    rows = position_variance.sort("position")
    parts = {"all positions": rows, f"first {FEW}": rows.head(FEW), f"last {FEW}": rows.tail(FEW)}
    figure, panels = titled_panels(
        list(parts),
        width,
        x_label="position",
        y_label="variance of the embedding",
        legend=[point_entry("outlier", OUTLIER)] if rows["outlier"].any() else [],
        share_x=False,
    )
    for axes, part in zip(panels, parts.values(), strict=True):
        line(axes, part["position"], part["variance"], USUAL, marker=USUAL.marker if len(part) <= FEW else "")
        outliers = part.filter("outlier")
        if outliers.height:
            x, y = numbers(outliers["position"]), numbers(outliers["variance"])
            axes.plot(x, y, linestyle="", marker=OUTLIER.marker, color=OUTLIER.colour)
        reference(axes, y=0)  # then the margin at the top is a share of the whole height
        axes.set_ylim(bottom=0)
    return figure


def first_position(switch: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Tᵖ at position 0 and the mean of the next ten positions, without and with LayerNorm."""
    asked = chosen_heads(switch, heads)
    rows = in_order(switch, asked)
    legend = [point_entry("position 0", FIRST), point_entry("mean of the next ten positions", NEXT)]
    figure, panels = head_rows(asked, width, list(PANELS), legend=legend)
    for axes, suffix in zip(panels, PANELS.values(), strict=True):
        first, following = rows[f"first{suffix}"], rows[f"next{suffix}"]
        intervals(axes, first, following, theme.Style(theme.INK, "solid", "", ""))
        points(axes, following, NEXT)
        points(axes, first, FIRST)
        reference(axes, x=0.0)
    return figure


def last_positions(
    last_queries: pl.DataFrame,
    undertrained: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Tᵖᵖ without LayerNorm for the last five query positions."""
    queries, asked = drawn_queries(last_queries, None), chosen_heads(last_queries, heads)
    styles = [*(theme.style_of(place) for place in range(len(queries) - 1)), LAST][: len(queries)]
    verdicts = dict(undertrained.select("head", "undertrained").iter_rows()) if undertrained is not None else {}
    marks = VERDICTS if len(asked) <= PAIRS_PER_INCH * theme.inches(width) else BRIEF
    figure, panels = titled_panels(
        [head_name(head) + marks[verdicts.get(head, False)] for head in asked],
        width,
        x_label=KEY_POSITION,
        y_label="Tᵖᵖ without LayerNorm",
        legend=[line_entry(f"query {query}", style) for query, style in zip(queries, styles, strict=True)],
    )
    for head, axes in zip(asked, panels, strict=True):
        for query, style in zip(queries, styles, strict=True):
            curve = last_queries.filter(head=head, query_position=query).sort("key_position")
            line(axes, curve["key_position"], curve["comparison"], style, linewidth=1.2 if style is LAST else 0.8)
    return figure
