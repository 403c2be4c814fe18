"""`detoklens verify` compares every family that is read, from a folder and from a model in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import Llama4ForCausalLM, Llama4TextConfig

import detoklens
from detoklens.model.verify import verify
from detoklens.weights.families import SPEC_OF
from tests.command_line import call
from tests.weights.families.tiny import IDS, saved, tiny

LLAMA = {
    "hidden_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 11,
    "vocab_size": 23,
    "num_hidden_layers": 2,
    "max_position_embeddings": 30,
}
GQA = LLAMA | {"head_dim": 6}
ODD = {name: size for name, size in LLAMA.items() if name != "num_key_value_heads"} | {"hidden_size": 28}
GPT = {"n_embd": 18, "n_head": 3, "vocab_size": 23, "n_layer": 2, "n_positions": 30}
EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5}
WHISPER = {
    "d_model": 18, "decoder_attention_heads": 3, "encoder_attention_heads": 3, "decoder_layers": 2, "encoder_layers": 1,
    "vocab_size": 23, "max_target_positions": 30, "decoder_ffn_dim": 11, "encoder_ffn_dim": 11,
    "max_source_positions": 8, "num_mel_bins": 4, "pad_token_id": 0, "decoder_start_token_id": 1,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "gpt2": GPT,
    "whisper": WHISPER,
    "llama": GQA,
    "mistral": GQA,
    "mixtral": GQA | {"num_local_experts": 3},
    "qwen2": LLAMA | {"hidden_size": 24},
    "qwen3": GQA,
    "qwen3_moe": GQA | EXPERTS,
    "gemma": GQA,
    "gemma2": GQA,
    "gemma3_text": GQA,
    "gpt_neox": ODD | {"hidden_size": 32},
    "gptj": GPT | {"n_embd": 36, "rotary_dim": 4},
    "phi": ODD | {"hidden_size": 32},
    "phi3": LLAMA | {"hidden_size": 24, "pad_token_id": 0},
    "opt": ODD | {"ffn_dim": 11},
    "gpt_neo": {
        "hidden_size": 21, "num_heads": 3, "vocab_size": 23, "num_layers": 2, "max_position_embeddings": 30,
        "attention_types": [[["global", "local"], 1]],
    },
    "openai-gpt": GPT,
    "biogpt": ODD,
    "xglm": {
        "d_model": 21, "attention_heads": 3, "ffn_dim": 11, "vocab_size": 23, "num_layers": 2,
        "max_position_embeddings": 30,
    },
    "bert": ODD,
    "roberta": ODD | {"pad_token_id": 7},
    "xlm-roberta": ODD | {"pad_token_id": 7},
    "camembert": ODD | {"pad_token_id": 7},
    "electra": ODD | {"embedding_size": 28},
    "distilbert": {
        "dim": 21, "n_heads": 3, "vocab_size": 23, "n_layers": 2, "max_position_embeddings": 30, "hidden_dim": 11,
    },
    "bloom": {"hidden_size": 18, "n_head": 3, "vocab_size": 23, "n_layer": 2},
    "llama4_text": GQA | {
        "intermediate_size_mlp": 13, "num_local_experts": 2, "interleave_moe_layer_step": 2, "pad_token_id": 0,
    },
    "smollm3": LLAMA | {"hidden_size": 24, "pad_token_id": 0},
    "ministral": GQA,
    "ministral3": GQA | {"pad_token_id": 0},
    "seed_oss": GQA,
    "granite": LLAMA | {
        "hidden_size": 24, "embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.7,
    },
    "olmo": LLAMA | {"hidden_size": 24},
    "olmo2": LLAMA | {"hidden_size": 24},
    "olmo3": LLAMA | {"hidden_size": 24, "sliding_window": 4},
    "starcoder2": LLAMA | {"hidden_size": 24},
    "stablelm": LLAMA | {"hidden_size": 32},
    "cohere": LLAMA | {"hidden_size": 24, "use_qk_norm": True},
    "cohere2": LLAMA | {"hidden_size": 24, "sliding_window": 4},
    "falcon": ODD | {"hidden_size": 24},
    "gpt_bigcode": GPT,
    "modernbert": ODD | {"hidden_size": 24, "pad_token_id": 0},
    "mpt": {"d_model": 18, "n_heads": 3, "vocab_size": 23, "n_layers": 2, "max_seq_len": 30},
}  # fmt: skip


def test_every_model_type_that_is_read_can_be_verified() -> None:
    assert set(SPEC_OF) == set(SETTINGS)


@pytest.mark.parametrize("model_type", SETTINGS)
def test_the_model_in_memory_and_its_folder_agree_with_the_real_one(model_type: str, tmp_path: Path) -> None:
    model = tiny(model_type, **SETTINGS[model_type])
    for source in (model, saved(model, tmp_path)):
        frame = verify(detoklens.load(source), IDS)
        assert frame["passed"].all(), frame
        assert set(frame["dtype"]) == {"float32", "float64"}


def test_llama_4_with_its_head_agrees_with_the_real_one() -> None:
    """Its prefix names a module that it lacks."""
    model = Llama4ForCausalLM(Llama4TextConfig(**SETTINGS["llama4_text"])).eval()
    assert verify(detoklens.load(model), IDS)["passed"].all()


def test_the_command_compares_a_rotary_model(tmp_path: Path) -> None:
    done = call("verify", saved(tiny("llama", **GQA), tmp_path), "--length", "9", "--format", "csv")
    assert done.exit_code == 0, done
    assert done.stdout.count("true") == 2 * 4
