"""Steps that were done before are not done again; what changes their numbers does them again; folders are respected."""

from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest

from detoklens.errors import OutputError
from detoklens.report import asking
from detoklens.report.computing import Listener, compute
from detoklens.report.drawing import Sketchbook, draw_files, drawings
from detoklens.report.making import KIND, claim, column_guide, refuse_foreign
from detoklens.report.steps import STEPS
from detoklens.report.subject import Subject
from detoklens.tables.heads import HEADS
from tests.figures.synthetic import tables as made_tables
from tests.layers import random_layer
from tests.spelled import LINES, counts_of, spelled_layer

QUICK = [step for step in STEPS if step.name in ("auroc", "words", "lexicon", "variance", "heads", "contributions")]


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    layer = spelled_layer(tmp_path_factory.mktemp("spelled") / "model")
    return Subject(layer, counts_of(layer))


def kept(subject, folder, **more):
    return {went.step: went.kept for went in compute(subject, folder, steps=QUICK, **more)[1] if not went.missing}


def test_the_same_question_is_answered_once(subject, tmp_path):
    first = kept(subject, tmp_path)
    assert first == dict.fromkeys(("auroc", "words", "lexicon", "variance", "heads"), False)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    tables, _ = compute(subject, tmp_path, steps=QUICK)
    assert kept(subject, tmp_path) == dict.fromkeys(first, True)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert tables["heads"].equals(pl.read_parquet(tmp_path / "heads.parquet"))
    assert len(pl.read_csv(tmp_path / "heads.csv")) == 3


def test_other_counts_another_seed_or_a_lost_file_do_it_again(subject, tmp_path):
    kept(subject, tmp_path)
    other = replace(subject, counts=counts_of(subject.layer, LINES[:2]))
    assert not any(kept(other, tmp_path).values())
    assert not any(kept(replace(other, seed=1), tmp_path).values())
    (tmp_path / "lexicon.csv").unlink()
    again = kept(replace(other, seed=1), tmp_path)
    assert again == {"auroc": True, "words": True, "lexicon": False, "variance": True, "heads": True}


def test_an_interrupted_run_goes_on_where_it_stopped(subject, tmp_path):
    def stop(title: str) -> None:
        if title == "Find exceptional positions":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute(subject, tmp_path, listener=Listener(stop), steps=QUICK)
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob(".*.partial"))
    assert kept(subject, tmp_path) == {"auroc": True, "words": True, "lexicon": True, "variance": False, "heads": False}


def test_what_is_missing_is_told(tmp_path):
    _, passed = compute(Subject(random_layer()), tmp_path, steps=QUICK)
    missing = {went.step: went.missing for went in passed}
    assert missing["auroc"] == ("counts",)
    assert missing["contributions"] == ("text",)
    assert missing["lexicon"] == ("vocabulary",)
    assert missing["heads"] == ()


def test_head_cards_are_not_ranked_twice(subject, tmp_path, monkeypatch):
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("computed a second time")

    monkeypatch.setattr("detoklens.analyses.heads.measure_heads", refuse)
    monkeypatch.setattr("detoklens.analyses.heads.word_ranks", refuse)
    tables, _ = compute(subject, tmp_path, steps=QUICK)
    controls, cards = tables["auroc_controls"], tables["heads"]
    assert cards["auroc"].to_list() == controls["auroc"].to_list()
    assert cards["word_share"].to_list() == tables["words_by_head"]["median_share"].to_list()


def test_pieces_of_words_are_judged_as_the_command_does(subject):
    from detoklens.analyses import auroc
    from detoklens.analyses.block_runs import Runner

    by_head, controls = asking.ask_auroc_of_pieces(asking.Asked(subject, {}, Runner()))
    pieces = auroc.word_internal(subject.layer.vocabulary)
    assert set(by_head["tokens"]) == {len(pieces)}
    assert 0 < len(pieces) < subject.layer.vocab_size
    assert controls["auroc"].to_list() == pytest.approx(by_head["seen"].to_list(), abs=1e-12)


def test_a_figure_is_drawn_once_for_the_same_tables_and_width(tmp_path, monkeypatch):
    monkeypatch.setattr("detoklens.report.drawing.FORMATS", ("svg",))
    drawn = []
    monkeypatch.setattr("detoklens.report.drawing.draw_files", lambda task: drawn.append(task) or draw_files(task))
    tables = {name: frame for name, frame in made_tables(2).items() if name in ("auroc_by_head", "words_by_head")}
    planned = drawings(tables, [0], 2)
    assert [drawing.name for drawing in planned] == ["auroc", "words"]

    def names(width: str = "page") -> list[str]:
        drawn.clear()
        pictures = Sketchbook(tmp_path, width).pictures(planned, tables)
        assert all(picture.svg.startswith("<svg") and "currentColor" in picture.svg for picture in pictures)
        return [task.drawing.name for task in drawn]

    assert names() == ["auroc", "words"]
    assert names() == []
    (tmp_path / "words.svg").unlink()
    assert names() == ["words"]
    tables["auroc_by_head"] = tables["auroc_by_head"].with_columns(seen=pl.lit(0.6))
    assert names() == ["auroc"]
    assert names("column") == ["auroc", "words"]
    (tmp_path / "drawn.json").write_text("{broken", encoding="utf-8")
    assert names("column") == ["auroc", "words"]


def test_panels_of_a_head_are_drawn_for_chosen_heads_and_folded_for_all():
    names = {drawing.name: drawing for drawing in drawings(made_tables(3), [2, 0], 3)}
    assert dict(names["roc"].options) == {"heads": (2, 0)}
    assert not names["roc"].folded
    assert names["roc_all_heads"].folded
    assert names["roc_all_heads"].options == ()
    assert not any(name.endswith("all_heads") for name in (each.name for each in drawings(made_tables(1), [0], 1)))


@pytest.mark.parametrize("found", ["notes.txt", "provenance.json"])
def test_a_folder_that_is_not_ours_is_left_alone(tmp_path, found):
    (tmp_path / found).write_text('{"detoklens": "no kind"}', encoding="utf-8")
    with pytest.raises(OutputError, match="holds something else and is not overwritten"):
        claim(tmp_path, KIND)
    assert [path.name for path in tmp_path.iterdir()] == [found]


def test_a_file_a_comparison_and_a_new_folder(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OutputError, match="is a file"):
        claim(tmp_path / "file", KIND)
    refuse_foreign(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    claim(tmp_path / "new", "comparison")
    assert json.loads((tmp_path / "new" / "provenance.json").read_text())["finished"] is False
    claim(tmp_path / "new", "comparison")
    with pytest.raises(OutputError, match="holds a comparison"):
        claim(tmp_path / "new", KIND)


def test_the_guide_names_every_column_that_is_there():
    frame = made_tables(2)["heads"].drop("auroc")
    guide = column_guide([(HEADS, frame)])
    assert "## heads" in guide
    assert "2 rows" in guide
    assert "| `self_match` |" in guide
    assert "| `auroc` |" not in guide
    assert "\\|S\\|² / \\|W_QK\\|²" in guide
