"""`detoklens verify`: passes on what is right, exits 1 on what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import load_file, save_file

import detoklens
from detoklens.errors import CheckpointError, MissingExtraError
from detoklens.model import verify as oracle
from detoklens.model.verify import default_token_ids, verify
from detoklens.scores import block
from detoklens.scores.layer import Layer
from tests.command_line import call, refuse
from tests.layers import random_first_layer, write_gpt2
from tests.real_gpt2 import real_gpt2

TINY = Path(__file__).parent.parent / "data" / "tiny-gpt2"


def test_the_tiny_checkpoint_passes():
    done = call("verify", TINY, "--format", "csv")
    assert done.exit_code == 0, done
    frame = pl.read_csv(done.stdout.encode())
    assert len(frame) == 2 * 3
    assert frame["passed"].all()
    assert done.stderr.startswith("The decomposition equals the real first layer: attention differs by at most ")
    double = frame.filter(dtype="float64")
    assert double["attention_difference"].max() < 1e-12
    assert double["output_difference"].max() < 1e-11


def test_a_wrong_decomposition_does_not_pass(monkeypatch):
    """A mutated layer on our side, the real one on theirs: every head is beyond tolerance."""
    from detoklens.model import verify as module

    def wrong(*args, **kwargs):
        layer = detoklens.load(*args, **kwargs)
        mutated = replace(layer.weights, norm_gain=layer.weights.norm_gain * np.float32(1.01))
        return Layer(replace(layer.checkpoint, first_layer=mutated))

    monkeypatch.setattr(module, "load", wrong)
    done = call("verify", TINY)
    assert done.exit_code == 1
    assert "6 of 6 comparisons are above tolerance" in done.stderr


def test_the_output_difference_is_the_heads_own(monkeypatch):
    """One head writes 5 too much in one place: its row says 5, the others nothing, the layer's output is as it was."""
    from detoklens.model import verify as module

    run_real_layer = module.run_real_layer

    def shifted(*args, **kwargs):
        real = run_real_layer(*args, **kwargs)
        real.head_outputs[1, 0, 0] += 5
        return real

    monkeypatch.setattr(module, "run_real_layer", shifted)
    frame = verify(detoklens.load(TINY), list(range(9))).filter(dtype="float64")
    assert frame["output_difference"].to_list() == pytest.approx([0, 5, 0], abs=1e-9)
    assert frame["layer_output_difference"].max() < 1e-9
    assert frame["passed"].to_list() == [True, False, True]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
        {"layer_norm_epsilon": 1e12},
    ],
)
def test_configurations_pass_without_a_tokenizer(tmp_path, settings):
    drawn = random_first_layer(n_heads=5, d_head=3, dtype="float32")
    calm = replace(drawn, query_weight=drawn.query_weight * np.float32(0.2))
    layer = detoklens.load(write_gpt2(tmp_path, calm, **settings))
    frame = verify(layer, default_token_ids(layer, None, None))
    assert frame["passed"].all(), frame


def test_half_precision_and_padding_rows_pass(tmp_path):
    write_gpt2(tmp_path, random_first_layer(dtype="float32", vocab_size=310))
    tensors = {name: values.astype(np.float16) for name, values in load_file(tmp_path / "model.safetensors").items()}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").write_text((TINY / "tokenizer.json").read_text())
    done = call("verify", tmp_path, "--text", "connection", "--format", "json")
    assert done.exit_code == 0, done
    assert all(row["passed"] for row in json.loads(done.stdout))
    assert "10 embedding rows beyond" in done.stderr


def test_real_weights_pass(whisper_folder):
    done = call("verify", whisper_folder, "--text", "Homo sapiens and Tokyo", "--format", "csv")
    assert done.exit_code == 0, done
    assert pl.read_csv(done.stdout.encode())["passed"].all()


def test_a_text_that_does_not_fit_is_refused():
    assert "longer than the model's 64 positions" in refuse("verify", TINY, "--text", "x" * 200)


def test_a_model_in_memory_passes_and_stays_as_it_is():
    model = real_gpt2(random_first_layer(n_heads=3, d_head=4, dtype="float32"), torch.float32)
    before = {name: values.clone() for name, values in model.state_dict().items()}
    frame = verify(detoklens.load(model), [3, 1, 4, 1, 5])
    assert frame["passed"].all(), frame
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    assert model.dtype == torch.float32


def test_a_layer_of_arrays_alone_has_nothing_to_be_compared_with():
    layer = detoklens.load(TINY)
    with pytest.raises(CheckpointError, match="save the model to a folder"):
        verify(Layer(replace(layer.checkpoint, folder=None)), [1, 2])


def test_a_wrong_block_does_not_pass(monkeypatch):
    """The MLP has its say too: attention is right, the block's output is not."""
    monkeypatch.setitem(block.ACTIVATIONS, "gelu_tanh", lambda x: np.maximum(x, 0))
    frame = verify(detoklens.load(real_gpt2(random_first_layer(dtype="float32"), torch.float32)), [1, 2, 3])
    assert frame["attention_difference"].max() < 1e-5
    assert not frame["passed"].any()


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("detoklens.model.checks.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'detoklens\[model\]'"):
        oracle.run_real_layer(TINY, {"model_type": "gpt2"}, [1], "float32")


ODD_SETTINGS = [
    {"activation_function": "nonsense\x1b[2J"},
    {"n_inner": "x"},
    {"n_inner": -1},
    {"resid_pdrop": 7},
    {"torch_dtype": "nonsense"},
    {"n_layer": "x"},
    {"pad_token_id": "x" * 1_000_000},
    {"id2label": 3},
    {"num_labels": "x"},
    {"initializer_range": "x"},
    {"vocab_size": None},
    {"__class__": 3},
    {"to_dict": 3},
]


@pytest.mark.parametrize("settings", ODD_SETTINGS, ids=lambda settings: next(iter(settings)))
def test_what_transformers_stumbles_over_is_one_line(tmp_path, settings):
    write_gpt2(tmp_path, random_first_layer(dtype="float32"), **settings)
    done = call("verify", tmp_path)
    assert (done.exit_code, done.stdout) == (1, "")
    note, line = done.stderr.splitlines()
    assert "no tokenizer found" in note
    assert "transformers can't run this checkpoint" in line
    assert line.isprintable()


def test_other_heads_on_the_other_side_are_said(monkeypatch):
    layer = detoklens.load(TINY)
    real = oracle.run_real_layer(TINY, layer.checkpoint.config, [1, 2], "float32")
    fewer = replace(real, attention=real.attention[:2])
    monkeypatch.setattr("detoklens.model.verify.run_real_layer", lambda *_: fewer)
    with pytest.raises(CheckpointError, match=r"transformers reads 2 heads from config\.json, detoklens 3"):
        verify(layer, [1, 2])
