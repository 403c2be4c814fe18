"""Attention on text, compared with the attention that positions alone predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import polars as pl

from detoklens.errors import RangeError
from detoklens.figures import theme
from detoklens.figures.labels import KEY_POSITION, band_name
from detoklens.figures.marks import band, band_entry, line, line_entry, patch_entry
from detoklens.figures.panels import chosen_heads, drawn_queries, head_panels, head_rows, in_order, middle, stacked
from detoklens.figures.spec import FigureSpec
from detoklens.measures.attention import Measured, region_masses, text_attention
from detoklens.measures.positions import chosen_queries
from detoklens.parallel import Runner
from detoklens.questions.base import ByLabel, Frames, ReportEntry, View
from detoklens.questions.options import TextQuestion
from detoklens.questions.parameters import Heads, Parameter, QueryPositions
from detoklens.questions.study import Study
from detoklens.questions.texts import check_reachable, too_short
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEAR = 30  # keys in the figure of the nearest ones
QUERY_POSITION = Column("query_position", "position of the token that attends, from 0", "Int32")
DOCUMENTS = Column("documents", "documents long enough to have this query position", "Int64")
MEASURED = {
    "first": "position 0",
    "far": "all keys that are neither first, recent nor self",
    "recent": "the 15 keys before the query (never position 0)",
    "self": "the query's own position",
    "next": "the 15 keys after the query; bidirectional models only",
}
PREDICTED = MEASURED | {"far": "far keys", "recent": "recent keys", "next": "next keys"}

ATTENTION = Schema(
    "attention",
    "Attention on text by position, measured and predicted from the weights",
    HEAD,
    QUERY_POSITION,
    Column(
        "key_position",
        "position of the token attended to, up to the query's own or, in a bidirectional model, the last",
        "Int32",
    ),
    Column("mean", "attention, mean over documents", defined=True),
    Column("low", "lower edge of the band that contains the given share of documents"),
    Column("high", "upper edge of that band"),
    Column("predicted", "softmax of Tᵖ + Tᵖᵖ: attention from positions alone", defined=True),
    DOCUMENTS,
)

ATTENTION_AGREEMENT = Schema(
    "attention_agreement",
    "Agreement of attention on text with attention from positions alone",
    HEAD,
    QUERY_POSITION,
    Column("total_variation", "half the sum of |mean attention − predicted|: 0 equal, 1 disjoint"),
    Column("document_total_variation", "the same for each document's attention, mean over documents"),
    *(
        Column(f"{source}_{region}", f"{what} attention on {keys}")
        for source, what, regions in (("measured", "mean", MEASURED), ("predicted", "predicted", PREDICTED))
        for region, keys in regions.items()
    ),
    DOCUMENTS,
)


@dataclass(frozen=True, repr=False)
class Attention(TextQuestion):
    """Compare attention on text with the softmax of Tᵖ + Tᵖᵖ.

    Keys are grouped into first (position 0), self (the query), recent (the 15 before it), next (the 15 after it) and
    far. Only bidirectional models have next; they read documents of one length, by default the median. Rotary and ALiBi
    models have no Tᵖᵖ; their attention is compared with the softmax of the kernel Tᵖ.

    Example: detoklens attention gpt2 --text 'openwebtext/*.parquet' --query-positions 500 --heads 1,7
    """

    query_positions: QueryPositions = None
    heads: Heads = None
    band: Annotated[float, Parameter("Share of documents inside the band.", advanced=True)] = 0.95

    progress_label = "measuring attention on text"
    report_section = "Attention on text"
    tables = (ATTENTION_AGREEMENT, ATTENTION)
    by: ClassVar[Mapping[str, str]] = {"query": "attention_agreement", "key": "attention"}
    parallel = True
    equation = (
        "α[h, i, :] = softmax over j ≤ i (all j in a bidirectional model) of s[h, i, j] / √d′,  s = Tᵉᵉ + Tᵖᵖ + Tᵖᵉ + "
        "Tᵉᵖ + Tᵉ + Tᵖ (those the model has)"
    )
    figures = (
        FigureSpec(
            "attention",
            ("attention",),
            "Attention on text and from positions alone",
            "Mean attention over documents, with the band that contains {band} of them, and the softmax of Tᵖ + Tᵖᵖ, "
            "for one query position. The paper's Figure 3E.",
            per_head=True,
        ),
        FigureSpec(
            "attention_near",
            ("attention",),
            "Attention on the nearest keys",
            f"Mean attention on the last {NEAR} keys up to the query, with the band that contains {{band}} of "
            "documents, and the softmax of Tᵖ + Tᵖᵖ. The paper's Figure 3E.",
            function="attention",
            per_head=True,
            options=(("last", NEAR),),
        ),
        FigureSpec(
            "attention_parts",
            ("attention_agreement",),
            "Where attention goes",
            "Attention on the first position, on far keys, on the 15 keys before the query and on the query itself, "
            "measured on text (upper bar) and predicted from positions alone (lower bar), mean over query positions. "
            "The paper's section 5.4.",
        ),
    )

    @classmethod
    def report_entries(cls, study: Study) -> Sequence[ReportEntry]:
        """Without a beginning-of-text token, as in the paper's Figure 3E."""
        return [ReportEntry(cls(prepend_bos=False if study.texts.prepend_bos else None))]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.band <= 1:
            raise RangeError(
                f"a band of {self.band:g} is not a share of documents; pass more than 0 and at most 1, e.g. 0.95"
            )

    def settings(self, study: Study) -> dict[str, Any]:
        return super().settings(study) | {"query_positions": self._positions(study)}

    def specs(self) -> Sequence[FigureSpec]:
        return [spec.with_band(self.band) for spec in self.figures]

    def ask(self, study: Study, runner: Runner) -> Frames:
        positions, heads = self._positions(study), study.heads(self.heads)
        documents = study.read(self.prepend_bos)
        for note in too_short(documents, positions):
            runner.say(note)
        if not study.layer.is_causal:
            length, read = self._length(study) or 0, len(documents)
            documents = [ids[:length] for ids in documents if len(ids) >= length]
            runner.say(
                f"{len(documents):,} of {read:,} documents are used, truncated to {length} tokens each: a "
                "bidirectional model attends to every key"
            )
        measured = text_attention(study.layer, documents, positions, heads, self.band, runner, self.split_off(study))
        agreement = pl.concat(ATTENTION_AGREEMENT.grid({"head": heads}, _agreement(each)) for each in measured)
        if study.layer.is_causal:
            agreement = agreement.drop("measured_next", "predicted_next")
        columns = ("query_position", "mean", "low", "high", "predicted", "documents")
        by_key = pl.concat(
            ATTENTION.grid(
                {"head": heads, "key_position": range(each.mean.shape[1])},
                {name: getattr(each, name) for name in columns},
            )
            for each in measured
        )
        return {
            "attention_agreement": agreement.sort("head", "query_position"),
            "attention": by_key.sort("head", "query_position", "key_position"),
        }

    def _length(self, study: Study) -> int | None:
        """The length to truncate to: as set; by default the median length for a bidirectional model."""
        if study.layer.is_causal or study.texts.length is not None:
            return study.texts.length
        lengths = sorted(len(ids) for ids in study.read(self.prepend_bos))
        return lengths[len(lengths) // 2]

    def summarize(self, tables: Frames) -> str:
        """The heads whose attention positions predict best and worst."""
        agreement = tables["attention_agreement"]
        by_head = agreement.group_by("head").mean().sort("total_variation", "head")
        best, worst = by_head.row(0, named=True), by_head.row(-1, named=True)
        on = f"On {plural(max(agreement['documents']), 'document')},"
        scale = f"total variation {best['total_variation']:.2f}; 0 is equal, 1 disjoint"
        if len(by_head) == 1:
            return f"{on} {head_name(best['head'])}'s attention differs from the softmax of Tᵖ + Tᵖᵖ ({scale})."
        return (
            f"{on} positions alone predict {head_name(best['head'])}'s attention best ({scale}) and "
            f"{head_name(worst['head'])}'s worst ({worst['total_variation']:.2f})."
        )

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """The mean distance of attention from what positions alone predict."""
        clauses = [
            f"{tables['attention_agreement']['total_variation'].to_numpy().mean():.2f} in {label}"
            for label, tables in by_label.items()
        ]
        return (
            "Total variation between attention on text and attention from positions alone (0 equal, 1 disjoint), mean "
            f"over heads and query positions: {listed(clauses)}."
        )

    def views(self, tables: Frames) -> Sequence[View]:
        """Attention by region, with the prediction in parentheses."""
        agreement = tables["attention_agreement"]
        shown = agreement.select(
            "head",
            agreement["query_position"].alias("query"),
            "total_variation",
            *(_with_prediction(agreement, region) for region in MEASURED if f"measured_{region}" in agreement.columns),
            "documents",
            "document_total_variation",
        )
        return [View("attention on text by region (in parentheses: from positions alone)", shown)]

    def _positions(self, study: Study) -> list[int]:
        """The positions that were set; else the paper's, scaled to the model's or the documents' length."""
        length = self._length(study)
        positions = chosen_queries(study.layer, self.query_positions, length)
        check_reachable(positions, length)
        return positions


def _with_prediction(agreement: pl.DataFrame, region: str) -> pl.Series:
    """`12 (30) %`: measured and predicted attention on a region."""
    both = zip(agreement[f"measured_{region}"], agreement[f"predicted_{region}"], strict=True)
    return pl.Series(region, [f"{100 * one:.0f} ({100 * other:.0f}) %" for one, other in both], pl.String)


def _agreement(measured: Measured) -> dict[str, Any]:
    """The distance from the prediction, and both attentions by region."""
    columns = {
        "query_position": measured.query_position,
        "total_variation": measured.distance,
        "document_total_variation": measured.document_distance,
        "documents": measured.documents,
    }
    for source, attention in (("measured", measured.mean), ("predicted", measured.predicted)):
        masses = region_masses(attention, measured.query_position)
        columns |= {f"{source}_{region}": mass for region, mass in masses.items()}
    return columns


ON_TEXT, FROM_POSITIONS = theme.SERIES[0], theme.SERIES[1]
PARTS = {
    "first": "position 0",
    "far": "far keys",
    "recent": "15 keys before the query",
    "self": "the query itself",
    "next": "15 keys after it",
}


def attention(
    attention: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    query: int | None = None,
    last: int | None = None,
    band_share: float | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Draw attention by key at one query position (the middle one by default), for all or the `last` keys."""
    asked = query if query is not None else middle(drawn_queries(attention, None))
    rows = attention.filter(query_position=asked).sort("head", "key_position")
    if last is not None:
        rows = rows.filter((pl.col("key_position") - asked).abs() < last)
    legend = [
        line_entry(f"on text, mean (query {asked})", ON_TEXT),
        band_entry(band_name("documents", band_share), ON_TEXT),
        line_entry("predicted by position alone", FROM_POSITIONS),
    ]
    figure, panels = head_panels(
        chosen_heads(attention, heads), width, x_label=KEY_POSITION, y_label="attention", legend=legend
    )
    for head, axes in panels.items():
        curve = rows.filter(head=head)
        band(axes, curve["key_position"], curve["low"], curve["high"], ON_TEXT)
        line(axes, curve["key_position"], curve["mean"], ON_TEXT)
        line(axes, curve["key_position"], curve["predicted"], FROM_POSITIONS, linewidth=0.8)
    return figure


def attention_parts(
    attention_agreement: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    query: int | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Draw attention by region, at one query position or as the mean over all."""
    asked = chosen_heads(attention_agreement, heads)
    rows = attention_agreement if query is None else attention_agreement.filter(query_position=query)
    means = in_order(rows.group_by("head").mean(), asked)
    where = "mean over query positions" if query is None else f"query {query}"
    parts = [part for part in PARTS if f"measured_{part}" in means.columns]
    styles = [theme.style_of(place) for place in range(len(parts))]
    legend = [patch_entry(PARTS[part], style) for part, style in zip(parts, styles, strict=True)]
    title = f"attention, {where}\nupper bar: on text; lower bar: predicted from position"
    figure, (axes,) = head_rows(asked, width, [title], legend=legend, row=0.24)
    for source, shift in (("measured", -0.2), ("predicted", 0.2)):
        stacked(axes, [means[f"{source}_{part}"] for part in parts], styles, shift, height=0.34)
    axes.set_xlim(0, 1)
    return figure
