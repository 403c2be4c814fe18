"""Models with known ground truth, as checkpoints in Hugging Face layout.

Random models have the sizes and norms of a small GPT-2 or Llama. Planted models need exact terms, so their features
come in pairs (f, −f) with mean 0, and LayerNorm is the identity: it divides by 10⁶, and its gain multiplies by 10⁶.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from calibration.texts import EMBEDDINGS, Texts, demo_texts, small_texts
from detoklens import demo
from detoklens.measures.token_classes import word_evidence
from detoklens.measures.twins import chains, merge_splits, word_tokens
from detoklens.questions.lookback.compute import PARTS, QueryTokens

LINEAR = 1e12  # an ε far above any variance
SHARP = 30.0  # score margin of the previous token
D_RANDOM, N_HEADS, N_POSITIONS, N_BLOCKS = 128, 4, 256, 2
D_TOKEN, N_PLACES = 96, 8  # for planted models
SLOW_PAIRS = range(8, 16)  # rotary pairs that turn by at most 0.01 radians per token
Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """A checkpoint in memory, with the texts it reads."""

    config: dict[str, Any]
    tensors: Tensors
    texts: Texts

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        (folder / "tokenizer.json").write_text(self.texts.tokenizer, encoding="utf-8")
        tensors = {name: np.ascontiguousarray(values, np.float32) for name, values in self.tensors.items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return folder


def random_gpt2(embeddings: str, seed: int) -> Model:
    """Random weights on the given embeddings; the seed makes attention sharp, normal or nearly uniform."""
    random = np.random.default_rng(seed)
    texts = demo_texts() if embeddings == "demo" else small_texts()
    tokens = EMBEDDINGS[embeddings](texts, D_RANDOM, random)
    sharpness = (1.0, 0.2, 3.0)[seed % 3]
    tensors = {"wte.weight": tokens, "wpe.weight": 0.5 * random.normal(size=(N_POSITIONS, D_RANDOM))}
    for block in range(N_BLOCKS):
        tensors |= _random_block(block, D_RANDOM, random, sharpness)
    return _gpt2(tensors, texts, N_HEADS)


def random_llama(embeddings: str, seed: int) -> Model:
    """The same with rotary positions; the embeddings have a non-zero mean, so that a position kernel exists."""
    random = np.random.default_rng(seed)
    texts = demo_texts() if embeddings == "demo" else small_texts()
    tokens = EMBEDDINGS[embeddings](texts, D_RANDOM, random) + 0.5 * random.normal(size=D_RANDOM)
    tensors = {"model.embed_tokens.weight": tokens, "model.norm.weight": np.ones(D_RANDOM)}
    for block in range(N_BLOCKS):
        at = f"model.layers.{block}."
        for name in "qkvo":
            tensors[f"{at}self_attn.{name}_proj.weight"] = _drawn(random, D_RANDOM, D_RANDOM)
        for name, shape in (("gate", (256, D_RANDOM)), ("up", (256, D_RANDOM)), ("down", (D_RANDOM, 256))):
            tensors[f"{at}mlp.{name}_proj.weight"] = random.normal(size=shape) / np.sqrt(shape[1])
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{name}.weight"] = 1 + 0.2 * random.normal(size=D_RANDOM)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": texts.size,
        "hidden_size": D_RANDOM, "intermediate_size": 256, "num_hidden_layers": N_BLOCKS,
        "num_attention_heads": N_HEADS, "num_key_value_heads": N_HEADS, "max_position_embeddings": N_POSITIONS,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu",
        "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    return Model(config, tensors, texts)


def random_weights_of(model_type: str, sizes: dict[str, Any], embeddings: str, seed: int) -> Model:
    """Random weights for any architecture of transformers, with the names that its own model gives them."""
    from transformers import AutoConfig, AutoModel

    random, texts = np.random.default_rng(seed), small_texts()
    config = AutoConfig.for_model(model_type, vocab_size=texts.size, bos_token_id=0, eos_token_id=0, **sizes)
    tensors: Tensors = {}
    for name, values in AutoModel.from_config(config).state_dict().items():
        drawn, shape = random.normal(size=tuple(values.shape)), values.shape
        if name.endswith("word_embeddings.weight"):
            tensors[name] = EMBEDDINGS[embeddings](texts, D_RANDOM, random)
        elif len(shape) == 2:
            tensors[name] = 0.5 * drawn if "embeddings" in name else drawn / np.sqrt(shape[1])
        else:
            tensors[name] = 0.2 * drawn + (name.lower().endswith("norm.weight"))
    return Model(config.to_dict(), tensors, texts)


def random_bloom(embeddings: str, seed: int) -> Model:
    """Random weights with ALiBi positions."""
    sizes = {"hidden_size": D_RANDOM, "n_head": N_HEADS, "n_layer": N_BLOCKS}
    return random_weights_of("bloom", sizes, embeddings, seed)


def random_bert(embeddings: str, seed: int) -> Model:
    """Random weights in an encoder, which looks both ways."""
    sizes = {"hidden_size": D_RANDOM, "num_attention_heads": N_HEADS, "num_hidden_layers": N_BLOCKS}
    sizes |= {"intermediate_size": 2 * D_RANDOM, "max_position_embeddings": N_POSITIONS}
    return random_weights_of("bert", sizes, embeddings, seed)


def trained(_seed: int) -> Model:
    """The demo model."""
    config = json.loads((demo.CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    return Model(config, load_file(demo.CHECKPOINT / "model.safetensors"), demo_texts())


def drifting_positions(seed: int) -> Model:
    """A random model whose position embeddings are a random walk: neighbours are similar, but nothing repeats."""
    model = random_gpt2("iid", seed)
    model.tensors["wpe.weight"] = model.tensors["wpe.weight"].cumsum(axis=0) / np.sqrt(N_POSITIONS)
    return model


def copier(embeddings: str, seed: int) -> Model:
    """A head that attends to the previous position regardless of its token, and copies it: OV is the identity."""
    features = _Features.of(embeddings, seed)
    return features.model(features.previous_token_head(into="token"))


def cluster_head(clusters: int, seed: int) -> Model:
    """A head whose Tᵉᵉ depends only on the clusters of query and key, following their co-occurrence in the corpus."""
    features = _Features.of("iid", seed)
    known = features.texts.clusters(clusters)
    belongs = np.eye(clusters)[known]
    score = features.texts.cluster_association(known)
    return features.with_scores(belongs @ score, belongs)


def frequency_head(seed: int) -> Model:
    """A head in which frequent queries attend to frequent keys, and rare queries to rare keys."""
    features = _Features.of("iid", seed)
    return features.with_scores(features.texts.log_counts[:, None], features.texts.log_counts[:, None])


def same_token_head(seed: int) -> Model:
    """A head in which every token attends to itself."""
    features = _Features.of("iid", seed)
    vectors = features.random.normal(size=(features.texts.size, 24)) / np.sqrt(24)
    return features.with_scores(4 * vectors, vectors)


def lexical_head(strength: float, seed: int) -> Model:
    """A head whose Tᵉᵉ encodes corpus bigrams; `strength` is the ratio of signal to noise standard deviations."""
    features = _Features.of("iid", seed)
    queries, keys = features.texts.lexical_factors(24)
    noise_queries, noise_keys = features.random.normal(size=(2, features.texts.size, 24)) / 24**0.25
    scale = np.sqrt(strength / (queries @ keys.T).std())
    return features.with_scores(
        np.concatenate([scale * queries, noise_queries], axis=1), np.concatenate([scale * keys, noise_keys], axis=1)
    )


def writer(strength: float, seed: int) -> Model:
    """A head copies the first piece to the last; an MLP replaces a fraction `strength` of the pieces with the word."""
    features = _Features.of("iid", seed)
    tensors = features.previous_token_head(into="copied")
    vocabulary = features.texts.vocabulary
    splits = merge_splits(vocabulary)
    words = chains(splits, word_tokens(vocabulary, splits), 2)
    first, last = words.pieces.T
    pieces = features.place("token", last) + features.place("copied", first)
    up, down = 2 * pieces, features.place("token", words.whole) - pieces
    tensors |= {
        "h.0.mlp.c_fc.weight": up.T,
        "h.0.mlp.c_fc.bias": np.full(len(up), -3.0),
        "h.0.mlp.c_proj.weight": strength * down,
    }
    return features.model(tensors, n_inner=len(up), activation_function="relu")


def frequency_bias(strength: float, seed: int) -> Model:
    """A random model; L0H0's query bias has cosine `strength` with the direction in which Tᵉ falls fastest.

    That direction is the slope of the head's keys over log count. The rest of the bias is random.
    """
    model = random_gpt2("spelled", seed)
    tokens, tensors, random = model.tensors["wte.weight"], model.tensors, np.random.default_rng(seed + 1)
    centred = tokens - tokens.mean(axis=1, keepdims=True)
    places = tensors["wpe.weight"] - tensors["wpe.weight"].mean(axis=1, keepdims=True)
    variance = centred.var(axis=1)[:, None] + places.var(axis=1) + 2 * centred @ places.T / D_RANDOM
    normed = centred / np.sqrt(variance).mean(axis=1, keepdims=True)
    d_head = D_RANDOM // N_HEADS
    keys = normed * tensors["h.0.ln_1.weight"] @ tensors["h.0.attn.c_attn.weight"][:, D_RANDOM : D_RANDOM + d_head]
    steepest = -model.texts.log_counts @ keys
    steepest /= np.linalg.norm(steepest)
    other = random.normal(size=d_head)
    other -= other @ steepest * steepest
    pointing = strength * steepest + np.sqrt(1 - strength**2) * other / np.linalg.norm(other)
    carried = tensors["h.0.ln_1.bias"] @ tensors["h.0.attn.c_attn.weight"][:, :d_head]  # from LayerNorm's bias
    tensors["h.0.attn.c_attn.bias"][:d_head] = 3 * pointing - carried
    return model


def wave_table(strength: float, seed: int) -> Model:
    """A random model whose positions are noise plus `strength` times a circle; queries and keys share weights."""
    model = random_gpt2("iid", seed)
    random, tensors = np.random.default_rng(seed), model.tensors
    circle = np.linalg.qr(random.normal(size=(D_RANDOM, 2)))[0].T * np.sqrt(D_RANDOM / 2)
    angles = 2 * np.pi * np.arange(N_POSITIONS) / 61
    tensors["wpe.weight"] += strength * np.stack([np.cos(angles), np.sin(angles)], axis=1) @ circle
    weight = tensors["h.0.attn.c_attn.weight"]
    weight[:, :D_RANDOM] = weight[:, D_RANDOM : 2 * D_RANDOM]
    return model


def switch(part: str, strength: float, seed: int) -> Model:
    """A random Llama; L0H0 looks back `strength` nats more from continuation tokens, by one part of the lift.

    - position: its queries look for offset 1, by strength × cos(offset − 1), if the token continues a word
    - class: its keys score by how often a continuation follows the token, for every query
    - lexical: a continuation token scores its own predecessors above those of other continuation tokens

    The strength is exact for tokens with the root mean square of the average one.
    """
    model = random_llama("spelled", seed)
    tensors, d_head = model.tensors, D_RANDOM // N_HEADS
    queries, keys, first_pair = _switch_features(part, model.texts, np.random.default_rng(seed + 1))
    width, tokens = queries.shape[1], tensors["model.embed_tokens.weight"]
    tokens[:, : 2 * width] = np.concatenate([queries, keys], axis=1)
    gain = tensors["model.layers.0.input_layernorm.weight"]
    size = np.sqrt(strength * np.mean(tokens**2) * np.sqrt(d_head))
    pairs = np.arange(first_pair, first_pair + width // 2)
    rows = np.concatenate([pairs, pairs + d_head // 2])  # a rotary pair is dimensions i and i + d_head / 2
    for name, columns in (("q", np.arange(width)), ("k", np.arange(width, 2 * width))):
        weight = tensors[f"model.layers.0.self_attn.{name}_proj.weight"]
        weight[:d_head] *= 0.1
        weight[rows] = 0
        weight[rows, columns] = size / gain[columns]
    return model


def _switch_features(part: str, texts: Texts, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """Features that the queries and the keys of `switch` read, and the first rotary pair that they use."""
    evidence = word_evidence(texts.vocabulary, texts.counts)
    if part == "position":  # the fastest pair turns by one radian per token
        turned = np.array([np.cos(1.0), -np.sin(1.0)])
        return evidence.continues[:, None] * turned, np.tile([1.0, 0.0], (texts.size, 1)), 0
    labels = evidence.labels(0.9, 0.05, 0.5)
    tokens = QueryTokens.of(labels, texts.counts.tokens, texts.counts.bigrams)
    if part == "class":
        followed = np.nan_to_num(evidence.before_continuation)
        followed /= tokens.contrast @ (tokens.neighbours @ followed)
        return np.tile([1.0, 0.0], (texts.size, 1)), np.stack([followed, 0 * followed], axis=1), SLOW_PAIRS[0]
    keys = random.normal(size=(texts.size, 2 * len(SLOW_PAIRS)))
    before, queries = tokens.neighbours @ keys, np.zeros_like(keys)
    others = tokens.mean_of_others(before)
    of_class = others - texts.counts.tokens @ keys / texts.counts.tokens.sum()
    for row in np.flatnonzero((tokens.labels == "C") & ~np.isnan(others[:, 0])):
        own, shared = before[row] - others[row], of_class[row]
        own = own - own @ shared / (shared @ shared) * shared  # nothing is left for the class part
        queries[tokens.ids[row]] = own / (own @ own)
    return queries, keys, SLOW_PAIRS[0]


@dataclass(frozen=True)
class _Features:
    """The residual stream of a planted model: a token, a copied token and a position, in separate features."""

    texts: Texts
    tokens: np.ndarray
    random: np.random.Generator

    @classmethod
    def of(cls, embeddings: str, seed: int) -> _Features:
        random, texts = np.random.default_rng(seed), small_texts()
        tokens = EMBEDDINGS[embeddings](texts, D_TOKEN, random)
        return cls(texts, tokens / np.linalg.norm(tokens, axis=1, keepdims=True), random)

    @property
    def half(self) -> int:
        return 2 * D_TOKEN + N_PLACES

    def place(self, where: str, tokens: Any = slice(None)) -> np.ndarray:
        """Residual stream vectors with these tokens in the features `token` or `copied`."""
        begin = 0 if where == "token" else D_TOKEN
        half = np.zeros((len(self.tokens[tokens]), self.half))
        half[:, begin : begin + D_TOKEN] = self.tokens[tokens]
        return np.concatenate([half, -half], axis=1) / np.sqrt(2)

    def positions(self) -> np.ndarray:
        half = np.zeros((N_PLACES, self.half))
        half[:, 2 * D_TOKEN :] = np.eye(N_PLACES)
        return np.concatenate([half, -half], axis=1) / np.sqrt(2)

    def previous_token_head(self, into: str) -> Tensors:
        """One head as wide as the stream: positions decide its scores, its values are the token's features."""
        d_model, places, begin = 2 * self.half, self.positions(), 0 if into == "token" else D_TOKEN
        query, key, value, output = (np.zeros((d_model, d_model)) for _ in range(4))
        query[:, : N_PLACES - 1] = SHARP * np.sqrt(d_model) * places[1:].T
        key[:, :N_PLACES] = places.T
        reading = np.concatenate([np.eye(D_TOKEN), np.zeros((self.half - D_TOKEN, D_TOKEN))])
        value[:, :D_TOKEN] = np.concatenate([reading, -reading]) / np.sqrt(2)
        output[range(D_TOKEN), range(begin, begin + D_TOKEN)] = 1 / np.sqrt(2)
        output[range(D_TOKEN), range(self.half + begin, self.half + begin + D_TOKEN)] = -1 / np.sqrt(2)
        return {
            "h.0.attn.c_attn.weight": np.concatenate([query, key, value], axis=1),
            "h.0.attn.c_proj.weight": output,
        }

    def with_scores(self, queries: np.ndarray, keys: np.ndarray) -> Model:
        """A first head with Tᵉᵉ = queries · keys, up to σ, and a second head with random weights.

        The token's features hold its query and key vectors; the OV circuit is random.
        """
        width = queries.shape[1]
        half = np.concatenate([queries, keys, self.tokens], axis=1)
        tokens = np.concatenate([half, -half], axis=1)
        d_model, d_head = tokens.shape[1], half.shape[1]
        tensors = {"wte.weight": tokens, "wpe.weight": np.zeros((N_PLACES, d_model))}
        for block in range(N_BLOCKS):
            tensors |= _random_block(block, d_model, self.random, 0.2)
        joint = tensors["h.0.attn.c_attn.weight"]
        joint[:, :d_head] = joint[:, d_model : d_model + d_head] = 0
        joint[range(width), range(width)] = np.sqrt(d_head)
        joint[range(width, 2 * width), range(d_model, d_model + width)] = 1
        tensors["h.0.attn.c_attn.bias"][:] = 0
        return _gpt2(tensors | _linear_norms(d_model), self.texts, 2, layer_norm_epsilon=LINEAR)

    def model(self, tensors: Tensors, **config: Any) -> Model:
        """A one-head model that contains only the planted mechanism."""
        d_model, n_inner = 2 * self.half, config.get("n_inner", 1)
        nothing = {"wte.weight": self.place("token"), "wpe.weight": self.positions()}
        for block in range(N_BLOCKS):
            nothing |= {
                f"h.{block}.attn.c_attn.weight": np.zeros((d_model, 3 * d_model)),
                f"h.{block}.attn.c_attn.bias": np.zeros(3 * d_model),
                f"h.{block}.attn.c_proj.weight": np.zeros((d_model, d_model)),
                f"h.{block}.attn.c_proj.bias": np.zeros(d_model),
                f"h.{block}.mlp.c_fc.weight": np.zeros((d_model, n_inner)),
                f"h.{block}.mlp.c_fc.bias": np.zeros(n_inner),
                f"h.{block}.mlp.c_proj.weight": np.zeros((n_inner, d_model)),
                f"h.{block}.mlp.c_proj.bias": np.zeros(d_model),
            }
        everything = nothing | _linear_norms(d_model) | tensors
        return _gpt2(everything, self.texts, 1, **{"n_inner": n_inner, "layer_norm_epsilon": LINEAR} | config)


