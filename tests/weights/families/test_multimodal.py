"""The language model of a multimodal checkpoint attends to a text as the whole model does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

import detoklens
from detoklens.errors import UnsupportedModelError
from detoklens.model.first_blocks import open_blocks
from detoklens.model.verify import verify
from detoklens.weights.config import MULTIMODAL
from tests.weights.families.tiny import IDS, assert_equals_real, saved

TEXT = {
    "hidden_size": 20, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 11,
    "vocab_size": 23, "num_hidden_layers": 2, "max_position_embeddings": 30, "pad_token_id": 0, "rms_norm_eps": 0.03,
}  # fmt: skip
VISION = {
    "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
    "patch_size": 4,
}  # fmt: skip
IMAGES = {"image_token_index": 22, "image_token_id": 22, "boi_token_index": 21, "eoi_token_index": 20}
LLAMA4 = {"intermediate_size_mlp": 13, "num_local_experts": 2, "interleave_moe_layer_step": 2}
MODELS = [
    ("gemma3", {"sliding_window": 3}),
    ("llama4", LLAMA4),
    ("mistral3", {"model_type": "mistral", "sliding_window": 3}),
    ("mistral3", {"model_type": "ministral3"}),
]


def whole(model_type: str, settings: dict[str, Any]) -> Any:
    """A multimodal model in which no two numbers are alike."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, text_config=TEXT | settings, vision_config=VISION, **IMAGES)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for values in model.parameters():
            values.copy_(torch.randn_like(values) * 0.3 + 0.1)
    return model


def as_transformers_names_them(folder: Path) -> Path:
    """Rename the tensors of a saved model as they are named in memory."""
    file = folder / "model.safetensors"
    tensors = {
        name.replace("language_model.model.", "model.language_model."): values
        for name, values in load_file(file).items()
    }
    save_file(tensors, file, {"format": "pt"})
    return folder


def test_every_multimodal_model_is_tested() -> None:
    assert {model_type for model_type, _ in MODELS} == set(MULTIMODAL)


@pytest.mark.parametrize(("model_type", "settings"), MODELS, ids=lambda value: value if isinstance(value, str) else "")
def test_its_attention_to_a_text_is_the_whole_models(model_type: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = whole(model_type, settings)
    with torch.no_grad():
        attended = model(torch.tensor([IDS]), output_attentions=True).attentions[0][0].numpy()
    folder = saved(model, tmp_path)
    for source in (model, model.model if model_type != "llama4" else model.language_model, folder):
        np.testing.assert_allclose(detoklens.load(source).terms(IDS).attention(), attended, atol=1e-6)
    assert_equals_real(folder)
    for source in (model, folder, as_transformers_names_them(folder)):
        layer = detoklens.load(source)
        assert verify(layer, IDS)["passed"].all()
        blocks = open_blocks(layer.checkpoint, 1, layer.n_heads)
        states = blocks.run(np.array([IDS])).all_places(0)[0]
        np.testing.assert_allclose(states, layer.block_output(IDS), atol=1e-4)


def test_sizes_that_published_configs_leave_out(tmp_path: Path) -> None:
    """Gemma 3's text_config states only what differs from the defaults of transformers."""
    sizes = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
    folder = saved(whole("gemma3", sizes | {"hidden_size": 24}), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    for name in sizes:
        del config["text_config"][name]
    (folder / "config.json").write_text(json.dumps(config))
    assert verify(detoklens.load(folder), IDS)["passed"].all()


def test_another_multimodal_model_is_refused_without_advice_about_files() -> None:
    config = AutoConfig.for_model("llava", text_config=TEXT | {"model_type": "llama"}, vision_config=VISION)
    model = AutoModelForImageTextToText.from_config(config)
    with pytest.raises(UnsupportedModelError, match=r"pass that part, e\.g\. model\.language_model$"):
        detoklens.load(model)
    detoklens.load(model.model.language_model)
