"""Tᵉᵉ of random tokens, self-match, and keys preferred by all queries (Figure 2B, appendix)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import polars as pl
from jaxtyping import Float

from detoklens.figures import theme
from detoklens.figures.labels import KEY, QUERY, short_number, token_name
from detoklens.figures.panels import EDGE, LABEL, TALLEST, Grid, Margins, add_labels, chosen_heads
from detoklens.figures.spec import FigureSpec
from detoklens.measures.heatmap import draw_tokens, drawn_scores, identical_tokens
from detoklens.measures.words import token_texts
from detoklens.parallel import Runner
from detoklens.questions.base import ByLabel, Frames, Question, ReportEntry
from detoklens.questions.options import AFFINITY, TokenQuestion
from detoklens.questions.parameters import Centred, Heads, Parameter, Scale
from detoklens.questions.study import Study
from detoklens.tables.schema import HEAD, KEY_TOKEN_ID, QUERY_TOKEN_ID, TOKEN, TOKEN_ID, Column, Schema
from detoklens.wording import deviations, head_name, listed, listed_some, percent, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYER_NORM = Column("layer_norm", "whether scores are divided by σ of query and key, as LayerNorm does", "Boolean")

HEATMAP_TOKENS = Schema(
    "heatmap_tokens",
    "Sampled tokens",
    Column("place", "row and column of the token in the heatmap, from 0", "Int32"),
    TOKEN_ID,
    TOKEN,
)

HEATMAP = Schema(
    "heatmap",
    "Tᵉᵉ of all pairs of the sampled tokens",
    HEAD,
    LAYER_NORM,
    Column("query_place", "row of the heatmap", "Int32"),
    Column("key_place", "column of the heatmap", "Int32"),
    QUERY_TOKEN_ID,
    KEY_TOKEN_ID,
    Column("score", "Tᵉᵉ of the pair", "Float32", defined=True),
)

HEATMAP_BY_HEAD = Schema(
    "heatmap_by_head",
    "Range of Tᵉᵉ and self-match by head",
    HEAD,
    LAYER_NORM,
    Column("minimum", "smallest score of a sampled pair", defined=True),
    Column("maximum", "largest score of a sampled pair", defined=True),
    Column("diagonal_mean", "mean score of the sampled tokens with themselves"),
    Column("other_mean", "mean score of the sampled pairs of different tokens"),
    Column("diagonal_share", "share of sampled rows whose largest score is on the diagonal"),
    Column("self_match", "mean z-score of Tᵉᵉ[i, i] in row i of all keys, over the sampled tokens"),
    Column("self_first", "share of the sampled tokens that rank first among all keys of their row"),
    Column("self_median_rank", "median rank of the identical token among all keys"),
    Column("same_keys", "share of Tᵉᵉ's variance along all keys that the key's mean over queries explains"),
)

CLEARLY = 2.0  # standard deviations above the mean key
MOST = 0.5  # of the variance over keys
NAMED = 6  # heads named in a summary
REPORTED_TOKENS = 60
ALL_EQUAL = "Untestable: all keys have the same score in every head."


@dataclass(frozen=True, repr=False)
class Heatmap(TokenQuestion):
    """Compute Tᵉᵉ between sampled tokens, with and without LayerNorm's σ.

    Prints, for each head, the range of the scores, self-match (how highly a token scores itself), and how far all
    queries prefer the same keys. --figure draws the heatmap; --out also writes all scores.

    Example: detoklens heatmap gpt2 --tokens 300 --out heatmap/
    """

    tokens: Annotated[int, Parameter("Number of random tokens, at most the whole vocabulary.", least=2)] = 100
    heads: Heads = None
    centred: Centred = False
    scale: Scale = "mean"

    report_section = "Token partners"
    progress_label = "comparing tokens"
    uses = frozenset({"vocabulary", "seed", "counts"})
    parallel = True
    tables = (HEATMAP_BY_HEAD, HEATMAP_TOKENS, HEATMAP)
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "heatmap_by_head": ("head", "layer_norm", "minimum", "maximum", "self_match", "self_first", "same_keys"),
        "heatmap": ("head", "layer_norm", "query_token_id", "key_token_id", "score"),
    }
    equation = AFFINITY
    figures = (
        FigureSpec(
            "heatmap",
            ("heatmap",),
            "Tᵉᵉ of random tokens",
            "Scores of all pairs of the sampled tokens, with and without (no LN) LayerNorm's division by σ. White "
            "is 0 and all heads share one colour range (no LN: a separate one); a panel's own range is above it. A red "
            "diagonal is self-match. If names would overlap, only every n-th token is named. The paper's "
            "Figure 2B and appendix.",
            optional=("heatmap_tokens",),
            per_head=True,
        ),
    )

    @classmethod
    def report_entries(cls, study: Study) -> Sequence[ReportEntry]:
        drawn = cls(tokens=max(2, min(REPORTED_TOKENS, len(study.layer.meaningful_tokens))))
        return [ReportEntry(drawn, headline=False), *drawn.report_variants(study, "heatmap")]

    @classmethod
    def examples(cls) -> Sequence[Question]:
        return (cls(tokens=60),)

    def settings(self, study: Study) -> dict[str, Any]:
        return super().settings(study) | {"tokens": min(self.tokens, len(study.layer.meaningful_tokens))}

    def ask(self, study: Study, runner: Runner) -> Frames:
        """With and without division by σ; if queries and keys are normed themselves, only with it."""
        layer, heads, candidates = study.layer, study.heads(self.heads), study.meaningful_tokens()
        if self.tokens > len(candidates):
            runner.say(f"the vocabulary has {len(candidates)} tokens, fewer than {self.tokens}; all are compared")
        places = draw_tokens(len(candidates), min(self.tokens, len(candidates)), study.seed)
        ids, scores, by_head = candidates[places], [], []
        for divided in (True,) if layer.weights.has_query_key_norms else (True, False):
            affinity = self.affinity(study, self.scale if divided else None, self.centred, heads).of_tokens(candidates)
            drawn, size = drawn_scores(affinity, places), range(len(ids))
            pairs = {"query_token_id": ids[:, None], "key_token_id": ids, "score": drawn, "layer_norm": divided}
            scores.append(HEATMAP.grid({"head": heads, "query_place": size, "key_place": size}, pairs))
            ranges = identical_tokens(affinity, places, drawn, runner)
            by_head.append(HEATMAP_BY_HEAD.grid({"head": heads}, ranges | {"layer_norm": divided}))
            del affinity  # a gigabyte for a large vocabulary, before the next one
        tokens = {"token_id": ids, "token": token_texts(layer, ids)}
        return {
            "heatmap_by_head": pl.concat(by_head).sort("head", maintain_order=True),
            "heatmap_tokens": HEATMAP_TOKENS.grid({"place": range(len(ids))}, tokens),
            "heatmap": pl.concat(scores),
        }

    def summarize(self, tables: Frames) -> str:
        """Which heads match the identical token, how clearly, and which prefer the same keys for every query."""
        by_self_match = _by_self_match(tables["heatmap_by_head"])
        if by_self_match.is_empty():
            return ALL_EQUAL
        best, sampled = by_self_match.row(0, named=True), len(tables["heatmap_tokens"])
        return (
            f"{_summarize_self_match(by_self_match, self.no_head)}: over "
            f"{plural(sampled, 'token')}{self.options_note}, a token's own key scores "
            f"{deviations(best['self_match'], digits=2)} the mean key, and highest of all in "
            f"{percent(best['self_first'])}. "
            f"{_summarize_same_keys(by_self_match, self.no_head)}."
        )

    def summarize_comparison(self, by_label: ByLabel) -> str:
        by_self_match = {label: _by_self_match(tables["heatmap_by_head"]) for label, tables in by_label.items()}
        best = {label: heads.row(0, named=True) for label, heads in by_self_match.items() if len(heads)}
        scores = [
            f"{deviations(row['self_match'], digits=2)} it in {label} ({head_name(row['head'])})"
            for label, row in best.items()
        ]
        if not scores:
            return ALL_EQUAL
        return f"Score of identical tokens{self.options_note} against the mean key, in the best head: {listed(scores)}."


def _by_self_match(by_head: pl.DataFrame) -> pl.DataFrame:
    """The heads with LayerNorm, highest self-match first."""
    known = by_head.filter(layer_norm=True).drop_nulls("self_match")
    return known.sort("self_match", descending=True, maintain_order=True)


def _summarize_self_match(by_self_match: pl.DataFrame, no_head: str) -> str:
    """The heads that clearly match the identical token, else the closest one."""
    names = [head_name(head) for head in by_self_match.filter(pl.col("self_match") >= CLEARLY)["head"]]
    if not names:
        return f"{no_head} clearly matches the identical token; the closest is {head_name(by_self_match['head'][0])}"
    if len(names) == 1:
        return f"{names[0]} matches the identical token"
    return f"{listed_some(names, NAMED)} match the identical token, {names[0]} most"


def _summarize_same_keys(by_head: pl.DataFrame, no_head: str) -> str:
    """The heads in which most of the variance over keys is the same for every query."""
    ordered = by_head.sort("same_keys", descending=True, nulls_last=True, maintain_order=True)
    same = ordered.filter(ordered["same_keys"] >= MOST).select("head", "same_keys")
    if same.is_empty():
        return f"{no_head} mostly prefers the same keys for every query"
    names = [f"{head_name(head)} ({percent(share)})" for head, share in same.iter_rows()]
    return f"Heads that mostly prefer the same keys for every query (share of variance): {listed_some(names, NAMED)}"


NAME_HEIGHT = 0.1  # inches for a token's name
LONGEST = 12  # letters of a token's name
LETTER = 0.056  # inches
NARROWEST = 0.95  # inches of a panel
MOST_UNNAMED = 2  # tokens between two named ones
PLAIN = Margins(
    left=LABEL + EDGE, top=3 * LABEL, bottom=LABEL + EDGE, between_columns=EDGE * 1.5, between_rows=2 * LABEL
)


def heatmap(
    heatmap: pl.DataFrame,
    heatmap_tokens: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Draw Tᵉᵉ of all pairs of the sampled tokens: white is 0, and all heads share one colour range.

    Panels without LayerNorm share their own, since σ changes the unit.
    """
    variants = sorted(heatmap["layer_norm"].unique().to_list(), reverse=True)
    panels = [(head, variant) for head in chosen_heads(heatmap, heads) for variant in variants]
    total = theme.inches(width)
    names, limits = (
        _names(heatmap_tokens),
        {variant: _limit(heatmap.filter(layer_norm=variant)) for variant in variants},
    )
    margins, grid = _layout(len(panels), len(variants), total, names)
    figure = theme.blank_figure(total, grid.height(margins))
    for index, (head, variant) in enumerate(panels):
        axes = figure.add_axes(grid.place(index, total, margins))
        _draw_panel(axes, heatmap.filter(head=head, layer_norm=variant), head, variant, limits[variant])
        if names:
            every = ceil(len(names) * NAME_HEIGHT / grid.panel_width)
            _name_tokens(axes, names, every, index % grid.columns == 0, grid.is_lowest(index, len(panels)))
    add_labels(figure, KEY, QUERY, margins, legend=LABEL)
    _add_colour_key(figure, limits)
    return figure


