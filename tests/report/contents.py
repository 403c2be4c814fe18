"""What is in a table? Sums that change when a cell, a column, a type or the order of rows does.

Whole numbers, texts and truth values are hashed. Numbers with fractions may differ in their last bits from one kind of
processor to another, so theirs are sums, plain and weighted by place, that are compared to a few parts in a million.
Where rows are ranked by such a number, two that differ in its last bits may change places: their texts are hashed in
another order than that of ranks, without those that are as good as the last of their list.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

NEAR = 2e-5
PLACES = ("rank",)  # whole numbers that follow from comparing scores, whose last bits may differ


def contents(frame: pl.DataFrame) -> dict[str, Any]:
    """Rows, types, a hash of what is exact, and sums of what is not."""
    exact = [name for name, dtype in frame.schema.items() if not dtype.is_float()]
    if not _is_ranking(frame):
        exact = [name for name in exact if name not in PLACES]
    certain = _without_places(frame, exact) if _is_ranking(frame) else frame.select(exact)
    hashed = hashlib.sha256(certain.write_csv().encode()).hexdigest()[:16]
    return {
        "rows": len(frame),
        "columns": {name: str(dtype) for name, dtype in frame.schema.items()},
        "exact": hashed,
        "sums": {name: _sums(frame[name]) for name in frame.columns if name not in exact},
    }


def _is_ranking(frame: pl.DataFrame) -> bool:
    """Do lists follow each other that go from rank 1 to the last, best score first?"""
    if not {"rank", "score"} <= set(frame.columns) or not len(frame):
        return False
    rank = frame["rank"]
    return rank[0] == 1 and bool(((rank == 1) | (rank.diff() == 1))[1:].all())


def _without_places(frame: pl.DataFrame, exact: list[str]) -> pl.DataFrame:
    """What is exact in a ranking whose last bits are not."""
    last = pl.col("score").last().over((pl.col("rank") == 1).cum_sum())
    kept = frame.filter((pl.col("score") - last).abs() > NEAR * last.abs())
    columns = [name for name in exact if name != "rank"]
    return kept.select(columns).sort(columns)


def _sums(column: pl.Series) -> list[float]:
    values = column.cast(pl.Float64).fill_null(-1.0).to_numpy()
    weights = np.modf(np.arange(1, len(values) + 1) * 0.618033988749895)[0]
    return [float(np.abs(values).sum()), float((values * weights).sum()), float(column.null_count())]


def differences(found: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """Where two contents differ, in words."""
    wrong = [key for key in ("rows", "columns", "exact") if found[key] != kept[key]]
    for name, sums in kept["sums"].items():
        largest = max(abs(sums[0]), 1e-12)
        if not np.allclose(found["sums"].get(name, [np.nan]), sums, rtol=NEAR, atol=NEAR * largest):
            wrong.append(f"{name}: {found['sums'].get(name)} instead of {sums}")
    return wrong


def of_folder(folder: Path) -> dict[str, Any]:
    """The contents of all tables of a report, by name."""
    return {path.stem: contents(pl.read_parquet(path)) for path in sorted(folder.glob("*.parquet"))}
