"""A new question is one class: command, Python, notebook and report find all that they need in it."""

from __future__ import annotations

import polars as pl
import pytest

import detoklens as dl
from detoklens.questions import catalogue
from detoklens.report import drawing, folder
from tests.command_line import call, refuse, run
from tests.figures import synthetic
from tests.questions.toy import LENGTHS, Lengths


@pytest.fixture
def registered():
    """The toy among all questions."""
    catalogue.register(Lengths)
    yield
    del catalogue.QUESTIONS.listings["lengths"]


def test_it_is_a_command_with_options_and_help(registered, tmp_path):
    assert "Measure the query vectors of every head." in call("--help").stdout
    assert "Registered questions" in call("--help").stdout
    shown = call("lengths", "--help").stdout
    assert "--tokens" in shown
    assert "How many tokens, from the first." in shown
    assert "--figure FILE" in shown
    printed = run("lengths", "demo", "--heads", "1", "--tokens", "5", "--format", "csv")
    assert pl.read_csv(printed.stdout.encode())["head"].to_list() == [1]
    done = run("lengths", "demo", "--out", tmp_path / "out", "--figure", tmp_path / "toy.svg", "--width", "column")
    assert "has the longest query vectors" in done.stderr
    assert "10 tokens were measured" in done.stderr
    assert (tmp_path / "toy.svg").read_text().startswith("<?xml")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"lengths.parquet", "lengths.csv"}
    assert (
        "at least 1 is needed" in call("lengths", "--tokens", "0").stderr
        or call("lengths", "--tokens", "0").exit_code == 2
    )
    assert "head 9 does not exist" in refuse("lengths", "demo", "--heads", "9")


def test_it_is_an_answer_in_python_and_shows_itself(registered, tmp_path):
    study = dl.study("demo")
    answer = study.ask(Lengths(heads=[2, 0], tokens=3))
    assert answer.tables["lengths"]["head"].to_list() == [2, 0]
    assert answer.sentence.startswith("L0H")
    assert answer.command == "detoklens lengths demo --heads 2,0 --tokens 3"
    assert LENGTHS.question in str(answer)
    html = answer._repr_html_()
    assert "<svg" in html
    assert "<table>" in html
    assert answer.sentence in html
    answer.write(tmp_path)
    again = dl.read_answer(tmp_path)
    assert again.question == answer.question
    assert again.tables["lengths"].equals(answer.tables["lengths"])
    assert again.sentence == answer.sentence


def test_its_figures_are_tested_with_its_own_rows(registered, monkeypatch):
    rows = LENGTHS.frame({"head": [0, 0, 1], "length": [7.0, 8.0, 9.0]})
    monkeypatch.setattr(Lengths, "ask", lambda *_: {"lengths": rows})
    assert synthetic.tables(2)["lengths"].equals(rows)


def test_it_is_a_section_of_a_report(registered, tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "FORMATS", ("svg",))
    entries = folder.report_entries(dl.study("demo"))
    assert entries[-1].question == Lengths(), "its section comes last"
    monkeypatch.setattr(folder, "report_entries", lambda study, layers: entries[-2:])
    page = dl.study("demo", workers=1).report(tmp_path / "report").read_text(encoding="utf-8")
    for part in ("How long are they?", "has the longest query vectors", "|Q_e|, averaged over tokens"):
        assert part in page
    assert "detoklens lengths demo" in page
    assert 'id="figure-lengths"' in page
    assert "lengths.csv" in page
    assert (tmp_path / "report" / "tables" / "lengths.parquet").is_file()
