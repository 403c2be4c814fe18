"""KL divergence when a term is removed: by query position, as shares, and by checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.labels import QUERY_POSITION
from detoklens.figures.marks import line, line_entry, logarithmic_y, patch_entry, point_entry
from detoklens.figures.panels import chosen_heads, head_panels, head_rows, in_order, name_places, stacked, titled_panels
from detoklens.wording import term_name


def contributions(
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
        x_label=QUERY_POSITION,
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
