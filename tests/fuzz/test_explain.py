"""Any text, any ids, any wrong thing: an explanation that adds up and can be shown, or one line that says why not."""

from __future__ import annotations

import random
import shlex
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.cells import cell_len

from detoklens.errors import DetokLensError
from detoklens.questions.answer import Answer
from detoklens.questions.explain.question import Explain
from detoklens.questions.study import Study
from detoklens.scores.terms import Term
from detoklens.tables.rendering import text_table
from tests.fuzz.budget import cases
from tests.spelled import spelled_layer

ALPHABET = "ab Z-\n\t\0'\"$[]漢é\u0301\u202e\U0001f600\ud800"
WRONG = (None, 1.5, "0", b"x", {}, [[]], [1.5], ["a"], [None], float("nan"), -1, 10**30, [10**30], [-1], [], True)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return Study(spelled_layer(tmp_path_factory.mktemp("spelled")))


def drawn_question(chance: random.Random, study: Study) -> dict[str, Any]:
    """Mostly good parameters, now and then a wrong one."""
    size = chance.choice([0, 1, 3, 8, 40])
    text: Any = "".join(chance.choices(ALPHABET, k=size))
    if chance.random() < 0.4:
        text = [chance.randrange(study.layer.vocab_size + (chance.random() < 0.1)) for _ in range(min(size, 12))]
    asked = {
        "text": text,
        "heads": chance.choice([None, [0], [2, 0, 2], [3], []]),
        "top": chance.choice([1, 3, 99]),
        "prepend_bos": chance.random() < 0.3,
    }
    if chance.random() < 0.2:
        asked[chance.choice(list(asked))] = chance.choice(WRONG)
    return asked


def test_a_text_is_explained_or_refused_in_one_line(study: Study) -> None:
    for chance in cases(120):
        asked = drawn_question(chance, study)
        answer = answered(study, asked)
        if isinstance(answer, str):
            assert "\n" not in answer, asked
        else:
            check_numbers(answer)
            check_shown(answer)


def answered(study: Study, asked: dict[str, Any]) -> Answer | str:
    try:
        return study.ask(Explain(**asked))
    except DetokLensError as refusal:
        return str(refusal)


def check_numbers(answer: Answer) -> None:
    pairs = answer.tables["explanation"]
    parts = np.stack([pairs[term].to_numpy() for term in Term])
    np.testing.assert_allclose(parts.sum(axis=0), pairs["score"], atol=1e-4 * (1 + np.abs(parts).max()))
    rows = pairs.select("head", "query_position", "attention").group_by("head", "query_position").sum()
    np.testing.assert_allclose(rows["attention"], 1, atol=1e-5)
    assert answer.tables["links"]["rank"].max() <= 99


def check_shown(answer: Answer) -> None:
    for view in answer.views:
        lines = text_table(view.frame, "", 80).splitlines()
        assert max(map(cell_len, lines)) <= 80
        assert all(line.isprintable() for line in lines)
    assert answer.sentence.isprintable()
    assert shlex.split(answer.command)[:2] == ["detoklens", "explain"]
    assert isinstance(answer.figure(width="column"), Figure)
