"""`detoklens heads` as a user meets it."""

from __future__ import annotations

import json
import shlex

import pytest

import detoklens
from detoklens.corpus.count import count_corpus
from detoklens.engines import open_engine
from detoklens.questions.heads.question import Heads
from detoklens.questions.store import read_answer
from detoklens.questions.study import study
from tests.command_line import refuse, run
from tests.spelled import LINES, write_spelled

pytestmark = pytest.mark.usefixtures("few_words")


def count(model, folder):
    (folder / "lines.txt").write_text("\n".join(LINES), encoding="utf-8")
    with open_engine("local", 1) as engine:
        count_corpus([folder / "lines.txt"], detoklens.load(model).vocabulary, folder / "counts", engine=engine)
    return folder / "counts"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_spelled(tmp_path_factory.mktemp("spelled"))


@pytest.fixture(scope="module")
def counts(model, tmp_path_factory):
    return count(model, tmp_path_factory.mktemp("counts"))


def test_heads_are_sorted_and_written(model, counts, tmp_path):
    asked = ("heads", model, "--counts", counts, "--workers", "1", "--format", "json", "--out", tmp_path)
    rows = json.loads(run(*asked, "--sort", "effective_rank").stdout)["rows"]
    ranks = [row["effective_rank"] for row in rows]
    assert ranks == sorted(ranks, reverse=True)
    assert all(row["auroc"] is not None for row in rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "heads.csv",
        "heads.parquet",
        "scorecard.csv",
        "scorecard.parquet",
    ]
    assert [row["head"] for row in json.loads(run("heads", model, "--format", "json").stdout)["rows"]] == [0, 1, 2]


def test_the_words_of_an_answer_give_its_table_again(model, counts, tmp_path):
    question = Heads(sort="self_match", ascending=True, heads=[2, 0])
    answer = study(model, counts=counts, workers=1, seed=2).ask(question)
    run(*shlex.split(answer.command)[1:], "--workers", "1", "--out", tmp_path)
    again = read_answer(tmp_path)
    assert again.question == question
    assert again.tables["heads"].equals(answer.tables["heads"])


def test_bad_input_is_one_line_and_writes_nothing(model, tmp_path):
    other = count(write_spelled(tmp_path / "model", vocab_size=310), tmp_path)
    out = ("--out", tmp_path / "out")
    assert "unknown column 'size' to sort by; choose one of head, auroc" in refuse(
        "heads", model, "--sort", "size", *out
    )
    assert "made with another tokenizer" in refuse("heads", model, "--counts", other, *out)
    assert "head 3 does not exist" in refuse("heads", model, "--heads", "3", *out)
    assert not (tmp_path / "out").exists()
