"""A tokenizer that changed between two runs changes what tables show: none of the old ones is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from detoklens import load_vocabulary
from detoklens.tables.files import MARK, read_stored
from tests.command_line import run
from tests.report import made
from tests.spelled import write_spelled

Change = Callable[[dict[str, Any]], None]


def change_tokenizer(model: Path, change: Change) -> None:
    path = model / "tokenizer.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    change(description)
    path.write_text(json.dumps(description), encoding="utf-8")


def exchange_two(description: dict[str, Any]) -> None:
    """Two tokens get each other's ids: sizes and weights stay."""
    ids = description["model"]["vocab"]
    ids["a"], ids["e"] = ids["e"], ids["a"]


def show_bytes_as_written(description: dict[str, Any]) -> None:
    """The ids of a text stay the same, the texts of ids do not."""
    description["decoder"] = None


@pytest.fixture
def model(tmp_path) -> Path:
    return write_spelled(tmp_path / "model")


@pytest.mark.usefixtures("undrawn", "few_words")
def test_a_report_after_the_tokenizer_changed_shows_the_new_one(model, tmp_path):
    made.report(model, tmp_path / "out")
    change_tokenizer(model, exchange_two)
    made.report(model, tmp_path / "out")
    vocabulary = load_vocabulary(model)
    seen = 0
    for path in (tmp_path / "out" / "tables").glob("*.parquet"):
        table = pl.read_parquet(path)
        for column in ("token", "query_token", "key_token"):
            if column in table.columns:
                seen += 1
                assert table[column].to_list() == [vocabulary.text(token) for token in table[f"{column}_id"]], path.name
    assert seen >= 5


@pytest.mark.parametrize("change", [exchange_two, show_bytes_as_written], ids=lambda change: change.__name__)
def test_a_table_says_which_tokenizer_it_shows(change, model, tmp_path):
    change_tokenizer(model, lambda description: description.update(pre_tokenizer=None))
    asked = ("partners", model, "--token-id", "300", "--out", tmp_path / "out")
    run(*asked)
    before = read_stored(tmp_path / "out" / "partners.parquet").metadata[MARK]
    change_tokenizer(model, change)
    run(*asked)
    after = read_stored(tmp_path / "out" / "partners.parquet").metadata[MARK]
    assert before is not None
    assert before != after
