"""What is there to know of a checkpoint's first layer before anything is computed: its name, sizes and vocabulary."""

from __future__ import annotations

import hashlib
from functools import cached_property

from detoklens.errors import TokenError
from detoklens.tokens import Vocabulary
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.first_layer import FirstLayer


class LayerFacts:
    """The facts of a checkpoint's first layer."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.weights: FirstLayer = checkpoint.first_layer

    @property
    def name(self) -> str:
        return self.checkpoint.name

    @property
    def notes(self) -> tuple[str, ...]:
        """What reading the checkpoint left out or did without."""
        return self.checkpoint.notes

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the first layer's weights: two checkpoints with the same one give the same numbers."""
        return self.weights.fingerprint()

    @cached_property
    def tokenizer_fingerprint(self) -> str | None:
        """sha256 of all that decides the ids of a text and the text of an id; None without a tokenizer."""
        if not self.has_vocabulary:
            return None
        return hashlib.sha256(self.vocabulary.to_json().encode()).hexdigest()

    @property
    def n_heads(self) -> int:
        return self.weights.query_weight.shape[1]

    @property
    def d_head(self) -> int:
        return self.weights.query_weight.shape[2]

    @property
    def d_model(self) -> int:
        return self.weights.query_weight.shape[0]

    @property
    def vocab_size(self) -> int:
        return len(self.weights.token_embeddings)

    @property
    def n_positions(self) -> int:
        """The longest text: the rows of the position table, or what the config says."""
        return self.weights.n_positions

    @property
    def has_vocabulary(self) -> bool:
        return self.checkpoint.vocabulary is not None

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer's vocabulary; an error where the checkpoint came without one."""
        if self.checkpoint.vocabulary is None:
            raise TokenError(
                f"{self.name} has no tokenizer: give token ids, or put its tokenizer.json beside the weights"
            )
        return self.checkpoint.vocabulary
