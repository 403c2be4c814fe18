"""The verdict of `auroc`: which heads detokenize, by their margins above every control, and how it is worded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from detoklens.questions.auroc.compute import MARGINS, areas_under
from detoklens.questions.base import NO_HEAD, Verdict
from detoklens.wording import estimate, head_name, listed, listed_some, plural, sentence, signed, token_shown

CHANCE = 0.5
REQUIRED = 0.05
"""The margin above each null. With thousands of query tokens any difference is significant: a speech decoder has a head
0.04 above its plain null, the demo model one 0.2."""
FEWEST_TOKENS = 20  # query tokens that a verdict needs
NAMED_HEADS = 4  # heads listed in a comparison
NAMED_TIES = 2  # and in a summary

Level = Literal["lexical", "untestable", "class-level", "none"]
ORDER: tuple[Level, ...] = ("none", "class-level", "untestable", "lexical")
PLAIN, WITHIN_CLASS, _, MATCHED = MARGINS


@dataclass(frozen=True)
class HeadJudgement:
    """A row of `auroc_controls` and the level it supports."""

    row: Mapping[str, Any]
    head: int
    level: Level
    margins: Mapping[str, float]
    """The AUROC minus each null that was computed."""
    failed: tuple[str, ...]
    """The nulls whose margin is too small or whose interval reaches 0."""
    missing: str
    """Why the rule can't be applied; empty if it can."""

    @property
    def strongest(self) -> str | None:
        """The null with the smallest margin; None if no null was computed."""
        return min(self.margins, key=lambda control: self.margins[control], default=None)


def judge_heads(controls: pl.DataFrame) -> list[HeadJudgement]:
    """Judge every head that has an AUROC by its row of `auroc_controls`, strongest first: by level, then margin."""

    def strength(judgement: HeadJudgement) -> tuple[int, float, float]:
        margins, auroc = list(judgement.margins.values()), judgement.row["auroc"]
        if judgement.level == "none":
            margins.append(auroc - CHANCE)
        return ORDER.index(judgement.level), min(margins, default=0.0), auroc

    judged = [_judge_head(row) for row in controls.iter_rows(named=True) if row["auroc"] is not None]
    return sorted(judged, key=strength, reverse=True)


def _judge_head(row: Mapping[str, Any]) -> HeadJudgement:
    def lower_end(name: str) -> float:
        low = row[f"{name}_low"]
        return float(row[name] if low is None else low)

    margins = {control: row[control] for control in MARGINS if row[control] is not None}
    failed = tuple(name for name, margin in margins.items() if margin <= REQUIRED or lower_end(name) <= 0)
    missing = _missing_control(row)
    level: Level = "untestable" if missing else "lexical"
    if lower_end("auroc") <= CHANCE or {PLAIN, MATCHED} & set(failed):
        level = "none"
    elif failed:
        level = "class-level"
    return HeadJudgement(row, int(row["head"]), level, margins, failed, missing)


def _missing_control(row: Mapping[str, Any]) -> str:
    """Why the rule can't be applied; empty if it can."""
    if row[PLAIN] is None:
        return "no null was computed"
    if row[f"{PLAIN}_low"] is None:
        return "intervals need bootstrap resamples"
    if row[WITHIN_CLASS] is None:
        return "the within-class null needs a tokenizer and two tokens of one class"
    for group in ("class", "cluster"):
        tokens = row[f"within_{group}_tokens"]
        if tokens is not None and tokens < FEWEST_TOKENS:
            found = plural(tokens, "query token")
            return f"{found} can be exchanged within a {group}; at least {FEWEST_TOKENS} are needed"
    return "without counts, frequency is not controlled" if row[MATCHED] is None else ""


