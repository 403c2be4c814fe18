"""Read the first layer of any architecture: a `Spec`, a config and a source of tensors give plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from detoklens.errors import CheckpointError, UnsupportedModelError, shown
from detoklens.weights.config import (
    Config,
    first_layer_is_local,
    read_activation,
    read_epsilon,
    read_flag,
    read_optional_size,
    read_positive,
    read_size,
    read_window,
    refuse_other_values,
)
from detoklens.weights.first_layer import FeedForward, FirstLayer, MlpSublayer, Norm
from detoklens.weights.rotary import rope_settings, rotary_frequencies
from detoklens.weights.sources import TensorSource
from detoklens.weights.spec import AlibiPositions, LearnedPositions, Mlp, Number, RotaryPositions, Spec, Switch, Window

ROWS_AT_A_TIME = 2048  # of a table in float64: 64 MB at a width of 4,096


def read_first_layer(
    spec: Spec,
    config: Config,
    source: TensorSource,
    dtype: np.dtype[Any],
    block: int = 0,
    inputs: np.ndarray | None = None,
) -> FirstLayer:
    """The norm and attention of a block, with the embeddings or with other `inputs`, a vector per token."""
    reader = _Reader(spec, config, source, dtype, block)
    embeddings = reader.token_embeddings() if inputs is None else inputs
    positions, norm = reader.positions(), reader.attention_norm()
    projections = reader.projections() | reader.head_norms()
    if isinstance(spec.positions, RotaryPositions) and spec.positions.pairs_are_neighbours:
        order = _halves_from_neighbours(2 * len(positions["rotary_frequencies"]), reader.d_head)
        projections |= {
            name: np.ascontiguousarray(values[..., order])
            for name, values in projections.items()
            if name.startswith(("query_", "key_")) and values is not None
        }
    return FirstLayer(
        token_embeddings=embeddings,
        **positions,
        norm_gain=norm.gain,
        norm_bias=np.zeros(reader.width, dtype) if norm.bias is None else norm.bias,
        norm_epsilon=reader.epsilon if "head_norm_kind" in projections else norm.epsilon,
        norm_kind=norm.kind,
        norm_enters_stream=spec.embedding_norm is not None and spec.input_norm is None,
        **projections,
        attention_scale=reader.attention_scale(),
        is_causal=reader.is_on(spec.is_causal),
        window=reader.window(),
        softcap=reader.softcap(),
    )


def read_mlp(spec: Spec, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> MlpSublayer:
    """The norms and the MLP that follow the attention of layer 0; refused if they are not computed exactly."""
    if spec.mlp is None or spec.mlp_refusal:
        raise UnsupportedModelError(f"{config['model_type']}: {spec.mlp_refusal}")
    refuse_other_values(config, spec.mlp_accepted, "the first block's output is not computed: config.json: ")
    reader = _Reader(spec, config, source, dtype)
    norms = {name: reader.norm(reader.inside(module), reader.width) for name, module in spec.mlp_norms.items()}
    return MlpSublayer(
        reader.feed_forward(spec.mlp),
        **norms,
        is_parallel=reader.is_on(spec.is_parallel),
        residual_scale=reader.number(spec.residual_scale),
    )


@dataclass(frozen=True)
class _Reader:
    """Reads tensors of one block by their Spec, and checks each shape against the config before reading."""

    spec: Spec
    config: Config
    source: TensorSource
    dtype: np.dtype[Any]
    block: int = 0

    @cached_property
    def width(self) -> int:
        return read_size(self.config, *self.spec.width)

    @property
    def n_heads(self) -> int:
        return self.spec.count_heads(self.config)[0]

    @property
    def n_key_heads(self) -> int:
        return self.spec.count_heads(self.config)[1]

    @cached_property
    def d_head(self) -> int:
        stated = read_optional_size(self.config, self.spec.head_size) if self.spec.head_size else None
        if stated or self.spec.default_head_size:
            return stated or self.spec.default_head_size or 0
        if self.width % self.n_heads:
            raise CheckpointError(f"config.json: {self.n_heads} heads do not divide the width {self.width}")
        return self.width // self.n_heads

    @cached_property
    def epsilon(self) -> float:
        stated = self.spec.epsilon
        return read_epsilon(self.config, stated, self.spec.default_epsilon) if isinstance(stated, str) else stated

    def is_on(self, switch: bool | Switch) -> bool:
        return switch if isinstance(switch, bool) else read_flag(self.config, switch.key, switch.default)

    def number(self, number: float | Number) -> float:
        if isinstance(number, Number):
            return read_positive(self.config, number.key, number.default) ** number.power
        return number

    # Tensors

    def inside(self, module: str) -> str:
        return self.spec.in_block(module, self.block)

    def tensor(self, name: str, *shape: int | None) -> np.ndarray:
        """One tensor. None in `shape` accepts any size above 0."""
        name = self.spec.prefix(self.source.names()) + name
        if name not in self.source.names():
            raise CheckpointError(f"{self.source.where}: tensor {name!r} is missing; the checkpoint may be incomplete")
        found = self.source.shape(name)
        fits = len(found) == len(shape) and all(
            have > 0 if want is None else have == want for want, have in zip(shape, found, strict=True)
        )
        if not fits:
            wanted = tuple("any" if size is None else size for size in shape)
            raise CheckpointError(
                f"{self.source.where}: tensor {name!r} has shape {shown(found)}, "
                f"but the config asks for {wanted}; config.json and weights don't belong together"
            )
        return self.source.read(name, self.dtype)

    def refuse_tensor(self, name: str) -> None:
        """Refuse a bias that the config, or the architecture, doesn't have."""
        name = self.spec.prefix(self.source.names()) + name
        if name in self.source.names():
            raise CheckpointError(
                f"{self.source.where}: tensor {name!r} exists, but the config has no such bias; "
                "config.json and weights don't belong together"
            )

    def linear(
        self, module: str, d_in: int, d_out: int, bias: bool | Switch
    ) -> tuple[Float[np.ndarray, "d_in d_out"], Float[np.ndarray, "d_out"] | None]:
        """The weight of a linear layer of the block as [in, out], and its bias if it has one."""
        name = self.inside(module)
        if self.spec.is_conv1d:
            weight = self.tensor(f"{name}.weight", d_in, d_out)
        else:
            weight = np.ascontiguousarray(self.tensor(f"{name}.weight", d_out, d_in).T)
        if self.is_on(bias):
            return weight, self.tensor(f"{name}.bias", d_out)
        self.refuse_tensor(f"{name}.bias")
        return weight, None

    def norm(self, module: str, size: int) -> Norm:
        gain, bias = self.gain(module, size) if self.spec.norm_gain else np.ones(size, self.dtype), None
        if self.spec.norm_kind == "layer" and self.is_on(self.spec.norm_bias):
            bias = self.tensor(f"{module}.bias", size)
        elif self.spec.norm_kind == "layer":
            self.refuse_tensor(f"{module}.bias")
        return Norm(self.spec.norm_kind, gain, bias, self.epsilon)

    def gain(self, module: str, *shape: int) -> np.ndarray:
        """A norm's gain, with what the model adds to the stored one."""
        stored = self.tensor(f"{module}.weight", *shape)
        added = self.spec.added_gain
        return (stored.astype(np.float64) + added).astype(self.dtype) if added else stored

    # Parts of a FirstLayer

    def attention_norm(self) -> Norm:
        """The norm between what enters the block and its projections."""
        if self.spec.input_norm is not None:
            return self.norm(self.inside(self.spec.input_norm), self.width)
        if self.spec.embedding_norm is not None:
            return self.norm(self.spec.embedding_norm, self.width)
        return Norm("none", np.ones(self.width, self.dtype), None, 0.0)

    def token_embeddings(self) -> Float[np.ndarray, "token d_model"]:
        """The vector that each token adds to the residual stream, if necessary widened, scaled or normed."""
        spec, vocabulary = self.spec, read_optional_size(self.config, "vocab_size")
        narrow = (read_optional_size(self.config, spec.embedding_size) if spec.embedding_size else None) or self.width
        table = self.tensor(f"{spec.embedding}.weight", vocabulary, narrow)
        if narrow != self.width:
            stored = self.tensor(f"{spec.embedding_projection}.weight", self.width, narrow)
            widening = np.ascontiguousarray(stored.T, np.float64)
            table = _transform_rows(table, lambda rows: rows @ widening)
        scale = self.number(spec.embedding_scale)
        scale *= self.width**0.5 if self.is_on(spec.embedding_scales_with_width) else 1.0
        if scale != 1:
            table = _transform_rows(table, lambda rows: rows * scale)
        if spec.embedding_norm is not None and spec.input_norm is not None:
            table = _transform_rows(table, self.norm(spec.embedding_norm, self.width))
        return table

    def positions(self) -> dict[str, Any]:
        """The fields of a FirstLayer about positions."""
        kind = self.spec.positions
        if isinstance(kind, LearnedPositions):
            return {"position_embeddings": self._learned(kind), "padding_token_id": kind.padding_token_id}
        default = self.spec.default_longest
        longest = (default and read_optional_size(self.config, *self.spec.longest)) or default
        longest = longest or read_size(self.config, *self.spec.longest)
        fields: dict[str, Any] = {
            "position_embeddings": np.zeros((0, self.width), self.dtype),
            "longest_text": min(longest, self.spec.most_positions or longest),
        }
        if isinstance(kind, AlibiPositions):
            return fields | {"alibi_slopes": alibi_slopes(self.n_heads)}
        rope = self._rope(kind)
        base = read_positive(rope, "rope_theta", kind.default_base)
        frequencies, factor = rotary_frequencies(rope, base, self._rotated(kind, rope), longest)
        return fields | {"rotary_frequencies": frequencies, "rotary_factor": factor}

    def _learned(self, kind: LearnedPositions) -> Float[np.ndarray, "position d_model"]:
        if kind.compute is not None:
            return kind.compute(self.config, self.width).astype(self.dtype)
        stated = read_optional_size(self.config, *self.spec.longest)
        table = self.tensor(f"{kind.table}.weight", None if stated is None else stated + kind.extra_rows, self.width)
        if kind.token_types:
            types = self.tensor(
                f"{kind.token_types}.weight", read_optional_size(self.config, "type_vocab_size"), self.width
            )
            table = (table.astype(np.float64) + types[0]).astype(table.dtype)
        if kind.first_row >= len(table):
            raise CheckpointError(
                f"config.json: the position table has {len(table)} rows, but position 0 is row {kind.first_row}; "
                "config.json and weights don't belong together"
            )
        return table[kind.first_row :]

    def _rope(self, kind: RotaryPositions) -> dict[str, Any]:
        """The RoPE settings, completed by the config's own keys."""
        if kind.settings is not None:
            return dict(kind.settings)
        if kind.base is None:
            return {}
        rope = rope_settings(self.config)
        for name, key in (("rope_theta", kind.base), ("partial_rotary_factor", kind.share)):
            if rope.get(name) is None:
                rope[name] = self.config.get(key)
        return rope

    def _rotated(self, kind: RotaryPositions, rope: dict[str, Any]) -> int:
        """The number of features of each head that are rotated."""
        if kind.size is not None:
            size = read_size(self.config, kind.size)
            if size > self.d_head:
                raise CheckpointError(
                    f"config.json: {kind.size} = {size} is more than the {self.d_head} features of a head"
                )
            return size
        share = read_positive(rope, "partial_rotary_factor", kind.default_share)
        if share != 1 and not kind.is_partial:
            raise UnsupportedModelError(f"config.json: partial_rotary_factor = {share} is not handled for this family")
        return int(self.d_head * share)

    def projections(self) -> dict[str, Any]:
        """The weights and biases of queries, keys, values and output, by the names of their fields."""
        found: dict[str, Any] = {}
        heads = {"query": self.n_heads, "key": self.n_key_heads, "value": self.n_key_heads}
        for (role, n), (weight, bias) in zip(heads.items(), self._query_key_value(list(heads.values())), strict=True):
            found[f"{role}_weight"] = weight.reshape(self.width, n, self.d_head)
            found[f"{role}_bias"] = _or_zeros(bias, n * self.d_head, self.dtype).reshape(n, self.d_head)
        spec = self.spec.projections
        output, bias = self.linear(spec.modules[-1], self.n_heads * self.d_head, self.width, spec.biases()[-1])
        found["output_weight"] = output.reshape(self.n_heads, self.d_head, self.width)
        found["output_bias"] = _or_zeros(bias, self.width, self.dtype)
        return found

    def head_norms(self) -> dict[str, Any]:
        """The fields of a FirstLayer about norms of queries and keys."""
        norms = self.spec.head_norms
        if norms is None or not self.is_on(norms.exist):
            return {}
        fields: dict[str, Any] = {"head_norm_kind": norms.kind, "head_norms_are_joint": norms.gains == "joint"}
        for role, modules, n in (("query", norms.query, self.n_heads), ("key", norms.key, self.n_key_heads)):
            shapes = {"shared": (self.d_head,), "per head": (n, self.d_head), "joint": (n * self.d_head,)}
            shape = shapes["shared" if len(modules) > 1 else norms.gains]
            gains = [self.gain(self.inside(module), *shape) for module in modules] or [np.ones(self.d_head)]
            wanted = (self.d_head,) if norms.gains == "shared" else (n, self.d_head)
            fields[f"{role}_norm_gain"] = np.concatenate(gains).reshape(wanted).astype(self.dtype)
        return fields

    def _query_key_value(self, heads: list[int]) -> list[tuple[np.ndarray, np.ndarray | None]]:
        spec, sizes = self.spec.projections, [n * self.d_head for n in heads]
        if spec.layout == "separate":
            return [
                self.linear(module, self.width, size, bias)
                for module, size, bias in zip(spec.modules[:3], sizes, spec.biases()[:3], strict=True)
            ]
        weight, bias = self.linear(spec.modules[0], self.width, sum(sizes), spec.biases()[0])
        if spec.layout == "stacked":
            ends = np.cumsum(sizes)[:2]
            weights = np.split(weight, ends, axis=1)
            biases = [None] * 3 if bias is None else np.split(bias, ends)
        else:
            per_key = self.n_heads // self.n_key_heads
            groups, parts = (self.n_key_heads, per_key + 2, self.d_head), (per_key, per_key + 1)
            weights = np.split(weight.reshape(self.width, *groups), parts, axis=2)
            biases = [None] * 3 if bias is None else np.split(bias.reshape(groups), parts, axis=1)
        return [(np.ascontiguousarray(w), b) for w, b in zip(weights, biases, strict=True)]

    def attention_scale(self) -> float:
        if not self.is_on(self.spec.scores_are_scaled):
            return 1.0
        return self.d_head**-0.5 if self.spec.attention_scale is None else self.number(self.spec.attention_scale)

    def window(self) -> int | None:
        """The number of keys that a query sees; None if it sees all."""
        window = self.spec.window
        if not isinstance(window, Window):
            return window
        is_local = not window.by_layer_types or first_layer_is_local(self.config, by_default=True)
        return read_window(self.config, window.default) if is_local else None

    def softcap(self) -> float | None:
        cap = self.spec.softcap
        return None if cap is None or self.config.get(cap.key, 0) is None else self.number(cap)

    def feed_forward(self, mlp: Mlp) -> FeedForward:
        stated = read_optional_size(self.config, *mlp.size) if mlp.default_factor else None
        inner = stated or (mlp.default_factor or 0) * self.width or read_size(self.config, *mlp.size)
        activation = mlp.default_activation
        if mlp.activation is not None:
            activation = read_activation(self.config, mlp.activation, activation, mlp.activations)
        up, up_bias = self.linear(mlp.up, self.width, inner * (2 if mlp.gate_in_up else 1), mlp.bias)
        gate, gate_bias = self.linear(mlp.gate, self.width, inner, mlp.bias) if mlp.gate else (None, None)
        if mlp.gate_in_up:
            gate, up = (np.ascontiguousarray(half) for half in np.split(up, 2, axis=1))
            gate_bias, up_bias = (None, None) if up_bias is None else np.split(up_bias, 2)
        down, down_bias = self.linear(mlp.down, inner, self.width, mlp.bias)
        return FeedForward(activation, up, up_bias, down, down_bias, gate, gate_bias)


