"""Questions that were answered before are not asked again; what changes their numbers does; folders are respected."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.corpus.counts import Counts
from detoklens.errors import OutputError
from detoklens.progress import Listener
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.base import ReportEntry
from detoklens.questions.contributions import Contributions
from detoklens.questions.heads.question import HEADS, Heads
from detoklens.questions.lexicon import Lexicon
from detoklens.questions.partners import example_tokens
from detoklens.questions.study import Study
from detoklens.questions.variance import Variance
from detoklens.questions.words import Words
from detoklens.report import folder as answers
from detoklens.report.drawing import Drawing, draw_all, draw_files, drawings, heads_drawn
from detoklens.report.folder import claim, column_guide, refuse_foreign, report_entries
from detoklens.report.report import KIND, _cell, _notes, _part, _unasked
from detoklens.scores.layer import Layer
from tests.figures.synthetic import tables as made_tables
from tests.layers import random_layer
from tests.spelled import LINES, counts_of, spelled_layer

QUICK = [ReportEntry(each) for each in (Auroc(), Words(), Lexicon(top=9), Variance(), Heads(), Contributions())]

pytestmark = pytest.mark.usefixtures("few_words")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(answers, "report_entries", lambda study, layers: QUICK)


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


def test_what_is_missing_is_told_by_reason_with_the_command_that_would_answer(tmp_path):
    listener, study = Listener(), Study(random_layer(), model_words=["my model"])
    asked = answers.ask_all(study, tmp_path, listener)
    missing = {step.title: step.missing for step in listener.passed}
    assert missing["auroc"] == "counts"
    assert missing["contributions"] == "text"
    assert missing["words"] == "vocabulary"
    assert missing["heads"] == ""
    told = {each.reason.partition(";")[0]: (each.titles, each.command) for each in _unasked(study, asked)}
    assert {section for each in _unasked(study, asked) for section in each.sections} == {
        "Detokenization heads",
        "Token partners",
        "Term contributions",
    }
    assert told == {
        "no corpus counts": (["auroc"], "detoklens report 'my model' --corpus TEXT"),
        "the model has no tokenizer": (["words"], "detoklens report 'my model'"),
        "no text to measure attention on": (["contributions"], "detoklens report 'my model' --text TEXT"),
    }


@pytest.mark.parametrize("path", [".", "some/model", "/some/model"])
def test_notes_name_a_model_without_its_path(path):
    study = Study(Layer(replace(random_layer().checkpoint, name=path)))
    study.notes += [f"{path} has no token (of that kind). There is none", f"without those of {path}: a few"]
    assert _notes(study, [], "GPT") == [
        "GPT has no token (of that kind). There is none.",
        "Without those of GPT: a few.",
    ]


def test_an_answer_that_another_question_asked_for_is_not_called_kept(layer, tmp_path, monkeypatch):
    """`heads` asks for the words; asked next, they are answered at once but were not there before the run."""
    monkeypatch.setattr(answers, "report_entries", lambda study, layers: [ReportEntry(Heads()), ReportEntry(Words())])
    assert kept(Study(layer), tmp_path) == {"heads": False, "words": False}
    assert kept(Study(layer), tmp_path) == {"heads": True, "words": True}


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
    asked = answers.Asked(ReportEntry(Lexicon(top=9)), answer)
    drawn = drawings(asked.entry, answer, [0], None)
    for _ in range(2):  # the second time nothing is drawn again
        pictures = draw_all(drawn, tmp_path, "page")
        assert list(pictures) == ["lexicon_scores"]
        monkeypatch.setattr("detoklens.report.drawing.draw_files", lambda *_, **__: pytest.fail("drawn again"))
    part = _part(asked, drawn, pictures)
    assert [picture.name for picture in part.pictures] == ["lexicon_scores"], "the first figure that has data"
    reason = "it needs corpus counts, or a tokenizer to join pairs to words"
    assert part.not_drawn == [f"Figure omitted: Lexicons by head ({reason})."]
    assert part.pictures[0].phone.startswith("<svg")
    assert not (tmp_path / "lexicon.svg").exists()


def test_without_a_tokenizer_examples_are_the_most_frequent_ids():
    without = random_layer(vocab_size=33)
    assert example_tokens(Study(without)) == list(range(8))
    assert Auroc.report_entries(Study(without)) == [ReportEntry(Auroc(), compared=True)]
    often = np.arange(33)
    counts = Counts.from_arrays(often, np.array([31, 32, 32]), np.array([1, 1, 2]), np.array([5, 1, 1]), "nobody")
    assert example_tokens(Study(without, counts)) == list(range(32, 24, -1))
    assert Auroc.report_entries(Study(without, counts))[-1].question == Auroc(roc=[32, 31])
    titles = [entry.title for entry in report_entries(Study(without, counts))]
    assert len(set(titles)) == len(titles), "they are ids of the page"


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
    monkeypatch.setattr(
        "detoklens.report.drawing.draw_files",
        lambda drawing, **options: drawn.append(drawing) or draw_files(drawing, **options),
    )
    tables = made_tables(2)

    def names(width: str = "page") -> list[str]:
        drawn.clear()
        pictures = draw_all(planned_of(tables), tmp_path, width)
        assert all(picture.svg.startswith("<svg") and "currentColor" in picture.svg for picture in pictures.values())
        return [drawing.name for drawing in drawn]

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

    entry = ReportEntry(Positions(), remark=", as a test", figure="position_sum")
    answer = Study(layer).ask(entry.question)
    planned = drawings(entry, answer, [2, 0], 3)
    assert [(each.name, each.heads) for each in planned[:3]] == [
        ("position_sum", (2, 0)),
        ("position_sum_all_heads", None),
        ("position_alone", None),
    ]
    assert planned[0].title.endswith(", as a test")
    assert not any(each.name.endswith("all_heads") for each in drawings(entry, answer, [0, 1, 2], 3))
    for without in (replace(entry, headline=False), replace(entry, figure=None)):
        assert all(each.heads is None for each in drawings(without, answer, [2, 0], 3)), "the appendix has all heads"


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)), st.integers(1, 16))
def test_the_heads_that_a_sentence_names_are_drawn_first(own, others, n_heads):
    said, more = ([f"L0H{head} and L1H3 with L0H{head}." for head in heads] for heads in (own, others))
    drawn = heads_drawn(" ".join(said), more, n_heads)
    named = [head for head in dict.fromkeys(own) if head < n_heads]
    assert list(drawn[: len(named)]) == named
    assert len(drawn) == len(set(drawn)) >= min(2, n_heads)
    assert set(drawn) <= set(range(n_heads))


@pytest.mark.parametrize("found", ["notes.txt", "provenance.json"])
def test_a_folder_that_is_not_ours_is_left_alone(tmp_path, found):
    (tmp_path / found).write_text('{"detoklens": "no kind"}', encoding="utf-8")
    with pytest.raises(OutputError, match="contains other files and is not overwritten"):
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
    guide = column_guide({"heads": (HEADS.without("auroc"), frame)})
    assert "## heads" in guide
    assert "2 rows" in guide
    assert "| `self_match` |" in guide
    assert "| `auroc` |" not in guide
    assert "\\|S\\|² / \\|W_QK\\|²" in guide