def auroc_verdict(controls: pl.DataFrame, layer: int = 0) -> Verdict:
    """ "yes" if at least one head is lexical."""
    judged = judge_heads(controls)
    if not judged:
        return Verdict("untestable", "no query token has both positives and negatives")
    best, lexical = judged[0], tuple(each for each in judged if each.level == "lexical")
    if lexical:
        names = tuple(head_name(each.head, layer) for each in sorted(lexical, key=lambda each: each.head))
        return Verdict("yes", f"{head_name(best.head, layer)} exceeds every control; {_margin(best)}", names)
    if best.level == "untestable" or not best.margins:
        return Verdict("untestable", best.missing)
    return Verdict("no", f"{head_name(best.head, layer)} {_shortfall(best)}")


def tied_with(best: HeadJudgement, judged: Sequence[HeadJudgement], layer: int) -> list[str]:
    """The other heads of its level whose smallest margin is not clearly below its own, for the same query tokens."""
    if best.row.get("behind") != 0 or best.row["behind_low"] is None:
        return []
    level = [each for each in judged if each.level == best.level and each is not best]
    return [head_name(each.head, layer) for each in level if each.row["behind_low"] <= 0]


def summarize_heads(
    controls: pl.DataFrame, queries: str, truth: str = "", layer: int = 0, no_head: str = NO_HEAD
) -> str:
    """The verdict in at most 40 words: the head, its AUROC with its interval, and the control that decided."""
    judged, verdict = judge_heads(controls), auroc_verdict(controls, layer)
    if not judged:
        return f"Untestable: {verdict.reason}."
    best = judged[0]
    name, auroc = head_name(best.head, layer), f"AUROC {_with_interval(best.row, 'auroc')} {queries}{truth}"
    tied = tied_with(best, judged, layer)
    ties = f" (tied: {listed_some(tied, NAMED_TIES)})" if tied else ""
    if verdict:
        untested = " Clusters were not controlled." if best.row["within_cluster_tokens"] is None else ""
        others = [each for each in verdict.heads if each not in (name, *tied)]
        also = f" (so {'does' if len(others) == 1 else 'do'} {listed_some(others, NAMED_TIES)})" if others else ""
        margin = f"{_margin(best)}; we require {REQUIRED}"
        return f"{name}{ties} detokenizes{also}: {auroc}; {margin}.{_frequency_clause(best.row)}{untested}"
    if verdict.value == "untestable":
        margin = f"; {_margin(best)}" if best.margins else ""
        return f"Untestable: {verdict.reason}. The strongest head is {name}{ties}: {auroc}{margin}."
    if best.level == "class-level":
        return f"{no_head} detokenizes. {name}{ties} is class-level, not lexical: {auroc}; it {_shortfall(best)}."
    return f"{no_head} detokenizes: the closest, {name}{ties}, has {auroc}; it {_shortfall(best)}."


def verdict_in_short(controls: pl.DataFrame, layer: int = 0) -> str:
    """The verdict as one item of a comparison; empty if no null was computed."""
    judged = judge_heads(controls)
    if not judged or not judged[0].margins:
        return ""
    best, name = judged[0], head_name(judged[0].head, layer)
    above = f"{signed(min(best.margins.values()))} above its strongest control"
    if best.level == "lexical":
        named = auroc_verdict(controls, layer).heads
        return f"{listed_some(named, NAMED_HEADS)} ({'' if len(named) == 1 else f'{name} '}{above})"
    level = {"class-level": "class-level only", "untestable": f"untestable, {best.missing}", "none": "closest"}
    return f"none ({name}: {level[best.level]}, {above})"


def _margin(best: HeadJudgement) -> str:
    strongest = best.strongest
    if strongest is None:
        return ""
    return f"{_with_interval(best.row, strongest)} above its strongest control, the {MARGINS[strongest]}"


def _with_interval(row: Mapping[str, Any], name: str) -> str:
    return estimate(row[name], row[f"{name}_low"], row[f"{name}_high"], digits=3)


