"""Tables, measurements, verdict and summary of `Layers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from detoklens.measures.twins import (
    Candidates,
    add_means,
    geometric_means,
    mean_over_partners,
    partner_texts,
    rank_measures,
    shares_lost,
)
from detoklens.model.checks import Component, components
from detoklens.model.closed_worlds import ClosedWorlds, batches, states_alone
from detoklens.questions.base import Verdict
from detoklens.questions.twins.compute import (
    BOS,
    CLEARLY,
    CONTROL_MEANINGS,
    RANK_MEASURES,
    Conditions,
    bos_clause,
    brief,
    is_needed,
    needed_clause,
    strongest_control,
    verdict_of,
    with_interval,
)
from detoklens.tables.schema import Column, Schema
from detoklens.wording import listed, listed_some

if TYPE_CHECKING:
    from detoklens.measures.twins import Chains
    from detoklens.model.first_blocks import FirstBlocks
    from detoklens.parallel import Arrays, Runner


TWINS_BY_LAYER = Schema(
    "twins_by_layer",
    "Rank of the twin by layer",
    (
        Column("layer", "Int32", "block after which the twin is ranked, from 0"),
        Column("condition", "String", f"whole; {CONTROL_MEANINGS}"),
        Column("words", "Int32", "number of words"),
        Column("candidates", "Int32", "number of ranked tokens"),
        BOS,
        *RANK_MEASURES,
    ),
)

TWINS_BY_COMPONENT = Schema(
    "twins_by_component",
    "Ablated heads and MLPs",
    (
        Column("component", "String", "ablated component: L1H4 is head 4 of layer 1, MLP1 the MLP of layer 1"),
        Column("layer", "Int32", "its layer, from 0"),
        Column("head", "Int32", "its head, from 0; null for an MLP"),
        Column("after", "Int32", "block after which the twin is ranked, from 0"),
        *with_interval("median_rank", "median rank of the twin under the ablation"),
        *with_interval("rank_ratio", "geometric mean over words of that rank / the unablated rank"),
        *with_interval("null_median_rank", "median rank of the null under the ablation"),
        *with_interval("null_ratio", "rank_ratio of the null: the effect on any two tokens"),
        *with_interval("needed", "rank_ratio / null_ratio, word by word: what this word loses; 1 is nothing"),
        *with_interval(
            "share_lost",
            "log needed / log of the null's rank over the word's rank; null if the word is not better than its null",
        ),
        Column(
            "matters",
            "Boolean",
            "the first piece is carried, share_lost_low exceeds a quarter, and the ablated null stays above chance; "
            "null without intervals",
        ),
        Column("attention", "Float64", "mean attention of the head from the last piece to the piece before it"),
        Column("null_attention", "Float64", "the same for the null"),
    ),
)


WORDS_AT_ONCE = 32  # in the additive control: at most 512 texts per thread


@dataclass(frozen=True)
class Words:
    """Words in pieces, the ingredients of their controls, and the candidates, sorted by id, which include the twins.

    Without partners there is no additive control.
    """

    chains: Chains
    null: np.ndarray
    partners: np.ndarray | None
    candidates: np.ndarray
    beginning: tuple[int, ...]

    @property
    def twins(self) -> np.ndarray:
        """The index of each word's twin among the candidates."""
        return np.searchsorted(self.candidates, self.chains.whole)


