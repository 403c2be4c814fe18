"""Every question of every family: answered, or refused by name; nothing of another family's formula is computed."""

from __future__ import annotations

import pytest

import detoklens as dl
from detoklens.errors import MissingError
from detoklens.questions.catalogue import QUESTIONS
from tests.command_line import refuse, run

ASKED = {
    "partners": dl.Partners([300], top=3),
    "words": dl.Words(),
    "heatmap": dl.Heatmap(tokens=5),
    "lexicon": dl.Lexicon(top=5),
    "auroc": dl.Auroc(truth="merges", bootstrap=0),
    "heads": dl.Heads(),
    "twins": dl.Twins(pieces=[2], triples=50, candidates=300, bootstrap=20),
    "frequency": dl.Frequency(),
    "positions": dl.Positions(),
    "shape": dl.Shape(),
    "variance": dl.Variance(),
    "attention": dl.Attention(query_positions=[2]),
    "contributions": dl.Contributions(query_positions=[2]),
    "explain": dl.Explain("the little girl"),
}
TABLE = {"frequency", "positions", "shape", "variance", "attention", "contributions"}
LOOKS_BACK = {"positions", "shape", "variance", "attention", "contributions", "explain"}


def test_every_question_is_asked_here():
    assert set(ASKED) == set(QUESTIONS)


@pytest.mark.parametrize("name", ASKED)
def test_a_rotary_model_answers_or_says_why_not(name, stories_folder):
    study = dl.study(stories_folder, text=["the little girl went to the park"], workers=1)
    assert study.layer.positions == "rotary"
    if name not in TABLE:
        assert study.ask(ASKED[name]).sentence.endswith(".")
        return
    with pytest.raises(MissingError, match="needs a table of learned positions"):
        study.ask(ASKED[name])


@pytest.mark.parametrize("name", [name for name in ASKED if name != "auroc"])
def test_a_model_that_looks_both_ways_answers_or_says_why_not(name, minilm_folder):
    study = dl.study(minilm_folder, text=["the little girl went to the park"], workers=1)
    assert not study.layer.is_causal
    if name not in LOOKS_BACK:
        assert study.ask(ASKED[name]).sentence.endswith(".")
        return
    with pytest.raises(MissingError, match="looks both ways"):
        study.ask(ASKED[name])


def test_the_command_line_refuses_in_one_line(stories_folder):
    assert refuse("positions", stories_folder) == (
        "detoklens: Positions needs a table of learned positions, which rotary and ALiBi models do not have"
    )


def test_a_rotary_model_has_a_report_that_says_what_is_left_out(stories_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("detoklens.report.drawing.FORMATS", ("svg",))
    run("report", stories_folder, "--out", tmp_path / "out", "--workers", "1")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "The model has no table of positions, so this is left out: positions." in page
    assert 'id="figure-head_cards"' in page
