"""Does a layer write words, and what does it need for that? The one rule behind verdicts, summaries and cards.

A layer writes words if the twin's rank is clearly worse in each of four controls: another word's first piece (null),
the last piece alone, the first piece alone, and the sum of its pieces (additive). Clearly worse: rank ratio at least
CLEARLY, its lower end above 1, median rank lost above 0. Where only null and last piece are clearly worse, the layer
carries the first piece to the last position, and that is all that can be said.

A head or a term is needed for that if the lower end of the share of the gain that is lost without it is above NEEDED,
unless the same ablation sends the null to chance as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detoklens.questions.verdict import Verdict
from detoklens.wording import listed, plural, term_symbol

if TYPE_CHECKING:
    import polars as pl

CLEARLY = 1.2  # times: with thousands of words any difference is beyond chance
NEEDED = 0.25  # of the gain
AT_CHANCE = 0.8  # of the median rank in a random order
WHERE = {"attention": "after the attention", "block": "after the first block"}
IN_PIECES = {2: "two pieces", 3: "three pieces", 4: "four pieces"}
CARRYING = ("null", "last_piece")
CONTROLS = (*CARRYING, "first_piece", "additive")
IN_WORDS = {
    "null": "with another word's first piece",
    "last_piece": "for the last piece alone",
    "first_piece": "for the first piece alone",
    "additive": "for the sum of its pieces",
}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """The conditions of one place and one number of pieces, by name."""

    rows: Mapping[str, Row]
    lower_end: float = 1.0
    """What the lower end of a clearly worse rank ratio is above; more where the best of many layers is looked for."""

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
        return self.is_testable and all(map(self.is_clearly_worse, CONTROLS))

    @property
    def carries(self) -> bool:
        """Whether the first piece reaches the last position: null and last piece alone are clearly worse."""
        return all(map(self.is_clearly_worse, CARRYING))

    def is_clearly_worse(self, condition: str) -> bool:
        row = self.rows[condition]
        return (
            self.has_intervals
            and row["rank_ratio_low"] > self.lower_end
            and row["rank_ratio"] >= CLEARLY
            and row["rank_lost"] > 0
        )

    def failed(self) -> list[str]:
        """The controls that are not clearly worse."""
        return [name for name in CONTROLS if not self.is_clearly_worse(name)]

    def needed(self, kind: str) -> list[Row]:
        """The conditions of a kind (`cut_`, `without_`) that lose much of the gain, the worst first."""
        rows = [row for name, row in self.rows.items() if name.startswith(kind) and is_needed(row, self.candidates)]
        return sorted(rows, key=lambda row: -float(row["share_lost"]))

    @property
    def candidates(self) -> int:
        return int(self.whole["candidates"])


def is_needed(row: Row, candidates: int) -> bool:
    """Whether what the row switches off is needed: by the lower end of its share, if the null stays above chance."""
    low = row["share_lost_low"]
    return low is not None and low > NEEDED and not sends_null_to_chance(row, candidates)


def sends_null_to_chance(row: Row, candidates: int) -> bool:
    """Whether an ablation makes the null worse, and as bad as a random order: then it explains nothing."""
    high, ratio = row["null_median_rank_high"], row["null_ratio_low"]
    return high is not None and bool(high >= AT_CHANCE * (candidates + 1) / 2 and ratio > 1)


def last_place(tables: Iterable[pl.DataFrame]) -> str:
    """The last place that all of these tables know."""
    return "block" if all("block" in table["place"] for table in tables) else "attention"


def found_at(table: pl.DataFrame, place: str, pieces: int) -> Found | None:
    """The rows of one place and one number of pieces; None where there is no such word."""
    rows = table.filter(place=place, pieces=pieces).to_dicts()
    return Found({row["condition"]: row for row in rows}) if rows else None


def fewest_pieces(table: pl.DataFrame, place: str | None = None) -> Found:
    """The words of fewest pieces, two unless others were asked for; by default at the last place that is known."""
    found = found_at(table, place or last_place([table]), int(table["pieces"].to_numpy().min()))
    assert found is not None
    return found


def twins_verdict(found: Found) -> Verdict:
    """Whether the layer writes words; the heads are those that it needs to carry the first piece."""
    heads = tuple(map(_name, found.needed("cut_"))) if found.carries else ()
    return verdict_of(found, heads)


def verdict_of(found: Found, heads: tuple[str, ...]) -> Verdict:
    """The verdict by the four controls, with the control that decided as its reason."""
    if not found.is_testable:
        return Verdict("untestable", inconclusive(found))
    if found.writes:
        weakest = min(CONTROLS, key=lambda name: float(found.rows[name]["rank_ratio"]))
        return Verdict("yes", f"all four controls are clearly worse; the closest is {_control(found, weakest)}", heads)
    failed = listed([_control(found, name) for name in found.failed()])
    rule = f"a ratio of at least {CLEARLY}, with a lower end above {found.lower_end:g}"
    reason = f"not clearly worse ({rule}): {failed}"
    return Verdict("no", f"{carried(found)}; {reason}" if found.carries else reason, heads)


def carried(found: Found) -> str:
    """What a layer does that passes null and last piece, but not all controls."""
    if not found.is_clearly_worse("additive"):
        return "carries the first piece to the last position, but not beyond the sum of its pieces"
    return "carries the first piece to the last position, but comes no nearer to the word than the first piece alone"


def inconclusive(found: Found) -> str:
    """Why there is no verdict."""
    from detoklens.measures.twins import FEWEST, PARTNERS

    words = plural(found.whole["words"], "word")
    if found.whole["words"] < FEWEST:
        return f"{words} are too few to conclude anything from; at least {FEWEST} are needed"
    if not found.has_intervals:
        return "without resamples of the words nothing can be concluded"
    return f"{words} are too few for the additive control: each needs {PARTNERS} partners with other pieces"


def twins_said(table: pl.DataFrame, all_heads: bool = True) -> str:
    """Whether the layer writes words, what it needs for that, and whether the first of more pieces counts.

    `all_heads` says whether every head was cut: nothing is said about those that were not.
    """
    found = fewest_pieces(table)
    verdict = twins_verdict(found)
    ranks = f"{_place(found)}, the twin of a word in {_pieces(found)} has {ranks_said(found)}"
    if verdict.value == "untestable":
        return f"{_capital(ranks)}; {verdict.reason}."
    longer = _longer(table, found.whole["pieces"])
    needs = f"; {_head_said(found, all_heads)}, {_term_said(found)}" if found.carries else ""
    return f"{_conclusion(found)}: {ranks}{needs}{longer}."


def _conclusion(found: Found) -> str:
    if found.writes:
        return "The first layer writes words"
    return f"The first layer {carried(found)}" if found.carries else "The first layer writes no words"


def ranks_said(found: Found) -> str:
    """The median rank, and how many times worse the rank is in each control, which is what the rule uses."""
    whole = found.whole
    low_high = [rank_said(whole[f"median_rank_{end}"]) for end in ("low", "high") if found.has_intervals]
    ends = f" ({' to '.join(low_high)})" if low_high else ""
    bos = f" after {whole['bos']}" if whole["bos"] is not None else " with no beginning-of-text token"
    controls = [name for name in CONTROLS if name in found.rows]
    times = [f"{times_said(found.rows[name])}{'' if at else ' times as large'}" for at, name in enumerate(controls)]
    worse = [f"{ratio} {IN_WORDS[name]}" for ratio, name in zip(times, controls, strict=True)]
    return (
        f"median rank {rank_said(whole['median_rank'])}{ends} of {whole['candidates']:,}{bos}; "
        f"the rank is {listed(worse)}"
    )


def times_said(row: Row, name: str = "rank_ratio") -> str:
    """`1.80 [1.63, 1.98]`."""
    ends = "" if row[f"{name}_low"] is None else f" [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"
    return f"{row[name]:.2f}{ends}"


def _control(found: Found, name: str) -> str:
    return f"{name} {times_said(found.rows[name])}"


def _head_said(found: Found, all_heads: bool) -> str:
    needed = found.needed("cut_")
    if needed:
        return f"it needs {listed([f'{_name(row)} ({times_said(row)} with its link cut)' for row in needed])}"
    if all_heads:
        return "no single head is needed for it"
    cut = [_name(row) for name, row in found.rows.items() if name.startswith("cut_")]
    if len(cut) == 1:
        return f"{cut[0]}, the only head that was cut, is not needed for it"
    return f"none of the {len(cut)} heads that were cut is needed for it"


def _term_said(found: Found) -> str:
    needed = found.needed("without_")
    if needed:
        return f"and of the terms {listed([f'{_term(row)} ({times_said(row)} without it)' for row in needed])}"
    return "and no single term"


def _longer(table: pl.DataFrame, shortest: int) -> str:
    """Whether the first of more pieces counts, by the null."""
    said = []
    for pieces in sorted(set(table["pieces"].to_list()) - {shortest}):
        found = found_at(table, last_place([table]), pieces)
        if found is None or not found.has_intervals:
            continue
        counts = "counts" if found.is_clearly_worse("null") else "does not clearly count"
        said.append(f"in {_pieces(found)} the first one {counts} (null {times_said(found.rows['null'])})")
    return f"; {listed(said)}" if said else ""


def twins_compared(tables: Mapping[str, pl.DataFrame]) -> str:
    """Which of several models write words, with the additive control and the heads that each needs."""
    place = last_place(tables.values())
    said = [
        _in_short(label, found, twins_verdict(found))
        for label, found in ((label, fewest_pieces(table, place)) for label, table in tables.items())
    ]
    return f"Does the first layer write words? By the twin's rank {WHERE[place]}: {'; '.join(said)}."


def _in_short(label: str, found: Found, verdict: Verdict) -> str:
    value = "can't be told" if verdict.value == "untestable" else verdict.value
    return f"{label} {value} ({briefly(found, verdict.heads)})"


def briefly(found: Found, needed: Sequence[str]) -> str:
    """The ratios of the null and of the additive control, and what is needed."""
    shown = listed([_control(found, name) for name in ("null", "additive") if name in found.rows])
    carries = "carries the first piece, " if found.carries and found.is_testable and not found.writes else ""
    return f"{carries}{shown}{f', needs {listed(needed)}' if needed else ''}"


def _name(row: Row) -> str:
    return str(row["condition"]).removeprefix("cut_")


def _term(row: Row) -> str:
    return term_symbol(str(row["condition"]).removeprefix("without_"))


def _place(found: Found) -> str:
    return WHERE[found.whole["place"]]


def _pieces(found: Found) -> str:
    pieces = found.whole["pieces"]
    return IN_PIECES.get(pieces, f"{pieces} pieces")


def rank_said(rank: float) -> str:
    """A median rank, which may be a half: shown below 100."""
    return f"{rank:.1f}".removesuffix(".0") if rank < 100 else f"{rank:,.0f}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
