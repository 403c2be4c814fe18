"""Which heads detokenize? The one rule that commands, head cards, comparisons and reports follow.

A head is *lexical* if its AUROC is above chance and exceeds each of three nulls by more than 0.05, the interval of each
margin above 0:

plain               another query's scores, or keys permuted among equally frequent ones, whichever is larger
within-class        the scores of other queries of the same class and frequency
frequency-matched   the same as plain, with equally frequent keys as the only negatives

It is *class-level* if only the within-class null is in the way: it knows which kinds of tokens follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from detoklens.questions.verdict import Verdict
from detoklens.wording import head_name, listed, listed_some, plural, sentence, signed

if TYPE_CHECKING:
    import polars as pl

CHANCE = 0.5
REQUIRED = 0.05
"""The margin above each null. With thousands of query tokens any difference is beyond chance: a speech decoder, which
hears the spelling, has a head 0.04 above its plain null, the demo model one 0.2."""
FEWEST_TOKENS = 20
"""Query tokens that a verdict needs."""
NAMED_HEADS = 4  # heads that a sentence lists

Within = Literal["class", "clusters"]
Level = Literal["lexical", "untestable", "class-level", "none"]
ORDER: tuple[Level, ...] = ("none", "class-level", "untestable", "lexical")
PLAIN, WITHIN_CLASS, MATCHED = "above_null", "above_within_class", "matched_above_null"
CONTROLS = {PLAIN: "plain null", WITHIN_CLASS: "within-class null", MATCHED: "frequency-matched null"}


@dataclass(frozen=True)
class HeadJudgement:
    """A row of `auroc_controls` and what follows from it."""

    row: Mapping[str, Any]

    @property
    def head(self) -> int:
        return int(self.row["head"])

    @property
    def margins(self) -> dict[str, float]:
        """By how much the AUROC exceeds each null that is known."""
        return {control: self.row[control] for control in CONTROLS if self.row[control] is not None}

    @property
    def strongest(self) -> str | None:
        """The null that the head exceeds least; None without any."""
        return min(self.margins, key=lambda control: self.margins[control], default=None)

    @property
    def above_chance(self) -> bool:
        return _lower_end(self.row, "auroc") > CHANCE

    @cached_property
    def failed(self) -> tuple[str, ...]:
        """The nulls that the head does not exceed by enough, or not surely."""
        return tuple(
            control
            for control, margin in self.margins.items()
            if margin <= REQUIRED or _lower_end(self.row, control) <= 0
        )

    @cached_property
    def missing(self) -> str:
        """Why the rule can't be applied; empty where it can."""
        if self.row[PLAIN] is None:
            return "no null was computed"
        if self.row[WITHIN_CLASS] is None:
            return "the within-class null needs a tokenizer and two tokens of one class"
        if self.row["within_class_tokens"] < FEWEST_TOKENS:
            found = plural(self.row["within_class_tokens"], "query token")
            return f"{found} can be exchanged within a class; at least {FEWEST_TOKENS} are needed"
        if self.row[MATCHED] is None:
            return "without counts, frequency is not controlled"
        return ""

    @property
    def level(self) -> Level:
        if not self.above_chance or {PLAIN, MATCHED} & set(self.failed):
            return "none"
        if self.failed:
            return "class-level"
        return "untestable" if self.missing else "lexical"

    @property
    def standing(self) -> tuple[int, float, float]:
        """Higher levels first, then what exceeds its strongest control most."""
        margins = list(self.margins.values())
        least = min([*margins, self.row["auroc"] - CHANCE] if self.level == "none" else margins, default=0.0)
        return ORDER.index(self.level), least, self.row["auroc"]


def _lower_end(row: Mapping[str, Any], name: str) -> float:
    """The lower end of an interval; the value itself without a bootstrap."""
    low = row[f"{name}_low"]
    return float(row[name] if low is None else low)


def judge_heads(controls: pl.DataFrame) -> list[HeadJudgement]:
    """Every head that has an AUROC, the strongest first, from the columns of `auroc_controls`."""
    found = [HeadJudgement(row) for row in controls.iter_rows(named=True) if row["auroc"] is not None]
    return sorted(found, key=lambda judgement: judgement.standing, reverse=True)


