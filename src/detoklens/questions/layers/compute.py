"""Tables and measurements of `Layers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from detoklens.measures.twins import (
    Candidates,
    add_means,
    control_pieces,
    geometric_means,
    mean_over_partners,
    median_ranks,
    partner_texts,
    rank_measures,
    shares_lost,
)
from detoklens.model.checks import Component, components
from detoklens.model.vector_cache import batches
from detoklens.parallel import Arrays, Runner
from detoklens.questions.twins.compute import BOS, CONTROL_MEANINGS, RANK_MEASURES, Words, with_interval
from detoklens.questions.twins.verdict import CLEARLY, Conditions, is_needed
from detoklens.tables.schema import Column, Schema

if TYPE_CHECKING:
    from detoklens.model.first_blocks import FirstBlocks


TWINS_BY_LAYER = Schema(
    "twins_by_layer",
    "Rank of the twin by layer",
    Column("layer", "block after which the twin is ranked, from 0", "Int32"),
    Column("condition", f"whole; {CONTROL_MEANINGS}", "String"),
    Column("words", "number of words", "Int32"),
    Column("candidates", "number of ranked tokens", "Int32"),
    BOS,
    *RANK_MEASURES,
)

TWINS_BY_COMPONENT = Schema(
    "twins_by_component",
    "Ablated heads and MLPs",
    Column("component", "ablated component: L1H4 is head 4 of layer 1, MLP1 the MLP of layer 1", "String"),
    Column("layer", "layer of the component, from 0", "Int32"),
    Column("head", "head of the component, from 0; null for an MLP", "Int32"),
    Column("after", "block after which the twin is ranked, from 0", "Int32"),
    *with_interval("median_rank", "median rank of the twin under the ablation"),
    *with_interval("rank_ratio", "geometric mean over words of that rank / the unablated rank"),
    *with_interval("null_median_rank", "median rank of the null under the ablation"),
    *with_interval("null_ratio", "rank_ratio of the null: the effect on any two tokens"),
    *with_interval("needed", "rank_ratio / null_ratio, word by word; 1 if the word loses no more than its null"),
    *with_interval(
        "share_lost",
        "log needed / log of the null's rank over the word's rank; null if the word is not better than its null",
    ),
    Column(
        "matters",
        "the first piece is carried, share_lost_low exceeds a quarter, and the ablated null stays above chance; "
        "null without intervals",
        "Boolean",
    ),
    Column("attention", "mean attention of the head from the last piece to the piece before it"),
    Column("null_attention", "the same for the null"),
)


WORDS_AT_ONCE = 32  # in the additive control: at most 512 texts per thread


WHOLE, NULL = range(2)  # the first two conditions


class Measuring:
    """Ranks the twins of words among candidates in one model. Candidates are sorted by id and include the twins."""

    def __init__(
        self, blocks: FirstBlocks, words: Words, candidates: np.ndarray, beginning: tuple[int, ...], runner: Runner
    ) -> None:
        self.blocks, self.words, self.beginning, self.runner = blocks, words, beginning, runner
        self.twins = np.searchsorted(candidates, words.chains.whole)
        texts = control_pieces(words.chains.pieces, words.null)
        self._caches = {
            name: [blocks.run(batch) for batch in batches(pieces, beginning)] for name, pieces in texts.items()
        }
        self._candidates = self._measure_candidates(candidates)
        self._additive = [] if words.partners is None else self._measure_additive(words.partners)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that `after_every_block` ranks, in order."""
        return (*self._caches, *(("additive",) if self._additive else ()))

    def _measure_candidates(self, token_ids: np.ndarray) -> list[Candidates]:
        """Run every candidate alone through all blocks."""
        cut = batches(token_ids[:, None], self.beginning)
        found = self.runner.under("candidates").run(lambda number: {"states": self._states(cut[number])}, len(cut))
        return [Candidates.of(states) for states in np.concatenate([part["states"] for part in found], axis=1)]

    def _measure_additive(self, partners: np.ndarray) -> list[np.ndarray]:
        """Compute the vectors of the additive control after every block."""
        tasks = partner_texts(self.words.chains.pieces, partners, WORDS_AT_ONCE)

        def states(texts: np.ndarray) -> np.ndarray:
            return np.concatenate([self._states(batch) for batch in batches(texts, self.beginning)], axis=1)

        found = self.runner.under("additive").run(
            lambda number: {"means": mean_over_partners(tasks[number][1], states)}, len(tasks)
        )
        whole = np.stack([self._last_places("whole", layer) for layer in range(self.blocks.n_blocks)])
        means = ((rows, part["means"]) for (rows, _), part in zip(tasks, found, strict=True))
        return [*add_means(whole, partners, means)]

    def _states(self, batch: np.ndarray) -> np.ndarray:
        """The residual stream at the last positions of one batch after every block: [block, text, d_model]."""
        cache = self.blocks.run(batch)
        return np.stack([cache.last_places(layer) for layer in range(self.blocks.n_blocks)])

    def _last_places(self, condition: str, layer: int) -> np.ndarray:
        return np.concatenate([cache.last_places(layer) for cache in self._caches[condition]])

    def after_every_block(self) -> Arrays:
        """`ranks` [layer, condition, word]; `attention` to the piece before, [layer, whole or null, head]."""

        def measured(layer: int) -> Arrays:
            states = [self._last_places(name, layer) for name in self._caches] + [*self._additive[layer : layer + 1]]
            back = [
                np.concatenate([self.blocks.scores(cache, layer)[1][:, :, -1, -2] for cache in self._caches[name]])
                for name in ("whole", "null")
            ]
            return {
                "ranks": np.stack([self._ranks(each, layer) for each in states]),
                "attention": np.stack([each.mean(axis=0, dtype=np.float64) for each in back]),
            }

        found = list(self.runner.under("intact").run(measured, self.blocks.n_blocks))
        return {name: np.stack([each[name] for each in found]) for name in found[0]}

    def with_each_off(self, after: int) -> tuple[Sequence[Component], np.ndarray]:
        """Ablate each head and MLP up to a block; ranks after it are [component, whole or null, word]."""
        off = components(after + 1, self.blocks.n_heads)

        def measured(number: int) -> Arrays:
            states = [
                np.concatenate([self.blocks.rerun(cache, off[number], after) for cache in self._caches[name]])
                for name in ("whole", "null")
            ]
            return {"ranks": np.stack([self._ranks(each, after) for each in states])}

        found = self.runner.under(f"off-{after}").run(measured, len(off))
        return off, np.stack([each["ranks"] for each in found])

    def _ranks(self, states: np.ndarray, layer: int) -> np.ndarray:
        return self._candidates[layer].ranks(states, self.twins)


