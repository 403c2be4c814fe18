"""Does the layer write words, and what does it need for that? The one rule by which sentences and cards say so.

It writes words where the twin's rank is clearly worse with another word's first piece and for the last piece alone: the
lower end of either rank ratio above 1, that of the median rank lost above 0 (else a few words decide the ratio), and
the ratio at least CLEARLY. A head, or a term, is needed where the lower end of the ratio without it is above 1 and at
least NEEDED of the gain (as logarithms of ratios) is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

from detoklens.wording import listed, plural, term_symbol

if TYPE_CHECKING:
    import polars as pl

CLEARLY = 1.2  # times: with thousands of words any difference is beyond chance
NEEDED = 0.25  # of the gain
WHERE = {"attention": "after the attention", "block": "after the first block"}
IN_PIECES = {2: "two pieces", 3: "three pieces", 4: "four pieces"}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """The conditions of one place and one number of pieces, by name."""

    rows: Mapping[str, Row]

    @property
    def whole(self) -> Row:
        return self.rows["whole"]

    @property
    def has_intervals(self) -> bool:
        return self.whole["median_rank_low"] is not None

    @property
    def gain(self) -> float:
        """How many times better the twin's rank is than in the null and for the last piece alone: the smaller."""
        return min(self.rows[name]["rank_ratio"] for name in ("null", "last_piece"))

    @property
    def is_above(self) -> bool:
        """Whether null and baseline are both worse beyond chance, if only for some words."""
        return all(self.is_worse(name) for name in ("null", "last_piece"))

    @property
    def writes(self) -> bool:
        """Whether both are clearly worse."""
        return all(self.is_clearly_worse(name) for name in ("null", "last_piece"))

    def is_worse(self, condition: str) -> bool:
        return self.has_intervals and self.rows[condition]["rank_ratio_low"] > 1

    def is_clearly_worse(self, condition: str) -> bool:
        row = self.rows[condition]
        return self.is_worse(condition) and row["rank_ratio"] >= CLEARLY and row["rank_lost_low"] > 0

    def lost(self, condition: str) -> float:
        """Which share of the gain is lost in this condition?"""
        return log(self.rows[condition]["rank_ratio"]) / log(self.gain)

    def needed(self, kind: str) -> list[Row]:
        """The conditions of a kind (`cut_`, `without_`) that take away much of the gain, the worst first."""
        some = [name for name, row in self.rows.items() if name.startswith(kind) and row["rank_ratio_low"] > 1]
        found = [name for name in some if self.lost(name) >= NEEDED]
        return [self.rows[name] for name in sorted(found, key=self.lost, reverse=True)]


def last_place(tables: Iterable[pl.DataFrame]) -> str:
    """The last place that all of these tables know."""
    return "block" if all("block" in table["place"] for table in tables) else "attention"


def found_at(table: pl.DataFrame, place: str, pieces: int) -> Found | None:
    """The rows of one place and of so many pieces; None where there is no word of them."""
    rows = table.filter(place=place, pieces=pieces).to_dicts()
    return Found({row["condition"]: row for row in rows}) if rows else None


def fewest_pieces(table: pl.DataFrame, place: str | None = None) -> Found:
    """The words of fewest pieces, two unless others were asked for; by default at the last place that is known."""
    found = found_at(table, place or last_place([table]), int(table["pieces"].to_numpy().min()))
    assert found is not None
    return found


def twins_said(table: pl.DataFrame, all_heads: bool = True) -> str:
    """Whether the layer writes words beyond its null, what it needs for that, and whether longer words are found.

    `all_heads` says whether each head was cut: else nothing is said of those that were not.
    """
    found = fewest_pieces(table)
    beside = f"{_place(found)}, the twin of a word in {_pieces(found)} has {ranks_said(found)}"
    if not found.has_intervals:
        return f"{_capital(beside)}; {inconclusive(found)}."
    longer = _longer(table, found.whole["pieces"])
    if not found.writes:
        return f"{_verdict(found)}: {beside}{longer}."
    return f"{_verdict(found)}: {beside}; {_head_said(found, all_heads)}, {_term_said(found)}{longer}."


