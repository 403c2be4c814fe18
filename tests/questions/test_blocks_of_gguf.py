"""The real model of a GGUF file: its first blocks give what those of the folder it was made of give, or one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import detoklens as dl
from detoklens.errors import RangeError, UnsupportedModelError
from detoklens.model.first_blocks import open_blocks
from detoklens.model.verify import run_real_layer
from detoklens.questions.texts import find_beginning
from tests.command_line import refuse, run
from tests.model.test_first_blocks import LLAMA
from tests.questions.rotary_model import write_file, write_folder
from tests.weights.families.tiny import tiny
from tests.weights.gguf_files import QUANTISED, write_gguf

LAYERS = dl.Layers(up_to=2, triples=60, candidates=300, bootstrap=20)
AUROC = dl.Auroc(layer=1, tokens=[300, 301, 302], truth="merges", controls=False, bootstrap=0)
TEXT = ["Once upon a time there was a little girl who lived in a village near the forest. " * 8]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("folder"))


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return write_file(tmp_path_factory.mktemp("file") / "model.gguf")


@pytest.mark.parametrize("question", [LAYERS, AUROC], ids=lambda question: question.name())
def test_a_file_is_asked_as_the_folder_it_was_made_of(folder, file, question):
    """Up to rounding: an ε is a float32 in the file."""
    ours, theirs = (dl.study(model, text=TEXT, workers=1).ask(question) for model in (file, folder))
    assert ours.sentence == theirs.sentence
    for name, table in theirs.tables.items():
        assert ours.tables[name].columns == table.columns
        for column in table.select(pl.col(pl.Float64, pl.Float32)).columns:
            one, other = (np.array(frame[column].to_list(), float) for frame in (ours.tables[name], table))
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4, err_msg=f"{name}.{column}")


def test_quantised_blocks_are_those_of_the_file(tmp_path):
    """Every block is read from its own tensors, dequantised, by transformers as by us: else layer 2 were refused."""
    kinds = {f"blk.{block}.attn_q.weight": QUANTISED.Q8_0 for block in range(3)}
    study = dl.study(write_file(tmp_path / "m.gguf", kinds=kinds), text=TEXT, workers=1)
    answer = study.ask(dl.Auroc(layer=2, tokens=[300], truth="merges", controls=False, bootstrap=0))
    assert answer.provenance.options["dequantised_from"] == ["Q8_0"]
    assert answer.tables["auroc_validity"]["layer"].to_list() == [2] * 4


@pytest.mark.parametrize("question", [LAYERS, AUROC], ids=lambda question: question.name())
def test_every_kind_of_the_blocks_that_are_read_is_said(tmp_path, question):
    """Not those of block 0 alone, and not those of blocks that are not asked for."""
    kinds = {
        "blk.0.attn_q.weight": QUANTISED.Q8_0,
        "blk.1.ffn_up.weight": QUANTISED.Q4_0,
        "blk.2.ffn_up.weight": QUANTISED.Q5_0,
    }
    study = dl.study(write_file(tmp_path / "m.gguf", kinds=kinds), text=TEXT, workers=1)
    answer = study.ask(question)
    assert answer.provenance.options["dequantised_from"] == ["Q4_0", "Q8_0"]
    said = (
        "tensors of the first 2 blocks quantised as Q4_0, Q8_0 were dequantised: the numbers are those of the GGUF file"
    )
    assert said in answer.notes
    assert study.provenance(dl.Heads()).options["dequantised_from"] == ["Q8_0"]


def test_later_blocks_of_a_file_are_not_run(file, monkeypatch):
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    ran: list[int] = []
    forward = LlamaDecoderLayer.forward
    monkeypatch.setattr(
        LlamaDecoderLayer,
        "forward",
        lambda self, *args, **named: ran.append(self.self_attn.layer_idx) or forward(self, *args, **named),
    )
    blocks = open_blocks(dl.load(file).checkpoint, 2, 4)
    assert blocks.run(np.array([[0, 5, 7]])).last_places(1).shape == (1, 32)
    assert ran == [0, 1]


def test_the_command_line_asks_a_file(file, tmp_path):
    words = ("--up-to", "1", "--triples", "40", "--candidates", "100", "--bootstrap", "0", "--workers", "1")
    assert (
        "can't be tested: intervals need bootstrap resamples" in run("layers", file, *words, "--out", tmp_path).stderr
    )
    assert f"9 blocks were requested, but {file} has 3; pass 3 or fewer" in refuse("layers", file, "--up-to", "9")


def test_the_beginning_of_text_token_is_the_files_own(tmp_path):
    """Not <|endoftext|>, which has id 0 here."""
    ids = {"tokenizer.ggml.bos_token_id": 5, "tokenizer.ggml.eos_token_id": 6}
    study = dl.study(write_file(tmp_path / "m.gguf", ids), workers=1)
    assert (study.layer.checkpoint.config["bos_token_id"], study.layer.checkpoint.config["eos_token_id"]) == (5, 6)
    answer = study.ask(dl.Layers(up_to=1, triples=40, candidates=100, bootstrap=0))
    assert answer.provenance.options["bos"] == [5]
    token = study.layer.token(5)
    assert f"beginning-of-text token: {token} (id 5), the checkpoint's bos_token_id" in answer.notes
    only_end = dl.study(write_file(tmp_path / "end.gguf", {"tokenizer.ggml.eos_token_id": 6}))
    assert find_beginning(only_end.layer).token_id == 6


def test_transformers_draws_no_bars(file, capfd):
    """Neither where blocks are opened nor where the first layer is verified; afterwards it draws as before."""
    from transformers import modeling_gguf_pytorch_utils as reader
    from transformers.utils import logging

    layer, bar, bars = dl.load(file), reader.tqdm, logging.is_progress_bar_enabled()
    for wanted in (logging.disable_progress_bar, logging.enable_progress_bar):
        wanted()
        capfd.readouterr()
        open_blocks(layer.checkpoint, 1, 4)
        run_real_layer(file, layer.checkpoint.config, [0, 5, 7], "float32")
        assert capfd.readouterr() == ("", "")
        assert reader.tqdm is bar
        assert logging.is_progress_bar_enabled() == (wanted is logging.enable_progress_bar)
    if not bars:
        logging.disable_progress_bar()


def test_scaling_that_transformers_does_not_read_is_refused(tmp_path):
    factors = {"rope_freqs.weight": np.linspace(1, 8, 4, dtype=np.float32)}
    path = write_file(tmp_path / "m.gguf", extra_tensors=factors)
    for question in (LAYERS, AUROC):
        with pytest.raises(UnsupportedModelError, match="does not read the RoPE scaling of a GGUF file"):
            dl.study(path, text=TEXT).ask(question)


def biases(block: int) -> dict[str, np.ndarray]:
    return {f"blk.{block}.attn_{name}.bias": np.ones(32, np.float32) for name in ("q", "k", "v", "output")}


@pytest.mark.parametrize(
    ("tensors", "left_out"),
    [
        (biases(0), "blk.0.attn_k.bias"),
        (biases(1), "blk.1.attn_k.bias"),
        ({"blk.0.ffn_down.bias": np.ones(32, np.float32)}, "blk.0.ffn_down.bias"),
        ({"blk.1.post_attention_norm.weight": np.ones(32, np.float32)}, "blk.1.post_attention_norm.weight"),
        ({"token_embd_norm.weight": np.ones(32, np.float32)}, "token_embd_norm.weight"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_tensors_that_transformers_leaves_out_are_refused(tmp_path, tensors, left_out):
    path = write_file(tmp_path / "m.gguf", extra_tensors=tensors)
    with pytest.raises(UnsupportedModelError, match=f"leaves the tensor '{left_out}' of .* pass the checkpoint as"):
        open_blocks(dl.load(path).checkpoint, 2, 4)


def test_tensors_of_blocks_that_are_not_asked_for_are_none_of_it(file, tmp_path):
    tensors = biases(1) | {"output_norm.weight": np.ones(32, np.float32)}
    path, text = write_file(tmp_path / "m.gguf", extra_tensors=tensors), np.array([[0, 5, 7]])
    ours, theirs = (open_blocks(dl.load(each).checkpoint, 1, 4).run(text).last_places(0) for each in (path, file))
    np.testing.assert_array_equal(ours, theirs)


def test_sizes_that_transformers_does_not_read_are_refused(tmp_path):
    """Of a Qwen3 file it takes 128 for the width of a head, whatever the file says."""
    path = write_gguf(tmp_path / "m.gguf", tiny("qwen3", **LLAMA, head_dim=16), "qwen3")
    with pytest.raises(UnsupportedModelError, match=r"takes 128 for head_dim, but the GGUF file says 16, .* pass the"):
        open_blocks(dl.load(path).checkpoint, 2, 4)


@pytest.mark.parametrize(
    ("setting", "said"), [("rms_norm_eps", 1e-3), ("rope_theta", 500.0), ("num_key_value_heads", 4)]
)
def test_a_setting_that_transformers_takes_for_another_is_refused(file, setting, said):
    checkpoint = dl.load(file).checkpoint
    theirs = replace(checkpoint, config=checkpoint.config | {setting: 2 * said})
    with pytest.raises(UnsupportedModelError, match=f"for {setting}, but the GGUF file says {2 * said}"):
        open_blocks(theirs, 1, 4)


def test_a_failure_of_transformers_while_it_runs_is_one_line(file):
    blocks = open_blocks(dl.load(file).checkpoint, 1, 4)
    with pytest.raises(UnsupportedModelError, match=r"model\.gguf: transformers can't run this .* \(IndexError"):
        blocks.run(np.array([[5_000]]))


def test_a_file_that_is_larger_than_the_memory_is_refused(file, monkeypatch):
    """transformers reads all of it, in float32."""
    monkeypatch.setattr("detoklens.model.checks.machine_memory", lambda: 500_000)
    said = r"all blocks, which are read of a GGUF file, .* pass the checkpoint as"
    with pytest.raises(RangeError, match=said):
        open_blocks(dl.load(file).checkpoint, 1, 4)
    with pytest.raises(RangeError, match=said):
        dl.study(file, text=TEXT, workers=1).ask(AUROC)


@pytest.mark.parametrize(("heads", "remedy"), [([0], "; use a machine"), ([0, 1], "; ask for fewer heads, or use a")])
def test_what_does_not_fit_of_a_folder_is_said_with_what_can_be_asked(folder, monkeypatch, heads, remedy):
    monkeypatch.setattr("detoklens.model.checks.machine_memory", lambda: 500_000)
    with pytest.raises(RangeError, match=f"the first 2 blocks in float32, 4,096 vectors of width 32 .*{remedy}"):
        dl.study(folder, text=TEXT, workers=1).ask(replace(AUROC, heads=heads))
