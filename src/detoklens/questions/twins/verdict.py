"""The decision rule of `Twins`, and how it is worded; `Layers` uses the same rule.

A layer writes words if the twin's rank is clearly worse in each of four controls: another word's first piece (null),
the last piece alone, the first piece alone, and the sum of its pieces (additive). Clearly worse means a rank ratio of
at least CLEARLY with a lower end above 1, and a median rank lost above 0. If only null and last piece are clearly
worse, the layer carries the first piece to the last position, and no more can be concluded.

A head or term is needed if the lower end of the share of the gain that is lost without it exceeds NEEDED, unless the
same ablation sends the null to chance, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from detoklens.measures.chance import FEWEST_WORDS
from detoklens.measures.twins import PARTNERS
from detoklens.questions.base import Verdict
from detoklens.wording import estimate, listed, listed_some, plural, term_symbol

CLEARLY = 1.2  # rank ratio: with thousands of words, any difference is significant
NEEDED = 0.25  # of the gain
AT_CHANCE = 0.8  # of the median rank in random order
WHERE = {"attention": "after the attention", "block": "after the first block"}
WRITER = {"attention": "The first layer's attention", "block": "The first layer"}
CARRYING = ("null", "last_piece")
CONTROLS = (*CARRYING, "first_piece", "additive")
CONTROL_NAMES = {
    "null": "with another word's first piece",
    "last_piece": "its last piece alone",
    "first_piece": "its first piece alone",
    "additive": "the sum of its pieces",
}
CARRIES = "carries the first piece to the last position"
MOST_NAMED = 2  # followed by "and 3 more"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Conditions:
    """The rows of one place and one number of pieces, by condition."""

    rows: Mapping[str, Row]
    lower_end: float = 1.0
    """Bound for the lower end of a clearly worse rank ratio; larger when the best of many layers is chosen."""

    @property
    def whole(self) -> Row:
        return self.rows["whole"]

    @property
    def has_intervals(self) -> bool:
        return self.whole["median_rank_low"] is not None

    @property
    def is_testable(self) -> bool:
        return self.has_intervals and all(name in self.rows for name in CONTROLS)

    @property
    def writes(self) -> bool:
        """Whether the rank is clearly worse in all four controls."""
        return self.is_testable and not self.failed(CONTROLS)

    @property
    def carries(self) -> bool:
        """Whether the first piece reaches the last position: null and last piece are clearly worse."""
        return self.has_intervals and not self.failed(CARRYING)

    def failed(self, controls: Sequence[str]) -> list[str]:
        """The controls that are not clearly worse, the closest first."""
        rows = {name: self.rows[name] for name in controls}
        failed = [
            name
            for name, row in rows.items()
            if row["rank_ratio_low"] <= self.lower_end or row["rank_ratio"] < CLEARLY or row["rank_lost"] <= 0
        ]
        return sorted(failed, key=lambda name: float(rows[name]["rank_ratio"]))

    def needed(self, kind: str) -> list[str]:
        """What is ablated by the conditions of a kind (`cut_`, `without_`) and needed, worst first."""
        rows = {name.removeprefix(kind): row for name, row in self.rows.items() if name.startswith(kind)}
        needed = [name for name, row in rows.items() if is_needed(row, self.whole["candidates"])]
        return sorted(needed, key=lambda name: -float(rows[name]["share_lost"]))

    def tied(self) -> list[str]:
        """The heads whose cut does not lose clearly less than the strongest cut."""
        rows = {name.removeprefix("cut_"): row for name, row in self.rows.items() if name.startswith("cut_")}
        low = {name: row.get("share_behind_low") for name, row in rows.items()}
        return [name for name, least in low.items() if least is not None and least <= 0]

    def ratio(self, control: str) -> str:
        """`1.80 [1.63, 1.98]`."""
        row = self.rows[control]
        return estimate(row["rank_ratio"], row["rank_ratio_low"], row["rank_ratio_high"])


def is_needed(row: Row, candidates: int) -> bool:
    """Whether the ablated component is needed: by the lower end of its share, if the null stays above chance.

    An ablation that makes the null as bad as a random order destroys everything and explains nothing.
    """
    if row["share_lost_low"] is None or row["share_lost_low"] <= NEEDED:
        return False
    high, ratio = row["null_median_rank_high"], row["null_ratio_low"]
    return high is None or bool(high < AT_CHANCE * (candidates + 1) / 2 or ratio <= 1)


def last_place(tables: Iterable[pl.DataFrame]) -> str:
    """The last place that all tables contain."""
    return "block" if all("block" in table["place"] for table in tables) else "attention"


def fewest_pieces(table: pl.DataFrame, place: str | None = None) -> Conditions:
    """The conditions for the fewest pieces, by default at the last place."""
    pieces = int(table["pieces"].to_numpy().min())
    rows = table.filter(place=place or last_place([table]), pieces=pieces).to_dicts()
    return Conditions({row["condition"]: row for row in rows})


def twins_verdict(found: Conditions) -> Verdict:
    """Whether the layer writes words; the heads are those needed to carry the first piece."""
    return verdict_of(found, tuple(found.needed("cut_")) if found.carries else ())


def verdict_of(found: Conditions, heads: tuple[str, ...]) -> Verdict:
    """The verdict by the four controls; its reason names the control that decided."""
    if not found.is_testable:
        return Verdict("untestable", _why_untestable(found))
    if found.writes:
        closest = _closest(found)
        reason = f"all four controls are clearly worse; the closest is {closest} {found.ratio(closest)}"
        return Verdict("yes", reason, heads)
    failed = listed([f"{name} {found.ratio(name)}" for name in CONTROLS if name in found.failed(CONTROLS)])
    rule = f"a ratio of at least {CLEARLY}, with a lower end above {found.lower_end:g}"
    reason = f"not clearly worse ({rule}): {failed}"
    return Verdict("no", f"{CARRIES}, but {reason}" if found.carries else reason, heads)


def _closest(found: Conditions) -> str:
    """The control with the smallest rank ratio."""
    return min(CONTROLS, key=lambda name: float(found.rows[name]["rank_ratio"]))


def _why_untestable(found: Conditions) -> str:
    words = plural(found.whole["words"], "word")
    if found.whole["words"] < FEWEST_WORDS:
        return f"{words} are too few for intervals; at least {FEWEST_WORDS} are needed"
    if not found.has_intervals:
        return "intervals need bootstrap resamples"
    return f"{words} are too few for the additive control: each needs {PARTNERS} partners with other pieces"


def summarize_twins(table: pl.DataFrame, all_heads: bool = True) -> str:
    """Whether the layer writes words, by which control, and which heads and terms are needed.

    `all_heads` tells whether every head was cut; otherwise nothing is claimed about the others.
    """
    found = fewest_pieces(table)
    verdict, bos = twins_verdict(found), bos_clause(found)
    if verdict.value == "untestable":
        return f"Whether the first layer writes words can't be tested: {verdict.reason}. {bos}"
    claim = "writes words" if found.writes else "does not write words"
    evidence = f"{WRITER[found.whole['place']]} {claim}: {strongest_control(found)}."
    if not found.carries:
        return f"{evidence} {bos}"
    needed = [*found.needed("cut_"), *map(term_symbol, found.needed("without_"))]
    if not needed and not all_heads:
        return f"{evidence} {bos}" if found.writes else f"{evidence} It carries the first piece. {bos}"
    tied = [head for head in found.tied() if head not in needed] if found.needed("cut_") else []
    also = f"; not clearly less: {listed_some(tied, MOST_NAMED)}" if tied else ""
    return f"{evidence} {needed_clause(found, needed, 'head or term')}{also}. {bos}"


def bos_clause(found: Conditions) -> str:
    """The beginning-of-text token before the word."""
    return f"BOS: {found.whole['bos']}." if found.whole["bos"] else "No BOS."


def needed_clause(found: Conditions, needed: Sequence[str], ablated: str) -> str:
    """What is needed to write words or, in a layer that writes none, to carry the first piece."""
    carry = "" if found.writes else " to carry pieces"
    return f"Needed{carry}: {listed_some(needed, MOST_NAMED)}" if needed else f"No single {ablated} is needed{carry}"


def strongest_control(found: Conditions) -> str:
    """The control that decides, how much better the word ranks, and the bound."""
    name = _closest(found) if found.writes else found.failed(CONTROLS)[0]
    row, control = found.rows[name], CONTROL_NAMES[name]
    if not found.writes and row["rank_ratio"] >= CLEARLY and row["rank_ratio_low"] > found.lower_end:
        bound = "its median rank is not better"
    elif found.lower_end >= CLEARLY or (not found.writes and row["rank_ratio"] >= CLEARLY):
        bound = f"the lower end must exceed {found.lower_end:g}"
    else:
        bound = f"we require {CLEARLY}"
    if row["rank_ratio"] < 1:
        return f"the word ranks no better than {control} ({found.ratio(name)}); {bound}"
    return f"the word ranks {found.ratio(name)} times better than {control}; {bound}"


def compare_twins(tables: Mapping[str, pl.DataFrame]) -> str:
    """Which models write words, with two controls and the heads each needs."""
    place = last_place(tables.values())
    models = []
    for label, table in tables.items():
        found = fewest_pieces(table, place)
        verdict = twins_verdict(found)
        models.append(f"{label} {verdict.value} ({brief(found, verdict.heads)})")
    return f"Does the first layer write words, by the twin's rank {WHERE[place]}? {'; '.join(models)}."


def brief(found: Conditions, needed: Sequence[str]) -> str:
    """The ratios of the null and of the additive control, and what is needed."""
    ratios = listed([f"{name} {found.ratio(name)}" for name in ("null", "additive") if name in found.rows])
    carries = "carries the first piece, " if found.carries and found.is_testable and not found.writes else ""
    return f"{carries}{ratios}{f', needs {listed(needed)}' if needed else ''}"
