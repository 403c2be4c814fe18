"""`detoklens contributions` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from detoklens.questions.contributions import CONTRIBUTIONS
from detoklens.tables.files import MARK, read_stored
from detoklens.tokens import Vocabulary
from tests.cli.text_model import LENGTH, write_documents, write_text_model
from tests.command_line import call, refuse, run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_text_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("texts") / "texts.jsonl")


WRITTEN = sorted(
    f"{name}.{ending}"
    for name in ("contributions", "contributions_by_group", "contributions_by_head", "group_contributions")
    for ending in ("csv", "parquet")
)


def options_of(folder):
    return json.loads(read_stored(folder / "contributions.parquet").metadata[MARK])["options"]


def ask(model, texts, *more):
    return run("contributions", model, "--text", texts, "--workers", 1, *more)


def test_a_table_by_head_is_printed_and_both_tables_are_written(model, texts, tmp_path):
    result = ask(model, texts, "--format", "json", "--out", tmp_path)
    printed = json.loads(result.stdout)["rows"]
    assert list(printed[0]) == ["head", "term", "kl", "share", "top_changed", "rank"]
    assert len(printed) == 18
    written = pl.read_parquet(tmp_path / "contributions.parquet")
    assert written.columns == [column.name for column in CONTRIBUTIONS.columns]
    assert written.height == 3 * LENGTH * 6
    assert sorted(path.name for path in tmp_path.iterdir()) == WRITTEN
    options = options_of(tmp_path)
    assert options["formula"] == {"direction": "without", "scaling": "scaled", "reduction": "sum"}
    assert len(options["documents_digest"]) == 64


def test_positions_are_printed_when_asked_for(model, texts):
    result = ask(model, texts, "--by", "position", "--query-positions", "3,20", "--heads", "1", "--format", "csv")
    rows = [line.split(",") for line in result.stdout.splitlines()]
    assert [row[:3] for row in rows[1:3]] == [["1", "3", "ee"], ["1", "3", "pp"]]
    assert len(rows) == 1 + 2 * 6
    assert "documents are too short for query position 20" in result.stderr


def test_workers_change_no_number(model, texts):
    arguments = ("contributions", model, "--text", texts, "--by", "position", "--format", "csv", "--workers")
    assert run(*arguments, 2).stdout == run(*arguments, 1).stdout


def test_each_part_of_the_formula_is_an_option(model, texts, tmp_path):
    def formula(*options):
        ask(model, texts, "--query-positions", "5", "--out", tmp_path, *options)
        return options_of(tmp_path)["formula"]

    assert formula("--formula", "published") == {"direction": "whole", "scaling": "unscaled", "reduction": "mean"}
    assert formula("--direction", "whole") == {"direction": "whole", "scaling": "scaled", "reduction": "sum"}
    mixed = formula("--formula", "published", "--scaling", "scaled", "--reduction", "sum")
    assert mixed == {"direction": "whole", "scaling": "scaled", "reduction": "sum"}


def test_published_numbers_are_other_numbers(model, texts):
    assert ask(model, texts, "--formula", "published").stdout != ask(model, texts).stdout


def test_a_beginning_token_shifts_every_document_by_one(model, texts, tmp_path):
    lengths = {}
    for name, options in {"bare": [], "bos": ["--prepend-bos"]}.items():
        ask(model, texts, "--out", tmp_path / name, *options)
        lengths[name] = (
            pl.read_parquet(tmp_path / name / "contributions.parquet")
            .filter((pl.col("head") == 0) & (pl.col("term") == "ee"))["documents"]
            .to_list()
        )
    assert lengths["bos"][1:] == lengths["bare"][:-1]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"bos_token_id": 5, "eos_token_id": 6}, 5),
        ({"bos_token_id": 10**6, "eos_token_id": 6}, 6),
        ({"bos_token_id": None, "eos_token_id": None}, 0),
    ],
)
def test_the_beginning_token_is_the_configs_or_the_usual_one(tmp_path, config, expected):
    from detoklens.loading import load
    from detoklens.questions.texts import find_beginning

    write_text_model(tmp_path, **config)
    assert Vocabulary.from_folder(tmp_path).id("<|endoftext|>") == 0
    assert find_beginning(load(tmp_path)).token_id == expected


def test_special_tokens_in_a_text_are_text(model, tmp_path):
    (tmp_path / "a.txt").write_text("<|endoftext|>", encoding="utf-8")
    result = ask(model, tmp_path / "a.txt", "--query-positions", "5")
    assert "documents of 1 tokens" not in result.stderr


def test_documents_are_cut_and_sampled(model, texts, tmp_path):
    result = ask(model, texts, "--documents", "7", "--length", "6", "--out", tmp_path)
    assert "7 documents of" in result.stderr
    assert "to 6 tokens (40 read" in result.stderr
    written = pl.read_parquet(tmp_path / "contributions.parquet")
    assert written["query_position"].max() == 5
    assert written["documents"].max() <= 7


def test_an_interrupted_run_is_continued_and_leaves_nothing_behind(model, texts, tmp_path, monkeypatch):
    from detoklens.tables.files import Parts

    save, saved = Parts.save, []

    def failing_save(self, number, arrays):
        if number == 3:
            raise KeyboardInterrupt
        saved.append(number)
        save(self, number, arrays)

    arguments = ("contributions", model, "--text", texts, "--workers", 1, "--out", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Parts, "save", failing_save)
        assert call(*arguments).exit_code != 0
    assert saved == [0, 1, 2]
    [left] = tmp_path.iterdir()
    assert sorted(path.name for path in left.iterdir()) == ["0.npz", "1.npz", "2.npz", "question.json"]
    run(*arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == WRITTEN
    run(*arguments[:-1], tmp_path / "anew")
    parts = [tmp_path / "contributions.parquet", tmp_path / "anew" / "contributions.parquet"]
    assert pl.read_parquet(parts[0]).equals(pl.read_parquet(parts[1]))


def test_bad_questions_are_one_line(model, texts, tmp_path):
    def refusal(*more, text=texts):
        line = refuse("contributions", model, "--text", text, "--workers", 1, "--out", tmp_path / "out", *more)
        assert not (tmp_path / "out").exists()
        return line

    assert "position 32 does not exist; positions go from 0 to 31" in refusal("--query-positions", "32")
    assert "head 3 does not exist" in refusal("--heads", "3")
    assert "a length of 33 exceeds the 32 positions" in refusal("--length", "33")
    assert "query position 9 is beyond documents truncated to 8 tokens" in refusal(
        "--length", 8, "--query-positions", 9
    )
    assert "no such file or folder" in refusal(text=tmp_path / "missing.jsonl")
    empty = tmp_path / "empty.txt"
    empty.write_text("", encoding="utf-8")
    assert "all 1 documents are empty" in refusal(text=empty)


def test_documents_that_are_all_too_short_are_one_line(model, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("century", encoding="utf-8")
    line = refuse("contributions", model, "--text", short, "--workers", 1, "--query-positions", "30")
    assert line.startswith("detoklens: no document reaches query position 30: the longest of 1 has")


def test_help_has_an_example():
    assert "Example: detoklens contributions gpt2" in run("contributions", "--help").stdout


def test_a_refused_question_leaves_nothing_behind(tmp_path):
    """Documents that are all too short are found while the work is under way; the folder is not touched by then."""
    (tmp_path / "short.jsonl").write_text('{"text": "too short"}\n')
    model = Path(__file__).parent.parent / "data" / "tiny-gpt2"
    text, out = tmp_path / "short.jsonl", tmp_path / "out"
    result = call("contributions", model, "--text", text, "--query-positions", "40", "--out", out)
    assert result.exit_code == 1
    assert not out.exists()