def conditions_by_layer(by_layer: pl.DataFrame) -> dict[int, Conditions]:
    rows = by_layer.to_dicts()
    layers = dict.fromkeys(row["layer"] for row in rows)
    return {
        layer: Conditions({row["condition"]: row for row in rows if row["layer"] == layer}, lower_end=CLEARLY)
        for layer in layers
    }


def best_layer(ranks: np.ndarray) -> int:
    """The layer with the largest rank ratio of its closest control; `ranks` are [layer, condition, word]."""
    logarithms = np.log(ranks).mean(axis=2)
    return int((logarithms[:, 1:].min(axis=1) - logarithms[:, WHOLE]).argmax())


def by_layer(
    ranks: np.ndarray, conditions: Sequence[str], known: Mapping[str, object], resamples: int, seed: int
) -> pl.DataFrame:
    found = [rank_measures(each, resamples, seed) for each in ranks]
    data = {
        column: np.stack([each[measure].columns(measure)[column] for each in found])
        for measure in found[0]
        for column in found[0][measure].columns(measure)
    }
    return TWINS_BY_LAYER.grid({"layer": range(len(ranks)), "condition": conditions}, {**known, **data})


def by_component(
    off: Sequence[Component],
    ranks: np.ndarray,
    ranks_off: np.ndarray,
    attention: np.ndarray,
    unablated: Conditions,
    after: int,
    resamples: int,
    seed: int,
) -> pl.DataFrame:
    """One row per head and MLP, the most needed first; `ranks` and `unablated` are those after layer `after`."""
    whole, null = ranks[WHOLE], ranks[NULL]
    whole_off, null_off = ranks_off[:, WHOLE], ranks_off[:, NULL]
    lost, drawn = (whole_off / whole) / (null_off / null), (resamples, seed)
    measures = {
        "median_rank": median_ranks(whole_off, *drawn),
        "rank_ratio": geometric_means(whole_off / whole, *drawn),
        "null_median_rank": median_ranks(null_off, *drawn),
        "null_ratio": geometric_means(null_off / null, *drawn),
        "needed": geometric_means(lost, *drawn),
        "share_lost": shares_lost(np.log(lost), np.log(null / whole)[None], *drawn),
    }
    back = np.array([[np.nan] * 2 if one.head is None else attention[one.layer, :, one.head] for one in off])
    found = TWINS_BY_COMPONENT.grid(
        {"component": [one.name for one in off]},
        {"layer": [one.layer for one in off], "head": [one.head for one in off], "after": after, "matters": None}
        | {name: column for measure, each in measures.items() for name, column in each.columns(measure).items()}
        | {"attention": back[:, WHOLE], "null_attention": back[:, NULL]},
    ).sort("needed", descending=True, maintain_order=True)
    if not unablated.has_intervals:
        return found
    matters = [unablated.carries and is_needed(row, unablated.whole["candidates"]) for row in found.to_dicts()]
    return found.with_columns(matters=pl.Series(matters, dtype=pl.Boolean))
