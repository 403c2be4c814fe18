"""What is no plain checkpoint of one language model is refused in one line that says what it is."""

from __future__ import annotations

import json

import pytest

import detoklens
from detoklens.errors import DetokLensError, UnsupportedModelError
from tests.layers import random_first_layer, write_gpt2
from tests.weights.families.tiny import saved, tiny

LLAMA = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 5, "vocab_size": 9, "num_hidden_layers": 1}


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8"])
def test_quantised_weights_are_refused_by_their_scheme(tmp_path, method):
    folder = saved(tiny("llama", **LLAMA), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": method}}))
    with pytest.raises(UnsupportedModelError, match=f"weights quantised by '{method}' are not read"):
        detoklens.load(folder)


def test_an_adapter_is_refused(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "gpt2"}))
    with pytest.raises(UnsupportedModelError, match=r"is an adapter .* merge it into its base model"):
        detoklens.load(tmp_path)
    write_gpt2(tmp_path, random_first_layer())
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match="is an adapter"):
        detoklens.load(tmp_path)


def test_a_model_of_several_parts_names_the_one_inside(tmp_path):
    write_gpt2(tmp_path, random_first_layer(), model_type="llava", text_config={"model_type": "llama"})
    with pytest.raises(
        UnsupportedModelError, match=r"text_config: model type 'llama'\), which .*; save that part as a checkpoint"
    ):
        detoklens.load(tmp_path)


def test_a_bias_that_the_config_denies_is_a_contradiction(tmp_path):
    folder = saved(tiny("llama", **LLAMA, attention_bias=True), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_bias": False}))
    with pytest.raises(DetokLensError, match=r"q_proj.bias' exists, but the config has no such bias"):
        detoklens.load(folder)
