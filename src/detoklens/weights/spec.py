"""What an architecture looks like in a checkpoint, as data: one frozen `Spec`, interpreted by `weights.reader`.

Module names are those of transformers' state dict. Names inside a block are relative to it (`attn.c_attn` for
`h.0.attn.c_attn`). A config key that a Spec names is read; every other key with a telling word is refused
(`weights.config`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from detoklens.weights.config import ACTIVATIONS, Config
from detoklens.weights.first_layer import NormKind
from detoklens.weights.rotary import DEFAULT_BASE, Rope

IGNORED_EVERYWHERE = frozenset({
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "output_attentions",
    "tie_word_embeddings", "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "embd_pdrop",
    "embed_dropout", "emb_pdrop",
})  # fmt: skip


@dataclass(frozen=True)
class Switch:
    """A config key that turns something on or off."""

    key: str
    default: bool


@dataclass(frozen=True)
class LearnedPositions:
    """A table added to the token embeddings, stored as a module or, if it has no tensor, computed."""

    table: str | None
    first_row: int = 0  # the row of position 0
    extra_rows: int = 0  # rows beyond the number of positions that the config states
    token_types: str | None = None  # a table whose row 0 is added to every position
    padding_token_id: int | None = None  # a token without a position
    compute: Callable[[Config, int], np.ndarray] | None = None


@dataclass(frozen=True)
class RotaryPositions:
    """RoPE. The settings inside rope_parameters or rope_scaling take precedence over these keys."""

    base: str | None = "rope_theta"
    default_base: float = DEFAULT_BASE
    share: str = "partial_rotary_factor"  # of each head's features that turn
    default_share: float = 1.0
    is_partial: bool = False  # whether a share below 1 is computed as stated
    size: str | None = None  # a key with the number of features that turn, instead of a share
    pairs_are_neighbours: bool = False
    settings: Rope | None = None  # already read from the config by `adapt`


@dataclass(frozen=True)
class AlibiPositions:
    """ALiBi's fixed slopes."""


@dataclass(frozen=True)
class Projections:
    """Layer 0's projections: query, key, value and output modules, or a joint module and the output module.

    The columns of a joint module are stacked (all queries, all keys, all values) or interleaved: the queries that share
    a key, that key, its value.
    """

    modules: tuple[str, ...]
    layout: Literal["separate", "stacked", "interleaved"] = "separate"
    bias: bool | Switch = True
    key_bias: bool | Switch | None = None  # None: as the others
    output_bias: bool | Switch | None = None

    def biases(self) -> tuple[bool | Switch, ...]:
        """Of each module, whether it has a bias."""
        output = self.bias if self.output_bias is None else self.output_bias
        if self.layout != "separate":
            return self.bias, output
        return self.bias, self.bias if self.key_bias is None else self.key_bias, self.bias, output


@dataclass(frozen=True)
class HeadNorms:
    """Norms of each head's queries and keys."""

    query: tuple[str, ...] = ()  # the module, or one per head; none if the norm has no gain
    key: tuple[str, ...] = ()
    kind: NormKind = "rms"
    gains: Literal["shared", "per head", "joint"] = "shared"  # joint: one norm for the vectors of all heads together


@dataclass(frozen=True)
class Mlp:
    """The MLP's modules and config keys. With `gate_in_up`, the up module holds the gate's rows, then its own."""

    up: str
    down: str
    gate: str | None = None
    gate_in_up: bool = False
    bias: bool | Switch = True
    activation: str | None = "hidden_act"  # None: always the default
    default_activation: str = "gelu"
    activations: Mapping[str, str] = field(default_factory=lambda: ACTIVATIONS)
    size: tuple[str, ...] = ("intermediate_size",)
    default_factor: int | None = None  # the size in multiples of the width, if the config doesn't state it


