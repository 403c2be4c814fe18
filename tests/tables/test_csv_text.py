"""CSV for people with spreadsheets: no text is a formula, every text can be had back, numbers are numbers."""

from __future__ import annotations

import csv
import io
import re

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from detoklens.tables.files import csv_bytes
from tests.command_line import run
from tests.report.made import write_hostile

texts = st.lists(st.text(alphabet="=+-@'\t\r\n\0＝a,\" é"), min_size=1, max_size=8)


def cells_of(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode(), newline="")))[1:]


@given(texts)
def test_no_text_is_a_formula_and_every_text_can_be_had_back(values):
    cells = [row[0] for row in cells_of(csv_bytes(pl.DataFrame({"token": values, "number": range(len(values))})))]
    assert not any(re.match(r"[=+\-@\t\r\n＝＋－＠]", cell) for cell in cells)
    assert [re.sub(r"^'('*[=+\-@\t\r\n＝＋－＠])", r"\1", cell) for cell in cells] == values


def test_numbers_and_missing_texts_are_as_they_are():
    frame = pl.DataFrame({"whole": [-1, 2], "score": [-0.5, None], "token": ["-1", None], "seen": [True, None]})
    assert csv_bytes(frame) == b"whole,score,token,seen\n-1,-0.5,'-1,true\n2,,,\n"


def test_what_is_printed_is_safe_as_well(tmp_path):
    model = write_hostile(tmp_path / "model")
    printed = run("partners", model, "=", "--top", "3", "--heads", "0", "--format", "csv").stdout
    assert {row["query_token"] for row in csv.DictReader(io.StringIO(printed, newline=""))} == {"'="}
