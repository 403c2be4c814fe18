"""Which head joins tokens, if any does? The one rule by which commands, head cards, comparisons and reports name one.

A head is named only where the lower ends of its intervals lie above chance, above each of its nulls and, among equally
frequent keys, above its null there too; and where it stands above these nulls by more than a little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detoklens.wording import head_name, listed, signed

if TYPE_CHECKING:
    import polars as pl

CHANCE = 0.5
CLEARLY = 0.05
"""So far above a null is a head that joins tokens. With many query tokens any difference is beyond chance: a speech
decoder, which hears the spelling, has a head 0.04 above its nulls, the demo one 0.2."""


@dataclass(frozen=True)
class Verdict:
    """The head that stands highest, or is nearest to it; why it is not named, where it is not."""

    row: Mapping[str, Any]
    against: tuple[str, ...]

    @property
    def named(self) -> bool:
        return not self.against

    @property
    def head(self) -> int:
        return int(self.row["head"])

    @property
    def has_null(self) -> bool:
        return self.row["above_null"] is not None


def verdict(judged: pl.DataFrame) -> Verdict | None:
    """Of heads with the columns of `auroc_controls`, named ones before all others; nothing where no AUROC is known."""
    found = [Verdict(row, _against(row)) for row in judged.iter_rows(named=True) if row["auroc"] is not None]
    return max(found, key=_standing, default=None)


def _standing(one: Verdict) -> tuple[bool, float, float]:
    """Named heads by how far they are above their nulls, others by what they lack most; then by the AUROC."""
    margins = [margin for margin in _margins(one.row).values() if margin is not None]
    standing = one.row["above_null"] if one.named else min(margins)
    return one.named, standing, one.row["auroc"]


def _margins(row: Mapping[str, Any]) -> dict[str, float | None]:
    """How far the lower ends of the intervals are above what they must be above, None where that is not known."""
    return {
        "above 0.5": _lower(row, "auroc", CHANCE),
        "above its null": _lower(row, "above_null", 0.0),
        "above its null among equally frequent keys": _lower(row, "matched_above_null", 0.0),
    }


def _lower(row: Mapping[str, Any], name: str, least: float) -> float | None:
    """The lower end of an interval; the value itself where no interval was asked for."""
    value, low = row[name], row[f"{name}_low"]
    return None if value is None else (value if low is None else low) - least


def _against(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What speaks against naming a head, in words."""
    margins = _margins(row)
    clear = {
        "above its null": _is_clear(row["above_null"]),
        "above its null among equally frequent keys": _is_clear(row["matched_above_null"]),
    }
    against = [
        f"not {what}" if margin <= 0 else f"{what} by less than {CLEARLY}"
        for what, margin in margins.items()
        if margin is not None and (margin <= 0 or not clear.get(what, True))
    ]
    if row["above_null"] is None:
        against.append("without a null beside it")
    elif row["frequency"] is not None and row["matched_above_null"] is None:
        against.append("without equally frequent keys to compare with")
    return tuple(against)


def _is_clear(above: float | None) -> bool:
    return above is None or above > CLEARLY


def in_short(found: Verdict, layer: int = 0) -> str:
    """Which head, and how far above its nulls: for a list of models."""
    above = [signed(found.row["above_null"])]
    if found.row["matched_above_null"] is not None:
        above.append(f"{signed(found.row['matched_above_null'])} among equally frequent keys")
    if found.named:
        return f"{head_name(found.head, layer)} ({', '.join(above)})"
    return f"no head (nearest {head_name(found.head, layer)}: {', '.join(above)}; {listed(found.against)})"


def numbers_said(row: Mapping[str, Any]) -> str:
    """A head's AUROC with what it must be read with."""
    said = _one_said(row, "auroc", "above_null", "frequency")
    if row["matched"] is None or row["matched"] == row["auroc"]:
        return said
    matched = _one_said(row, "matched", "matched_above_null", "matched_frequency")
    return f"{said}; among equally frequent keys {matched}"


def _one_said(row: Mapping[str, Any], name: str, above: str, frequency: str) -> str:
    """An AUROC, its null, and what frequency alone gives, which needs no head: where it ranks better, that is said."""
    said, alone = _with_interval(row, name), row[frequency]
    if row[above] is not None:
        said += f", its null {row[name] - row[above]:.3f}"
    if alone is not None:
        said += f", frequency alone {alone:.3f}{', which ranks better' if alone > row[name] else ''}"
    return said


def _with_interval(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.3f}" if low is None or high is None else f"{row[name]:.3f} [{low:.3f}, {high:.3f}]"
