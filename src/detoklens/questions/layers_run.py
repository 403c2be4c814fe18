"""What `Layers` computes: ranks after every block, then, after one of them, with each head and each MLP off.

Blocks of work run on threads, which share the model; each computes on one core, so the numbers are the same for any
number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from detoklens.measures.twins import Candidates, add_means, mean_over_partners, partner_texts
from detoklens.model.closed_worlds import ClosedWorlds, batches, states_alone
from detoklens.model.first_blocks import Component, FirstBlocks, components

if TYPE_CHECKING:
    from detoklens.measures.twin_chains import Chains
    from detoklens.parallel import Arrays, Runner

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