def _shortfall(best: HeadJudgement) -> str:
    """The control that decided against a head, and the margin it requires."""
    if not best.failed:
        return "is not above chance"
    decided = min(best.failed, key=lambda control: best.margins[control])
    name, margin = MARGINS[decided], _with_interval(best.row, decided)
    if best.margins[decided] <= 0:
        return f"does not exceed the {name} ({margin})"
    if best.margins[decided] <= REQUIRED:
        return f"exceeds the {name} by {margin}; we require more than {REQUIRED}"
    return f"exceeds the {name} by {margin}, but the interval reaches 0"


def _frequency_clause(row: Mapping[str, Any]) -> str:
    """What frequency alone reaches, among all keys and among equally frequent ones, if counts are known."""
    alone, matched = row["frequency"], row["matched_frequency"]
    beyond = matched is None or row["matched"] > matched
    if alone is not None and alone > row["auroc"]:
        exception = ", but not among equally frequent keys" if beyond else ""
        return " " + sentence(f"frequency alone ranks keys better ({alone:.3f}){exception}")
    if alone is None or matched is None:
        return ""
    among = f"among equally frequent keys {matched:.3f}, the head {row['matched']:.3f}"
    return f" Frequency alone has {alone:.3f}; {among}."


def compare_heads(controls: Mapping[str, pl.DataFrame], queries: str, layer: int = 0) -> str:
    """Which heads of each model detokenize; empty if no model has a null."""
    verdicts = {label: verdict_in_short(frame, layer) for label, frame in controls.items()}
    known = [f"{verdict} in {label}" for label, verdict in verdicts.items() if verdict]
    return f"Heads that detokenize {queries}: {listed(known)}." if known else ""


FEWEST_LINKS = 200
HOLDS = 0.5  # rank correlation of predicted and real scores
NAMED_CURVES = 4  # query tokens in the summary of ROC curves


def summarize_curves(points: pl.DataFrame, layer: int = 0, options: str = "") -> str:
    """The head with the largest area for each of the first query tokens."""
    areas = areas_under(points).sort("area", descending=True, maintain_order=True)
    tokens, largest = points["token_id"].unique(maintain_order=True), []
    for token in tokens.head(NAMED_CURVES):
        best = areas.filter(token_id=token).row(0, named=True)
        shown = f"id {token}" if best["token"] is None else f"“{token_shown(best['token'])}”"
        largest.append(f"{best['area']:.3f} for {shown} ({head_name(best['head'], layer)})")
    first = f" of the first {NAMED_CURVES} of {len(tokens)} query tokens" if len(tokens) > NAMED_CURVES else ""
    return f"Largest areas under the ROC curves{first}{options}: {listed(largest)}; 0.5 is chance."


def summarize_validity(validity: pl.DataFrame, pieces: bool, back: int = 1, no_head: str = NO_HEAD) -> str:
    """For which heads predicted scores agree with real ones, over all links or those of continuation tokens."""
    column = "pieces_correlation" if pieces else "correlation"
    layer, rows = int(validity["layer"][0]), validity.sort(column, descending=True, nulls_last=True)
    n_links, best = validity["pieces_links" if pieces else "links"][0], rows[column][0]
    side = "before" if back > 0 else "after"
    key = f"the token {abs(back)} positions {side}" if abs(back) > 1 else f"the token {side if back else 'itself'}"
    links = f"{n_links:,} links to {key}"
    if n_links < FEWEST_LINKS:
        return f"Validity is unknown: the text has {links}; at least {FEWEST_LINKS} are needed."
    if best is None:
        return f"Validity is unknown: on {links}, predicted and real scores never both vary."
    valid = rows.filter(pl.col(column) >= HOLDS).select("head", column).iter_rows()
    names = [f"{head_name(head, layer)} ({correlation:.2f})" for head, correlation in valid]
    if names:
        return f"On text, predictions hold only in {listed_some(names, NAMED_TIES)}; we require ρ ≥ {HOLDS}."
    closest = f"best: {head_name(rows['head'][0], layer)}, ρ {best:.2f}"
    return f"On text, predictions hold in {no_head[0].lower()}{no_head[1:]} ({closest}; we require {HOLDS})."