def _linear_norms(d_model: int) -> Tensors:
    norms = ["ln_f", *(f"h.{block}.{name}" for block in range(N_BLOCKS) for name in ("ln_1", "ln_2"))]
    gains = {f"{norm}.weight": np.full(d_model, LINEAR**0.5) for norm in norms}
    return gains | {f"{norm}.bias": np.zeros(d_model) for norm in norms}


def _random_block(block: int, d_model: int, random: np.random.Generator, sharpness: float) -> Tensors:
    """A GPT-2 block with random weights and biases; `sharpness` multiplies the scores."""
    joint = np.concatenate([_drawn(random, d_model, d_model) for _ in range(3)], axis=1)
    joint[:, : 2 * d_model] *= np.sqrt(sharpness)
    inner = 4 * d_model
    return {
        f"h.{block}.ln_1.weight": 1 + 0.2 * random.normal(size=d_model),
        f"h.{block}.ln_1.bias": 0.2 * random.normal(size=d_model),
        f"h.{block}.attn.c_attn.weight": joint,
        f"h.{block}.attn.c_attn.bias": 0.3 * random.normal(size=3 * d_model),
        f"h.{block}.attn.c_proj.weight": _drawn(random, d_model, d_model),
        f"h.{block}.attn.c_proj.bias": 0.1 * random.normal(size=d_model),
        f"h.{block}.ln_2.weight": 1 + 0.2 * random.normal(size=d_model),
        f"h.{block}.ln_2.bias": 0.2 * random.normal(size=d_model),
        f"h.{block}.mlp.c_fc.weight": _drawn(random, d_model, inner),
        f"h.{block}.mlp.c_fc.bias": 0.1 * random.normal(size=inner),
        f"h.{block}.mlp.c_proj.weight": _drawn(random, inner, d_model),
        f"h.{block}.mlp.c_proj.bias": 0.1 * random.normal(size=d_model),
    }


