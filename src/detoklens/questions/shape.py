"""Measure the shape of the position terms: line, waves, and attention by position alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from detoklens.figures import labels, theme
from detoklens.figures.marks import line, line_entry, point_entry
from detoklens.figures.panels import (
    Measure,
    chosen_heads,
    drawn_queries,
    head_panels,
    head_rows,
    in_order,
    points,
    show_neutral,
)
from detoklens.figures.spec import FigureSpec
from detoklens.measures.chance import ALPHA
from detoklens.measures.shape import (
    FEWEST_KEYS,
    PERIODS_IN_VIEW,
    SINUSOIDAL_SHARE,
    ControlTest,
    PositionShape,
    masses,
    position_shape,
)
from detoklens.parallel import Runner
from detoklens.questions.base import ByLabel, Frames, Verdict, View
from detoklens.questions.positions.question import OfPositions
from detoklens.questions.study import Study
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, listed_some, p_value, percent, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMED = 2  # heads in a summary
QUERY_POSITION = Column("query_position", "position of the query, from 0", "Int32")

LAST = tuple(
    Column(f"last_{count}", f"attention {where}")
    for count, where in (
        (1, "by position alone on the query itself"),
        (5, "on the last 5 tokens, the query included"),
        (15, "on the last 15 tokens, the query included"),
    )
)

SHAPE = Schema(
    "shape",
    "Shape of the position terms",
    HEAD,
    QUERY_POSITION,
    Column("slope", "slope of the best line through Tᵖ, per position; the same for every query"),
    Column("r_squared", "share of Tᵖ's variance that the line explains; null if Tᵖ is constant"),
    Column("alibi_slope", "slope × attention scale: comparable with ALiBi's slope"),
    Column("line_null", "95th percentile of r_squared over controls; null without controls (ALiBi)"),
    Column("line_p", "share of controls with r_squared at least as large, Holm-adjusted over heads"),
    Column(
        "linear",
        "r_squared at least 0.9 and line_p at most 0.02; null with fewer than 16 positions or a constant Tᵖ",
        "Boolean",
    ),
    Column("monotone", "Spearman's correlation of Tᵖ with the key position; null if Tᵖ is constant"),
    Column("increasing", "share of steps from one key to the next at which Tᵖ increases"),
    Column("period", "period of Tᵖᵖ's leading wave, in positions"),
    Column("wave_share", "share of the leading wave in Tᵖᵖ's power around its best line"),
    Column("waves_share", "share of the leading waves together"),
    Column(
        "wave_null",
        "95th percentile of wave_share (0 with fewer than 1.5 periods in view) over controls: random walks or, "
        "with rotary positions, kernels of random mean vectors; null with fewer than 48 keys",
    ),
    Column("wave_p", "share of controls with wave_share at least as large, Holm-adjusted over heads"),
    Column(
        "sinusoidal",
        "wave_share at least 0.5 and wave_p at most 0.02; null without a wave, 48 keys or 1.5 periods in view",
        "Boolean",
    ),
    Column(
        "wave_effect",
        "total variation between attention by position alone with and without the leading waves: 0 if the softmax "
        "suppresses them; null with fewer than 1.5 periods in view",
    ),
    *LAST,
    Column("next_1", "attention on the token after the query; bidirectional models only"),
    Column("next_5", "attention on the 5 tokens after the query"),
    Column("next_15", "attention on the 15 tokens after the query"),
    Column("on_previous", "attention on the token before the query; null at query 0"),
    Column("on_first", "attention on position 0"),
    Column("entropy", "entropy of attention by position alone, in bits"),
    Column("class", "self, previous token, next token, first, local or broad", "String"),
    Column("by_offset", "whether line and waves describe the kernel; rotary and ALiBi positions only", "Boolean"),
)

AHEAD = ("next_1", "next_5", "next_15")  # bidirectional models only
BY_OFFSET = ("by_offset",)  # rotary and ALiBi positions only

WAVES = Schema(
    "waves",
    "Leading waves of Tᵖᵖ",
    HEAD,
    QUERY_POSITION,
    Column("rank", "1 for the leading wave, 2 for the next one after subtracting it, and so on", "Int32"),
    Column("frequency", "cycles per position"),
    Column("period", "positions per cycle"),
    Column("amplitude", "amplitude of the wave, in units of the score"),
    Column("share", "share of Tᵖᵖ's power around its best line"),
)

REACH = Schema(
    "reach",
    "Attention by position alone from every query position",
    HEAD,
    QUERY_POSITION,
    *LAST,
    Column("on_first", "attention on position 0, the attention sink"),
    Column(
        "on_first_usual_scale",
        "the same if position 0 had the mean 1/σ of the next ten positions; learned positions only",
    ),
)


@dataclass(frozen=True, repr=False)
class Shape(OfPositions):
    """Measure the shape of the position terms, per head.

    Fits a line to Tᵖ and waves to Tᵖᵖ, and reports attention by position alone (softmax of their sum) on the last 1, 5
    and 15 tokens, its entropy, and a class: self, previous token, first, local or broad. With rotary and ALiBi
    positions, line and waves are those of the kernel along the keys. A line or wave must beat its control: random walks
    or, with rotary positions, random mean vectors. The verdict is "yes" if at least one head has a wave from the last
    query position.

    Example: detoklens shape gpt2 --query-positions 500
    """

    uses = OfPositions.uses | {"seed"}
    report_section = "Position terms"
    reported: ClassVar[Mapping[str, Any]] = {"compared": True, "figure": None}
    caveat = "With learned positions, a wave is a property of the position embeddings as much as of the head."
    tables = (SHAPE, WAVES, REACH)
    compared_tables = ("shape",)
    equation = (
        "best line through Tᵖ; periodogram of Tᵖᵖ (of the kernel) around its best line; softmax mass; wave effect: "
        "½ Σⱼ |softmax(Tᵖ + Tᵖᵖ) − softmax(Tᵖ + Tᵖᵖ − waves)|"
    )
    figures = (
        FigureSpec(
            "shape_numbers",
            ("shape",),
            "Shape of the position terms",
            "One row per head: slope of Tᵖ and R² of the line, period and share of the leading wave of Tᵖᵖ (of the "
            "kernel with rotary positions), and attention by position alone, for each query position. Figure 3A, B and "
            "D of the paper in numbers.",
        ),
        FigureSpec(
            "reach",
            ("reach",),
            "Attention by position alone from every query position",
            "Softmax of Tᵖ + Tᵖᵖ: mass on the last 15 tokens, and on position 0 with its own σ and with the σ of its "
            "neighbours. The paper's Figure 3D for all query positions, and its section 6.4.",
            per_head=True,
        ),
    )

    def ask(self, study: Study, runner: Runner) -> Frames:
        if study.layer.positions == "learned":
            self.note_trained_range(study, runner)
        found = position_shape(
            study.layer,
            self.queries(study),
            self.average,
            self.token_weights(study),
            runner.watch,
            self.split_off(study),
            self.length,
            study.seed,
        )
        axes = {name: range(size) for name, size in zip(REACH.names, found.reach["on_first"].shape, strict=False)}
        reach = REACH.without(*{*REACH.names} - {*axes, *found.reach}).grid(axes, found.reach)
        asked = pl.col("head").is_in(study.heads(self.heads))
        others = [*(AHEAD if study.layer.is_causal else ()), *(BY_OFFSET if study.has("position_table") else ())]
        return {
            "shape": _shape_table(found).filter(asked).drop(others),
            "waves": _waves_table(found).filter(asked),
            "reach": reach.filter(asked),
        }

    def verdict(self, tables: Frames) -> Verdict:
        """Whether at least one head has a wave from the last query position, which sees most keys."""
        there = _from_the_last(tables["shape"])
        testable, query = there.drop_nulls("sinusoidal"), there["query_position"][0]
        no_control = len(testable) > 0 and testable["wave_null"].null_count() == len(testable)  # ALiBi: rounding errors
        if no_control or there["period"].null_count() == len(there):
            return Verdict("untestable", f"from position {query} the curve is a line, without any wave")
        if testable.is_empty():
            return Verdict("untestable", _too_little_in_view(query, min(there["period"].drop_nulls().to_list())))
        waves = testable.filter("sinusoidal")
        control = "random mean vectors" if _curve(there) == "Tᵖ" else "random walks"
        seen = (waves if len(waves) else testable)["wave_share"].to_list()
        low, high = percent(min(seen)).removesuffix(" %"), percent(max(seen))
        shares = f"{low} to {high}" if not high.startswith(f"{low} ") else high
        strongest = testable.sort("wave_share", descending=True).row(0, named=True)
        required = f"we require {percent(SINUSOIDAL_SHARE)}"
        if not len(waves) and strongest["wave_share"] >= SINUSOIDAL_SHARE:
            required = f"{p_value(strongest['wave_p'])}, we require {ALPHA}"
        null = f"95 % of {control}: at most {percent(strongest['wave_null'])}; {required}"
        untestable = plural(len(there) - len(testable), "head") + " untestable; " if len(testable) < len(there) else ""
        reason = f"{untestable}from position {query}, one wave explains {shares} ({null})"
        return Verdict("yes" if len(waves) else "no", reason, tuple(map(head_name, waves["head"])))

    def summarize(self, tables: Frames) -> str:
        found, there = self.verdict(tables), _from_the_last(tables["shape"])
        if found.value == "untestable":
            return f"Whether {_curve(there)} is a wave can't be tested: {found.reason}."
        named = f" ({listed_some(found.heads, NAMED)})" if found else ""
        return (
            f"{_curve(there)} is a wave in {len(found.heads)} of {plural(len(there), 'head')}{named}: {found.reason}."
        )

    def summarize_comparison(self, by_label: ByLabel) -> str:
        found = {label: (self.verdict(tables), _from_the_last(tables["shape"])) for label, tables in by_label.items()}
        clauses = [
            f"untestable in {label}"
            if verdict.value == "untestable"
            else f"{len(verdict.heads)} of {plural(len(there), 'head')} in {label}"
            for label, (verdict, there) in found.items()
        ]
        return f"Heads whose position term is a wave: {listed(clauses)}."

    def views(self, tables: Frames) -> Sequence[View]:
        by_head = tables["shape"].sort("head", "query_position").rename({"query_position": "query"})
        line = by_head.select("head", "alibi_slope", "r_squared", "line_null", "line_p", "linear", "monotone")
        line = line.unique(maintain_order=True)
        wave = by_head.select(
            "head", "query", "period", "wave_share", "wave_null", "wave_p", "sinusoidal", "wave_effect"
        )
        near = [name for name in by_head.columns if name.startswith(("last_", "next_"))]
        pull = by_head.select("head", "query", *near, "entropy", "class").with_columns(pl.col(near).round(3))
        return [
            View("line through Tᵖ", line),
            View(f"leading wave of {_curve(by_head)}", wave),
            View("softmax of " + ("Tᵖ" if _curve(by_head) == "Tᵖ" else "Tᵖ + Tᵖᵖ"), pull),
        ]


def _shape_table(found: PositionShape) -> pl.DataFrame:
    def control(what: str, beyond: ControlTest | None) -> dict[str, Any]:
        return {f"{what}_null": beyond and beyond.null_high, f"{what}_p": beyond and beyond.p}

    line = {
        "slope": found.line.slope,
        "r_squared": found.line.r_squared,
        "alibi_slope": found.alibi_slope,
        **control("line", found.line.beyond),
        "linear": found.line.linear(),
        "monotone": found.monotone,
        "increasing": found.increasing,
        "by_offset": True,
    }
    frames = []
    for seen in found.queries:
        shares = [[wave.share for wave in waves] for waves in seen.waves]
        wave = {
            "query_position": seen.query_position,
            "period": [waves[0].period if waves else None for waves in seen.waves],
            "wave_share": [share[0] if share else None for share in shares],
            "waves_share": [sum(share) if share else None for share in shares],
            **control("wave", seen.beyond),
            "sinusoidal": seen.sinusoidal,
            "wave_effect": seen.wave_effect,
        }
        frames.append(SHAPE.grid({"head": range(len(shares))}, line | wave | masses(seen)))
    return pl.concat(frames)


def _too_little_in_view(query: int, shortest: float) -> str:
    """Why no head is testable, from the shortest period of a leading wave."""
    if shortest * PERIODS_IN_VIEW <= FEWEST_KEYS:
        return f"position {query} sees fewer than {FEWEST_KEYS} keys"
    return (
        f"position {query} sees fewer than {PERIODS_IN_VIEW} periods of every leading wave "
        f"(the shortest period: {shortest:.0f})"
    )


def _waves_table(found: PositionShape) -> pl.DataFrame:
    rows = [
        (head, seen.query_position, rank, wave.frequency, wave.period, wave.amplitude, wave.share)
        for seen in found.queries
        for head, waves in enumerate(seen.waves)
        for rank, wave in enumerate(waves, start=1)
    ]
    return WAVES.of_rows(rows)


def _from_the_last(shape: pl.DataFrame) -> pl.DataFrame:
    return shape.filter(pl.col("query_position") == pl.col("query_position").max()).sort("head")


def _curve(shape: pl.DataFrame) -> str:
    """The term that waves are fitted to: rotary and ALiBi positions have only Tᵖ."""
    return "Tᵖ" if shape.get_column("by_offset", default=shape["head"] < 0).any() else "Tᵖᵖ"


MEASURES = (
    Measure("alibi_slope", "slope of Tᵖ\n(as ALiBi's)", 0.0),
    Measure("r_squared", "R² of\nthe line"),
    Measure("period", "leading wave's\nperiod"),
    Measure("wave_share", "leading wave's\nshare"),
    Measure("last_5", "attention on\nlast 5"),
    Measure("last_15", "attention on\nlast 15"),
    Measure("on_first", "attention on\nposition 0"),
    Measure("entropy", "entropy\n(bits)"),
)
REACHES = {
    "last_15": ("last 15 tokens", theme.SERIES[0]),
    "on_first": ("position 0", theme.SERIES[1]),
    "on_first_usual_scale": ("position 0 with its neighbours' σ", theme.SERIES[2]),
}


def shape_numbers(
    shape: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Line, leading wave and attention by position alone of each head."""
    asked, positions = chosen_heads(shape, heads), drawn_queries(shape, queries)
    legend = [
        point_entry(f"query {query}", theme.style_of(place), filled=False) for place, query in enumerate(positions)
    ]
    figure, panels = head_rows(asked, width, [measure.title for measure in MEASURES], legend=legend)
    for axes, measure in zip(panels, MEASURES, strict=True):
        show_neutral(axes, measure)
        for place, query in enumerate(positions):
            rows = in_order(shape.filter(query_position=query), asked)
            points(axes, rows[measure.column], theme.style_of(place), filled=False)
    return figure


def reach(reach: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Mass of attention by position alone on near tokens and on position 0, from every query position."""
    shown = {column: named for column, named in REACHES.items() if column in reach.columns}
    figure, panels = head_panels(
        chosen_heads(reach, heads),
        width,
        x_label=labels.QUERY_POSITION,
        y_label="attention by position alone",
        legend=[line_entry(name, style) for name, style in shown.values()],
    )
    for head, axes in panels.items():
        rows = reach.filter(head=head).sort("query_position")
        for column, (_, style) in shown.items():
            line(axes, rows["query_position"], rows[column], style)
        axes.set_ylim(-0.02, 1.02)
    return figure
