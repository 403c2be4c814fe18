"""After which layer does a model write words, and what does it need? The rule of `twins`, layer by layer.

The best of many layers is looked for, so more is asked of each: even the lower ends of its rank ratios exceed CLEARLY.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detoklens.questions.twins_said import (
    CLEARLY,
    Found,
    briefly,
    carried,
    ranks_said,
    sends_null_to_chance,
    times_said,
    verdict_of,
)
from detoklens.questions.verdict import Verdict
from detoklens.wording import listed, listed_some

if TYPE_CHECKING:
    import polars as pl

MOST_NAMED = 6
LOOKS_BACK = 0.5  # mean attention to the piece before


def found_after(by_layer: pl.DataFrame) -> dict[int, Found]:
    """What was found after each layer."""
    rows = by_layer.to_dicts()
    layers = dict.fromkeys(row["layer"] for row in rows)
    return {
        layer: Found({row["condition"]: row for row in rows if row["layer"] == layer}, lower_end=CLEARLY)
        for layer in layers
    }


def layers_verdict(by_layer: pl.DataFrame, by_component: pl.DataFrame) -> Verdict:
    """Whether words are written after some layer; the layer that decides is the one after which things are off.

    Where that one was chosen and is not among those that write, the first that writes decides.
    """
    found, after = found_after(by_layer), int(by_component["after"][0])
    writing = [layer for layer, each in found.items() if each.writes]
    decides = after if after in writing or not writing else writing[0]
    heads = tuple(row["component"] for row in _needed(by_component) if row["head"] is not None)
    verdict = verdict_of(found[decides], heads if decides == after else ())
    return Verdict(verdict.value, f"after layer {decides}: {verdict.reason}", verdict.heads)


def layers_said(by_layer: pl.DataFrame, by_component: pl.DataFrame) -> str:
    """After which layers words are written and which heads and MLPs are needed, or that they are after none."""
    found, after = found_after(by_layer), int(by_component["after"][0])
    there, ranks = found[after], f"after layer {after} the twin has {ranks_said(found[after])}"
    if not there.is_testable:
        return f"After layer {after} the twin has {ranks_said(there)}; {verdict_of(there, ()).reason}."
    writing = [layer for layer, each in found.items() if each.writes]
    needs = f"; {_needs(by_component, there.candidates)}" if there.carries else ""
    if writing and after not in writing:
        return f"{_where(writing, found)}, but not after layer {after}, where heads and MLPs were off: {ranks}{needs}."
    if writing:
        return f"{_where(writing, found)}: {ranks}{needs}."
    conclusion = f"After no layer from 0 to {max(found)} does the model write words"
    return f"{conclusion}; it {carried(there)}: {ranks}{needs}." if there.carries else f"{conclusion}: {ranks}."


def _where(writing: list[int], found: dict[int, Found]) -> str:
    first, last = writing[0], max(found)
    if writing == list(range(first, last + 1)):
        return f"The model writes words after layer {first}" + (
            "" if first == last else f" and after each up to {last}"
        )
    return f"The model writes words after {_layers(writing)} of 0 to {last}"


def _layers(layers: list[int]) -> str:
    return f"layer{'s' if len(layers) > 1 else ''} {listed(list(map(str, layers)))}"


def _needed(by_component: pl.DataFrame) -> list[dict[str, object]]:
    return by_component.filter("matters").to_dicts()


def _needs(by_component: pl.DataFrame, candidates: int) -> str:
    """What is needed, what would be were the null not at chance without it, and heads that look back for nothing."""
    rows = by_component.to_dicts()
    needed = [row for row in rows if row["matters"]]
    named = [f"{row['component']} (share lost {times_said(row, 'share_lost')})" for row in needed]
    said = [f"it needs {listed_some(named, MOST_NAMED)}" if needed else "no single head or MLP is needed for it"]
    destroying = [row["component"] for row in rows if sends_null_to_chance(row, candidates)]
    if destroying:
        said.append(f"without {listed_some(destroying, MOST_NAMED)} the null is at chance too, which explains nothing")
    idle = [
        f"{row['component']} ({row['attention']:.2f})"
        for row in by_component.sort("attention", descending=True, nulls_last=True).to_dicts()
        if row["attention"] is not None and row["attention"] >= LOOKS_BACK and not row["matters"]
    ]
    if idle:
        said.append(f"{listed_some(idle, MOST_NAMED)} look back without being needed")
    return "; ".join(said)


def layers_compared(tables: dict[str, tuple[pl.DataFrame, pl.DataFrame]]) -> str:
    """For several models: after which layers they write words, and what each needs most."""
    said = []
    for label, (by_layer, by_component) in tables.items():
        found = found_after(by_layer)
        needed = [str(row["component"]) for row in _needed(by_component)]
        best = briefly(found[int(by_component["after"][0])], [listed_some(needed, 3)] if needed else [])
        said.append(f"{label} {_where_in_short(found)} ({best})")
    return f"After which layers does the model write words? By the twin's rank: {'; '.join(said)}."


def _where_in_short(found: dict[int, Found]) -> str:
    if not any(each.is_testable for each in found.values()):
        return "can't be told"
    writing = [layer for layer, each in found.items() if each.writes]
    return f"after {_layers(writing)}" if writing else "after none"
