"""Random first layers with non-trivial norms and biases, and GPT-2 checkpoints built from them."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from safetensors.numpy import save_file

from detoklens.scores.layer import Layer
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.first_layer import FirstLayer

sizes = st.fixed_dictionaries(
    {
        "n_heads": st.integers(1, 5),
        "d_head": st.integers(1, 6),
        "vocab_size": st.integers(2, 40),
        "n_positions": st.integers(1, 12),
        "epsilon": st.sampled_from([0.0, 1e-5, 0.3, 1e12]),
        "seed": st.integers(0, 2**32 - 1),
    }
).filter(lambda size: size["n_heads"] * size["d_head"] > 1)


def random_first_layer(
    n_heads: int = 3,
    d_head: int = 4,
    vocab_size: int = 23,
    n_positions: int = 11,
    epsilon: float = 1e-5,
    seed: int = 0,
    dtype: str = "float64",
) -> FirstLayer:
    """A layer in which every part matters: gains away from 1, biases away from 0, embeddings away from mean 0."""
    random = np.random.default_rng(seed)
    d_model = n_heads * d_head

    def draw(*shape: int, mean: float = 0.0) -> np.ndarray:
        return (random.normal(size=shape) + mean).astype(dtype)

    return FirstLayer(
        token_embeddings=draw(vocab_size, d_model, mean=0.3),
        position_embeddings=draw(n_positions, d_model, mean=-0.2),
        norm_gain=draw(d_model, mean=1.5),
        norm_bias=draw(d_model),
        norm_epsilon=epsilon,
        query_weight=draw(d_model, n_heads, d_head),
        query_bias=draw(n_heads, d_head),
        key_weight=draw(d_model, n_heads, d_head),
        key_bias=draw(n_heads, d_head),
        value_weight=draw(d_model, n_heads, d_head),
        value_bias=draw(n_heads, d_head),
        output_weight=draw(n_heads, d_head, d_model),
        output_bias=draw(d_model),
        attention_scale=d_head**-0.5,
    )


def as_layer(first_layer: FirstLayer, name: str = "random") -> Layer:
    """A Layer without a tokenizer around plain arrays."""
    return Layer(Checkpoint(name, {"model_type": "gpt2"}, first_layer, None, None))


def random_layer(**sizes: Any) -> Layer:
    return as_layer(random_first_layer(**sizes))


def with_rotary_positions(layer: FirstLayer, n_key_heads: int) -> FirstLayer:
    """The same with an RMSNorm and rotary positions, and with keys and values shared by groups of heads."""
    d_model, _, d_head = layer.query_weight.shape
    weights = {name: getattr(layer, name)[:, :n_key_heads] for name in ("key_weight", "value_weight")}
    biases = {name: getattr(layer, name)[:n_key_heads] for name in ("key_bias", "value_bias")}
    return replace(
        layer,
        **weights,
        **biases,
        position_embeddings=layer.position_embeddings[:0],
        norm_bias=np.zeros(d_model, layer.norm_bias.dtype),
        norm_kind="rms",
        rotary_frequencies=10_000.0 ** -(np.arange(d_head // 2) / (d_head // 2)),
        longest_text=len(layer.position_embeddings),
    )


def gpt2_config(layer: FirstLayer, **more: Any) -> dict[str, Any]:
    """The config.json of a one-layer GPT-2 with these sizes."""
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": layer.query_weight.shape[0],
        "n_head": layer.query_weight.shape[1],
        "n_layer": 1,
        "n_positions": len(layer.position_embeddings),
        "vocab_size": len(layer.token_embeddings),
        "layer_norm_epsilon": layer.norm_epsilon,
        "bos_token_id": None,
        "eos_token_id": None,
    } | more


def gpt2_tensors(layer: FirstLayer, prefix: str = "transformer.") -> dict[str, np.ndarray]:
    """The layer's arrays under the names and in the shapes of a GPT-2 checkpoint."""
    d = layer.query_weight.shape[0]
    weights = [weight.reshape(d, d) for weight in (layer.query_weight, layer.key_weight, layer.value_weight)]
    biases = [bias.reshape(d) for bias in (layer.query_bias, layer.key_bias, layer.value_bias)]
    tensors = {
        "wte.weight": layer.token_embeddings,
        "wpe.weight": layer.position_embeddings,
        "h.0.ln_1.weight": layer.norm_gain,
        "h.0.ln_1.bias": layer.norm_bias,
        "h.0.attn.c_attn.weight": np.concatenate(weights, axis=1),
        "h.0.attn.c_attn.bias": np.concatenate(biases),
        "h.0.attn.c_proj.weight": layer.output_weight.reshape(d, d),
        "h.0.attn.c_proj.bias": layer.output_bias,
    }
    return {prefix + name: np.ascontiguousarray(values) for name, values in tensors.items()}


def write_gpt2(folder: Path, layer: FirstLayer, prefix: str = "transformer.", **config: Any) -> Path:
    """A checkpoint folder in Hugging Face layout, without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(gpt2_config(layer, **config)), encoding="utf-8")
    save_file(gpt2_tensors(layer, prefix), folder / "model.safetensors")
    return folder


def write_tokenizer(folder: Path, texts: list[str], vocab_size: int) -> Path:
    """A byte-level BPE trained on some texts, as tokenizer.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def assert_same_layer(ours: FirstLayer, theirs: FirstLayer) -> None:
    """Every array and number of two first layers is the same."""
    for field in fields(ours):
        np.testing.assert_array_equal(getattr(ours, field.name), getattr(theirs, field.name), err_msg=field.name)