def auroc_verdict(controls: pl.DataFrame, layer: int = 0, within: Within = "class") -> Verdict:
    """ "yes" where at least one head is lexical."""
    judged = judge_heads(controls)
    if not judged:
        return Verdict("untestable", "no query token has both positives and negatives")
    best, lexical = judged[0], tuple(each for each in judged if each.level == "lexical")
    if lexical:
        names = tuple(head_name(each.head, layer) for each in sorted(lexical, key=lambda each: each.head))
        return Verdict("yes", f"{head_name(best.head, layer)} exceeds every control; {_least(best, within)}", names)
    if best.level == "untestable" or not best.margins:
        return Verdict("untestable", best.missing)
    return Verdict("no", f"{head_name(best.head, layer)} {_shortfall(best, within)}")


def summarize_heads(
    controls: pl.DataFrame, whom: str, truth: str = "", layer: int = 0, within: Within = "class"
) -> str:
    """The verdict in at most 40 words: which head, its AUROC with its interval, and the control that decided."""
    judged, found = judge_heads(controls), auroc_verdict(controls, layer, within)
    if not judged:
        return f"Untestable: {found.reason}."
    best = judged[0]
    name, auroc = head_name(best.head, layer), f"AUROC {_with_interval(best.row, whom)}{truth}"
    if found:
        also = f" ({listed_some(found.heads, NAMED_HEADS)} are lexical)" if len(found.heads) > 1 else ""
        return f"{name} detokenizes{also}: {auroc}; {_least(best, within)}.{_frequency_clause(best.row)}"
    if found.value == "untestable":
        beside = f"; {_least(best, within)}" if best.margins else ""
        return f"Untestable: {found.reason}. The strongest head is {name}: {auroc}{beside}."
    if best.level == "class-level":
        return f"No head detokenizes. {name} is class-level, not lexical: {auroc}; it {_shortfall(best, within)}."
    return f"No head detokenizes: the closest, {name}, has {auroc}; it {_shortfall(best, within)}."


def in_short(controls: pl.DataFrame, layer: int = 0) -> str:
    """The verdict for a list of models; empty where there is no null."""
    judged = judge_heads(controls)
    if not judged or not judged[0].margins:
        return ""
    best, name = judged[0], head_name(judged[0].head, layer)
    above = f"{signed(min(best.margins.values()))} above its strongest control"
    if best.level == "lexical":
        named = auroc_verdict(controls, layer).heads
        return f"{listed_some(named, NAMED_HEADS)} ({'' if len(named) == 1 else f'{name} '}{above})"
    said = {"class-level": "class-level only", "untestable": f"untestable, {best.missing}", "none": "closest"}
    return f"no head ({name}: {said[best.level]}, {above})"


def _control(name: str, within: Within) -> str:
    return CONTROLS[name].replace("class", "cluster") if within == "clusters" else CONTROLS[name]


def _least(best: HeadJudgement, within: Within) -> str:
    strongest = best.strongest
    if strongest is None:
        return ""
    return f"{best.margins[strongest]:.3f} above its strongest control, the {_control(strongest, within)}"


def _shortfall(best: HeadJudgement, within: Within) -> str:
    """Which control a head does not exceed, and by how much it would have to."""
    if not best.failed:
        return "is not above chance"
    decided = min(best.failed, key=lambda control: best.margins[control])
    name, margin = _control(decided, within), best.margins[decided]
    if margin <= 0:
        return f"does not exceed the {name} ({signed(margin)})"
    if margin <= REQUIRED:
        return f"exceeds the {name} by {margin:.3f}; we require more than {REQUIRED}"
    return f"exceeds the {name} by {margin:.3f}, but the interval reaches 0"


def _frequency_clause(row: Mapping[str, Any]) -> str:
    """What frequency alone does, where that is known."""
    beyond = row["matched_frequency"] is None or row["matched"] > row["matched_frequency"]
    if row["frequency"] is not None and row["frequency"] > row["auroc"]:
        said = f"frequency alone ranks keys better ({row['frequency']:.3f})"
        return " " + sentence(said + (", but not among equally frequent keys" if beyond else ""))
    return " Frequency alone does not explain it." if beyond else ""


def _with_interval(row: Mapping[str, Any], whom: str) -> str:
    low, high = row["auroc_low"], row["auroc_high"]
    return f"{row['auroc']:.3f} {whom}" + ("" if low is None or high is None else f" [{low:.3f}, {high:.3f}]")


def compare_heads(controls: Mapping[str, pl.DataFrame], whom: str, layer: int = 0) -> str:
    """Which heads of each model detokenize; empty where no model has a null."""
    short = {label: in_short(frame, layer) for label, frame in controls.items()}
    found = [f"{said} in {label}" for label, said in short.items() if said]
    return f"Heads that detokenize {whom}: {listed(found)}." if found else ""
