"""Decoders with absolute positions: GPT-2 and its relatives, OPT, BioGPT, XGLM, Whisper."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from detoklens.errors import CheckpointError, UnsupportedModelError, shown
from detoklens.weights.config import Config, read_flag, read_optional_size, read_padding_token_id, read_size
from detoklens.weights.spec import LearnedPositions, Mlp, Projections, Spec, Switch, reads

LARGEST_COMPUTED_TABLE = 1 << 20  # positions; published XGLMs have 2,048
XGLM_FIRST_POSITION = 2
NO_CROSS_ATTENTION = {"add_cross_attention": (False,)}


GPT2_MLP = Mlp(
    "mlp.c_fc",
    "mlp.c_proj",
    activation="activation_function",
    default_activation="gelu_new",
    size=("n_inner",),
    default_factor=4,
)
GPT2 = Spec(
    models="GPT-2 of every size, DistilGPT-2, DialoGPT, Cerebras-GPT, CodeParrot",
    special="the paper's case",
    model_types=("gpt2",),
    prefixes=("transformer.", ""),
    blocks="h",
    attention="attn",
    embedding="wte",
    positions=LearnedPositions("wpe"),
    input_norm="ln_1",
    projections=Projections(("attn.c_attn", "attn.c_proj"), "stacked"),
    is_conv1d=True,
    scores_are_scaled=Switch("scale_attn_weights", default=True),
    mlp=GPT2_MLP,
    mlp_norms={"input_norm": "ln_2"},
    mlp_accepted=NO_CROSS_ATTENTION,
    width=("n_embd", "hidden_size"),
    heads=("n_head", "num_attention_heads"),
    longest=("n_positions", "max_position_embeddings"),
    epsilon="layer_norm_epsilon",
    default_epsilon=None,
    # The first divides by layer + 1, which is 1 here; the second changes rounding only; the third is not read.
    ignored=frozenset({"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "n_ctx"}),
)


@reads("multi_query")
def bigcode_keys(spec: Spec, config: Config) -> Spec:
    """One key and value for all heads; without `multi_query`, each head's query, key and value are adjacent."""
    if read_flag(config, "multi_query", True):
        return spec
    return replace(spec, key_heads=None, projections=replace(spec.projections, layout="interleaved"))