@dataclass(frozen=True)
class Modules:
    """Where transformers' model has its list of blocks; in a block, the attention and what MLP and heads add."""

    blocks: str
    attention: str
    projection: str
    mlp: str
    part: str  # the submodule of the model that reads text; empty: all of it


def unchanged(spec: Spec, _config: Config) -> Spec:
    return spec


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One architecture. `adapt` fills in what depends on the config and refuses what is not computed exactly."""

    models: str  # for people
    special: str = ""
    model_types: tuple[str, ...]

    prefixes: tuple[str, ...] = ("model.", "")
    blocks: str = "layers"
    attention: str = "self_attn"
    mlp_module: str | None = None  # None: the MLP's down projection
    part: str = ""

    embedding: str = "embed_tokens"
    embedding_size: str | None = None  # the key of the embeddings' own width
    embedding_projection: str | None = None  # widens embeddings that are narrower than the residual stream
    embedding_scale: float = 1.0
    embedding_norm: str | None = None  # norms what enters the residual stream
    positions: LearnedPositions | RotaryPositions | AlibiPositions
    input_norm: str | None
    later_input_norm: str | None = None  # of later blocks, if the first has none
    norm_kind: NormKind = "layer"
    norm_gain: bool = True
    norm_bias: bool | Switch = True
    added_gain: float = 0.0  # what the model adds to stored gains
    projections: Projections
    head_norms: HeadNorms | None = None
    is_conv1d: bool = False  # linear layers store their weights [in, out]
    attention_scale: float | None = None  # None: 1 / sqrt(d_head)
    is_causal: bool = True
    window: int | None = None
    softcap: float | None = None

    mlp: Mlp | None = None
    mlp_norms: Mapping[str, str] = field(default_factory=dict)  # field of MlpSublayer: module
    is_parallel: bool | Switch = False
    residual_scale: float = 1.0  # of what attention and MLP add
    mlp_refusal: str = ""  # why the block's output is not computed
    may_cross_attend: bool = False

    width: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    key_heads: str | int | None = None  # a key, or the number itself
    head_size: str | None = None
    default_head_size: int | None = None
    longest: tuple[str, ...] = ("max_position_embeddings",)
    default_longest: int | None = None
    most_positions: int | None = None  # beyond which attention changes in a way that is not computed
    epsilon: str | float = "layer_norm_eps"  # a key, or the number itself
    default_epsilon: float | None = 1e-5
    accepted: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # keys of which only these values are read
    adapt: Callable[[Spec, Config], Spec] = unchanged
    adapt_reads: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()  # keys with telling words that don't change layer 0's attention

    @property
    def read_keys(self) -> frozenset[str]:
        """Every config key that decides something."""
        keys = {*self.width, *self.heads, *self.longest, *self.accepted, *self.adapt_reads, "vocab_size"}
        keys |= {key for key in (self.key_heads, self.head_size, self.embedding_size) if isinstance(key, str)}
        switches = (*self.projections.biases(), self.is_parallel, self.norm_bias)
        keys |= {switch.key for switch in switches if isinstance(switch, Switch)}
        keys |= {self.epsilon} if isinstance(self.epsilon, str) else set()
        keys |= {"add_cross_attention"} if self.may_cross_attend else set()
        if isinstance(self.positions, LearnedPositions) and self.positions.token_types:
            keys.add("type_vocab_size")
        if isinstance(self.positions, RotaryPositions):
            keys |= {self.positions.size} if self.positions.size else {self.positions.share}
            keys |= {self.positions.base, "rope_scaling", "rope_parameters"} if self.positions.base else set()
        if self.mlp is not None:
            keys |= {*self.mlp.size} | ({self.mlp.activation} if self.mlp.activation else set())
            keys |= {self.mlp.bias.key} if isinstance(self.mlp.bias, Switch) else set()
        return frozenset(key for key in keys if key)

    @property
    def known_keys(self) -> frozenset[str]:
        """Every config key that is not refused."""
        return self.read_keys | self.ignored | IGNORED_EVERYWHERE

    @property
    def modules(self) -> Modules:
        """Where transformers keeps the parts of this architecture."""
        mlp = self.mlp_module or (self.mlp.down if self.mlp else "")
        return Modules(self.blocks, self.attention, self.projections.modules[-1], mlp, self.part)

    def in_block(self, module: str) -> str:
        return f"{self.blocks}.0.{module}"

    def prefix(self, available: Collection[str]) -> str:
        """The prefix of the checkpoint's tensors: the first under which the embedding is found, else the last."""
        found = (prefix for prefix in self.prefixes if f"{prefix}{self.embedding}.weight" in available)
        return next(found, self.prefixes[-1])

    def tensor_names(self, available: Collection[str]) -> list[str]:
        """The tensors of the checkpoint that the attention of the first layer needs."""
        return self._found(self._attention_tensors(), available)

    def mlp_names(self, available: Collection[str]) -> list[str]:
        """The tensors that the rest of the first block needs; none if its output is not computed."""
        return self._found(self._mlp_tensors(), available)

    def all_tensors(self) -> list[str]:
        """Every tensor of the first block and before it that a checkpoint may have, without a prefix."""
        return [name for name, _ in (*self._attention_tensors(), *self._mlp_tensors())]

    def block_names(self, available: Collection[str], n_blocks: int) -> list[str]:
        """The tensors of the first blocks, and those outside all blocks, such as embeddings."""
        prefix = self.prefix(available)
        numbered = re.compile(rf"{re.escape(self.blocks_stem(available))}(\d+)\.")
        found = {name: numbered.match(name) for name in available if name.startswith(prefix)}
        return sorted(name for name, block in found.items() if block is None or int(block[1]) < n_blocks)

    def blocks_stem(self, available: Collection[str]) -> str:
        """What precedes a block's number in the names of its tensors."""
        return f"{self.prefix(available)}{self.blocks}."

    def _attention_tensors(self) -> Iterator[tuple[str, bool]]:
        """Names, and whether the checkpoint must have them."""
        yield f"{self.embedding}.weight", True
        if self.embedding_projection:
            yield f"{self.embedding_projection}.weight", False
        if isinstance(self.positions, LearnedPositions):
            yield from (
                (f"{table}.weight", True) for table in (self.positions.table, self.positions.token_types) if table
            )
        if self.embedding_norm:
            yield from self._norm_tensors(self.embedding_norm)
        if self.input_norm:
            yield from self._norm_tensors(self.in_block(self.input_norm))
        for module, bias in zip(self.projections.modules, self.projections.biases(), strict=True):
            yield from self._linear_tensors(module, bias)
        if self.head_norms:
            modules = (*self.head_norms.query, *self.head_norms.key)
            yield from ((self.in_block(f"{module}.weight"), True) for module in modules)

    def _mlp_tensors(self) -> Iterator[tuple[str, bool]]:
        if self.mlp is None:
            return
        for norm in self.mlp_norms.values():
            yield from self._norm_tensors(self.in_block(norm))
        for module in (self.mlp.gate, self.mlp.up, self.mlp.down):
            if module:
                yield from self._linear_tensors(module, self.mlp.bias)

    def _norm_tensors(self, module: str) -> Iterator[tuple[str, bool]]:
        if self.norm_gain:
            yield f"{module}.weight", True
        if self.norm_kind == "layer":
            yield f"{module}.bias", self.norm_bias is True

    def _linear_tensors(self, module: str, bias: bool | Switch) -> Iterator[tuple[str, bool]]:
        yield self.in_block(f"{module}.weight"), True
        yield self.in_block(f"{module}.bias"), bias is True

    def _found(self, tensors: Iterator[tuple[str, bool]], available: Collection[str]) -> list[str]:
        prefix = self.prefix(available)
        return [prefix + name for name, needed in tensors if needed or prefix + name in available]
