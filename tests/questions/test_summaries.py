"""The summaries of all verdicts on the demo: one claim, its number with an interval or bound, and the control."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import detoklens as dl
from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS

MOST_WORDS = 40
CHOSEN = {
    "layers": dl.Layers(up_to=2),
    "auroc": dl.Auroc(),
    "auroc --pieces": dl.Auroc(pieces=True),
    "auroc --layer": dl.Auroc(pieces=True, layer=1),
}
WITH_VERDICT = {name: question for name, question in QUESTIONS.items() if question.verdict is not Question.verdict}
ASKED = {name: question.examples()[0] for name, question in WITH_VERDICT.items() if name not in CHOSEN} | CHOSEN
CONTROLS = (
    *("the sum of its pieces", "piece alone", "another word's", " null", "random query biases", "random walks"),
    *("random mean vectors", "permuted", "rotated", "whole words"),
)
INTERVAL_OR_BOUND = r"\[−?[\d.]+, −?[\d.]+\]|we require|must exceed|±[\d.]+"


@pytest.fixture(scope="module")
def study() -> dl.Study:
    return dl.study("demo", workers=1)


@pytest.mark.parametrize("name", ASKED)
def test_a_summary_has_a_number_a_control_and_a_bound_in_forty_words(
    name: str, study: dl.Study, shared_answers: None
) -> None:
    answer = study.ask(ASKED[name])
    said, verdict = answer.sentence, answer.verdict
    assert verdict is not None
    assert len(said.split()) <= MOST_WORDS, said
    assert re.search(r"\d", re.sub(r"L\d+H\d+", "", said)), said
    if verdict.value == "untestable":
        return
    assert any(control in said for control in CONTROLS), said
    assert re.search(INTERVAL_OR_BOUND, said), said


def test_the_heads_of_the_demo_do_not_depend_on_chance(study: dl.Study, shared_answers: None) -> None:
    """L0H1's ρ is within the range of random query biases, though close to its end."""
    assert study.ask(dl.Frequency()).verdict.heads == ("L0H2",)


@pytest.mark.parametrize("name", ["auroc --pieces", "words", "heatmap", "lookback", "frequency", "heads"])
def test_a_summary_speaks_of_the_chosen_heads_only(name: str, study: dl.Study) -> None:
    """L0H0 and L0H3 do nothing clear, but other heads do."""
    question = replace(ASKED.get(name, QUESTIONS[name.split()[0]]()), heads=[0, 3])
    assert study.ask(question).sentence.startswith("None of the chosen heads ")
