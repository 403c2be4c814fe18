"""BERT and its relatives. The norm of the embeddings feeds both layer 0 and the residual stream; not causal."""

from __future__ import annotations

from dataclasses import replace

from detoklens.errors import CheckpointError, UnsupportedModelError
from detoklens.weights.config import (
    Config,
    first_layer_is_local,
    read_optional_size,
    read_padding_token_id,
    read_positive,
    read_size,
)
from detoklens.weights.families.learned import NO_CROSS_ATTENTION
from detoklens.weights.families.llama import rope_by_kind
from detoklens.weights.spec import LearnedPositions, Mlp, Projections, RotaryPositions, Spec, Switch, reads

BERT_POSITIONS = LearnedPositions(
    "embeddings.position_embeddings",
    token_types="embeddings.token_type_embeddings",  # the type of the first segment, added to every position
)


@reads("embedding_size")
def electra_width(spec: Spec, config: Config) -> Spec:
    """ELECTRA's small models widen their embeddings after the norm."""
    narrow = read_optional_size(config, "embedding_size") or ELECTRA_DEFAULT_EMBEDDING_SIZE
    if narrow != read_size(config, *spec.width):
        raise UnsupportedModelError(f"config.json: embedding_size = {narrow} is not hidden_size, which is not handled")
    return spec


@reads("pad_token_id")
def roberta_positions(spec: Spec, config: Config) -> Spec:
    """RoBERTa counts positions from the padding token's id + 1, and gives that token no position."""
    padding = read_padding_token_id(config, 1)
    if padding is None:
        raise CheckpointError("config.json: pad_token_id must be a whole number of at least 0, not None")
    return replace(spec, positions=replace(BERT_POSITIONS, first_row=padding + 1, padding_token_id=padding))


ELECTRA_DEFAULT_EMBEDDING_SIZE = 128
BERT = Spec(
    models="BERT, MiniLM",
    special="not causal; the norm of the embeddings feeds queries, keys and the stream; the token-type vector is part "
    "of the positions",
    model_types=("bert",),
    prefixes=("bert.", ""),
    blocks="encoder.layer",
    attention="attention.self",
    mlp_module="output.dense",
    embedding="embeddings.word_embeddings",
    embedding_norm="embeddings.LayerNorm",
    positions=BERT_POSITIONS,
    input_norm=None,
    projections=Projections(
        (*(f"attention.self.{name}" for name in ("query", "key", "value")), "attention.output.dense")
    ),
    is_causal=Switch("is_decoder", default=False),
    mlp=Mlp("intermediate.dense", "output.dense"),
    mlp_norms={"stream_norm": "attention.output.LayerNorm", "output_norm": "output.LayerNorm"},
    mlp_accepted=NO_CROSS_ATTENTION,
    default_epsilon=1e-12,
    accepted={"position_embedding_type": ("absolute",)},
)
ELECTRA = replace(
    BERT,
    models="ELECTRA",
    special="as BERT; refused if embeddings are narrower than the stream",
    model_types=("electra",),
    prefixes=("electra.", ""),
    adapt=electra_width,
)
ROBERTA = replace(
    BERT,
    models="RoBERTa, XLM-R, CamemBERT",
    special="as BERT; positions start after the padding token's id, and a text with that token is refused",
    model_types=("roberta", "xlm-roberta", "camembert"),
    prefixes=("roberta.", ""),
    adapt=roberta_positions,
)
DISTILBERT = Spec(
    models="DistilBERT",
    special="as BERT without token types",
    model_types=("distilbert",),
    prefixes=("distilbert.", ""),
    blocks="transformer.layer",
    attention="attention",
    mlp_module="ffn",
    embedding="embeddings.word_embeddings",
    embedding_norm="embeddings.LayerNorm",
    positions=LearnedPositions("embeddings.position_embeddings"),
    input_norm=None,
    projections=Projections(tuple(f"attention.{name}_lin" for name in ("q", "k", "v", "out"))),
    is_causal=False,
    mlp=Mlp("ffn.lin1", "ffn.lin2", activation="activation", size=("hidden_dim",)),
    mlp_norms={"stream_norm": "sa_layer_norm", "output_norm": "output_layer_norm"},
    width=("dim", "hidden_size"),
    heads=("n_heads", "num_attention_heads"),
    epsilon=1e-12,  # no config states it
    ignored=frozenset({"sinusoidal_pos_embds"}),  # how the stored table was initialized
)


@reads("layer_types", "global_rope_theta")
def modernbert_rope(spec: Spec, config: Config) -> Spec:
    """Layer 0 sees the whole text and has its own rotary base; a local one would see both sides of a window."""
    if first_layer_is_local(config, by_default=False):
        raise UnsupportedModelError("config.json: a window in layer 0 of an encoder is not handled")
    base = read_positive(config, "global_rope_theta", 160_000.0)
    return replace(spec, positions=rope_by_kind(config, is_local=False, base=base))


MODERNBERT = Spec(
    models="ModernBERT",
    special="not causal; rotary positions; the norm of the embeddings feeds queries, keys and the stream",
    model_types=("modernbert",),
    attention="attn",
    embedding="embeddings.tok_embeddings",
    embedding_norm="embeddings.norm",
    positions=RotaryPositions(),
    input_norm=None,
    later_input_norm="attn_norm",
    norm_bias=Switch("norm_bias", default=False),
    projections=Projections(("attn.Wqkv", "attn.Wo"), "stacked", bias=Switch("attention_bias", default=False)),
    is_causal=False,
    mlp=Mlp(
        "mlp.Wi",
        "mlp.Wo",
        gate_in_up=True,
        bias=Switch("mlp_bias", default=False),
        activation="hidden_activation",
    ),
    mlp_norms={"input_norm": "mlp_norm"},
    default_longest=8192,
    epsilon="norm_eps",
    adapt=modernbert_rope,
    ignored=frozenset({
        "local_attention", "local_rope_theta", "global_attn_every_n_layers", "decoder_bias", "classifier_bias",
        "embedding_dropout", "deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index",
        "position_embedding_type",
    }),  # of local layers and of heads
)  # fmt: skip
SPECS = (BERT, ELECTRA, ROBERTA, DISTILBERT, MODERNBERT)
