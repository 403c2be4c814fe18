"""AUROC of a layer beyond the first: asked, said with its validity, kept, and refused where it can't be."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import detoklens as dl
from detoklens import demo
from detoklens.errors import DetokLensError, MissingError, RangeError
from detoklens.measures.frequency import spearman
from detoklens.model.first_blocks import FirstBlocks
from detoklens.questions.answer import side_by_side
from detoklens.questions.auroc import deeper
from detoklens.questions.auroc.compute import AUROC_VALIDITY, MARGINS, ROC_POINTS
from detoklens.questions.auroc.verdict import summarize_validity
from tests.command_line import refuse, run
from tests.questions.asking import assert_kept_and_read_again, same_tables

NO_NULLS = [pl.lit(None, pl.Float64).alias(name) for name in MARGINS]
A_CURVE = ROC_POINTS.frame(
    {
        "head": [0, 0],
        "token_id": [300, 300],
        "token": ["a", "a"],
        "threshold": [None, 0.5],
        "false_positive_rate": [0.0, 1.0],
        "true_positive_rate": [0.0, 1.0],
    }
)
FEW = dl.Auroc(layer=1, tokens=list(range(300, 420)), bootstrap=20)


@pytest.fixture(scope="module")
def study():
    return dl.study("demo", documents=6, workers=1)


@pytest.fixture(scope="module")
def answer(study):
    return study.ask(FEW)


def test_layer_0_is_what_it_was(study):
    question = dl.Auroc(tokens=FEW.tokens, bootstrap=20)
    first = study.ask(question)
    assert "auroc_validity" not in first.tables
    assert {"layer", "blocks", "config", "documents_digest"}.isdisjoint(first.provenance.options)
    assert study.command(question) == study.command(dl.Auroc(layer=0, tokens=FEW.tokens, bootstrap=20))
    assert "--layer" not in first.command


def test_its_validity_is_that_of_what_was_ranked(study, answer, monkeypatch):
    """The same once more from what is predicted and what is real, caught on their way."""
    caught: list[np.ndarray] = []

    def keep(heads, layer, predicted, real, pieces):
        caught.extend([predicted, real, pieces])
        return answer.tables["auroc_validity"]

    monkeypatch.setattr(deeper, "validity", keep)
    dl.study("demo", documents=6, workers=2).ask(dl.Auroc(layer=1, tokens=[300], bootstrap=0))
    predicted, real, pieces = caught
    table = answer.tables["auroc_validity"]
    assert predicted.shape == real.shape == (4, 6 * 255)
    assert table["layer"].to_list() == [1] * 4
    assert table["correlation"].to_list() == pytest.approx(
        [spearman(*each) for each in zip(predicted, real, strict=True)]
    )
    assert table["pieces_links"][0] == pieces.sum()


def test_heads_have_the_layers_names(answer):
    assert "L1H" in answer.sentence
    assert "L0H" not in answer.sentence
    figure = answer.figure("auroc")
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["L1H0", "L1H1", "L1H2", "L1H3"]


def test_columns_mean_heads_of_the_layer(study, answer):
    meanings = {column.meaning for schema in answer.schemas for column in schema.columns if column.name == "head"}
    assert meanings == {"attention head of the layer, from 0"}
    assert (
        dl.Auroc()
        .schemas({"auroc_by_head": answer.tables["auroc_by_head"]})[0]
        .columns[0]
        .meaning.endswith("of layer 0, from 0")
    )


@pytest.mark.parametrize("question", [FEW, replace(FEW, controls=False), replace(FEW, roc=[300])])
def test_models_are_compared_with_the_validity_of_each(question, answer):
    tables = {name: answer.tables[name] for name in ("auroc_by_head", "auroc_controls", "auroc_validity")}
    if not question.controls:
        tables["auroc_controls"] = tables["auroc_controls"].with_columns(NO_NULLS)
    if question.roc:
        tables = {"roc_points": A_CURVE, "auroc_validity": tables["auroc_validity"]}
    both = side_by_side(question, {"one": replace(answer, tables=tables), "two": replace(answer, tables=tables)})
    assert both.sentence.count("On text, predictions hold in no head") == 2
    assert "L0H" not in both.sentence
    assert both.tables["auroc_validity"]["model"].to_list() == ["one"] * 4 + ["two"] * 4
    if not question.roc:
        ticks = both.figure("compare_auroc").axes[0].get_yticklabels()
        assert [tick.get_text() for tick in ticks] == ["L1H0", "L1H1", "L1H2", "L1H3"]


def test_the_sentence_says_that_it_does_not_hold(answer):
    best = answer.tables["auroc_validity"].sort("correlation", descending=True).row(0, named=True)
    closest = f"L1H{best['head']}, ρ {best['correlation']:.2f}"
    assert answer.sentence.endswith(f" On text, predictions hold in no head (best: {closest}; we require 0.5).")


def test_where_it_holds_for_some_heads_they_are_named():
    table = AUROC_VALIDITY.frame(
        {
            "head": [0, 1, 2],
            "layer": [3] * 3,
            "correlation": [0.2, 0.5, 0.9],
            "links": [1000] * 3,
            "pieces_correlation": [0.1, 0.7, None],
            "pieces_links": [200] * 3,
        }
    )
    assert summarize_validity(table, pieces=False) == (
        "On text, predictions hold only in L3H2 (0.90) and L3H1 (0.50); we require ρ ≥ 0.5."
    )
    assert summarize_validity(table, pieces=True).startswith("On text, predictions hold only in L3H1 (0.70);")
    few = table.with_columns(pl.lit(199, pl.Int64).alias("links"))
    assert summarize_validity(few, pieces=False).startswith("Validity is unknown: the text has 199 links ")
    none = table.with_columns(pl.lit(None, pl.Float64).alias("correlation"))
    assert summarize_validity(none, pieces=False) == (
        "Validity is unknown: on 1,000 links to the token before, predicted and real scores never both vary."
    )


@pytest.mark.parametrize(
    ("back", "said"),
    [(1, "the token before"), (-1, "the token after"), (3, "the token 3 positions before"), (0, "the token itself")],
)
def test_the_sentence_names_the_link(back, said):
    few = AUROC_VALIDITY.frame(
        {
            "head": [0],
            "layer": [1],
            "correlation": [0.1],
            "links": [9],
            "pieces_correlation": [0.1],
            "pieces_links": [9],
        }
    )
    assert summarize_validity(few, False, back).endswith(f"9 links to {said}; at least 200 are needed.")


def test_it_is_the_same_with_any_number_of_workers_and_kept(study, answer, tmp_path):
    assert same_tables(answer, dl.study("demo", documents=6, workers=2).ask(FEW))
    assert_kept_and_read_again(study, FEW, tmp_path)


def test_vectors_are_computed_once(tmp_path, monkeypatch):
    """What was interrupted after the vectors takes them from where they were kept."""
    ran: list[int] = []
    true = deeper.real_links

    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(deeper, "real_links", interrupted)
    study = dl.study("demo", documents=2, workers=1)
    question = dl.Auroc(layer=1, tokens=[300, 301], bootstrap=0, heads=[0])
    with pytest.raises(KeyboardInterrupt):
        study.ask(question, tmp_path)
    assert len(list(tmp_path.glob(".auroc-*.parts/inputs/*.npz"))) == 4096 // 256
    monkeypatch.setattr(deeper, "real_links", true)
    before = FirstBlocks.run
    monkeypatch.setattr(
        FirstBlocks, "run", lambda self, ids, until=None: ran.append(len(ids)) or before(self, ids, until)
    )
    study.ask(question, tmp_path)
    assert max(ran) == deeper.CHECKED
    assert not list(tmp_path.glob(".auroc-*"))


@pytest.fixture
def texts_run(monkeypatch) -> list[int]:
    """How many texts the real model was run on, pass by pass."""
    ran: list[int] = []
    run_model = FirstBlocks.run

    def counted(self, token_ids, until=None):
        ran.append(len(token_ids))
        return run_model(self, token_ids, until)

    monkeypatch.setattr(FirstBlocks, "run", counted)
    return ran


def test_vectors_are_kept_for_other_questions(answer, tmp_path, monkeypatch, texts_run):
    """Whatever else is asked about the same layer, the vocabulary is not run again, and the numbers are the same."""
    monkeypatch.setenv("DETOKLENS_CACHE", str(tmp_path))
    first = dl.study("demo", documents=6, workers=2).ask(FEW)
    assert sum(texts_run) == 4096 + deeper.CHECKED + 6
    for other in (FEW, replace(FEW, heads=[2]), replace(FEW, pieces=True, tokens=None), replace(FEW, roc=[300])):
        texts_run.clear()
        again = dl.study("demo", documents=6, workers=1, seed=3).ask(other)
        assert sum(texts_run) == deeper.CHECKED + 6, other
        assert not any("vectors" in note for note in again.notes)
    for each in (first, dl.study("demo", documents=6, workers=1).ask(FEW)):
        assert same_tables(answer, each)


def test_vectors_of_another_layer_or_model_are_others(tmp_path, monkeypatch, texts_run):
    monkeypatch.setenv("DETOKLENS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(demo.CHECKPOINT, tmp_path / "copy")
    named = {"text": ["once upon a time there was"], "counts": demo.COUNTS, "workers": 1}
    question = dl.Auroc(layer=1, tokens=[300, 301], bootstrap=0, heads=[0])

    def runs_the_vocabulary(layer: int) -> bool:
        texts_run.clear()
        dl.study(tmp_path / "copy", **named).ask(replace(question, layer=layer))
        return sum(texts_run) > 4096

    assert [runs_the_vocabulary(layer) for layer in (1, 2, 1, 2)] == [True, True, False, False]
    for changed in ({"bos_token_id": 5}, {"activation_function": "relu"}):
        _change_config(tmp_path / "copy", changed)
        assert [runs_the_vocabulary(1) for _ in range(2)] == [True, False], changed
    question = replace(question, bos=7)
    assert [runs_the_vocabulary(1) for _ in range(2)] == [True, False], "another beginning, as asked"


def test_the_beginning_of_text_token_can_be_chosen_and_is_recorded(answer):
    study = dl.study("demo", documents=6, workers=1)
    other = study.ask(replace(FEW, bos="none"))
    assert "no beginning-of-text token, as requested: words are at the very start of the text" in other.notes
    assert not same_tables(answer, other)
    assert FEW.settings(study)["bos"] == [0]
    assert replace(FEW, bos="none").settings(study)["bos"] == []
    with pytest.raises(DetokLensError, match="bos is only used above layer 0"):
        dl.Auroc(bos="none")


def test_damaged_vectors_are_said_to_be_and_computed_anew(answer, tmp_path, monkeypatch, texts_run):
    monkeypatch.setenv("DETOKLENS_CACHE", str(tmp_path))
    study = {"model": "demo", "documents": 6, "workers": 1}
    dl.study(**study).ask(FEW)
    (path,) = (tmp_path / "vectors").iterdir()
    with path.open("r+b") as file:
        file.seek(-5, 2)
        file.write(b"x")
    texts_run.clear()
    again = dl.study(**study).ask(FEW)
    assert sum(texts_run) > 4096
    assert f"{path} is damaged; computing its vectors again" in again.notes
    assert same_tables(answer, again)


def test_what_can_not_be_asked_is_refused_in_one_line(tmp_path, monkeypatch):
    with pytest.raises(RangeError, match="layer 3 does not exist: demo has layers 0 to 2; choose one of them"):
        dl.study("demo").ask(dl.Auroc(layer=3))
    folder = tmp_path / "copy"
    shutil.copytree(demo.CHECKPOINT, folder)
    with pytest.raises(MissingError, match="Auroc above layer 0 needs text to measure its validity"):
        dl.study(folder, counts=demo.COUNTS).ask(FEW)
    monkeypatch.setattr("detoklens.model.checks.machine_memory", lambda: 1_000_000)
    with pytest.raises(
        RangeError, match=r"4,096 vectors of width 128 .* ask for fewer heads, or use a machine with more"
    ):
        dl.study("demo", documents=2).ask(dl.Auroc(layer=1, tokens=[1]))
    _change_config(folder, {"activation_function": "nonsense"})
    (tmp_path / "text.txt").write_text("once upon a time")
    monkeypatch.undo()
    said = refuse("auroc", folder, "--layer", "1", "--truth", "merges", "--text", tmp_path / "text.txt")
    assert "transformers can't run this checkpoint" in said
    assert "nonsense" in said


def test_text_that_decides_nothing_is_said_to(tmp_path):
    (tmp_path / "text.txt").write_text("once upon a time")
    question = ("auroc", "demo", "--tokens", "300", "--no-controls", "--bootstrap", "0", "--workers", "1")
    assert "--text is ignored with these options" in run(*question, "--text", tmp_path / "text.txt").stderr
    assert "--text is ignored" not in run(*question).stderr


def _change_config(folder: Path, changed: dict[str, object]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