class Measuring:
    """Ranks of the words' twins in one model."""

    def __init__(self, blocks: FirstBlocks, words: Words) -> None:
        self.blocks, self.words = blocks, words
        pieces = words.chains.pieces
        texts = {"whole": pieces, "null": words.null, "last_piece": pieces[:, -1:], "first_piece": pieces[:, :1]}
        self._worlds = {name: ClosedWorlds(blocks, ids, words.beginning) for name, ids in texts.items()}
        self._candidates: list[Candidates] = []
        self._additive: list[np.ndarray] = []

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that `after_every_block` ranks, in order."""
        return (*self._worlds, *(("additive",) if self._additive else ()))

    def measure_candidates(self, runner: Runner) -> None:
        """Run every candidate alone through all blocks."""
        cut = batches(self.words.candidates[:, None], self.words.beginning)
        layers = range(self.blocks.n_blocks)

        def states(number: int) -> Arrays:
            return {"states": states_alone(self.blocks, cut[number], layers)}

        found = [part["states"] for part in runner.under("candidates").run(states, len(cut))]
        self._candidates = [Candidates.of(np.concatenate([part[layer] for part in found])) for layer in layers]

    def measure_additive(self, runner: Runner) -> None:
        """Compute the vectors of the additive control after every block."""
        pieces, partners = self.words.chains.pieces, self.words.partners
        if partners is None:
            return
        layers = range(self.blocks.n_blocks)
        tasks = partner_texts(pieces, partners, WORDS_AT_ONCE)

        def states(texts: np.ndarray) -> dict[int, np.ndarray]:
            found = [states_alone(self.blocks, batch, layers) for batch in batches(texts, self.words.beginning)]
            return dict(enumerate(np.concatenate(found, axis=1)))

        def means(number: int) -> Arrays:
            return {"means": np.stack([*mean_over_partners(tasks[number][1], states).values()])}

        found = [part["means"] for part in runner.under("additive").run(means, len(tasks))]
        rows = [task[0] for task in tasks]
        self._additive = [
            add_means(
                self._worlds["whole"].last_places(layer),
                partners,
                [(some, mean[layer]) for some, mean in zip(rows, found, strict=True)],
            )
            for layer in layers
        ]

    def after_every_block(self, runner: Runner) -> Arrays:
        """`ranks` [layer, condition, word]; `attention` [layer, whole or null, head]."""

        def measured(layer: int) -> Arrays:
            worlds = self._worlds.values()
            states = [*(world.last_places(layer) for world in worlds), *self._additive[layer : layer + 1]]
            ranks = [self._ranks(each, layer) for each in states]
            attention = [self._worlds[name].attention_back(layer) for name in ("whole", "null")]
            return {"ranks": np.stack(ranks), "attention": np.stack(attention)}

        for world in self._worlds.values():
            world.last_places(0)  # fills its cache once, before the threads start
        found = list(runner.under("intact").run(measured, self.blocks.n_blocks))
        return {name: np.stack([each[name] for each in found]) for name in found[0]}

    def with_each_off(self, after: int, runner: Runner) -> tuple[Sequence[Component], np.ndarray]:
        """Ablate each head and MLP up to a block; ranks after it are [component, whole or null, word]."""
        off = components(after + 1, self.blocks.n_heads)

        def measured(number: int) -> Arrays:
            states = [self._worlds[name].without(off[number], after) for name in ("whole", "null")]
            return {"ranks": np.stack([self._ranks(each, after) for each in states])}

        found = runner.under(f"off-{after}").run(measured, len(off))
        return off, np.stack([each["ranks"] for each in found])

    def _ranks(self, states: np.ndarray, layer: int) -> np.ndarray:
        return self._candidates[layer].ranks(states, self.words.twins)


def conditions_by_layer(by_layer: pl.DataFrame) -> dict[int, Conditions]:
    rows = by_layer.to_dicts()
    layers = dict.fromkeys(row["layer"] for row in rows)
    return {
        layer: Conditions({row["condition"]: row for row in rows if row["layer"] == layer}, lower_end=CLEARLY)
        for layer in layers
    }


def layers_verdict(by_layer: pl.DataFrame, by_component: pl.DataFrame) -> Verdict:
    """Whether words are written after some layer, by `deciding_layer`."""
    found, after = conditions_by_layer(by_layer), int(by_component["after"][0])
    writing = [layer for layer, each in found.items() if each.writes]
    decides = deciding_layer(writing, after)
    heads = tuple(by_component.filter(pl.col("matters") & pl.col("head").is_not_null())["component"])
    verdict = verdict_of(found[decides], heads if decides == after else ())
    return Verdict(verdict.value, f"after layer {decides}: {verdict.reason}", verdict.heads)


def summarize_layers(by_layer: pl.DataFrame, by_component: pl.DataFrame) -> str:
    """After which layers words are written, by which control, and which heads and MLPs are needed."""
    found, after = conditions_by_layer(by_layer), int(by_component["after"][0])
    ablated, writing = found[after], [layer for layer, each in found.items() if each.writes]
    bos = bos_clause(ablated)
    if not ablated.is_testable:
        return f"Whether the model writes words can't be tested: {verdict_of(ablated, ()).reason}. {bos}"
    decides = deciding_layer(writing, after)
    none = f"Layers 0–{max(found)} write no words" if len(found) > 1 else "Layer 0 writes no words"
    claim = f"The model writes words after {_named(writing)}" if writing else none
    evidence = f"{claim}: after layer {decides} {strongest_control(found[decides])}."
    if decides != after:
        return f"{evidence} Ablations were measured after layer {after}, which writes none. {bos}"
    if not ablated.carries:
        return f"{evidence} {bos}"
    needed = by_component.filter("matters")["component"].to_list()
    return f"{evidence} {needed_clause(ablated, needed, 'head or MLP')}. {bos}"


def deciding_layer(writing: Sequence[int], after: int) -> int:
    """The layer after which components were ablated, unless it writes no words and another one does."""
    return after if after in writing or not writing else writing[0]


def _named(layers: list[int]) -> str:
    """`layer 2`, `layers 2 to 5`, `layers 2, 4 and 5`."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if len(layers) > 2 and layers == list(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layers {listed(list(map(str, layers)))}"


