"""What an architecture looks like in a checkpoint, as data: one frozen `Spec`, interpreted by `weights.reader`.

Module names are those of transformers' state dict. Names inside a block are relative to it (`attn.c_attn` for
`h.0.attn.c_attn`). A config key that a Spec names is read; every other key with a telling word is refused
(`weights.config`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from detoklens.errors import CheckpointError
from detoklens.weights.config import ACTIVATIONS, Config, read_optional_size, read_size
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
class Number:
    """A config key that states a number above 0, and the power of it that is used."""

    key: str
    default: float
    power: float = 1.0


@dataclass(frozen=True)
class Window:
    """The key `sliding_window`, where null means none; `layer_types` may take the window from layer 0."""

    default: int | None = 4096
    by_layer_types: bool = False


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
        """Whether each module has a bias."""
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
    exist: bool | Switch = True


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
class Adaptation:
    """Code of one architecture, for what a Spec can't state: it changes the Spec or refuses a config."""

    apply: Callable[[Spec, Config], Spec]
    keys: frozenset[str]


def reads(*keys: str) -> Callable[[Callable[[Spec, Config], Spec]], Adaptation]:
    """Make a function an `Adaptation` that reads these config keys."""
    return lambda apply: Adaptation(apply, frozenset(keys))


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One architecture. A `Switch`, `Number` or `Window` is read from the config."""

    models: str  # for people
    special: str = ""
    model_types: tuple[str, ...]

    prefixes: tuple[str, ...] = ("model.language_model.", "language_model.model.", "model.", "")
    blocks: str = "layers"
    attention: str = "self_attn"
    mlp_module: str = "mlp"  # its output is what the MLP adds to the stream
    part: str = ""

    embedding: str = "embed_tokens"
    embedding_size: str | None = None  # the key of the embeddings' own width
    embedding_projection: str | None = None  # widens embeddings that are narrower than the residual stream
    embedding_scale: float | Number = 1.0
    embedding_scales_with_width: bool | Switch = False  # times sqrt(width)
    embedding_norm: str | None = None  # norms what enters the residual stream
    positions: LearnedPositions | RotaryPositions | AlibiPositions
    input_norm: str | None = "input_layernorm"
    later_input_norm: str | None = None  # of later blocks, if the first has none
    norm_kind: NormKind = "layer"
    norm_gain: bool = True
    norm_bias: bool | Switch = True
    added_gain: float = 0.0  # what the model adds to stored gains
    projections: Projections
    head_norms: HeadNorms | None = None
    is_conv1d: bool = False  # linear layers store their weights [in, out]
    scores_are_scaled: bool | Switch = True
    attention_scale: float | Number | None = None  # None: 1 / sqrt(d_head)
    is_causal: bool | Switch = True
    window: int | Window | None = None
    softcap: Number | None = None  # null means none

    mlp: Mlp | None = None
    mlp_norms: Mapping[str, str] = field(default_factory=lambda: {"input_norm": "post_attention_layernorm"})
    """Modules, by their fields of MlpSublayer."""
    is_parallel: bool | Switch = False
    residual_scale: float | Number = 1.0  # of what attention and MLP add
    mlp_refusal: str = ""  # why the block's output is not computed
    mlp_accepted: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # as `accepted`, for the block's output

    width: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    key_heads: str | int | None = None  # a key, or the number itself; None: as many as heads
    default_key_heads: int | None = None  # if the config lacks the key
    head_size: str | None = None
    default_head_size: int | None = None
    longest: tuple[str, ...] = ("max_position_embeddings",)
    default_longest: int | None = None
    most_positions: int | None = None  # beyond which attention changes in a way that is not computed
    epsilon: str | float = "layer_norm_eps"  # a key, or the number itself
    default_epsilon: float | None = 1e-5
    accepted: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # keys of which only these values are read
    adapt: Adaptation | None = None
    ignored: frozenset[str] = frozenset()  # keys with telling words that don't change layer 0's attention

    @property
    def read_keys(self) -> frozenset[str]:
        """Every config key that affects the result."""
        keys: set[object] = {*self.width, *self.heads, *self.longest, *self.accepted, *self.mlp_accepted, "vocab_size"}
        keys |= {self.key_heads, self.head_size, self.embedding_size, self.epsilon}
        keys |= {setting.key for setting in self.settings}
        keys |= self.adapt.keys if self.adapt else set()
        if isinstance(self.window, Window):
            keys |= {"sliding_window", "layer_types"} if self.window.by_layer_types else {"sliding_window"}
        if isinstance(self.positions, LearnedPositions):
            keys |= {"type_vocab_size"} if self.positions.token_types else set()
            keys |= {"pad_token_id"} if self.positions.compute else set()
        if isinstance(self.positions, RotaryPositions):
            keys.add(self.positions.size or self.positions.share)
            keys |= {self.positions.base, "rope_scaling", "rope_parameters"} if self.positions.base else set()
        if self.mlp is not None:
            keys |= {*self.mlp.size, self.mlp.activation}
        return frozenset(key for key in keys if isinstance(key, str) and key)

    @property
    def settings(self) -> frozenset[Switch | Number]:
        """Every switch and number of the architecture."""
        parts = (self, self.projections, self.head_norms, self.mlp)
        values = (getattr(part, field.name) for part in parts if part is not None for field in fields(part))
        return frozenset(value for value in values if isinstance(value, Switch | Number))

    @property
    def known_keys(self) -> frozenset[str]:
        """Every config key that is not refused."""
        return self.read_keys | self.ignored | IGNORED_EVERYWHERE

    def count_heads(self, config: Config) -> tuple[int, int]:
        """Number of heads, and of key heads, which several heads may share."""
        n_heads, n_key_heads = read_size(config, *self.heads), self.key_heads
        if isinstance(n_key_heads, str):
            is_stated = n_key_heads in config
            n_key_heads = read_optional_size(config, n_key_heads) if is_stated else self.default_key_heads
        if n_heads % (n_key_heads or 1):
            raise CheckpointError(f"config.json: {n_key_heads} key heads do not divide the {n_heads} heads")
        return n_heads, n_key_heads or n_heads

    def in_block(self, module: str, block: int = 0) -> str:
        return f"{self.blocks}.{block}.{module}"

    def prefix(self, available: Collection[str]) -> str:
        """The prefix of the checkpoint's tensors: the first under which the embedding is found, else the last."""
        found = (prefix for prefix in self.prefixes if f"{prefix}{self.embedding}.weight" in available)
        return next(found, self.prefixes[-1])

    def tensor_names(self, available: Collection[str]) -> list[str]:
        """The tensors that layer 0's attention needs: those that every model has, and others that exist."""
        modules = (self.embedding, *map(self.in_block, self.projections.modules))
        always = [f"{self.prefix(available)}{module}.weight" for module in modules]
        return list(dict.fromkeys([*always, *self._found(self.attention_tensors(), available)]))

    def mlp_names(self, available: Collection[str]) -> list[str]:
        """The tensors of the checkpoint that the rest of the first block needs."""
        return self._found(self.mlp_tensors(), available)

    def attention_tensors(self) -> list[str]:
        """The tensors that layer 0's attention and the embeddings may have, without a prefix."""
        learned = self.positions if isinstance(self.positions, LearnedPositions) else None
        tables = (learned.table, learned.token_types) if learned else ()
        norms = self.head_norms or HeadNorms()
        inside = (self.input_norm, *self.projections.modules, *norms.query, *norms.key)
        before = (self.embedding, self.embedding_projection, *tables, self.embedding_norm)
        return _parameters(*before, *(self.in_block(module) for module in inside if module))

    def mlp_tensors(self) -> list[str]:
        """The tensors that the rest of the first block may have, without a prefix; none if it is not computed."""
        if self.mlp is None:
            return []
        modules = (*self.mlp_norms.values(), self.mlp.gate, self.mlp.up, self.mlp.down)
        return _parameters(*(self.in_block(module) for module in modules if module))

    def block_names(self, available: Collection[str], n_blocks: int) -> list[str]:
        """The tensors of the first blocks, and those outside all blocks, such as embeddings."""
        prefix = self.prefix(available)
        numbered = re.compile(rf"{re.escape(f'{prefix}{self.blocks}.')}(\d+)\.")
        found = {name: numbered.match(name) for name in available if name.startswith(prefix)}
        return sorted(name for name, block in found.items() if block is None or int(block[1]) < n_blocks)

    def _found(self, tensors: list[str], available: Collection[str]) -> list[str]:
        prefix = self.prefix(available)
        return [prefix + name for name in tensors if prefix + name in available]


def _parameters(*modules: str | None) -> list[str]:
    return [f"{module}.{parameter}" for module in modules if module for parameter in ("weight", "bias")]