def inconclusive(found: Found) -> str:
    """Why nothing is concluded where there are no intervals."""
    from detoklens.measures.twins import FEWEST

    if found.whole["words"] < FEWEST:
        return f"{plural(found.whole['words'], 'word')} are too few to conclude anything from"
    return "without resamples of the words nothing can be concluded"


def _verdict(found: Found) -> str:
    if found.writes:
        return "The first layer writes words"
    if found.is_above:
        return "The first layer hardly writes words"
    return "The first layer writes no words beyond its null"


def ranks_said(found: Found) -> str:
    """The median rank with its interval, beside those that it is compared with."""
    whole = found.whole
    low_high = [rank_said(whole[f"median_rank_{end}"]) for end in ("low", "high") if found.has_intervals]
    ends = f" ({' to '.join(low_high)})" if low_high else ""
    null, last = (rank_said(found.rows[name]["median_rank"]) for name in ("null", "last_piece"))
    return (
        f"median rank {rank_said(whole['median_rank'])}{ends} of {whole['candidates']:,}, "
        f"{null} with another word's first piece, {last} for the last piece alone"
    )


def _head_said(found: Found, all_heads: bool) -> str:
    needed = found.needed("cut_")
    if needed:
        named = [f"{_name(row)} ({rank_said(row['median_rank'])} with its link cut)" for row in needed]
        return f"it needs {listed(named)}"
    if all_heads:
        return "no single head is needed for it"
    cut = [_name(row) for name, row in found.rows.items() if name.startswith("cut_")]
    if len(cut) == 1:
        return f"{cut[0]}, the only head that was cut, is not needed for it"
    return f"none of the {len(cut)} heads that were cut is needed for it"


def _term_said(found: Found) -> str:
    needed = found.needed("without_")
    if needed:
        named = [f"{_term(row)} ({rank_said(row['median_rank'])} without it)" for row in needed]
        return f"and of the terms {listed(named)}"
    return "and no single term"


def _longer(table: pl.DataFrame, shortest: int) -> str:
    """What becomes of words in more pieces, their first piece exchanged."""
    said = []
    for pieces in sorted(set(table["pieces"].to_list()) - {shortest}):
        found = found_at(table, last_place([table]), pieces)
        if found is None or not found.has_intervals:
            continue
        null = found.rows["null"]
        hardly = "hardly counts" if found.is_worse("null") else "does not count"
        counts = "counts" if found.is_clearly_worse("null") else hardly
        ranks = f"{rank_said(found.whole['median_rank'])}, with another one {rank_said(null['median_rank'])}"
        said.append(f"in {_pieces(found)} the first one {counts} ({ranks})")
    return f"; {listed(said)}" if said else ""


def twins_compared(tables: Mapping[str, pl.DataFrame]) -> str:
    """Which of several models write words, with the gain of each and the head that each needs."""
    said, place = [], last_place(tables.values())
    for label, table in tables.items():
        found = fewest_pieces(table, place)
        heads = [_name(row) for row in found.needed("cut_")] if found.writes else []
        needs = f", needs {listed(heads)}" if heads else ""
        whole, null = (rank_said(found.rows[name]["median_rank"]) for name in ("whole", "null"))
        said.append(f"{label} {_in_short(found)} ({whole} against {null} with another word's first piece{needs})")
    return f"Does the first layer write words? By the twin's median rank {WHERE[place]}: {'; '.join(said)}."


def _in_short(found: Found) -> str:
    if not found.has_intervals:
        return "can't be told"
    return "yes" if found.writes else "hardly" if found.is_above else "no"


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
    """A median rank, which may be a half: below 100 that is seen."""
    return f"{rank:.1f}".removesuffix(".0") if rank < 100 else f"{rank:,.0f}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
