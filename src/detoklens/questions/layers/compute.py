"""The tables of `Layers`, and the layer after which heads and MLPs are switched off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from detoklens.measures.twins import (
    Candidates,
    Measured,
    add_means,
    geometric_means,
    mean_over_partners,
    partner_texts,
    shares_lost,
    summary,
)
from detoklens.model.closed_worlds import ClosedWorlds, batches, states_alone
from detoklens.model.first_blocks import Component, FirstBlocks, components
from detoklens.questions.base import Verdict
from detoklens.questions.twins.compute import (
    BOS,
    CLEARLY,
    CONTROL_MEANINGS,
    Found,
    briefly,
    carried,
    is_needed,
    ranks_said,
    sends_null_to_chance,
    times_said,
    verdict_of,
    with_interval,
)
from detoklens.tables.schema import Column, Schema
from detoklens.wording import listed, listed_some

if TYPE_CHECKING:
    from detoklens.measures.twin_chains import Chains
    from detoklens.parallel import Arrays, Runner


TWINS_BY_LAYER = Schema(
    "twins_by_layer",
    "After which layer is the word there?",
    (
        Column("layer", "Int32", "block after which the places are compared, from 0"),
        Column("condition", "String", f"whole; {CONTROL_MEANINGS}"),
        Column("words", "Int32", "number of words"),
        Column("candidates", "Int32", "number of tokens that are ranked"),
        BOS,
        *with_interval("median_rank", "median rank of the twin"),
        *with_interval("first", "share of words whose twin is at rank 1"),
        *with_interval("first_ten", "share of words whose twin is among the first ten"),
        *with_interval("mean_reciprocal_rank", "mean of 1 / rank"),
        *with_interval("rank_lost", "median_rank less that of whole, of the same words"),
        *with_interval("rank_ratio", "geometric mean over words of rank / rank in whole; above 1 is worse"),
    ),
)

TWINS_BY_COMPONENT = Schema(
    "twins_by_component",
    "Which heads and MLPs does the word need, and which heads look back?",
    (
        Column("component", "String", "what is switched off: L1H4 is head 4 of layer 1, MLP1 the MLP of layer 1"),
        Column("layer", "Int32", "its block, from 0"),
        Column("head", "Int32", "its head, from 0; null for an MLP"),
        Column("after", "Int32", "block after which the places are compared, from 0"),
        *with_interval("median_rank", "median rank of the twin with it off"),
        *with_interval("rank_ratio", "geometric mean over words of that rank / the rank with nothing off"),
        *with_interval("null_median_rank", "median rank with it off where the first piece is another word's"),
        *with_interval("null_ratio", "rank_ratio of that null: what it does to any two tokens"),
        *with_interval("needed", "rank_ratio / null_ratio, word by word: what is lost of this word; 1 is nothing"),
        *with_interval(
            "share_lost",
            "log needed / log of how many times better the word's rank is than its null's; null where it is not better",
        ),
        Column(
            "matters",
            "Boolean",
            "the first piece is carried, share_lost_low is above a quarter, and the null is not at chance with it off; "
            "null without intervals",
        ),
        Column("attention", "Float64", "mean attention of the head from the last piece to the piece before it"),
        Column("null_attention", "Float64", "the same where the piece before is another word's"),
    ),
)


WORDS_AT_ONCE = 32  # in the additive control: at most 512 texts for each thread


@dataclass(frozen=True)
class Words:
    """Words in pieces, what their controls are made of, and the candidates, which hold the words' own tokens.

    Candidates go from the smallest id; without partners there is no additive control.
    """

    chains: Chains
    exchanged: np.ndarray
    partners: np.ndarray | None
    candidates: np.ndarray
    beginning: tuple[int, ...]

    @property
    def twins(self) -> np.ndarray:
        """The index of each word's own token among the candidates."""
        return np.searchsorted(self.candidates, self.chains.whole)


class Measuring:
    """The words' closed worlds in one model."""

    def __init__(self, blocks: FirstBlocks, words: Words) -> None:
        self.blocks, self.words = blocks, words
        pieces = words.chains.pieces
        texts = {
            "whole": pieces,
            "null": words.exchanged,
            "last_piece": pieces[:, -1:],
            "first_piece": pieces[:, :1],
        }
        self._worlds = {name: ClosedWorlds(blocks, ids, words.beginning) for name, ids in texts.items()}
        self._candidates: list[Candidates] = []
        self._additive: list[np.ndarray] = []

    @property
    def conditions(self) -> tuple[str, ...]:
        """What `after_every_block` ranks, in this order."""
        return (*self._worlds, *(("additive",) if self._additive else ()))

    def measure_candidates(self, runner: Runner) -> None:
        """Every candidate alone, after every block."""
        cut = batches(self.words.candidates[:, None], self.words.beginning)
        layers = range(self.blocks.n_blocks)

        def states(number: int) -> Arrays:
            return {"states": states_alone(self.blocks, cut[number], layers)}

        found = [part["states"] for part in runner.under("candidates").run(states, len(cut))]
        self._candidates = [Candidates.of(np.concatenate([part[layer] for part in found])) for layer in layers]

    def measure_additive(self, runner: Runner) -> None:
        """The vectors of the additive control after every block; none without partners."""
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
            looks = [self._worlds[name].attention_back(layer) for name in ("whole", "null")]
            return {"ranks": np.stack(ranks), "attention": np.stack(looks)}

        for world in self._worlds.values():
            world.last_places(0)  # run once, before threads ask for it
        found = list(runner.under("intact").run(measured, self.blocks.n_blocks))
        return {name: np.stack([each[name] for each in found]) for name in found[0]}

    def with_each_off(self, after: int, runner: Runner) -> tuple[Sequence[Component], np.ndarray]:
        """The heads and MLPs up to a block, and with each off the ranks [component, whole or null, word] after it."""
        off = components(after + 1, self.blocks.n_heads)

        def measured(number: int) -> Arrays:
            states = [self._worlds[name].without(off[number], after) for name in ("whole", "null")]
            return {"ranks": np.stack([self._ranks(each, after) for each in states])}

        found = runner.under(f"off-{after}").run(measured, len(off))
        return off, np.stack([each["ranks"] for each in found])

    def _ranks(self, states: np.ndarray, layer: int) -> np.ndarray:
        return self._candidates[layer].ranks(states, self.words.twins)


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
    there = found[after]
    conformed = TWINS_BY_COMPONENT.conform(by_component.with_columns(after=pl.lit(after), matters=pl.lit(None)))
    if not there.has_intervals:
        return conformed
    matters = [there.carries and is_needed(row, there.candidates) for row in conformed.to_dicts()]
    return conformed.with_columns(matters=pl.Series(matters, dtype=pl.Boolean))


def ends(name: str, measured: Measured) -> dict[str, np.ndarray]:
    """A number with the ends of its interval, as columns."""
    return {name: measured.value, f"{name}_low": measured.low, f"{name}_high": measured.high}