def _names(tokens: pl.DataFrame | None) -> list[str]:
    if tokens is None:
        return []
    drawn = tokens.sort("place").select("token", "token_id")
    return [token_name(text, token, LONGEST) for text, token in drawn.iter_rows()]


def _layout(panels: int, variants: int, total: float, names: list[str]) -> tuple[Margins, Grid]:
    """Panels wide enough to name every token, or every second or third; else as many per row as fit."""
    space = LABEL + EDGE + LETTER * max(map(len, names), default=0)
    margins = replace(PLAIN, left=space, bottom=space) if names else PLAIN
    look: dict[str, Any] = {"proportion": 1.0, "multiple": variants, "tallest": total}
    for every in range(1, MOST_UNNAMED + 2) if names else ():
        wanted = len(names) * NAME_HEIGHT / every
        grid = Grid.fit(max(1, panels), total, margins, narrowest=max(NARROWEST, wanted), **look)
        if grid.panel_width >= wanted and grid.height(margins) <= TALLEST:
            return margins, grid
    return margins, Grid.fit(max(1, panels), total, margins, narrowest=NARROWEST, **look)


def _limit(rows: pl.DataFrame) -> float:
    """The largest |score|: the end of the colour range on both sides of 0."""
    sizes = rows["score"].cast(pl.Float64).abs().fill_nan(None).drop_nulls().to_numpy()
    return float(sizes.max(initial=0.0)) or 1.0


