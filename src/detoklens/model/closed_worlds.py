"""How near do words in pieces come to their one token, block after block? Closed worlds through the real first blocks.

    [BOS, a, b]    a word in pieces: its last place is compared with the last places of
    [BOS, c']      every candidate, the word's own token c among them

The candidates' states are those of the whole model, whatever is switched off: what is asked is whether the pieces still
find the word as the model itself knows it. Were candidates computed without a head as well, a head that both sides need
in the same way would not be missed, and all of them would have to be computed again for each head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from detoklens.model.first_blocks import Component, FirstBlocks, Passed

BATCH = 256  # texts at once: 3 tokens each at a width of 4,096 are 12 MB a state

Texts = Int[np.ndarray, "text place"]


@dataclass(frozen=True)
class ClosedWorlds:
    """Texts of one length through the first blocks, in batches, with what is needed to run them again from any block.

    `beginning` is the token in front of every text; nothing where the model has none.
    """

    blocks: FirstBlocks
    texts: Texts
    beginning: tuple[int, ...]

    @cached_property
    def _passed(self) -> Sequence[Passed]:
        return [self.blocks.run(batch) for batch in batches(self.texts, self.beginning)]

    def last_places(self, after: int) -> Float[np.ndarray, "text d_model"]:
        """The last place of each text after a block."""
        return np.concatenate([passed.last_places(after) for passed in self._passed])

    def without(self, component: Component, after: int) -> Float[np.ndarray, "text d_model"]:
        """The same with a head or an MLP off."""
        return np.concatenate([self.blocks.again(passed, component, after) for passed in self._passed])

    def attention_back(self, layer: int) -> Float[np.ndarray, "head"]:
        """How much does each head of a block attend from the last place to the one before, on average?"""
        looks = [self.blocks.scores(passed, layer)[1][:, :, -1, -2] for passed in self._passed]
        return np.asarray(np.concatenate(looks).mean(axis=0, dtype=np.float64))


def batches(texts: Texts, beginning: tuple[int, ...]) -> list[Texts]:
    """Texts with their beginning, so many at once."""
    texts = np.concatenate([np.tile(np.array(beginning, np.int64), (len(texts), 1)), texts], axis=1)
    return [texts[begin : begin + BATCH] for begin in range(0, len(texts), BATCH)]


def states_alone(blocks: FirstBlocks, batch: Texts, after: Sequence[int]) -> Float[np.ndarray, "block text d_model"]:
    """The last places of one batch after some blocks."""
    passed = blocks.run(batch)
    return np.stack([passed.last_places(layer) for layer in after])
