"""Questions that were answered before are not asked again; what changes their numbers does; folders are respected."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from detoklens.corpus.counts import Counts
from detoklens.errors import OutputError
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.contributions.question import Contributions
from detoklens.questions.heads.question import HEADS, Heads
from detoklens.questions.lexicon.question import Lexicon
from detoklens.questions.study import Study
from detoklens.questions.variance.question import Variance
from detoklens.questions.words.question import Words
from detoklens.report import folder as answers
from detoklens.report.content import Listener
from detoklens.report.drawing import Drawing, FigureCache, draw_files, drawings
from detoklens.report.folder import claim, column_guide, refuse_foreign
from detoklens.report.report import KIND, _cell, _part
from detoklens.report.sections import Entry, SectionPlan, curve_tokens, example_tokens
from tests.figures.synthetic import tables as made_tables
from tests.layers import random_layer
from tests.spelled import LINES, counts_of, spelled_layer

QUICK = SectionPlan(
    "Quick?",
    lambda study: [Entry(each) for each in (Auroc(), Words(), Lexicon(top=9), Variance(), Heads(), Contributions())],
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(answers, "SECTIONS", [QUICK])


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    return spelled_layer(tmp_path_factory.mktemp("spelled") / "model")


def kept(study: Study, folder) -> dict[str, bool]:
    """Which questions were read and which computed, each asked of a study that remembers nothing."""
    listener = Listener()
    answers.ask_all(study, folder, listener)
    return {step.title: step.kept for step in listener.passed if not step.missing}


def test_the_same_question_is_answered_once(layer, tmp_path):
    counts = counts_of(layer)
    assert not any(kept(Study(layer, counts), tmp_path).values())
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert kept(Study(layer, counts), tmp_path) == dict.fromkeys(
        ("auroc", "words", "lexicon", "variance", "heads"), True
    )
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert len(pl.read_csv(tmp_path / "heads.csv")) == 3


def test_only_what_depends_on_it_is_asked_again(layer, tmp_path):
    kept(Study(layer, counts_of(layer)), tmp_path)
    other = counts_of(layer, LINES[:2])
    again = {"auroc": False, "words": True, "lexicon": False, "variance": True, "heads": False}
    assert kept(Study(layer, other), tmp_path) == again
    assert kept(Study(layer, other, seed=1), tmp_path) == again | {"lexicon": True}
    (tmp_path / "lexicon.csv").unlink()
    assert kept(Study(layer, other, seed=1), tmp_path) == dict.fromkeys(again, True) | {"lexicon": False}


def test_an_interrupted_run_goes_on_where_it_stopped(layer, tmp_path):
    def stop(title: str) -> None:
        if title.startswith("variance"):
            raise KeyboardInterrupt

    counts = counts_of(layer)
    with pytest.raises(KeyboardInterrupt):
        answers.ask_all(Study(layer, counts), tmp_path, Listener(stop))
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob(".*.partial"))
    assert kept(Study(layer, counts), tmp_path) == {
        "auroc": True,
        "words": True,
        "lexicon": True,
        "variance": False,
        "heads": False,
    }


def test_what_is_missing_is_told_and_stands_under_its_title(tmp_path):
    listener = Listener()
    asked = answers.ask_all(Study(random_layer()), tmp_path, listener)
    missing = {step.title: step.missing for step in listener.passed}
    assert missing["auroc"] == ("counts",)
    assert missing["contributions"] == ("text",)
    assert missing["words"] == ("vocabulary",)
    assert missing["heads"] == ()
    left_out = {each.entry.question.name(): each.left_out for each in asked}
    assert left_out["auroc"] == "Omitted without corpus counts: auroc."
    assert left_out["heads"] == ""


def test_head_cards_take_what_was_ranked_before(layer, tmp_path):
    study = Study(layer, counts_of(layer))
    asked = {each.entry.question.name(): each.answer for each in answers.ask_all(study, tmp_path, Listener())}
    cards, pieces = asked["heads"].tables["heads"], study.ask(Auroc(pieces=True))
    assert cards["auroc"].to_list() == pieces.tables["auroc_controls"]["auroc"].to_list()
    assert cards["word_share"].to_list() == asked["words"].tables["words_by_head"]["median_share"].to_list()


def test_an_empty_figure_is_left_out_with_its_reason(layer, tmp_path, monkeypatch):
    """Pairs of unknown tokens that no corpus counted: there is no share to draw, but there are scores."""
    monkeypatch.setattr("detoklens.report.drawing.FORMATS", ("svg",))
    answer = Study(random_layer(vocab_size=33)).ask(Lexicon(top=9))
    asked = answers.Asked(QUICK, Entry(Lexicon(top=9)), answer)
    drawn = drawings(asked.entry, answer, [0], None)
    for _ in range(2):  # the second time nothing is drawn again
        pictures = FigureCache(tmp_path, "page").pictures(drawn)
        assert list(pictures) == ["lexicon_scores"]
        monkeypatch.setattr("detoklens.report.drawing.draw_files", None)
    part = _part(asked, drawn, pictures)
    assert [picture.name for picture in part.pictures] == ["lexicon_scores"]
    reason = "it needs corpus counts, or a tokenizer to join pairs to words"
    assert part.not_drawn == [f"Figure omitted: Lexicons by head ({reason})."]
    assert part.pictures[0].phone.startswith("<svg")
    assert not (tmp_path / "lexicon.svg").exists()


def test_without_a_tokenizer_examples_are_the_most_frequent_ids():
    without = random_layer(vocab_size=33)
    assert example_tokens(Study(without)) == list(range(8))
    assert curve_tokens(Study(without)) == []
    often = np.arange(33)
    counts = Counts.from_arrays(often, np.array([31, 32, 32]), np.array([1, 1, 2]), np.array([5, 1, 1]), "nobody")
    assert example_tokens(Study(without, counts)) == list(range(32, 24, -1))
    assert curve_tokens(Study(without, counts)) == [32, 31]


def test_spaces_are_shown_where_text_is_of_tokens():
    assert _cell("key_token", " the") == "␣the"
    assert _cell("L0H1", "o· the") == "o·␣the"
    assert _cell("position_class", "previous token") == "previous token"
    assert _cell("head", 3) == "L0H3"


def planned_of(tables: dict[str, pl.DataFrame]) -> list[Drawing]:
    specs = {spec.name: spec for question in (Auroc, Words) for spec in question.figures}
    used = {"auroc": "auroc_by_head", "words": "words_by_head"}
    return [Drawing(specs[name], name, name, {table: tables[table]}) for name, table in used.items()]


def test_a_figure_is_drawn_once_for_the_same_tables_and_width(tmp_path, monkeypatch):
    monkeypatch.setattr("detoklens.report.drawing.FORMATS", ("svg",))
    drawn = []
    monkeypatch.setattr("detoklens.report.drawing.draw_files", lambda task: drawn.append(task) or draw_files(task))
    tables = made_tables(2)

    def names(width: str = "page") -> list[str]:
        drawn.clear()
        pictures = FigureCache(tmp_path, width).pictures(planned_of(tables))
        assert all(picture.svg.startswith("<svg") and "currentColor" in picture.svg for picture in pictures.values())
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


def test_panels_of_a_head_are_drawn_for_chosen_heads_and_folded_for_all(layer):
    from detoklens.questions.positions.question import Positions

    entry = Entry(Positions(), remark=", as a test")
    answer = Study(layer).ask(entry.question)
    named = {drawing.name: drawing for drawing in drawings(entry, answer, [2, 0], 3)}
    assert named["position_alone"].heads == (2, 0)
    assert named["position_alone"].title.endswith(", as a test")
    assert named["position_alone_all_heads"].folded
    assert named["position_alone_all_heads"].heads is None
    assert not any(each.name.endswith("all_heads") for each in drawings(entry, answer, [0, 1, 2], 3))


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
    refuse_foreign(tmp_path / "new", KIND)
    assert not (tmp_path / "new").exists()
    claim(tmp_path / "new", "comparison")
    assert json.loads((tmp_path / "new" / "provenance.json").read_text())["finished"] is False
    claim(tmp_path / "new", "comparison")
    with pytest.raises(OutputError, match="holds a comparison"):
        claim(tmp_path / "new", KIND)


def test_the_guide_names_every_column_that_is_there():
    frame = made_tables(2)["heads"].drop("auroc")
    guide = column_guide([("heads", HEADS.as_found(frame), frame)])
    assert "## heads" in guide
    assert "2 rows" in guide
    assert "| `self_match` |" in guide
    assert "| `auroc` |" not in guide
    assert "\\|S\\|² / \\|W_QK\\|²" in guide
