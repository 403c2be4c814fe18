"""BERT, MiniLM, RoBERTa, XLM-R, ELECTRA: encoders. The norm of the embeddings feeds layer 0 and the stream; not causal.

The token-type vector of a single text is added to every position, so it is part of the position table. RoBERTa counts
positions from padding index + 1, and its padding token takes none: a text with it is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.errors import CheckpointError, UnsupportedModelError, shown
from detoklens.weights.families.base import (
    Config,
    LayerReader,
    NamedTensors,
    activation_of,
    epsilon_of,
    head_size,
    padding_token,
    refuse_unhandled,
    stated_size,
    whole_number,
    yes_or_no,
)
from detoklens.weights.families.projections import plain_mlp, separate, with_parts
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.sources import TensorSource

TABLES = ("word", "position", "token_type")
BLOCK = "encoder.layer.0."
PROJECTIONS = (
    *(f"{BLOCK}attention.self.{name}" for name in ("query", "key", "value")),
    f"{BLOCK}attention.output.dense",
)
UP, DOWN = f"{BLOCK}intermediate.dense", f"{BLOCK}output.dense"
HANDLED = {
    "hidden_size", "num_attention_heads", "max_position_embeddings", "layer_norm_eps", "position_embedding_type",
    "embedding_size", "add_cross_attention", "attn_implementation", "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {
    "attention_probs_dropout_prob", "tie_word_embeddings", "output_attentions", "_attn_implementation_autoset",
}  # fmt: skip


class Bert(NamedTensors):
    """Reads the first layer of a BERT."""

    model_types: tuple[str, ...] = ("bert",)
    prefixes: tuple[str, ...] = ("bert.", "")
    tensors = (
        *(f"embeddings.{table}_embeddings.weight" for table in TABLES),
        *with_parts("embeddings.LayerNorm", *PROJECTIONS),
    )
    rest = with_parts(f"{BLOCK}attention.output.LayerNorm", UP, DOWN, f"{BLOCK}output.LayerNorm")

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        _refuse(config)
        d, heads = whole_number(config, "hidden_size"), whole_number(config, "num_attention_heads")
        reader, epsilon = self.reader(source, dtype), _epsilon(config)
        first = self._first_position(config)
        positions = _positions(reader, config, d)
        if first >= len(positions):
            raise CheckpointError(f"config.json: no position is left after padding index {first - 1}")
        return FirstLayer(
            token_embeddings=reader.read("embeddings.word_embeddings.weight", (stated_size(config, "vocab_size"), d)),
            position_embeddings=positions[first:],
            norm_gain=reader.bias("embeddings.LayerNorm.weight", d),
            norm_bias=reader.bias("embeddings.LayerNorm.bias", d),
            norm_epsilon=epsilon,
            **separate(reader, PROJECTIONS, d, heads),
            attention_scale=head_size(d, heads) ** -0.5,
            norm_enters_stream=True,
            is_causal=yes_or_no(config, "is_decoder", False),
            placeless_token=first - 1 if first else None,
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        if yes_or_no(config, "add_cross_attention", False):
            raise UnsupportedModelError("the first block has a cross attention, so its output needs more than a text")
        d, reader, epsilon = whole_number(config, "hidden_size"), self.reader(source, dtype), _epsilon(config)
        inner = whole_number(config, "intermediate_size")
        return RestOfBlock(
            plain_mlp(reader, UP, DOWN, d, inner, activation_of(config, "hidden_act", "gelu")),
            stream_norm=reader.norm(f"{BLOCK}attention.output.LayerNorm", d, "layer", epsilon),
            output_norm=reader.norm(f"{BLOCK}output.LayerNorm", d, "layer", epsilon),
        )

    def _first_position(self, config: Config) -> int:  # noqa: ARG002
        return 0


class Electra(Bert):
    """The same; where embeddings are narrower than the stream it is refused."""

    model_types = ("electra",)
    prefixes = ("electra.", "")


class Roberta(Bert):
    """The same with positions that begin after the padding index."""

    model_types = ("roberta", "xlm-roberta", "camembert")
    prefixes = ("roberta.", "")

    def _first_position(self, config: Config) -> int:
        padding = padding_token(config, 1)
        if padding is None:
            raise CheckpointError("config.json: pad_token_id must be a whole number from 0 up, not None")
        return padding + 1


def _refuse(config: Config) -> None:
    refuse_unhandled(config, HANDLED, IRRELEVANT)
    kind = config.get("position_embedding_type", "absolute")
    if kind != "absolute":
        raise UnsupportedModelError(f"config.json: position_embedding_type = {shown(kind)} is not handled; absolute is")
    narrow = stated_size(config, "embedding_size")
    if narrow is not None and narrow != whole_number(config, "hidden_size"):
        raise UnsupportedModelError(f"config.json: embedding_size = {narrow} is not hidden_size, which is not handled")


def _positions(reader: LayerReader, config: Config, d: int) -> np.ndarray:
    table = reader.read("embeddings.position_embeddings.weight", (stated_size(config, "max_position_embeddings"), d))
    types = reader.read("embeddings.token_type_embeddings.weight", (stated_size(config, "type_vocab_size"), d))
    return (table.astype(np.float64) + types[0]).astype(table.dtype)


def _epsilon(config: Config) -> float:
    return epsilon_of(config, "layer_norm_eps", 1e-12)
