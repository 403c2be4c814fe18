"""A block beyond the first is read as exactly as the first, and what is predicted of it is measured on text."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import detoklens
from detoklens.errors import CheckpointError, UnsupportedModelError
from detoklens.model.first_blocks import open_blocks
from detoklens.parallel import Runner
from detoklens.questions.auroc import deeper as deeper_module
from detoklens.questions.auroc.deeper import closed_world_inputs, deeper_layer, real_links, validity
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.study import Study
from detoklens.questions.texts import beginning_of
from detoklens.scores.layer import Layer
from detoklens.weights.blocks import blocks_fingerprint, source_of
from tests.model.test_first_blocks import FAMILIES, HEADS, LAYERS, LLAMA
from tests.weights.families.tiny import saved, tiny
from tests.weights.gguf_files import write_gguf

MORE = {
    "qwen3": LLAMA | {"head_dim": 8},
    "gemma3_text": LLAMA
    | {
        "head_dim": 8,
        "sliding_window": 2,
        "query_pre_attn_scalar": 6,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "xglm": {
        "vocab_size": 23,
        "d_model": 32,
        "attention_heads": HEADS,
        "ffn_dim": 20,
        "num_layers": LAYERS,
        "max_position_embeddings": 16,
    },
    "inverse": FAMILIES["gpt2"] | {"scale_attn_by_inverse_layer_idx": True},
}
NAMES = [
    "gpt2",
    "llama",
    "qwen2",
    "gemma2",
    "gpt_neox",
    "opt",
    "bloom",
    "xglm",
    "bert",
    "qwen3",
    "gemma3_text",
    "inverse",
]


def deeper(model: Any, number: int) -> tuple[Any, Any, np.ndarray]:
    layer = detoklens.load(model)
    blocks = open_blocks(layer.checkpoint, number + 1, HEADS)
    inputs = closed_world_inputs(blocks, layer, number, beginning_of(layer), Runner())
    return blocks, deeper_layer(blocks, layer, number, inputs), inputs


@pytest.mark.parametrize("name", NAMES)
def test_scores_of_a_block_beyond_the_first_are_the_real_ones(name):
    """On texts of other lengths and places than those that are looked at when it is read."""
    model = tiny("gpt2" if name == "inverse" else name, **(FAMILIES | MORE)[name])
    for number in (1, 2):
        blocks, layer, inputs = deeper(model, number)
        tokens = np.array([[4, 7], [9, 2], [11, 20]])
        passed = blocks.run(tokens, until=number)
        real = blocks.scores(passed, number, inputs[tokens])[0]
        for pair, theirs in zip(tokens, real, strict=True):
            scores = layer.terms(pair).total() * layer.attention_scale
            if layer.weights.softcap is not None:
                scores = np.tanh(scores / layer.weights.softcap) * layer.weights.softcap
            ours = scores[:, 1, 0] - scores[:, 1, 1]
            np.testing.assert_allclose(ours, theirs[:, 1, 0] - theirs[:, 1, 1], rtol=1e-4, atol=1e-4)


def test_closed_world_inputs_are_what_enters_the_block():
    model = tiny("llama", **LLAMA)
    layer = detoklens.load(model)
    blocks = open_blocks(layer.checkpoint, 3, HEADS)
    inputs = closed_world_inputs(blocks, layer, 2, beginning_of(layer), Runner())
    bos = layer.checkpoint.config["bos_token_id"]
    for token in (0, 5, 22):
        alone = blocks.run(np.array([[bos, token]])).last_places(1)[0]
        np.testing.assert_allclose(inputs[token], alone, rtol=1e-5, atol=1e-5)


def test_a_deeper_layer_is_about_the_same_tokens():
    """Which tokens are untrained shows in the embeddings, not in what enters a later block."""
    layer = detoklens.load(tiny("llama", **LLAMA), all_tokens=True)
    layer.meaningful_tokens = np.array([3, 4, 7])
    blocks = open_blocks(layer.checkpoint, 2, HEADS)
    inputs = closed_world_inputs(blocks, layer, 1, beginning_of(layer), Runner())
    found = deeper_layer(blocks, layer, 1, inputs)
    assert found.all_tokens
    assert found.meaningful_tokens.tolist() == [3, 4, 7]


@pytest.mark.parametrize(("name", "back"), [("gpt2", 1), ("llama", 1), ("llama", 2), ("bert", -1)])
def test_links_are_scores_without_what_no_softmax_sees(name, back):
    """What really enters the block, through our arrays: the score of each pair so far apart, all terms together."""
    model = tiny(name, **FAMILIES[name])
    blocks, layer, _ = deeper(model, 1)
    texts = [np.array([3, 8, 2, 5]), np.array([6, 1, 9])]
    real = real_links(blocks, layer, texts, 1, range(HEADS), Runner(), back)
    assert real.shape == (HEADS, 7 - 2 * abs(back))
    place = 0
    for text in texts:
        passed = blocks.run(text[None])
        weights = replace(layer.weights, token_embeddings=passed.all_places(0)[0])
        here = Layer(replace(layer.checkpoint, first_layer=weights))
        for number in range(max(back, 0), len(text) + min(back, 0)):
            between = range(number - back, number + int(np.sign(back)), int(np.sign(back)))
            pair = here.terms(between).total()[:, -1, 0] * layer.attention_scale
            np.testing.assert_allclose(real[:, place], pair, rtol=1e-4, atol=1e-4)
            place += 1


@pytest.mark.parametrize(
    ("name", "question", "back"),
    [("llama", Auroc(layer=1, offset=2, mean="vocabulary"), 2), ("bert", Auroc(layer=1, direction="ahead"), -1)],
)
def test_validity_is_that_of_the_question(name, question, back, monkeypatch):
    """Links, what is predicted of them, and pieces: all as they were asked for."""
    layer = detoklens.load(tiny(name, **FAMILIES[name]))
    text, caught = np.array([3, 8, 2, 5, 9, 5]), []
    study = detoklens.study(layer, workers=1)
    study.__dict__["_bare_documents"] = [text]
    monkeypatch.setattr(Layer, "vocabulary", SimpleNamespace(word_internal=lambda: [5, 8]))
    monkeypatch.setattr(Study, "has", lambda _study, _need: True)
    monkeypatch.setattr(Auroc, "ask", lambda asked, there, _runner: caught.append((asked, there)) or {})
    monkeypatch.setattr(deeper_module, "validity", lambda *given: given)
    _, _, predicted, real, pieces = deeper_module.deeper_tables(question, study, Runner())["auroc_validity"]
    (asked, there), queries = caught[0], np.arange(max(back, 0), len(text) + min(back, 0))
    ranked = asked.affinity(there, "mean", False, range(HEADS)).scores(text[queries])
    np.testing.assert_allclose(predicted, ranked[:, np.arange(len(queries)), text[queries - back]], rtol=1e-5)
    assert real.shape == predicted.shape
    assert pieces.tolist() == [token in (5, 8) for token in text[queries - back if back < 0 else queries]]


def test_another_kind_of_block_is_refused(monkeypatch):
    """A block that is read wrongly does not pass: here its weights are those of the first one."""
    monkeypatch.setattr(
        deeper_module, "read_block", lambda checkpoint, _number, inputs, _kinds: _first_as(checkpoint, inputs)
    )
    with pytest.raises(UnsupportedModelError, match="layer 1 computes attention differently from layer 0"):
        deeper(tiny("llama", **LLAMA), 1)


def _first_as(checkpoint: Any, inputs: np.ndarray) -> Any:
    return replace(checkpoint.first_layer, token_embeddings=inputs)


def test_validity_is_spearmans_correlation():
    random = np.random.default_rng(0)
    predicted, real = random.normal(size=(2, 2, 50))
    pieces = np.arange(50) % 3 == 0
    table = validity([1, 3], 2, predicted, real, pieces)
    assert table["head"].to_list() == [1, 3]
    for row in range(2):
        assert table["correlation"][row] == pytest.approx(spearmanr(predicted[row], real[row]).statistic)
        some = spearmanr(predicted[row][pieces], real[row][pieces]).statistic
        assert table["pieces_correlation"][row] == pytest.approx(some)
    assert table["links"].to_list() == [50, 50]
    assert table["pieces_links"].to_list() == [17, 17]
    assert validity([0], 1, predicted[:1], real[:1], None)["pieces_correlation"].to_list() == [None]


def test_a_fingerprint_is_that_of_the_blocks_asked_for(tmp_path):
    model = tiny("llama", **LLAMA)
    folder = saved(model, tmp_path / "one")
    with torch.no_grad():
        model.layers[2].mlp.up_proj.weight[0, 0] += 1
    other = saved(model, tmp_path / "other")
    one, another = detoklens.load(folder).checkpoint, detoklens.load(other).checkpoint
    assert blocks_fingerprint(one, 2) == blocks_fingerprint(another, 2) != blocks_fingerprint(another, 3)
    assert blocks_fingerprint(one, 3) != blocks_fingerprint(another, 3)
    assert blocks_fingerprint(detoklens.load(model).checkpoint, 3) == blocks_fingerprint(another, 3)


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "qwen2", "qwen3"])
def test_every_block_of_a_gguf_file_is_read(tmp_path, architecture):
    model = tiny(architecture, **(FAMILIES | MORE)[architecture])
    read = source_of(detoklens.load(write_gguf(tmp_path / "m.gguf", model, architecture)).checkpoint, LAYERS)
    for name, values in model.state_dict().items():
        if name.split(".")[-2] not in ("ln_f", "norm"):  # after the last block
            np.testing.assert_array_equal(read.read(name, np.dtype(np.float32)), values.numpy(), err_msg=name)


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "qwen2", "qwen3"])
def test_blocks_of_a_gguf_file_are_run_and_read_alike(tmp_path, architecture):
    """By transformers' reader and by ours, beside the model that the file was made of."""
    model = tiny(architecture, **(FAMILIES | MORE | {"qwen3": LLAMA | {"head_dim": 128}})[architecture])
    file = write_gguf(tmp_path / "m.gguf", model, architecture)
    texts = np.array([[3, 1, 4], [1, 5, 9]])
    ours, theirs = (open_blocks(detoklens.load(each).checkpoint, 2, HEADS).run(texts) for each in (file, model))
    for block in (0, 1):
        np.testing.assert_allclose(ours.last_places(block), theirs.last_places(block), rtol=1e-4, atol=1e-4)
    deeper(file, 2)


def test_arrays_alone_have_no_blocks():
    checkpoint = replace(detoklens.load(tiny("gpt2", **FAMILIES["gpt2"])).checkpoint, model=None)
    with pytest.raises(CheckpointError, match="is made of arrays, without a real model"):
        open_blocks(checkpoint, 1, HEADS)
    with pytest.raises(CheckpointError, match="is made of arrays, without a real model"):
        detoklens.study(Layer(checkpoint)).provenance(detoklens.Layers())
