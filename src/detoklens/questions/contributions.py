"""How much attention on text changes when a term is removed, per term and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import polars as pl

from detoklens.figures import labels, theme
from detoklens.figures.marks import line, line_entry, logarithmic_y, patch_entry, point_entry
from detoklens.figures.panels import chosen_heads, head_panels, head_rows, in_order, name_places, stacked, titled_panels
from detoklens.figures.spec import FigureSpec
from detoklens.measures.contributions import GROUPS, PAPER, PUBLISHED, Divergences, Formula, contributions
from detoklens.measures.positions import chosen_queries
from detoklens.parallel import Runner
from detoklens.questions.attention import DOCUMENTS, QUERY_POSITION
from detoklens.questions.base import ByLabel, Frames, View
from detoklens.questions.options import TextQuestion
from detoklens.questions.parameters import QUERY_POSITIONS, Heads, Parameter
from detoklens.questions.study import Study
from detoklens.questions.texts import check_reachable, too_short
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, percent, term_name, term_symbol

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEGLIGIBLE = 0.005  # nats: would be written as 0.00
NAMED = 3  # terms in a summary
TERM = Column("term", "the removed term: ee, pp, pe, ep, e or p (those the model has)", "String")

CONTRIBUTIONS = Schema(
    "contributions",
    "Change of attention on text when a term is removed, by query position",
    HEAD,
    QUERY_POSITION,
    TERM,
    Column("kl", "KL divergence in nats between attention without the term and full attention, mean over documents"),
    Column("standard_error", "standard error of that mean over documents; null for one document"),
    Column("top_changed", "share of documents in which the most attended token changes"),
    DOCUMENTS,
)

CONTRIBUTIONS_BY_HEAD = Schema(
    "contributions_by_head",
    "Change of attention on text when a term is removed, by head",
    HEAD,
    TERM,
    Column("kl", "KL divergence in nats: mean over documents, then over query positions", defined=True),
    Column("share", "the term's share of the sum of the head's KL divergences"),
    Column("top_changed", "share of documents where the top token changes: mean over positions"),
    Column("rank", "1 for the term whose absence changes this head's attention most", "Int32"),
)

GROUP = Column(
    "group", "terms removed at once: position (p, pp), token (e, ee), mixed (ep, pe) or self-assertion (e, p)", "String"
)

CONTRIBUTIONS_BY_GROUP = Schema(
    "contributions_by_group",
    "Change of attention on text when a group of terms is removed, by head",
    HEAD,
    GROUP,
    Column("terms", "the group's terms that the model has, joined by +", "String"),
    Column("kl", "KL divergence in nats: mean over documents, then over query positions", defined=True),
    Column("singly", "sum of the KL divergences of these terms, each removed alone"),
    Column("top_changed", "share of documents where the top token changes: mean over positions"),
)

GROUP_CONTRIBUTIONS = Schema(
    "group_contributions",
    "Change of attention on text when a group of terms is removed, by query position",
    *(GROUP if column is TERM else column for column in CONTRIBUTIONS.columns),
)


@dataclass(frozen=True, repr=False)
class Contributions(TextQuestion):
    """Measure how much attention on text changes when a term is removed.

    Learned positions have six terms, rotary positions four (ee, e, ep and the kernel p), ALiBi three. Groups of terms
    (position, token, mixed, self-assertion) are also removed together. Documents are sampled by the hash of their text,
    so the same corpus always gives the same sample. The numbers don't depend on the number of workers. With --out, run
    the same command again to continue an interrupted run.

    Example: detoklens contributions gpt2 --text 'openwebtext/*.parquet' --out results
    """

    query_positions: Annotated[
        Sequence[int] | None,
        replace(QUERY_POSITIONS, help="Query positions, from 0. Default: all.", metavar="50,500"),
    ] = None
    heads: Heads = None
    formula: Annotated[
        Literal["paper", "published"],
        Parameter(
            "The paper's equation, or its published code: D(full‖without), unscaled, mean over keys.", advanced=True
        ),
    ] = "paper"
    direction: Annotated[
        Literal["without", "whole"] | None,
        Parameter("Override the formula: D(without‖full) or D(full‖without).", advanced=True),
    ] = None
    scaling: Annotated[
        Literal["scaled", "unscaled"] | None,
        Parameter("Override the formula: softmax of s / √d′, or of s.", advanced=True),
    ] = None
    reduction: Annotated[
        Literal["sum", "mean"] | None, Parameter("Override the formula: sum or mean over keys.", advanced=True)
    ] = None

    progress_label = "removing each term"
    report_section = "Term contributions"
    tables = (CONTRIBUTIONS_BY_HEAD, CONTRIBUTIONS, CONTRIBUTIONS_BY_GROUP, GROUP_CONTRIBUTIONS)
    compared_tables = ("contributions_by_head",)
    by: ClassVar[Mapping[str, str]] = {
        "head": "contributions_by_head",
        "position": "contributions",
        "group": "contributions_by_group",
    }
    parallel = True
    equation = "c = D_KL(P ‖ Q),  P = softmax((s − T) / √d′),  Q = softmax(s / √d′), averaged over documents"
    figures = (
        FigureSpec(
            "contributions",
            ("contributions",),
            "Term contributions",
            "KL divergence between attention without a term and full attention, by query position, mean over "
            "documents. The paper's Figure 4 and appendix.",
            function="draw_contributions",
            per_head=True,
        ),
        FigureSpec(
            "group_contributions",
            ("group_contributions",),
            "Contributions of groups of terms",
            "KL divergence with several terms removed at once: position (Tᵖ, Tᵖᵖ), token (Tᵉ, Tᵉᵉ), mixed (Tᵉᵖ, Tᵖᵉ) "
            "and self-assertion (Tᵉ, Tᵖ). The paper names these groups in its abstract and limitations, without a "
            "figure.",
            function="draw_contributions",
            per_head=True,
        ),
        FigureSpec(
            "contribution_shares",
            ("contributions_by_head",),
            "Term shares by head",
            "Each term's share of the sum of a head's KL divergences: a summary of the paper's Figure 4.",
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_contributions",
            ("contributions_by_head",),
            "Term shares by checkpoint",
            "Each term's share of the heads' KL divergences, mean over heads.",
        ),
    )

    def settings(self, study: Study) -> dict[str, Any]:
        return {
            "heads": study.heads(self.heads),
            "query_positions": self._positions(study),
            "formula": vars(self._formula()),
        } | self.applicable_options(study)

    def ask(self, study: Study, runner: Runner) -> Frames:
        positions, heads = self._positions(study), study.heads(self.heads)
        documents = study.read(self.prepend_bos)
        for note in too_short(documents, positions or []):
            runner.say(note)
        mean = self.split_off(study)
        measured = contributions(study.layer, documents, positions, heads, self._formula(), runner, mean, GROUPS)
        both = contribution_table(measured, heads)
        is_group = pl.col("term").is_in(list(GROUPS))
        table, groups = both.filter(~is_group), both.filter(is_group)
        return {
            "contributions_by_head": contributions_by_head(table),
            "contributions": table,
            "contributions_by_group": _by_group(groups, table),
            "group_contributions": GROUP_CONTRIBUTIONS.conform(groups.rename({"term": "group"})),
        }

    def summarize(self, tables: Frames) -> str:
        """The head that changes most, by term, and the largest change in the others."""
        by_head = tables["contributions_by_head"]
        first, *others = by_head.filter(rank=1).sort("kl", "head", descending=[True, False]).iter_rows(named=True)
        name, symbol = head_name(first["head"]), term_symbol(first["term"])
        if first["kl"] < NEGLIGIBLE:
            return (
                f"Removing any one term barely changes attention: KL {first['kl']:.1g} nats at most ({name}, {symbol})."
            )
        terms = by_head.filter(head=first["head"]).sort("rank").head(NAMED).iter_rows(named=True)
        smaller = [f"{term_symbol(each['term'])} ({each['kl']:.2f})" for each in terms if each["kl"] >= NEGLIGIBLE][1:]
        then = f", then {listed(smaller)}" if smaller else ""
        most = ""
        if others:
            next_head, next_term = head_name(others[0]["head"]), term_symbol(others[0]["term"])
            most = f"; other heads change by at most {others[0]['kl']:.2f} nats ({next_head}, {next_term})"
        return f"Removing {symbol} changes {name}'s attention most (KL {first['kl']:.2f} nats){then}{most}."

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """Tᵉᵉ's share in each model."""
        said = []
        for label, tables in by_label.items():
            share = tables["contributions_by_head"].filter(term="ee")["share"].drop_nulls()
            said.append(f"{percent(float(share.to_numpy().mean())) if len(share) else 'unknown'} in {label}")
        return f"Tᵉᵉ's share of the terms' KL divergences, mean over heads: {listed(said)}."

    def views(self, tables: Frames) -> Sequence[View]:
        return [self.view(tables, name) for name in ("contributions_by_head", "contributions_by_group")]

    def _positions(self, study: Study) -> list[int] | None:
        if self.query_positions is None:
            return None
        positions = chosen_queries(study.layer, self.query_positions)
        check_reachable(positions, study.texts.length)
        return positions

    def _formula(self) -> Formula:
        """The named formula with its overrides."""
        parts = {"direction": self.direction, "scaling": self.scaling, "reduction": self.reduction}
        given: dict[str, Any] = {part: choice for part, choice in parts.items() if choice is not None}
        return replace(PAPER if self.formula == "paper" else PUBLISHED, **given)


