"""Where in transformers' models are the blocks, and in a block the attention, its output projection and the MLP?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from detoklens.errors import UnsupportedModelError, shown


@dataclass(frozen=True)
class Place:
    """The list of blocks within the model, and modules within a block: `mlp` is one whose output the MLP adds."""

    blocks: str
    attention: str
    projection: str
    mlp: str = "mlp"
    part: str = ""  # of the model that reads the text


_LLAMA = Place("layers", "self_attn", "self_attn.o_proj")
_BERT = Place("encoder.layer", "attention.self", "attention.output.dense", mlp="output.dense")
_BART = Place("layers", "self_attn", "self_attn.out_proj", mlp="fc2")
PLACES = {
    "gpt2": Place("h", "attn", "attn.c_proj"),
    "whisper": replace(_BART, part="decoder"),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "qwen3_moe": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma": _LLAMA,
    "gemma2": _LLAMA,
    "gemma3_text": _LLAMA,
    "gpt_neox": Place("layers", "attention", "attention.dense"),
    "gptj": Place("h", "attn", "attn.out_proj"),
    "phi": Place("layers", "self_attn", "self_attn.dense"),
    "phi3": _LLAMA,
    "opt": replace(_BART, part="decoder"),
    "gpt_neo": Place("h", "attn", "attn.attention.out_proj"),
    "openai-gpt": Place("h", "attn", "attn.c_proj"),
    "biogpt": _BART,
    "xglm": _BART,
    "distilbert": Place("transformer.layer", "attention", "attention.out_lin", mlp="ffn"),
    "bloom": Place("h", "self_attention", "self_attention.dense", mlp="mlp.dense_4h_to_h"),
    "mpt": Place("blocks", "attn", "attn.out_proj", mlp="ffn.down_proj"),
    "bert": _BERT,
    "electra": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
}


def place_of(config: dict[str, Any]) -> Place:
    """Where the parts of this type of model are; a type that is not known is refused by name."""
    place = PLACES.get(config.get("model_type", ""))
    if place is None:
        raise UnsupportedModelError(
            f"the real model of type {shown(config.get('model_type'))} is not run here; known are {', '.join(PLACES)}"
        )
    return place
