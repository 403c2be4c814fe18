"""A vocabulary of one token has no pairs of different ones, and a report all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from tests.command_line import run
from tests.layers import random_first_layer, write_gpt2
from tests.report import made


@pytest.fixture
def model(tmp_path) -> Path:
    folder = write_gpt2(tmp_path / "model", random_first_layer(n_heads=2, d_head=3, vocab_size=1, dtype="float32"))
    Tokenizer(models.BPE({"a": 0}, [])).save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.usefixtures("only_svg")
def test_with_counts_and_text(model, tmp_path):
    text = made.write_texts(tmp_path / "text.jsonl", ["aaa", "aaaa"])
    run("count", text, "--tokenizer", model, "--workers", "1", "--out", tmp_path / "counts")
    out = made.report(model, tmp_path / "out", "--counts", tmp_path / "counts", "--text", text)
    assert "The vocabulary has no pairs of different tokens" in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("only_svg")
@pytest.mark.parametrize("named", [True, False], ids=["with a tokenizer", "without"])
def test_from_weights_alone(model, named, tmp_path):
    if not named:
        (model / "tokenizer.json").unlink()
    assert (made.report(model, tmp_path / "out") / "report.html").is_file()