def contribution_table(measured: Divergences, heads: Sequence[int]) -> pl.DataFrame:
    """One row per head, query position and term, as CONTRIBUTIONS."""
    return CONTRIBUTIONS.grid(
        {"head": heads, "query_position": measured.query_positions, "term": measured.terms},
        {
            "kl": measured.mean,
            "standard_error": measured.standard_error,
            "top_changed": measured.top_changed,
            "documents": measured.documents[None, :, None],
        },
    )


def _by_group(groups: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Means over query positions, next to the sums over single terms."""
    present = {name: [term for term in terms if (table["term"] == term).any()] for name, terms in GROUPS.items()}
    singly = contributions_by_head(table)
    sums = pl.concat(
        singly.filter(pl.col("term").is_in(terms))
        .group_by("head")
        .agg(singly=pl.col("kl").sum())
        .with_columns(term=pl.lit(name), terms=pl.lit("+".join(terms)))
        for name, terms in present.items()
        if terms
    )
    means = groups.group_by("head", "term", maintain_order=True).agg(pl.col("kl", "top_changed").mean())
    joined = means.join(sums, on=["head", "term"], how="inner", maintain_order="left")
    return CONTRIBUTIONS_BY_GROUP.conform(joined.rename({"term": "group"}))


def contributions_by_head(table: pl.DataFrame) -> pl.DataFrame:
    """Means over query positions, as CONTRIBUTIONS_BY_HEAD."""
    means = table.group_by("head", "term", maintain_order=True).agg(pl.col("kl", "top_changed").mean())
    ranked = means.with_columns(
        share=pl.col("kl") / pl.col("kl").sum().over("head"),
        rank=pl.col("kl").rank("ordinal", descending=True).over("head"),
    )
    return CONTRIBUTIONS_BY_HEAD.conform(ranked.sort("head", "rank"))


def draw_contributions(
    contributions: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """Draw the change of attention by query position when a term, or a group of terms, is removed."""
    removed = "group" if "group" in contributions.columns else "term"
    terms = terms_in_order(contributions[removed])
    entry = point_entry if contributions["query_position"].n_unique() == 1 else line_entry
    legend = [entry(term_name(term), theme.style_of(place)) for place, term in enumerate(terms)]
    figure, panels = head_panels(
        chosen_heads(contributions, heads),
        width,
        x_label=labels.QUERY_POSITION,
        y_label=f"KL without the {removed} (nats)",
        legend=legend,
    )
    # query 0 has one key, so nothing can change; a logarithmic axis would show only rounding
    changeable = contributions.filter(pl.col("query_position") > 0).sort("query_position")
    for head, axes in panels.items():
        rows = changeable.filter(head=head)
        for place, term in enumerate(terms):
            curve = rows.filter(pl.col(removed) == term)
            positive = curve.select(pl.when(pl.col("kl") > 0).then(pl.col("kl")))["kl"]
            line(axes, curve["query_position"], positive, theme.style_of(place), linewidth=0.9)
        logarithmic_y(axes, rows["kl"])
    return figure


def contribution_shares(
    contributions_by_head: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """Draw each term's share by head."""
    asked = chosen_heads(contributions_by_head, heads)
    terms = terms_in_order(contributions_by_head["term"])
    styles = [theme.style_of(place) for place in range(len(terms))]
    legend = [patch_entry(term_name(term), style) for term, style in zip(terms, styles, strict=True)]
    figure, (axes,) = head_rows(asked, width, ["share of the terms' KL divergences"], legend=legend)
    parts = [in_order(contributions_by_head.filter(term=term), asked)["share"] for term in terms]
    stacked(axes, parts, styles, shift=0.0, height=0.7)
    axes.set_xlim(0, 1)
    return figure


def compare_contributions(contributions_by_label: Mapping[str, pl.DataFrame], *, width: theme.Width = "page") -> Figure:
    """Draw each term's share by checkpoint."""
    joined = pl.concat(
        [table.with_columns(place=pl.lit(place)) for place, table in enumerate(contributions_by_label.values())]
    )
    terms = terms_in_order(joined["term"])
    figure, panels = titled_panels(
        ["mean over heads"],
        width,
        x_label="checkpoint",
        y_label="share of the terms' KL",
        legend=[line_entry(term_name(term), theme.style_of(place), marker=True) for place, term in enumerate(terms)],
        tick_names=list(contributions_by_label),
    )
    means = joined.group_by("term", "place").agg(pl.col("share").mean()).sort("place")
    for place, term in enumerate(terms):
        values = means.filter(term=term)
        line(panels[0], values["place"], values["share"], theme.style_of(place), marker=theme.style_of(place).marker)
    name_places(panels, list(contributions_by_label))
    return figure


PAPER_ORDER = ("ee", "pp", "e", "p", "ep", "pe")


def terms_in_order(terms: pl.Series) -> list[str]:
    """The terms that occur, in the paper's order."""
    found = terms.unique(maintain_order=True).to_list()
    return [term for term in PAPER_ORDER if term in found] + [term for term in found if term not in PAPER_ORDER]
