"""`detoklens explain` as a user meets it, hostile texts among them."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from detoklens.analyses.explain import explain
from detoklens.cli.link_summary import print_links
from detoklens.loading import load
from detoklens.tables.files import read_provenance
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


def test_csv_has_every_pair_and_out_has_both_tables(model: Path, tmp_path: Path) -> None:
    layer = load(model)
    ids = layer.vocabulary.encode(TEXT)
    found = explain(layer, ids, [0, 2])
    made = run("explain", model, TEXT, "--heads", "0,2", "--top", "4", "--format", "csv", "--out", tmp_path)
    assert made.stdout == found.pairs().write_csv()
    assert pl.read_parquet(tmp_path / "explanation.parquet").equals(found.pairs())
    assert pl.read_parquet(tmp_path / "links.parquet").equals(found.links(4))
    provenance = json.loads(read_provenance(tmp_path / "links.parquet") or "")
    assert provenance["options"] == {"token_ids": ids, "heads": [0, 2], "top": 4}


def test_links_can_be_asked_for(model: Path) -> None:
    layer = load(model)
    expected = explain(layer, layer.vocabulary.encode(TEXT)).links(2)
    assert (
        run("explain", model, TEXT, "--table", "links", "--top", "2", "--format", "csv").stdout == expected.write_csv()
    )


def test_the_summary_names_the_strongest_links_and_their_terms(model: Path) -> None:
    shown = run("explain", model, TEXT, "--top", "1").stdout
    layer = load(model)
    for link in explain(layer, layer.vocabulary.encode(TEXT)).links(1).iter_rows(named=True):
        line = next(line for line in shown.splitlines() if f"L0H{link['head']} " in line)
        assert repr(link["query_text"]) in line
        assert f"{link['attention']:.2f}" in line
        assert f" {link['term']} " in line
    assert "token compares itself with token" in " ".join(shown.split())


def test_hostile_tokens_are_spelled_out(model: Path) -> None:
    shown = run("explain", model, HOSTILE, "--top", "50").stdout
    assert all(sign not in shown for sign in "\x1b\x07\u202e")
    assert "\\x1b" in shown
    assert "'['" in shown


def test_markup_in_a_token_is_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = load(model)
    links = explain(layer, layer.vocabulary.encode(TEXT)).links(1).with_columns(key_text=pl.lit("[red]x[/red]"))
    print_links(links, list(layer.terms([0]).parts), "[bold]title[/bold]")
    shown = capsys.readouterr().out
    assert shown.count("'[red]x[/red]'") == 3
    assert "[bold]title[/bold]" in shown


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(model: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    layer = load(model)
    links = explain(layer, layer.vocabulary.encode(TEXT)).links(3)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    print_links(links, list(layer.terms([0]).parts), "title")
    lines = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    if width >= 80:
        assert sum("L0H" in line for line in lines) == 3


def test_bos_stands_in_front(model: Path, tmp_path: Path) -> None:
    rows = json.loads(run("explain", model, TEXT, "--prepend-bos", "--format", "json").stdout)
    assert rows[0]["query_text"] == "<|endoftext|>"
    assert rows[0]["query_position"] == 0
    nameless = write_gpt2(tmp_path, random_first_layer(dtype="float32"))
    assert "has no tokenizer" in refuse("explain", nameless, "--token-ids", "1,2", "--prepend-bos")


def test_ids_stand_in_for_a_text(model: Path, tmp_path: Path) -> None:
    ids = ",".join(map(str, load(model).vocabulary.encode(TEXT)))
    by_text = run("explain", model, TEXT, "--format", "csv").stdout
    assert run("explain", model, "--token-ids", ids, "--format", "csv").stdout == by_text
    nameless = write_gpt2(tmp_path, random_first_layer(dtype="float32"))
    assert "<id 1>" in run("explain", nameless, "--token-ids", "1,2").stdout
    assert "has no tokenizer" in refuse("explain", nameless, "text")


def test_text_comes_from_standard_input(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(io.BytesIO(TEXT.encode())))
    assert run("explain", model, "-", "--format", "csv").stdout == run("explain", model, TEXT, "--format", "csv").stdout
    monkeypatch.setattr(sys, "stdin", Standard(io.BytesIO(b"ab\xff")))
    assert "not valid UTF-8 at character 2" in refuse("explain", model, "-")


def test_bad_input_is_one_line_and_writes_nothing(model: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    assert "the text is empty" in refuse("explain", model, "", *out)
    assert "the text is empty" in refuse("explain", model, "", "--prepend-bos", *out)
    assert "either a text" in refuse("explain", model, *out)
    assert "either a text" in refuse("explain", model, "a", "--token-ids", "1", *out)
    assert "is longer than the 11 positions" in refuse("explain", model, "a b " * 30, *out)
    assert "token id 99999 does not exist" in refuse("explain", model, "--token-ids", "99999", *out)
    assert "head 5 does not exist" in refuse("explain", model, "a", "--heads", "5", *out)
    assert "not valid UTF-8" in refuse("explain", model, "a\udcff", *out)
    assert not (tmp_path / "out").exists()
