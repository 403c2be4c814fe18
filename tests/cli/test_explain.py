"""`detoklens explain` as a user meets it, hostile texts among them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from detoklens.loading import load
from detoklens.questions.answer import Answer
from detoklens.questions.explain.question import Explain
from detoklens.questions.study import Study
from detoklens.tables.files import MARK, read_stored
from tests.command_line import refuse, run
from tests.layers import random_first_layer, write_gpt2
from tests.spelled import write_spelled

TEXT = "sapient wind in the"
HOSTILE = "\x1b[r]\x07\u202e"


class Standard(NamedTuple):
    """Standard input as bytes."""

    buffer: io.BytesIO

    def isatty(self) -> bool:
        return False


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_spelled(tmp_path_factory.mktemp("spelled"))


def asked(model: Path, *question: object, **more: object) -> Answer:
    return Study(load(model)).ask(Explain(*question, **more))


def test_csv_has_every_pair_and_out_has_both_tables(model: Path, tmp_path: Path) -> None:
    found = asked(model, TEXT, heads=[0, 2], top=4).tables
    made = run("explain", model, TEXT, "--heads", "0,2", "--top", "4", "--format", "csv", "--out", tmp_path)
    assert made.stdout == found["explanation"].write_csv()
    assert pl.read_parquet(tmp_path / "explanation.parquet").equals(found["explanation"])
    assert pl.read_parquet(tmp_path / "links.parquet").equals(found["links"])
    provenance = json.loads(read_stored(tmp_path / "links.parquet").metadata[MARK])
    ids = load(model).vocabulary.encode(TEXT)
    assert provenance["options"] == {"token_ids": ids, "heads": [0, 2], "top": 4}


def test_links_can_be_asked_for(model: Path) -> None:
    expected = asked(model, TEXT, top=2).tables["links"].write_csv()
    assert run("explain", model, TEXT, "--table", "links", "--top", "2", "--format", "csv").stdout == expected


def test_the_summary_names_the_strongest_links_and_their_terms(model: Path) -> None:
    shown = run("explain", model, TEXT, "--top", "1").stdout
    for link in asked(model, TEXT, top=1).tables["links"].iter_rows(named=True):
        line = next(line for line in shown.splitlines() if f"L0H{link['head']} " in line)
        assert f" {link['query_text'].replace(' ', '␣')} {link['query_position']} " in line
        assert f" {link['attention']:.2f} " in line
        assert f" {link['term']} " in line
        assert f" {link['without_term']:.2f} " in line
    assert "token compares itself with token" in shown


def test_hostile_tokens_are_spelled_out(model: Path) -> None:
    shown = run("explain", model, HOSTILE, "--top", "50").stdout
    assert all(sign not in shown for sign in "\x1b\x07\u202e")
    assert "\\x1b" in shown
    assert "[ 1" in shown


def test_bos_stands_in_front(model: Path) -> None:
    rows = json.loads(run("explain", model, TEXT, "--prepend-bos", "--format", "json").stdout)["rows"]
    assert rows[0]["query_text"] == "<|endoftext|>"
    assert rows[0]["query_position"] == 0


def test_bos_needs_no_tokenizer_where_the_config_names_it(tmp_path: Path) -> None:
    for name, config in {"bos": {"bos_token_id": 5}, "eos": {"eos_token_id": 5}}.items():
        named = write_gpt2(tmp_path / name, random_first_layer(dtype="float32"), **config)
        with_bos = run("explain", named, "--token-ids", "1,2", "--prepend-bos", "--format", "csv").stdout
        assert with_bos == run("explain", named, "--token-ids", "5,1,2", "--format", "csv").stdout
    nameless = write_gpt2(tmp_path / "none", random_first_layer(dtype="float32"))
    line = refuse("explain", nameless, "--token-ids", "1,2", "--prepend-bos")
    assert "no beginning-of-text token" in line


def test_ids_stand_in_for_a_text(model: Path, tmp_path: Path) -> None:
    ids = ",".join(map(str, load(model).vocabulary.encode(TEXT)))
    by_text = run("explain", model, TEXT, "--format", "csv").stdout
    assert run("explain", model, "--token-ids", ids, "--format", "csv").stdout == by_text
    nameless = write_gpt2(tmp_path, random_first_layer(dtype="float32"))
    assert "<id␣1> 0" in run("explain", nameless, "--token-ids", "1,2").stdout
    assert "has no tokenizer" in refuse("explain", nameless, "text")


def test_text_comes_from_standard_input(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(io.BytesIO(TEXT.encode())))
    assert run("explain", model, "-", "--format", "csv").stdout == run("explain", model, TEXT, "--format", "csv").stdout
    monkeypatch.setattr(sys, "stdin", Standard(io.BytesIO(b"ab\xff")))
    assert "not valid UTF-8 at byte 2" in refuse("explain", model, "-")


def test_bad_input_is_one_line_and_writes_nothing(model: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    assert "the text is empty" in refuse("explain", model, "", *out)
    assert "the text is empty" in refuse("explain", model, "", "--prepend-bos", *out)
    assert "either a text" in refuse("explain", model, *out)
    assert "either a text" in refuse("explain", model, "a", "--token-ids", "1", *out)
    assert "is longer than the model's 11 positions" in refuse("explain", model, "a b " * 30, *out)
    assert "token id 99999 does not exist" in refuse("explain", model, "--token-ids", "99999", *out)
    assert "head 5 does not exist" in refuse("explain", model, "a", "--heads", "5", *out)
    assert "not valid UTF-8" in refuse("explain", model, "a\udcff", *out)
    assert not (tmp_path / "out").exists()


def test_help_has_an_example() -> None:
    assert "Example: detoklens explain gpt2" in run("explain", "--help").stdout