def _drawn(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """A random matrix that preserves the norm of its input on average."""
    return random.normal(size=(rows, columns)) / np.sqrt(rows)


def _gpt2(tensors: Tensors, texts: Texts, n_heads: int, **config: Any) -> Model:
    d_model = tensors["wte.weight"].shape[1]
    norm = {"ln_f.weight": np.ones(d_model), "ln_f.bias": np.zeros(d_model)}
    settings = {
        "architectures": ["GPT2Model"], "model_type": "gpt2", "vocab_size": texts.size, "n_embd": d_model,
        "n_head": n_heads, "n_layer": N_BLOCKS, "n_positions": len(tensors["wpe.weight"]),
        "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    return Model(settings | config, norm | tensors, texts)


STRUCTURED = tuple(EMBEDDINGS)
STRENGTHS = {
    "lexical": (0.125, 0.25, 0.5, 1.0, 2.0),
    "writer": (0.01, 0.03, 0.1, 0.3, 1.0),
    "frequency bias": (0.25, 0.4, 0.5, 0.75, 1.0),
    "wave": (0.2, 0.4, 0.7, 1.0, 1.4),
    **{f"{part} switch": (0.05, 0.1, 0.25, 0.5, 1.0) for part in PARTS},
}
NULLS: dict[str, Callable[[int], Model]] = {
    **{f"random, {name}": lambda seed, name=name: random_gpt2(name, seed) for name in STRUCTURED},
    **{f"rotary, {name}": lambda seed, name=name: random_llama(name, seed) for name in ("iid", "spelled", "demo")},
    "ALiBi, spelled": lambda seed: random_bloom("spelled", seed),
    "encoder, spelled": lambda seed: random_bert("spelled", seed),
    **{f"copier, {name}": lambda seed, name=name: copier(name, seed) for name in ("iid", "spelled", "classes")},
    **{f"{number} clusters": lambda seed, number=number: cluster_head(number, seed) for number in (6, 16)},
    "frequency × frequency": frequency_head,
    "same token": same_token_head,
    "drifting positions": drifting_positions,
}
"""Models that neither write words nor encode corpus bigrams."""
RELABELLED: dict[str, Callable[[int], Model]] = {
    "permuted labels, demo": trained,
    "permuted labels, random": lambda seed: random_gpt2("spelled", seed),
    "permuted labels, rotary": lambda seed: random_llama("spelled", seed),
}
"""Models for which `lookback` is asked with the labels C and W permuted within frequency bins."""
PLANTED: dict[str, Callable[[float, int], Model]] = {
    "lexical": lexical_head,
    "writer": writer,
    "frequency bias": frequency_bias,
    "wave": wave_table,
    **{f"{part} switch": lambda strength, seed, part=part: switch(part, strength, seed) for part in PARTS},
}
"""Models with a planted effect of known strength."""