def compare_layers(tables: dict[str, tuple[pl.DataFrame, pl.DataFrame]]) -> str:
    """After which layers each model writes words, and what it needs."""
    models = []
    for label, (by_layer, by_component) in tables.items():
        found = conditions_by_layer(by_layer)
        writing = [layer for layer, each in found.items() if each.writes]
        testable = any(each.is_testable for each in found.values())
        where = f"after {_named(writing)}" if writing else "after none" if testable else "untestable"
        needed = by_component.filter("matters")["component"].to_list()
        best = brief(found[int(by_component["after"][0])], [listed_some(needed, 3)] if needed else [])
        models.append(f"{label} {where} ({best})")
    return f"After which layers does the model write words, by the twin's rank? {'; '.join(models)}."


WHOLE, NULL = range(2)


def best_layer(ranks: np.ndarray) -> int:
    """The layer with the largest rank ratio of its closest control; `ranks` are [layer, condition, word]."""
    logarithms = np.log(ranks).mean(axis=2)
    return int((logarithms[:, 1:].min(axis=1) - logarithms[:, WHOLE]).argmax())


def by_layer(
    ranks: np.ndarray, conditions: Sequence[str], words: Words, bos: str | None, resamples: int, seed: int
) -> pl.DataFrame:
    known = {"words": len(words.chains), "candidates": len(words.candidates), "bos": bos}
    frames = []
    for layer, each in enumerate(ranks):
        data: dict[str, Any] = {name: [value] * len(conditions) for name, value in ({"layer": layer} | known).items()}
        for name, measured in rank_measures(each, resamples, seed).items():
            data |= measured.columns(name)
        frames.append(TWINS_BY_LAYER.frame(data | {"condition": conditions}))
    return pl.concat(frames)


def by_component(
    off: Sequence[Component],
    ranks: np.ndarray,
    ranks_off: np.ndarray,
    attention: np.ndarray,
    there: Conditions,
    after: int,
    resamples: int,
    seed: int,
) -> pl.DataFrame:
    """One row per head and MLP, the most needed first; `ranks` and `there` are unablated, after layer `after`."""
    whole, null = ranks[WHOLE], ranks[NULL]
    with_off, null_off = ranks_off[:, WHOLE], ranks_off[:, NULL]
    lost = (with_off / whole) / (null_off / null)
    attention_back = np.array([[np.nan] * 2 if one.head is None else attention[one.layer, :, one.head] for one in off])
    found = TWINS_BY_COMPONENT.frame(
        {
            "component": [one.name for one in off],
            "layer": [one.layer for one in off],
            "head": [one.head for one in off],
            "after": [after] * len(off),
            **rank_measures(with_off, resamples, seed)["median_rank"].columns("median_rank"),
            **geometric_means(with_off / whole, resamples, seed).columns("rank_ratio"),
            **rank_measures(null_off, resamples, seed)["median_rank"].columns("null_median_rank"),
            **geometric_means(null_off / null, resamples, seed).columns("null_ratio"),
            **geometric_means(lost, resamples, seed).columns("needed"),
            **shares_lost(np.log(lost), np.log(null / whole)[None], resamples, seed).columns("share_lost"),
            "matters": [None] * len(off),
            "attention": attention_back[:, WHOLE],
            "null_attention": attention_back[:, NULL],
        }
    ).sort("needed", descending=True, maintain_order=True)
    if not there.has_intervals:
        return found
    matters = [there.carries and is_needed(row, there.whole["candidates"]) for row in found.to_dicts()]
    return found.with_columns(matters=pl.Series(matters, dtype=pl.Boolean))
