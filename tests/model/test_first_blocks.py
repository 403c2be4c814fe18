"""Whatever is switched off, the blocks give what transformers' own forward gives where the weights there are 0."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

import detoklens
from detoklens.errors import CheckpointError, RangeError, UnsupportedModelError
from detoklens.model.checks import Component, components
from detoklens.model.first_blocks import FirstBlocks, in_double_precision, open_blocks
from detoklens.weights.families import spec_of
from tests.weights.families.tiny import saved, tiny

TEXTS = np.array([[3, 1, 4], [1, 5, 9], [2, 6, 5]])
LAYERS, HEADS = 3, 4
LLAMA = {
    "vocab_size": 23, "hidden_size": 32, "intermediate_size": 20, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": 2, "max_position_embeddings": 16, "pad_token_id": 0,
}  # fmt: skip
FAMILIES = {
    "gpt2": {"vocab_size": 23, "n_embd": 32, "n_head": HEADS, "n_layer": LAYERS, "n_positions": 8},
    "llama": LLAMA,
    "qwen2": LLAMA,
    "gemma2": LLAMA | {"head_dim": 8, "query_pre_attn_scalar": 6, "sliding_window": 2},
    "gpt_neox": LLAMA | {"rotary_pct": 0.5},
    "phi": LLAMA | {"num_key_value_heads": HEADS, "partial_rotary_factor": 0.5},
    "opt": {
        "vocab_size": 23, "hidden_size": 32, "ffn_dim": 20, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "max_position_embeddings": 16, "word_embed_proj_dim": 32, "pad_token_id": 0,
    },
    "bloom": {"vocab_size": 23, "hidden_size": 32, "n_head": HEADS, "n_layer": LAYERS},
    "mpt": {"vocab_size": 23, "d_model": 32, "n_heads": HEADS, "n_layers": LAYERS, "max_seq_len": 16},
    "bert": {
        "vocab_size": 23, "hidden_size": 32, "intermediate_size": 20, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "max_position_embeddings": 16,
    },
    "distilbert": {
        "vocab_size": 23, "dim": 32, "hidden_dim": 20, "n_layers": LAYERS, "n_heads": HEADS,
        "max_position_embeddings": 16,
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> tuple[Any, FirstBlocks]:
    with in_double_precision():
        model = tiny(request.param, **FAMILIES[request.param]).double()
    model.set_attn_implementation("eager")
    model.config.use_cache = False
    blocks = open_blocks(detoklens.load(model, dtype="float64").checkpoint, LAYERS, HEADS, "float64")
    return model, blocks


def theirs(model: Any, without: Component | None) -> list[np.ndarray]:
    """Every block's output in one forward of the whole model; weights of 0 do the switching off."""
    place = spec_of(model.config.to_dict())
    text_model = model.get_submodule(place.part) if place.part else model
    caught: list[Any] = []
    hooks = [
        block.register_forward_hook(lambda _block, _in, out: caught.append(out[0] if isinstance(out, tuple) else out))
        for block in text_model.get_submodule(place.blocks)
    ]
    kept = {name: values.clone() for name, values in model.state_dict().items()}
    if without is not None:
        _zero_weights(text_model.get_submodule(place.blocks)[without.layer], place, without)
    with torch.no_grad(), in_double_precision() if model.dtype == torch.float64 else nullcontext():
        model(torch.from_numpy(TEXTS))
    model.load_state_dict(kept)
    for hook in hooks:
        hook.remove()
    return [states[:, -1].numpy() for states in caught]


LAST_OF_MLP = (
    "mlp.c_proj", "mlp.down_proj", "mlp.dense_4h_to_h", "mlp.fc2", "fc2", "ffn.down_proj", "ffn.lin2", "output.dense",
)  # fmt: skip


def _zero_weights(block: Any, place: Any, without: Component) -> None:
    """A head that the projection does not read is off; so is an MLP whose last layer is 0."""
    modules = dict(block.named_modules())
    if without.head is None:
        last = next(modules[name] for name in LAST_OF_MLP if name in modules)
        for values in last.parameters():
            values.data.zero_()
        return
    weight = modules[place.projections.modules[-1]].weight.data
    rows = weight if type(modules[place.projections.modules[-1]]).__name__ == "Conv1D" else weight.T
    width = len(rows) // HEADS
    rows[without.head * width : (without.head + 1) * width] = 0