def _draw_panel(axes: Axes, rows: pl.DataFrame, head: int, layer_norm: bool, limit: float) -> None:
    scores = _matrix(rows)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    title = head_name(head) if layer_norm else "no LN"  # next to the head's panel with LayerNorm
    if np.isfinite(scores).any():
        title += f"\n{short_number(_rounded(np.nanmin(scores)))}…{short_number(_rounded(np.nanmax(scores)))}"
        look: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest", "vmin": -limit, "vmax": limit}
        axes.imshow(scores, cmap=theme.DIVERGING, **look)
    axes.set_title(title, fontsize=theme.SMALL_SIZE, linespacing=1.1)


def _matrix(rows: pl.DataFrame) -> Float[np.ndarray, "query key"]:
    """Scores by row and column of the heatmap, undefined ones as NaN."""
    size = 1 + max(int(rows["query_place"].max() or 0), int(rows["key_place"].max() or 0)) if rows.height else 1  # type: ignore[arg-type]
    scores = np.full((size, size), np.nan)
    scores[rows["query_place"].to_numpy(), rows["key_place"].to_numpy()] = rows["score"].cast(pl.Float64).to_numpy()
    return scores


def _rounded(value: float) -> float:
    return float(f"{value:.2g}") if abs(value) < 10 else float(round(value))


