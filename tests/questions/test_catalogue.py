"""The catalogue agrees with the question classes, and other packages can add to it."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from detoklens.cli.app import topics
from detoklens.errors import DetokLensError
from detoklens.questions import catalogue
from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS, Catalogue
from tests.command_line import call, refuse, run
from tests.questions import toy
from tests.questions.toy import Lengths


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_the_catalogue_repeats_each_docstring(name: str) -> None:
    assert QUESTIONS[name].name() == name
    assert (QUESTIONS[name].__doc__ or "").startswith(f"{QUESTIONS.listings[name].summary}\n")


@pytest.mark.parametrize("question", list(QUESTIONS.values()))
def test_terms_are_written_with_raised_letters(question: type[Question]) -> None:
    """Code comments may say T^ee; tables, captions, equations and help say Tᵉᵉ."""
    meanings = [column.meaning for schema in question.tables for column in schema.columns]
    figures = [text for spec in question.figures for text in (spec.title, spec.caption)]
    titles = [schema.question for schema in question.tables]
    assert [text for text in [*meanings, *titles, *figures, question.equation, question.__doc__] if "T^" in text] == []


def test_a_question_may_be_a_single_file(monkeypatch):
    monkeypatch.setitem(sys.modules, "detoklens.questions.lengths", toy)
    monkeypatch.setitem(catalogue.TOPICS, "Toys", {"lengths": "Measure the query vectors of every head."})
    assert Catalogue()["lengths"] is Lengths
    (spec,) = Lengths.figures
    tables = {"lengths": toy.LENGTHS.frame({"head": [0, 1], "length": [1.0, 2.0]})}
    assert replace(spec, function="draw_lengths").draw(tables).axes


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A tiny installed package with one question that works, one that can't be imported, and two taken names."""
    (tmp_path / "tiny.py").write_text("from tests.questions.toy import Lengths\n", encoding="utf-8")
    folder = tmp_path / "tiny-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n", encoding="utf-8")
    entries = ("lengths = tiny:Lengths", "broken = tiny:Missing", "auroc = tiny:Lengths", "report = tiny:Lengths")
    lines = "\n".join([f"[{catalogue.ENTRY_POINTS}]", *entries])
    (folder / "entry_points.txt").write_text(lines, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    fresh = Catalogue()
    monkeypatch.setitem(QUESTIONS.__dict__, "listings", fresh.listings)
    yield
    sys.modules.pop("tiny", None)


def test_an_installed_package_adds_a_command(installed):
    shown = call("--help").stdout
    assert "Installed questions" in shown
    assert "From tiny." in shown
    assert "tiny" not in sys.modules  # help imports no question
    assert QUESTIONS["lengths"] is Lengths
    assert "L0H1" in run("lengths", "demo", "--heads", "1").stderr


def test_an_installed_package_does_not_replace_a_command(installed):
    assert QUESTIONS["auroc"].__name__ == "Auroc"
    names = [name for group in topics().values() for name in group]
    assert names.count("report") == 1
    assert "Write a full report" in call("report", "--help").stdout


def test_a_question_that_cannot_be_imported_is_one_line(installed):
    assert "question broken: tiny:Missing can't be imported" in refuse("broken", "demo")
    with pytest.raises(DetokLensError, match="update or uninstall its package"):
        QUESTIONS["broken"]
