"""The judgement of heads by `lookback`: whether each has a switch, of which kind, and how it is worded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from detoklens.measures.chance import ALPHA
from detoklens.questions.base import Frames
from detoklens.questions.lookback.compute import PARTS
from detoklens.wording import estimate, head_name, p_value, term_symbol

LEAST = 0.1  # nats: a smaller difference changes the odds of attention by less than a tenth
LOOKS_BACK = 1.0  # nats of lift from whole words and from continuation tokens: a previous-token head
HALF = 0.5  # of the difference, or of the gap in attention, that a term must carry
PREVIOUS = "previous"  # the contrast that is judged
PART_WORDS = {"position": "positional", "class": "class-based", "lexical": "lexical"}


@dataclass(frozen=True)
class HeadJudgement:
    """One head's rows of `lookback_by_head`, contrast previous."""

    head: int
    total: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, Any]]

    @property
    def part(self) -> str | None:
        """The largest part that exceeds its controls, if the total does as well; None without a switch."""
        return None if self.why_not else max(self._beyond, key=lambda part: self.parts[part]["difference"])

    @property
    def _beyond(self) -> list[str]:
        return [
            part
            for part, row in self.parts.items()
            if row["p_alignments"] <= ALPHA and row["difference"] >= LEAST and row["low"] > 0
        ]

    @property
    def why_not(self) -> str:
        """The condition of a switch that fails; empty if none does."""
        if self.total["difference"] <= -LEAST:
            return "it looks back more from whole words"
        if self.total["difference"] < LEAST:
            return f"we require {LEAST:g} nats"
        if self.total["low"] <= 0:
            return "its interval reaches 0"
        if self.total["p_labels"] > ALPHA:
            return f"permuted labels give as much ({p_value(self.total['p_labels'])})"
        return "" if self._beyond else "randomly rotated queries give parts as large"

    @property
    def kind(self) -> str:
        """What kind of head this is, in a few words; a previous-token head with its largest part."""
        if self.part is not None:
            return f"{self.part} switch"
        if min(self.total["C"], self.total["W"]) < LOOKS_BACK:
            return "no switch"
        return f"previous token ({self.largest})"

    @property
    def largest(self) -> str:
        """The largest part of the lift from whole words."""
        return max(PARTS, key=lambda part: float(self.parts[part]["W"]))


def judge_lookback(by_head: pl.DataFrame) -> list[HeadJudgement]:
    """The judgement of every head, in order."""
    rows = by_head.filter(contrast=PREVIOUS).partition_by("head", as_dict=True, maintain_order=True)
    found = {head: {row["part"]: row for row in some.iter_rows(named=True)} for (head,), some in rows.items()}
    return [
        HeadJudgement(head, {**some}.pop("total"), {part: some[part] for part in PARTS}) for head, some in found.items()
    ]


def text_gaps(tables: Frames) -> dict[tuple[int, str], float]:
    """The gap in attention by head and removed term; empty without text."""
    if "lookback_text" not in tables:
        return {}
    rows = tables["lookback_text"].select("head", "removed", "gap").iter_rows()
    return {(head, removed): gap for head, removed, gap in rows}


def describe_switch(best: HeadJudgement, tables: Frames, gaps: Mapping[tuple[int, str], float]) -> str:
    assert best.part is not None
    by_term = tables["lookback_by_term"].filter(head=best.head, part="total").sort("difference", descending=True)
    term, size = by_term.select("term", "difference").row(0)
    carries = size >= HALF * float(by_term["difference"].to_numpy().sum())
    total = estimate(*(best.total[name] for name in ("difference", "low", "high")))
    part = best.parts[best.part]["difference"]
    summary = f"{head_name(best.head)} looks back {total} nats more from continuation tokens than from whole words "
    summary += f"({best.part} {part:+.2f}, rest {round(best.total['difference'] - part, 2) + 0.0:+.2f})".replace(
        "-", "−"
    )
    summary += (
        f", carried by {term_symbol(term)}" if carries else f"; its largest term is {term_symbol(term)} ({size:.2f})"
    )
    if (best.head, "none") not in gaps:
        return f"{summary}."
    whole, left = gaps[best.head, "none"], gaps[best.head, term]
    verb = "closes" if abs(left) <= (1 - HALF) * whole else "reverses" if left < 0 else "changes"
    shown = f"{whole:.3f} to {left:.3f}".replace("-", "−")
    return f"{summary}; without {term_symbol(term)} the gap in attention {verb} from {shown}."


def describe_closest(best: HeadJudgement) -> str:
    """A previous-token head, or else the head with the largest difference."""
    total, name = best.total, head_name(best.head)
    if best.kind.startswith("previous token"):
        return (
            f"{name} is a previous-token head without a switch: lift {total['C']:.1f} nats from continuation tokens, "
            f"{total['W']:.1f} from whole words, mostly {PART_WORDS[best.largest]}."
        )
    return f"The closest is {name}, with {total['difference']:.2f} nats: {best.why_not}.".replace("-", "−")
