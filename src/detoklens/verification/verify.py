"""How far is the decomposition from the real model, head by head?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from detoklens.errors import CheckpointError
from detoklens.loading import load
from detoklens.scores.layer import Layer
from detoklens.tables.verification import VERIFICATION
from detoklens.verification.oracle import RealAttention, run_real_layer

# float32 rounds scores of some hundreds to about 1e-5, in the real model as in ours; float64 leaves no such excuse.
TOLERANCES = {"float32": 1e-4, "float64": 1e-10}

DEFAULT_TEXT = (
    "Homo sapiens walked out of Africa; the nineteenth century brought Albert Einstein, aluminum chloride and Tokyo. "
    "Detokenization glues subword pieces back into words: sap and iens, Liber and tarian, Bar and ack. The the the."
)


def verify(layer: Layer, token_ids: Sequence[int], tolerance: float | None = None) -> pl.DataFrame:
    """Largest differences of attention and output to transformers' own layer, per head, in float32 and float64."""
    if layer.checkpoint.folder is None:
        raise CheckpointError(f"{layer.name} is in memory only; save it to a folder and verify that")
    layer.check_text(token_ids)
    rows = []
    for dtype, usual in TOLERANCES.items():
        ours = load(layer.checkpoint.folder, dtype=dtype)  # type: ignore[arg-type]
        real = run_real_layer(layer.checkpoint.folder, layer.checkpoint.config, token_ids, dtype)
        rows += _compare(ours, real, token_ids, dtype, usual if tolerance is None else tolerance)
    return VERIFICATION.conform(pl.DataFrame(rows))


def default_token_ids(layer: Layer, text: str | None, length: int | None) -> list[int]:
    """The text's tokens; where no text is given, a built-in one, filled up with random tokens to `length` places."""
    if text is not None:
        return layer.vocabulary.encode(text)
    length = min(layer.n_positions, 256) if length is None else length
    start = layer.vocabulary.encode(DEFAULT_TEXT) if layer.has_vocabulary else []
    filling = np.random.default_rng(0).integers(0, layer.vocab_size, length)
    return [*start, *(int(token) for token in filling)][:length]


def _compare(
    ours: Layer, real: RealAttention, token_ids: Sequence[int], dtype: str, tolerance: float
) -> list[dict[str, object]]:
    attention = np.abs(ours.terms(token_ids).attention() - real.attention).max(axis=(1, 2))
    written = np.abs(ours.head_outputs(token_ids) - real.head_outputs).max(axis=(1, 2))
    written /= max(1.0, float(np.abs(real.head_outputs).max()))
    total = np.abs(ours.attention_output(token_ids) - real.output).max() / max(1.0, float(np.abs(real.output).max()))
    return [
        {
            "dtype": dtype,
            "head": head,
            "attention_difference": float(attention[head]),
            "output_difference": float(max(written[head], total)),
            "tolerance": tolerance,
            "passed": bool(attention[head] <= tolerance and max(written[head], total) <= tolerance),
        }
        for head in range(ours.n_heads)
    ]