def alibi_slopes(n_heads: int) -> Float[np.ndarray, "head"]:
    """How much ALiBi lowers each head's scores per token of distance.

    2^(−8/n), 2^(−16/n), …, 2^(−8) for n heads, n a power of two. Other numbers of heads take the slopes of the next
    lower power of two, then every other slope of the next higher one.
    """
    below = 1 << (n_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 / n * np.arange(1, n + 1)) for n in (below, 2 * below)]
    return np.concatenate([slopes[0], slopes[1][::2]])[:n_heads]


def _halves_from_neighbours(d_rotated: int, d_head: int) -> np.ndarray:
    """The order that puts the first coordinates of neighbouring rotary pairs first, then the second ones.

    Queries and keys are reordered alike, so their products stay the same.
    """
    return np.concatenate([np.arange(0, d_rotated, 2), np.arange(1, d_rotated, 2), np.arange(d_rotated, d_head)])


def _or_zeros(bias: np.ndarray | None, size: int, dtype: np.dtype[Any]) -> np.ndarray:
    return np.zeros(size, dtype) if bias is None else bias


def _transform_rows(table: np.ndarray, transform: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A table with its rows transformed in float64, a few at a time; in place if the width stays."""
    width = transform(table[:1].astype(np.float64)).shape[1]
    target = table if width == table.shape[1] else np.empty((len(table), width), table.dtype)
    for begin in range(0, len(table), ROWS_AT_A_TIME):
        rows = slice(begin, begin + ROWS_AT_A_TIME)
        target[rows] = transform(table[rows].astype(np.float64))
    return target