def close(ours: np.ndarray, real: np.ndarray) -> None:
    assert ours.dtype == np.float64
    np.testing.assert_allclose(ours, real, rtol=0, atol=1e-9 * max(1.0, float(np.abs(real).max())))


def test_nothing_switched_off_is_the_real_model(family):
    model, blocks = family
    passed, real = blocks.run(TEXTS), theirs(model, None)
    for layer in range(LAYERS):
        close(passed.last_places(layer), real[layer])


def test_each_head_and_mlp_off_is_the_real_model_without_it(family):
    model, blocks = family
    passed = blocks.run(TEXTS)
    for component in [Component(0, 0), Component(1, HEADS - 1), Component(2, 1), Component(0), Component(1)]:
        real = theirs(model, component)
        for after in range(component.layer, LAYERS):
            close(blocks.rerun(passed, component, after), real[after])
    close(passed.last_places(LAYERS - 1), theirs(model, None)[-1])  # what was kept is as it was


def test_scores_and_attention_are_those_of_the_softmax(family):
    model, blocks = family
    scores, attention = blocks.scores(blocks.run(TEXTS), 1)
    place = spec_of(model.config.to_dict())
    text_model = model.get_submodule(place.part) if place.part else model
    caught: list[Any] = []
    module = text_model.get_submodule(place.blocks)[1].get_submodule(place.attention)
    hook = module.register_forward_hook(lambda _module, _in, out: caught.extend(out))
    with torch.no_grad(), in_double_precision():
        model(torch.from_numpy(TEXTS), output_attentions=True)
    hook.remove()
    real = next(each for each in caught if each is not None and each.ndim == 4)
    close(attention, real.numpy())
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    close(shifted / shifted.sum(axis=-1, keepdims=True), attention)


def test_components_are_named_and_in_order():
    names = [component.name for component in components(2, 2)]
    assert names == ["L0H0", "L0H1", "MLP0", "L1H0", "L1H1", "MLP1"]


def test_later_blocks_are_not_needed(tmp_path):
    """A folder without the last block's tensors will do for the blocks before it, and not for that one."""
    from safetensors.torch import load_file, save_file

    model = tiny("llama", **LLAMA)
    folder = saved(model, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    first = {name: values for name, values in tensors.items() if "layers.2." not in name}
    save_file(first, folder / "model.safetensors", {"format": "pt"})
    checkpoint = detoklens.load(folder).checkpoint
    model.set_attn_implementation("eager")
    ours = open_blocks(checkpoint, 2, HEADS).run(TEXTS).last_places(1)
    np.testing.assert_allclose(ours, theirs(model, None)[1], rtol=1e-5, atol=1e-5)
    with pytest.raises(CheckpointError, match=r"'layers.2.input_layernorm.weight' is missing"):
        open_blocks(checkpoint, 3, HEADS)


def test_a_model_in_memory_stays_as_it_is():
    model = tiny("gpt2", **FAMILIES["gpt2"])
    before = {name: values.clone() for name, values in model.state_dict().items()}
    blocks = open_blocks(detoklens.load(model).checkpoint, 1, HEADS)
    blocks.rerun(blocks.run(TEXTS), Component(0, 1), 0)
    assert len(model.h) == LAYERS
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(values, model.state_dict()[name]) for name, values in before.items())


def test_more_blocks_than_there_are_are_refused():
    checkpoint = detoklens.load("demo").checkpoint
    with pytest.raises(RangeError, match="4 blocks were requested, but demo has 3; pass 3 or fewer"):
        open_blocks(checkpoint, 4, 4)


def test_a_checkpoint_that_is_cut_down_is_refused():
    checkpoint = detoklens.load("demo@0").checkpoint
    with pytest.raises(
        CheckpointError, match=r"demo@0: tensor 'h.0.ln_2.bias' is missing, .* pass the whole checkpoint"
    ):
        open_blocks(checkpoint, 1, 4)


def test_an_unknown_type_is_refused_by_name():
    with pytest.raises(UnsupportedModelError, match="'unheard_of' is not supported; supported are: gpt2"):
        spec_of({"model_type": "unheard_of"})
