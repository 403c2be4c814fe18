"""Render false-positive rates and power curves as the tables of docs/calibration.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from calibration.adversaries import NULLS
from calibration.run import ASKED, PERMUTED, RANDOM, VERDICTS

GROUPS = {
    "random weights": RANDOM,
    "of these, structured embeddings": tuple(kind for kind in NULLS if kind.startswith(RANDOM) and "iid" not in kind),
    "copiers": ("copier, ",),
    "cluster heads": ("6 clusters", "16 clusters"),
    "frequency × frequency": ("frequency × frequency",),
    "same token": ("same token",),
    "drifting positions": ("drifting positions",),
    "permuted labels": (PERMUTED,),
}
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def write_tables(found: Sequence[dict[str, Any]], page: Path, made: str) -> str:
    """Write the tables between the page's two markers and return them."""
    tables = "\n\n".join(
        [
            f"{len(found)} models ({made}).",
            most_often_wrong(found),
            "### False positives",
            false_positives(found),
            "### Random weights, by embeddings",
            by_kind(found),
            "### Power",
            power(found),
        ]
    )
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}", encoding="utf-8")
    return tables


def most_often_wrong(found: Sequence[dict[str, Any]]) -> str:
    """The verdict with the most false positives among models with random weights, in a sentence."""
    nulls = [one for one in found if one["kind"].startswith(RANDOM)]
    wrong = {verdict: sum(_value(one, verdict) == "yes" for one in nulls) for verdict in VERDICTS}
    worst = max(wrong, key=lambda verdict: wrong[verdict])
    if not wrong[worst]:
        return "No verdict is wrong for any model with random weights."
    return f"With random weights, `{worst}` is wrong most often: {_rate(nulls, worst)}."


def false_positives(found: Iterable[dict[str, Any]]) -> str:
    """One row per verdict, one column per group of models whose correct verdict is "no"."""
    nulls = [one for one in found if one["strength"] is None]
    rows = [
        [f"`{verdict}`"]
        + [_rate([one for one in nulls if one["kind"].startswith(kinds)], verdict) for kinds in GROUPS.values()]
        for verdict in VERDICTS
    ]
    return _grid(["verdict", *GROUPS], rows)


def by_kind(found: Iterable[dict[str, Any]]) -> str:
    """The random models, one column per kind of embeddings."""
    nulls = [one for one in found if one["kind"].startswith(GROUPS["random weights"])]
    kinds = sorted({one["kind"] for one in nulls})
    rows = [
        [f"`{verdict}`", *(_rate([one for one in nulls if one["kind"] == kind], verdict, False) for kind in kinds)]
        for verdict in VERDICTS
    ]
    return _grid(["verdict", *kinds], rows)


def power(found: Iterable[dict[str, Any]]) -> str:
    """How often an effect of each strength is found, one row per affected verdict."""
    planted = [one for one in found if one["strength"] is not None]
    rows = []
    for kind in dict.fromkeys(one["kind"] for one in planted):
        of_kind = [one for one in planted if one["kind"] == kind]
        strengths = sorted({one["strength"] for one in of_kind})
        for verdict in ASKED[kind]:
            said = [
                f"{strength:g}: {_rate([one for one in of_kind if one['strength'] == strength], verdict, False)}"
                for strength in strengths
            ]
            rows.append([kind, f"`{verdict}`", ", ".join(said)])
    return _grid(["planted", "verdict", "strength: found"], rows)


def _rate(models: Sequence[dict[str, Any]], verdict: str, with_interval: bool = True) -> str:
    """Format `1 of 60 [0.0, 8.9] %`, with a 95 % Clopper–Pearson interval and the number of untestable models."""
    values = Counter(_value(one, verdict) for one in models)
    tested = values["yes"] + values["no"]
    if not tested:
        return "untestable" if values["untestable"] else "–"
    said = f"{values['yes']} of {tested}"
    if with_interval:
        interval = binomtest(values["yes"], tested).proportion_ci(method="exact")
        said += f" [{100 * interval.low:.1f}, {100 * interval.high:.1f}] %"
    return said + (f" ({values['untestable']} untestable)" if values["untestable"] else "")


def _value(one: dict[str, Any], verdict: str) -> str | None:
    return (one["verdicts"].get(verdict) or {"value": None})["value"]


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