GPT_BIGCODE = replace(
    GPT2,
    models="GPT-BigCode: StarCoder, SantaCoder",
    special="all heads share one key and value",
    model_types=("gpt_bigcode",),
    is_conv1d=False,
    key_heads=1,
    mlp=replace(GPT2_MLP, default_activation="gelu_pytorch_tanh"),
    default_epsilon=1e-5,
    adapt=bigcode_keys,
    ignored=frozenset({"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "n_ctx"}),  # rounding; not read
)

GPT1 = replace(
    GPT2,
    models="the first GPT",
    special="no norm before the attention",
    model_types=("openai-gpt",),
    embedding="tokens_embed",
    positions=LearnedPositions("positions_embed"),
    input_norm=None,
    mlp=replace(
        GPT2_MLP,
        activation="afn",
        default_activation="gelu",
        activations={"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"},  # its gelu is by tanh
        size=(),
    ),
    scores_are_scaled=True,
    mlp_norms={"stream_norm": "ln_1", "output_norm": "ln_2"},
    mlp_accepted={},
    default_epsilon=1e-5,
    ignored=frozenset(),
)


@reads("attention_types", "window_size")
def gpt_neo_window(spec: Spec, config: Config) -> Spec:
    """The window of layer 0 if it is a local one; attention_types is `[[[kinds], repetitions], …]`."""
    match config.get("attention_types"):
        case None | [[["global", *_], *_], *_]:
            return spec
        case [[["local", *_], *_], *_]:
            return replace(spec, window=read_optional_size(config, "window_size") or 256)
        case other:
            raise CheckpointError(f"config.json: attention_types begins neither with global nor local: {shown(other)}")


GPT_NEO = replace(
    GPT2,
    models="GPT-Neo, TinyStories",
    special="no biases on queries, keys and values; scores are not scaled; a window if layer 0 is `local`",
    model_types=("gpt_neo",),
    projections=Projections(
        tuple(f"attn.attention.{name}_proj" for name in ("q", "k", "v", "out")), bias=False, output_bias=True
    ),
    is_conv1d=False,
    scores_are_scaled=False,
    mlp=replace(GPT2_MLP, size=("intermediate_size",)),
    mlp_accepted={},
    width=("hidden_size",),
    heads=("num_heads", "num_attention_heads"),
    longest=("max_position_embeddings",),
    default_epsilon=1e-5,
    adapt=gpt_neo_window,
    ignored=frozenset({"attention_layers"}),  # attention_types written out, layer by layer
)


@reads("do_layer_norm_before")
def opt_norm_order(spec: Spec, config: Config) -> Spec:
    """opt-350m has its norms after the attention and after the MLP."""
    if read_flag(config, "do_layer_norm_before", True):
        return spec
    after = {"stream_norm": "self_attn_layer_norm", "output_norm": "final_layer_norm"}
    return replace(spec, input_norm=None, mlp_norms=after)


def xglm_positions(config: Config, width: int) -> np.ndarray:
    """XGLM's sines, then cosines, of the position; the row of the padding token's id is 0."""
    longest = read_size(config, "max_position_embeddings")
    if longest > LARGEST_COMPUTED_TABLE:
        raise UnsupportedModelError(f"config.json: max_position_embeddings = {longest:,} is not supported")
    half = width // 2
    if half < 2:
        raise UnsupportedModelError(f"config.json: a width of {width} is too small for sinusoidal positions")
    frequencies = np.exp(-np.arange(half) * math.log(10_000) / (half - 1))
    numbers = np.arange(XGLM_FIRST_POSITION, XGLM_FIRST_POSITION + longest)
    angles = np.multiply.outer(numbers, frequencies)
    table = np.hstack([np.sin(angles), np.cos(angles), np.zeros((longest, width % 2))])
    table[numbers == read_padding_token_id(config, 1)] = 0
    return table


FAIRSEQ_PROJECTIONS = tuple(f"self_attn.{name}_proj" for name in ("q", "k", "v", "out"))
OPT = Spec(
    models="OPT",
    special="opt-350m: embeddings widened by `project_in`, norms after attention and MLP",
    model_types=("opt",),
    prefixes=("model.decoder.", "decoder.", ""),
    part="decoder",
    mlp_module="fc2",
    embedding_size="word_embed_proj_dim",
    embedding_projection="project_in",
    positions=LearnedPositions("embed_positions", first_row=2, extra_rows=2),
    input_norm="self_attn_layer_norm",
    projections=Projections(FAIRSEQ_PROJECTIONS),
    mlp=Mlp("fc1", "fc2", activation="activation_function", default_activation="relu", size=("ffn_dim",)),
    mlp_norms={"input_norm": "final_layer_norm"},
    epsilon=1e-5,  # torch's default; no config states it
    accepted={"enable_bias": (True,), "layer_norm_elementwise_affine": (True,)},
    adapt=opt_norm_order,
    ignored=frozenset({"_remove_final_layer_norm"}),
)
BIOGPT = replace(
    OPT,
    models="BioGPT",
    special="embeddings scaled by sqrt(width)",
    model_types=("biogpt",),
    prefixes=("biogpt.", ""),
    part="",
    embedding_size=None,
    embedding_projection=None,
    embedding_scales_with_width=Switch("scale_embedding", default=True),
    mlp=Mlp("fc1", "fc2"),
    accepted={},
    adapt=None,
    ignored=frozenset({"layer_norm_eps"}),  # in its config, but none of its norms reads it
)
XGLM = replace(
    BIOGPT,
    models="XGLM",
    special="sinusoidal positions, not stored; embeddings scaled by sqrt(width)",
    model_types=("xglm",),
    prefixes=("model.", ""),
    positions=LearnedPositions(None, compute=xglm_positions),
    mlp=Mlp("fc1", "fc2", activation="activation_function", size=("ffn_dim",)),
    mlp_accepted=NO_CROSS_ATTENTION,
    width=("d_model", "hidden_size"),
    heads=("attention_heads", "num_attention_heads"),
    ignored=frozenset(),
)
WHISPER = Spec(
    models="Whisper, the decoder's self-attention",
    special="no bias on keys; no block output",
    model_types=("whisper",),
    prefixes=("model.decoder.", "decoder.", ""),
    part="decoder",
    mlp_module="fc2",
    positions=LearnedPositions("embed_positions"),
    input_norm="self_attn_layer_norm",
    projections=Projections(FAIRSEQ_PROJECTIONS, key_bias=False),
    mlp_refusal=(
        "the first block attends to audio between its self attention and its MLP, so the block's output needs more "
        "than a text"
    ),
    width=("d_model",),
    heads=("decoder_attention_heads",),
    longest=("max_target_positions",),
    epsilon=1e-5,  # torch's default; no config states it
    # Refused: scale_embedding, which implementations read differently.
    ignored=frozenset({"encoder_attention_heads", "max_source_positions"}),
)
SPECS = (GPT2, GPT_BIGCODE, GPT1, GPT_NEO, OPT, BIOGPT, XGLM, WHISPER)
