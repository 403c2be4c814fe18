"""After which layer is the word there, and what does it need? Said of `Layers` by a rule like that of `Twins`.

The word is there where it is written by the rule of `Twins`, and clearly even by the lower ends of both rank ratios:
many layers are looked at, so that more is asked of the best of them than of one alone. A head or an MLP is needed where
the word loses more by its being off than its null does, beyond chance, and at least a quarter of what it had gained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detoklens.questions.twins_said import CLEARLY, Found, inconclusive, rank_said, ranks_said
from detoklens.wording import listed, listed_some

if TYPE_CHECKING:
    import polars as pl

MOST_NAMED = 6
LOOKS_BACK = 0.5  # mean attention to the piece before


def found_after(by_layer: pl.DataFrame) -> dict[int, Found]:
    """What was found after each layer."""
    rows = by_layer.to_dicts()
    layers = dict.fromkeys(row["layer"] for row in rows)
    return {layer: Found({row["condition"]: row for row in rows if row["layer"] == layer}) for layer in layers}


def is_there(found: Found) -> bool:
    """Whether the word's rank is clearly better than both that it is compared with, whatever the sample."""
    return found.writes and all(found.rows[name]["rank_ratio_low"] >= CLEARLY for name in ("null", "last_piece"))


def layers_said(by_layer: pl.DataFrame, by_component: pl.DataFrame) -> str:
    """At which layer the word is there and which heads and MLPs it needs, or that no layer shows it."""
    found, after = found_after(by_layer), int(by_component["after"][0])
    beside = f"after layer {after} the twin has {ranks_said(found[after])}"
    if not found[after].has_intervals:
        why = inconclusive(found[after])
        return f"{why[0].upper()}{why[1:]}: {beside}."
    there = [layer for layer, each in found.items() if is_there(each)]
    if not there:
        how = "clearly shows the word" if found[after].is_above else "shows the word beyond its null"
        return f"No layer from 0 to {max(found)} {how}: {beside}."
    if after not in there:
        return f"{_where(there, found)}, but not after layer {after}, where heads and MLPs were switched off: {beside}."
    return f"{_where(there, found)}: {beside}; there {_needs(by_component)}."


def _where(there: list[int], found: dict[int, Found]) -> str:
    first, last = there[0], max(found)
    if there == list(range(first, last + 1)):
        return f"The word is there after layer {first}" + ("" if first == last else f" and after each up to {last}")
    return (
        f"The word is there after layer{'s' if len(there) > 1 else ''} {listed(list(map(str, there)))} of 0 to {last}"
    )


def _needs(by_component: pl.DataFrame) -> str:
    rows = by_component.filter("matters").to_dicts()
    named = [
        f"{row['component']} ({rank_said(row['median_rank'])} without it, "
        f"its null {rank_said(row['null_median_rank'])})"
        for row in rows
    ]
    said = f"it needs {listed_some(named, MOST_NAMED)}" if rows else "no single head or MLP is needed for it"
    needed = {row["component"] for row in rows}
    idle = [
        f"{row['component']} ({row['attention']:.2f})"
        for row in by_component.sort("attention", descending=True, nulls_last=True).to_dicts()
        if row["attention"] is not None and row["attention"] >= LOOKS_BACK and row["component"] not in needed
    ]
    return f"{said}; {listed_some(idle, MOST_NAMED)} look back without being needed" if idle else said


def layers_compared(tables: dict[str, tuple[pl.DataFrame, pl.DataFrame]]) -> str:
    """For several models: after which layers the word is there, and what each needs most."""
    said = []
    for label, (by_layer, by_component) in tables.items():
        found = found_after(by_layer)
        best = found[int(by_component["after"][0])]
        ranks = f"{rank_said(best.whole['median_rank'])} against {rank_said(best.rows['null']['median_rank'])}"
        needed = by_component.filter("matters")["component"].to_list()
        said.append(
            f"{label} {_where_in_short(found)} ({ranks}{f', needs {listed_some(needed, 3)}' if needed else ''})"
        )
    return f"After which layers is the word there? By the twin's median rank: {'; '.join(said)}."


def _where_in_short(found: dict[int, Found]) -> str:
    if not any(each.has_intervals for each in found.values()):
        return "can't be told"
    there = [str(layer) for layer, each in found.items() if is_there(each)]
    return f"after layer{'s' if len(there) > 1 else ''} {listed(there)}" if there else "nowhere"
