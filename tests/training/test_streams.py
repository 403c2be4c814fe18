"""Does the stream hold the documents, and do windows start anywhere in it?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from failure import RecipeError
from streams import Stream, open_streams
from tests.training.conftest import Script, made_up_text
from text import documents
from tokenizer import END_OF_TEXT, learn


@pytest.fixture(scope="module")
def tokenizer(data: Path) -> Tokenizer:
    return Tokenizer.from_file(str(data / "tokenizer.json"))


@given(st.text())
def test_any_text_comes_back_from_its_tokens(tokenizer: Tokenizer, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_no_token_reaches_across_a_word_border() -> None:
    tokenizer = learn(["in the end, in the end, in the end; don't 1234 5678\n\n"] * 50, 274)
    pieces = tokenizer.encode("in the end, don't 1234").tokens
    assert "".join(pieces) == "inĠtheĠend,Ġdon'tĠ1234"
    assert all("Ġ" not in piece[1:] for piece in tokenizer.get_vocab())
    assert {"Ġthe", "Ġend", ",", "'t"} <= set(pieces)


def test_the_stream_is_the_documents_with_an_end_after_each(
    data: Path, text_folder: Path, tokenizer: Tokenizer
) -> None:
    end = tokenizer.token_to_id(END_OF_TEXT)
    for name, held_out in (("train", False), ("heldout", True)):
        ids = np.fromfile(data / f"{name}.bin", np.uint16)
        ends = np.flatnonzero(ids == end)
        parts = np.split(ids, ends + 1)[:-1]
        texts = [tokenizer.decode(part[:-1].tolist()) for part in parts]
        expected = [d.text for d in documents(text_folder, ["book"]) if d.held_out == held_out]
        assert texts == expected
        summary = json.loads((data / "stream.json").read_text(encoding="utf-8"))
        assert (summary[f"{name}_documents"], summary[f"{name}_tokens"]) == (len(parts), len(ids))


@given(st.integers(2, 40), st.integers(0, 2**31), st.integers(0, 2**31))
def test_a_target_is_the_token_after(data: Path, context: int, seed: int, step: int) -> None:
    stream = Stream(data / "train.bin", context)
    ids, targets = stream.random_windows(3, (seed, step, 0))
    assert ids.shape == targets.shape == (3, context)
    assert (ids[:, 1:] == targets[:, :-1]).all()
    again, _ = stream.random_windows(3, (seed, step, 0))
    assert (ids == again).all()


def test_windows_start_at_every_place_even_the_last(tmp_path: Path) -> None:
    np.arange(12, dtype=np.uint16).tofile(tmp_path / "few.bin")
    stream = Stream(tmp_path / "few.bin", 8)
    drawn = [stream.random_windows(4, (0, step, 0)) for step in range(30)]
    assert {int(row[0]) for ids, _ in drawn for row in ids} == {0, 1, 2, 3}
    assert max(int(targets.max()) for _, targets in drawn) == 11
    ids, targets = stream.even_windows(2)
    assert (int(ids[0, 0]), int(targets[-1, -1])) == (0, 11)


def test_processes_and_steps_get_different_windows(data: Path) -> None:
    stream = Stream(data / "train.bin", 16)
    keys = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert len({stream.random_windows(2, key)[0].numpy().tobytes() for key in keys}) == len(keys)


def test_a_text_too_small_for_the_vocabulary_is_one_clear_line(tmp_path: Path, script: Script) -> None:
    (tmp_path / "small.txt").write_text(made_up_text(30, 0), encoding="utf-8")
    ended = script("tokenizer", tmp_path, tmp_path / "tokenizer.json", "--vocabulary", 5000)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "too small to train on" in ended.stderr
    assert not (tmp_path / "tokenizer.json").exists()


def test_a_text_too_small_for_the_context_is_one_clear_line(data: Path, tmp_path: Path, script: Script) -> None:
    ended = script("train", data, "--out", tmp_path / "run", "--context", 2048, "--tokens", 1)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "too small to train on" in ended.stderr
    assert not (tmp_path / "run").exists()


def test_a_text_of_which_nothing_is_held_out_is_refused(tmp_path: Path) -> None:
    np.zeros(10_000, np.uint16).tofile(tmp_path / "train.bin")
    (tmp_path / "heldout.bin").touch()
    (tmp_path / "stream.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RecipeError, match="10000 tokens and 0 held out, at least 800 and 9 are needed"):
        open_streams(tmp_path, 8)


def test_an_impossible_vocabulary_is_refused(text_folder: Path, tmp_path: Path, script: Script) -> None:
    ended = script("tokenizer", text_folder, tmp_path / "tokenizer.json", "--vocabulary", 100)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "258 to 65536" in ended.stderr


def test_steps_out_of_order_name_the_step_before(text_folder: Path, tmp_path: Path, script: Script) -> None:
    assert "run tokenizer.py first" in script("tokenise", text_folder, tmp_path).stderr
    with pytest.raises(RecipeError, match=r"run tokenise\.py first"):
        open_streams(tmp_path, 8)
