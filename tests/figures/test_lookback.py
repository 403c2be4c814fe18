"""What the figures of `Lookback` and `Anatomy` hold."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes

from detoklens.figures.theme import REFERENCE
from detoklens.questions.anatomy.question import SHARE_NAMES, Anatomy
from detoklens.questions.lookback.question import Lookback
from detoklens.wording import term_symbol
from tests.figures.synthetic import TERMS, tables

DRAWN = tables(3)


def points(axes: Axes) -> list[list[float]]:
    """Values of each series of points; references and intervals are left out."""
    lines = [line for line in axes.lines if line.get_label() != REFERENCE]
    return [list(line.get_xdata()) for line in lines if line.get_marker() not in ("", "None", None)]


def test_lookback_shows_terms_and_attention_by_class_with_and_without_each() -> None:
    [spec] = Lookback.figures
    figure = spec.draw(DRAWN)
    lifts, differences, attention = figure.axes
    assert [text.get_text() for text in lifts.texts] == ["C"] * 3 + ["W"] * 3 + ["F"] * 3
    by_head, text = DRAWN["lookback_by_head"], DRAWN["lookback_text"]
    assert len(lifts.patches) == 3 * 3 * 3, "a part of the lift of each class of each head"
    by_term = DRAWN["lookback_by_term"].filter(part="total")
    assert points(differences) == [
        by_head.filter(part="total")["difference"].to_list(),
        *(by_term.filter(term=term)["difference"].to_list() for term in TERMS),
    ]
    assert points(attention) == [
        text.filter(removed=removed)[f"attention_{label}"].to_list() for removed in ("none", *TERMS) for label in "CWF"
    ]
    drawn = [collection.get_segments() for collection in attention.collections]
    ends = text.filter(removed="none").row(0, named=True)
    assert [end[0] for end in drawn[0][0]] == [ends["attention_C_low"], ends["attention_C_high"]]
    named = [each.get_text() for each in figure.legends[0].get_texts()]
    assert named == [
        "position", "class", "lexical", "all terms", *map(term_symbol, TERMS), "permuted labels", "from C", "from W", "from F"
    ]  # fmt: skip
    without = spec.draw({name: table for name, table in DRAWN.items() if name != "lookback_text"})
    assert len(without.axes) == 2


def test_anatomy_bars_are_the_six_shares() -> None:
    figure = Anatomy.figures[0].draw(DRAWN)
    widths = [patch.get_width() for patch in figure.axes[0].patches]
    shares = [DRAWN["anatomy_by_head"][name].to_list() for name in SHARE_NAMES]
    assert widths == pytest.approx([value for share in shares for value in share])
