"""How do numbers get into a bundle? One file each, raw and little-endian, half of them in half precision.

Half precision has eleven binary digits and few sizes, so what is stored is the value over a power of two that brings
the largest one near the top; how far the stored rows are off is measured and said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import frexp
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float16

FOLDER = "arrays"
TOP = 15  # stored numbers stay below 2¹⁵; half precision ends below 2¹⁶
ROWS = 8192  # looked at together


@dataclass
class Arrays:
    """The arrays of one bundle, written as they come, and what bundle.json says of each."""

    folder: Path
    described: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, values: np.ndarray, dtype: str = "float32") -> None:
        """Write an array exactly, or as float32."""
        self._write(name, np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<")), 1.0, 0.0)

    def add_half(self, name: str, values: Float[np.ndarray, "row column"], error: float | None = None) -> None:
        """Write an array in half precision; `error` is what was measured of it, where that is not of its rows."""
        multiplier = multiplier_of(values)
        stored = halved(values, multiplier)
        self._write(name, stored, multiplier, row_error(values, stored, multiplier) if error is None else error)

    def _write(self, name: str, stored: np.ndarray, multiplier: float, error: float) -> None:
        file = f"{FOLDER}/{name}.bin"
        (self.folder / FOLDER).mkdir(exist_ok=True)
        with (self.folder / file).open("wb") as out:
            out.write(stored.data.cast("B") if stored.size else b"")
        self.described[name] = {
            "file": file,
            "dtype": stored.dtype.name,
            "shape": list(stored.shape),
            "multiplier": multiplier,
            "error": error,
        }


def multiplier_of(values: np.ndarray) -> float:
    """The power of two that stored numbers are multiplied by."""
    largest = float(np.abs(values).max(initial=0.0))
    return 2.0 ** (frexp(largest)[1] - TOP) if largest else 1.0


def halved(values: np.ndarray, multiplier: float) -> Float16[np.ndarray, "..."]:
    """The values over the multiplier in half precision."""
    return np.ascontiguousarray(values / values.dtype.type(multiplier), "<f2")


def row_error(
    values: Float[np.ndarray, "row column"], stored: Float16[np.ndarray, "row column"], multiplier: float
) -> float:
    """The largest |stored row − row| / |row|."""
    worst = 0.0
    for begin in range(0, len(values), ROWS):
        exact = values[begin : begin + ROWS].astype(np.float64)
        length = np.linalg.norm(exact, axis=1)
        off = np.linalg.norm(stored[begin : begin + ROWS].astype(np.float64) * multiplier - exact, axis=1)
        worst = max(worst, float(np.divide(off, length, out=np.zeros_like(off), where=length > 0).max(initial=0.0)))
    return worst