def _name_tokens(axes: Axes, names: list[str], every: int, left: bool, below: bool) -> None:
    """Name every token, or every `every`-th."""
    places, named, size = range(0, len(names), every), names[::every], theme.SMALL_SIZE
    if left:
        axes.set_yticks(places, named, fontsize=size)
    if below:
        axes.set_xticks(places, named, fontsize=size, rotation=90)
    axes.tick_params(length=0)


def _add_colour_key(figure: Figure, limits: dict[bool, float]) -> None:
    ends = [short_number(_rounded(limit)) for limit in limits.values()]
    low, high = (" (no LN ".join(f"{sign}{end}" for end in ends) + ")" * (len(ends) - 1) for sign in ("−", ""))
    wide, tall = figure.get_size_inches()
    place = (1.1 / wide, 1 - 0.13 / tall, 0.6 / wide, 0.09 / tall)
    axes = figure.add_axes(place, label="colour key")
    axes.imshow(np.linspace(0, 1, 64)[None], cmap=theme.DIVERGING, aspect="auto")
    axes.set_axis_off()
    look: dict[str, Any] = {"va": "center", "fontsize": theme.SMALL_SIZE, "transform": axes.transAxes}
    axes.text(-0.06, 0.5, low, ha="right", **look)
    axes.text(1.06, 0.5, f"{high}: score (Tᵉᵉ), white is 0", ha="left", **look)
