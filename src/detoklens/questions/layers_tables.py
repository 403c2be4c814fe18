"""The tables of `Layers`, and the layer where the word stands highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from detoklens.measures.geometric_means import geometric_means
from detoklens.measures.twins import Measured, summary
from detoklens.questions.layers_run import CONDITIONS, Words
from detoklens.questions.layers_said import is_there
from detoklens.questions.layers_schemas import TWINS_BY_COMPONENT, TWINS_BY_LAYER
from detoklens.questions.twins_said import NEEDED, Found

if TYPE_CHECKING:
    import polars as pl

    from detoklens.model.first_blocks import Component

MEASURES = ("median_rank", "first", "first_ten", "mean_reciprocal_rank", "rank_lost", "rank_ratio")
WHOLE, NULL, LAST = range(3)


def best_layer(ranks: np.ndarray) -> int:
    """Where do words stand furthest above their null and above the last piece alone, by the smaller of both ratios?"""
    logarithms = np.log(ranks).mean(axis=2)
    gain = np.minimum(logarithms[:, NULL], logarithms[:, LAST]) - logarithms[:, WHOLE]
    return int(gain.argmax())


def by_layer(ranks: np.ndarray, words: Words, resamples: int, seed: int) -> pl.DataFrame:
    """One row for each layer and condition."""
    import polars as pl

    frames = [_of_layer(layer, each, words, resamples, seed) for layer, each in enumerate(ranks)]
    return pl.concat(frames)


def _of_layer(layer: int, ranks: np.ndarray, words: Words, resamples: int, seed: int) -> pl.DataFrame:
    found, n = summary(ranks, resamples, seed), len(CONDITIONS)
    return TWINS_BY_LAYER.frame(
        {
            "layer": [layer] * n,
            "condition": CONDITIONS,
            "words": [len(words.chains)] * n,
            "candidates": [len(words.candidates)] * n,
            **dict(item for name in MEASURES for item in ends(name, getattr(found, name)).items()),
        }
    )


def by_component(
    off: Sequence[Component],
    ranks: np.ndarray,
    ranks_off: np.ndarray,
    attention: np.ndarray,
    resamples: int,
    seed: int,
) -> pl.DataFrame:
    """One row for each head and MLP, those that the word needs most first; `ranks` are those with nothing off."""
    import polars as pl

    whole, null = ranks[WHOLE], ranks[NULL]
    with_off, null_off = ranks_off[:, 0], ranks_off[:, 1]
    found = summary(np.concatenate([whole[None], with_off]), resamples, seed).median_rank
    needed = geometric_means((with_off / whole) / (null_off / null), resamples, seed)
    gain = float(np.log(null / whole).mean())
    looks = np.array([[np.nan] * 2 if one.head is None else attention[one.layer, :, one.head] for one in off])
    frame = pl.DataFrame(
        {
            "component": [one.name for one in off],
            "layer": [one.layer for one in off],
            "head": [one.head for one in off],
            **ends("median_rank", Measured(found.value[1:], found.low[1:], found.high[1:])),
            **ends("rank_ratio", geometric_means(with_off / whole, resamples, seed)),
            "null_median_rank": np.median(null_off, axis=1),
            **ends("null_ratio", geometric_means(null_off / null, resamples, seed)),
            **ends("needed", needed),
            "share_lost": np.log(needed.value) / gain if gain > 0 else np.full(len(off), np.nan),
            "attention": looks[:, 0],
            "null_attention": looks[:, 1],
        }
    )
    return frame.sort("needed", descending=True, maintain_order=True)


def judged(by_component: pl.DataFrame, found: Mapping[int, Found], after: int) -> pl.DataFrame:
    """The same with the layer after which it was measured, and whether the word needs it: null without intervals."""
    import polars as pl

    lost = (pl.col("needed_low") > 1) & (pl.col("share_lost") >= NEEDED)
    matters = lost if is_there(found[after]) else pl.lit(False if found[after].has_intervals else None)
    return TWINS_BY_COMPONENT.conform(by_component.with_columns(after=pl.lit(after), matters=matters))


def ends(name: str, measured: Measured) -> dict[str, np.ndarray]:
    """A number with the ends of its interval, as columns."""
    return {name: measured.value, f"{name}_low": measured.low, f"{name}_high": measured.high}
