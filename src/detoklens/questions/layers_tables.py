"""The tables of `Layers`, and the layer after which heads and MLPs are switched off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from detoklens.measures.geometric_means import geometric_means
from detoklens.measures.twins import Measured, shares_lost, summary
from detoklens.questions.layers_run import Words
from detoklens.questions.layers_schemas import TWINS_BY_COMPONENT, TWINS_BY_LAYER
from detoklens.questions.twins_said import Found, is_needed

if TYPE_CHECKING:
    import polars as pl

    from detoklens.model.first_blocks import Component

MEASURES = ("median_rank", "first", "first_ten", "mean_reciprocal_rank", "rank_lost", "rank_ratio")
WHOLE, NULL = range(2)


def best_layer(ranks: np.ndarray) -> int:
    """The layer whose smallest rank ratio over all controls is the largest; `ranks` are [layer, condition, word]."""
    logarithms = np.log(ranks).mean(axis=2)
    return int((logarithms[:, 1:].min(axis=1) - logarithms[:, WHOLE]).argmax())


def by_layer(
    ranks: np.ndarray, conditions: Sequence[str], words: Words, bos: str | None, resamples: int, seed: int
) -> pl.DataFrame:
    """One row for each layer and condition."""
    import polars as pl

    n = len(conditions)
    known = {"words": len(words.chains), "candidates": len(words.candidates), "bos": bos}
    frames = []
    for layer, each in enumerate(ranks):
        found = summary(each, resamples, seed)
        data = {name: [value] * n for name, value in ({"layer": layer} | known).items()} | {"condition": conditions}
        frames.append(
            TWINS_BY_LAYER.frame(
                data | dict(item for name in MEASURES for item in ends(name, getattr(found, name)).items())
            )
        )
    return pl.concat(frames)


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
    lost = np.log((with_off / whole) / (null_off / null))
    looks = np.array([[np.nan] * 2 if one.head is None else attention[one.layer, :, one.head] for one in off])
    frame = pl.DataFrame(
        {
            "component": [one.name for one in off],
            "layer": [one.layer for one in off],
            "head": [one.head for one in off],
            **ends("median_rank", Measured(found.value[1:], found.low[1:], found.high[1:])),
            **ends("rank_ratio", geometric_means(with_off / whole, resamples, seed)),
            **ends("null_median_rank", summary(null_off, resamples, seed).median_rank),
            **ends("null_ratio", geometric_means(null_off / null, resamples, seed)),
            **ends("needed", needed),
            **ends("share_lost", shares_lost(lost, np.log(null / whole)[None], resamples, seed)),
            "attention": looks[:, 0],
            "null_attention": looks[:, 1],
        }
    )
    return frame.sort("needed", descending=True, maintain_order=True)


def judged(by_component: pl.DataFrame, found: Mapping[int, Found], after: int) -> pl.DataFrame:
    """The same with the layer after which it was measured, and whether it is needed: null without intervals."""
    import polars as pl

    there = found[after]
    conformed = TWINS_BY_COMPONENT.conform(by_component.with_columns(after=pl.lit(after), matters=pl.lit(None)))
    if not there.has_intervals:
        return conformed
    matters = [there.carries and is_needed(row, there.candidates) for row in conformed.to_dicts()]
    return conformed.with_columns(matters=pl.Series(matters, dtype=pl.Boolean))


def ends(name: str, measured: Measured) -> dict[str, np.ndarray]:
    """A number with the ends of its interval, as columns."""
    return {name: measured.value, f"{name}_low": measured.low, f"{name}_high": measured.high}
