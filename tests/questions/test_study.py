"""A study reads what is needed when it is needed, answers once, and says what it lacks in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import detoklens as dl
from detoklens.errors import CorpusError, CountsError, MissingError, OutputError, RangeError
from detoklens.questions import study as study_module
from detoklens.questions.study import Study
from detoklens.questions.texts import Texts, too_short
from tests.command_line import refuse
from tests.layers import random_layer
from tests.questions.toy import Lengths
from tests.spelled import counts_of, spelled_layer, write_spelled


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    return spelled_layer(tmp_path_factory.mktemp("spelled"))


def test_a_question_is_answered_once(layer):
    study, asked = Study(layer), []

    class Counted(Lengths):
        def ask(self, study, runner):
            asked.append(self)
            return super().ask(study, runner)

    first, second = study.ask(Counted(tokens=3)), study.ask(Counted(tokens=3))
    assert first is second
    assert len(asked) == 1
    study.ask(Counted(tokens=4))
    assert len(asked) == 2


def test_the_answers_asked_last_are_kept(layer, monkeypatch):
    monkeypatch.setattr(study_module, "KEPT", 2)
    study = Study(layer)
    for tokens in (3, 4, 3, 5):
        study.ask(Lengths(tokens=tokens))
    assert [study.is_answered(Lengths(tokens=tokens)) for tokens in (3, 4, 5)] == [True, False, True]


class Inner(Lengths):
    """Keeps parts, as a question that takes long does."""

    def ask(self, study, runner):
        list(runner.run(lambda number: {"number": np.array(number)}, 2))
        return super().ask(study, runner)


class Outer(Inner):
    """Asks another question before it keeps parts, and is interrupted at the end."""

    def ask(self, study, runner):
        study.ask(Inner(tokens=3))
        super().ask(study, runner)
        raise KeyboardInterrupt


def test_parts_of_a_nested_question_lie_within_those_of_the_outer_one(layer, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        Study(layer).ask(Outer(), tmp_path)
    [outer] = tmp_path.iterdir()
    [inner] = (path for path in outer.iterdir() if path.is_dir())
    for folder, question in ((outer, Outer()), (inner, Inner(tokens=3))):
        assert {"0.npz", "1.npz", "question.json"} <= {path.name for path in folder.iterdir()}
        assert (folder / "question.json").read_text() == Study(layer).provenance(question).to_json()


def test_parts_of_a_nested_question_are_not_written_through_a_link(layer, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        Study(layer).ask(Outer(), tmp_path / "out")
    [outer] = (tmp_path / "out").iterdir()
    shutil.rmtree(outer)
    (tmp_path / "elsewhere").mkdir()
    outer.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="is a link"):
        Study(layer).ask(Outer(), tmp_path / "out")
    assert not any((tmp_path / "elsewhere").iterdir())


def test_what_lies_in_the_folder_is_not_computed_again(layer, tmp_path):
    answer = Study(layer).ask(Lengths(tokens=3), tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}

    class Refusing(Lengths):
        def ask(self, study, runner):
            raise AssertionError("computed again")

        @classmethod
        def name(cls):
            return "lengths"

    again = Study(layer).ask(Refusing(tokens=3), tmp_path)
    assert again.tables["lengths"].equals(answer.tables["lengths"])
    assert before == {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_provenance_holds_what_decides_and_nothing_else(layer):
    counts = counts_of(layer)
    plain, counted, seeded = Study(layer), Study(layer, counts), Study(layer, seed=5)
    asked = [study.provenance(dl.Positions()).to_json() for study in (plain, counted, seeded)]
    assert len(set(asked)) == 1
    assert plain.provenance(dl.Frequency()) != counted.provenance(dl.Frequency())
    assert plain.provenance(dl.Heatmap()) != seeded.provenance(dl.Heatmap())
    assert plain.provenance(dl.Lexicon()) == seeded.provenance(dl.Lexicon())
    assert counted.provenance(dl.Auroc()) != Study(layer, counts, seed=5).provenance(dl.Auroc())


def test_another_tokenizer_is_another_provenance_where_tokens_are_shown(layer, tmp_path):
    from dataclasses import replace

    from detoklens.scores.layer import Layer
    from detoklens.tokens import Vocabulary

    text = layer.vocabulary.to_json().replace("<|endoftext|>", "<|the end|>")
    other = Layer(replace(layer.checkpoint, vocabulary=Vocabulary.from_json(text)))
    assert other.fingerprint == layer.fingerprint
    for question, same in ((dl.Partners([3]), False), (dl.Positions(), True), (dl.Words(), False)):
        assert (Study(layer).provenance(question) == Study(other).provenance(question)) is same


@pytest.mark.parametrize(
    ("question", "python", "flags"),
    [
        (dl.Auroc(), 'study(model, counts="FOLDER")', "--counts"),
        (dl.Contributions(), 'study(model, text=["…"]) with a list of texts', "--text"),
    ],
)
def test_what_is_missing_is_said_in_the_words_of_whoever_asks(question, python, flags, tmp_path):
    model = write_spelled(tmp_path / "model")
    with pytest.raises(MissingError) as caught:
        dl.study(model).ask(question)
    assert python in str(caught.value)
    assert "--" not in str(caught.value)
    said = refuse(question.name(), model)
    assert flags in said
    assert "study(" not in said


def test_texts_themselves_are_documents(layer):
    study = Study(layer, texts=Texts(given=("the north wind", "Homo sapiens", "")))
    assert [len(ids) for ids in study.documents] == [
        len(layer.vocabulary.encode(text)) for text in ("the north wind", "Homo sapiens")
    ]
    assert any("2 documents" in note and "1 empty" in note for note in study.notes)


def test_a_list_that_looks_like_files_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("the north wind")
    model = write_spelled(tmp_path / "model")
    assert dl.study(model, text=["a sentence", "another"]).texts.given == ("a sentence", "another")
    assert dl.study(model, text=str(tmp_path / "*.txt")).texts.text == (str(tmp_path / "*.txt"),)
    assert dl.study(model, text=[tmp_path / "a.txt"]).texts.text == (str(tmp_path / "a.txt"),)
    for wrong in (["a.txt"], ["texts/*"], [str(tmp_path / "a.txt")]):
        with pytest.raises(CorpusError, match=r"looks like a file.*pathlib\.Path"):
            dl.study(model, text=wrong)
    with pytest.raises(CorpusError, match="not a mix"):
        dl.study(model, text=["a sentence", Path("a.txt")])


def test_counts_of_another_tokenizer_are_refused(layer, tmp_path):
    with pytest.raises(CountsError, match="another tokenizer"):
        dl.study("demo", counts=counts_of(layer))
    assert dl.study(layer, counts=counts_of(layer)).counts is not None
    assert dl.Counts.open("demo").vocabulary_size == 4096


def test_the_demo_brings_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    study = dl.study("demo", documents=3)
    assert study.counts is not None
    assert len(study.documents) == 3
    assert any("not written by people" in note for note in study.notes)
    assert "3 documents" in repr(study)


def test_snapshots_of_the_demo_are_compared():
    compared = dl.compare({"start": "demo@0", "end": "demo"}, Lengths(tokens=2))
    assert compared.tables["lengths"]["model"].unique(maintain_order=True).to_list() == ["start", "end"]
    assert compared.sentence.startswith("start: L0H")
    assert compared.schemas[0].names[0] == "model"
    with pytest.raises(dl.DetokLensError, match="at least two"):
        dl.compare({"end": "demo"}, Lengths())


def test_a_model_without_a_tokenizer_can_be_studied():
    study = Study(random_layer(n_heads=2))
    assert not study.has("vocabulary")
    assert study.ask(dl.Partners([3, 5], top=2)).tables["partners"]["key_token"].is_null().all()
    with pytest.raises(dl.DetokLensError, match="has no tokenizer"):
        study.ask(dl.Partners(["ion"]))


def test_figures_are_named(layer):
    answer = Study(layer).ask(dl.Positions())
    with pytest.raises(RangeError, match="the figures are position_alone"):
        answer.figure("nothing")
    column = answer.figure("position_alone", heads=[1], width="column")
    assert column.get_size_inches()[0] == pytest.approx(3.3)


@pytest.fixture
def written(tmp_path):
    dl.study("demo").ask(dl.Partners(["ion"], top=2)).write(tmp_path)
    return tmp_path


def test_an_answer_is_read_again(written):
    from detoklens.questions.store import read_answer

    again, before = read_answer(written), dl.study("demo").ask(dl.Partners(["ion"], top=2))
    assert again == before
    assert again != dl.study("demo").ask(dl.Partners(["ion"], top=3))
    assert again != "ion"
    assert len({again, before}) == 1
    assert again.question == dl.Partners(["ion"], top=2)
    assert again.command == "detoklens partners demo ion --top 2"
    assert again.figures


def test_a_list_of_words_in_a_file_is_read_again(tmp_path):
    (tmp_path / "words.txt").write_text("nationality\nconnection\n", encoding="utf-8")
    answer = dl.study("demo").ask(dl.Words(tmp_path / "words.txt"))
    answer.write(tmp_path / "answer")
    assert dl.read_answer(tmp_path / "answer") == answer


@pytest.mark.parametrize(
    "wrong",
    [
        lambda answer: dl.study(5),
        lambda answer: dl.load_vocabulary(5),
        lambda answer: dl.study("demo", counts=5),
        lambda answer: dl.Counts.open(5),
        lambda answer: dl.read_answer(5),
        lambda answer: answer.write(5),
        lambda answer: dl.study("demo").ask(answer.question, 5),
        lambda answer: dl.study("demo").report(5),
        lambda answer: dl.compare(["demo", "demo@0"], answer.question),
    ],
)
def test_what_is_no_path_is_one_line(wrong, written):
    with pytest.raises(dl.DetokLensError, match=r"is a string or a pathlib.Path|is not a (mapping|model)"):
        wrong(dl.read_answer(written))


def test_folders_that_hold_no_whole_answer_are_refused(written, tmp_path):
    with pytest.raises(OutputError, match="no such folder"):
        dl.read_answer(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OutputError, match="contains no detoklens answer"):
        dl.read_answer(tmp_path / "empty")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "empty" / "a.parquet")
    with pytest.raises(OutputError, match="contains no detoklens answer"):
        dl.read_answer(tmp_path / "empty")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "empty" / "a.parquet", metadata={"detoklens": "{}"})
    with pytest.raises(OutputError, match="an earlier version of detoklens, or is damaged"):
        dl.read_answer(tmp_path / "empty")


def test_an_answer_that_lost_a_table_is_refused(tmp_path):
    dl.study("demo").ask(dl.Heatmap(tokens=5)).write(tmp_path)
    (tmp_path / "heatmap.parquet").unlink()
    with pytest.raises(OutputError, match="heatmap is missing"):
        dl.read_answer(tmp_path)


def test_a_damaged_table_is_refused(written):
    path = written / "partners.parquet"
    content = bytearray(path.read_bytes())
    content[40:60] = bytes(20)
    path.write_bytes(bytes(content))
    with pytest.raises(OutputError):
        dl.read_answer(written)


def test_several_answers_in_a_folder_are_told_apart(written):
    dl.study("demo").ask(dl.Heatmap(tokens=5)).write(written)
    with pytest.raises(OutputError, match=r"2 answers \(heatmap, partners\)"):
        dl.read_answer(written)
    assert dl.read_answer(written, "heatmap").question == dl.Heatmap(tokens=5)


def test_somebody_elses_file_is_not_overwritten(tmp_path):
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "partners.parquet")
    with pytest.raises(OutputError, match="not written by detoklens"):
        dl.study("demo").ask(dl.Partners(["ion"]), tmp_path)


def test_token_ids_of_numpy_are_numbers():
    assert dl.Partners(np.array([3, 4])).tokens == (3, 4)


def test_what_is_no_question_and_no_seed_is_one_line(layer):
    for wrong in ("auroc", None, dl.Auroc):
        with pytest.raises(RangeError, match="is not a question"):
            Study(layer).ask(wrong)
    for wrong in (None, -1, 1.5, "x", True):
        with pytest.raises(RangeError, match="the seed is a whole number of at least 0"):
            Study(layer, seed=wrong)


def test_the_number_type_is_part_of_the_provenance():
    single, double = (dl.study(dl.load("demo", dtype=dtype)) for dtype in ("float32", "float64"))
    asked = dl.Partners(["ion"], top=1)
    assert single.provenance(asked) != double.provenance(asked)
    assert single.provenance(asked) == dl.study("demo").provenance(asked)


def test_the_command_of_given_texts_cuts_them_alike(layer):
    study = Study(layer, texts=Texts(given=("the north wind",), prepend_bos=True, length=4))
    words = study.command(dl.Contributions()).split()
    assert words[-6:] == ["--text", "TEXTS.txt", "--length", "4", "--prepend-bos", "--document-per-line"]


def test_the_command_prepends_the_beginning_of_text_token_once(layer):
    command = Study(layer, texts=Texts(given=("the north wind",))).command(dl.Contributions(prepend_bos=True))
    assert command.count("--prepend-bos") == 1


def test_empty_texts_are_no_files(layer):
    with pytest.raises(CorpusError, match="all 1 documents are empty"):
        assert dl.study(layer, text=[""]).documents
    assert not dl.study(layer, text=None).has("text")


def test_heads_that_a_figure_does_not_have_are_refused(layer):
    answer = Study(layer).ask(dl.Positions(heads=[0, 2]))
    for wrong in ([9], [1], [-1], []):
        with pytest.raises(RangeError, match="the heads of this answer are 0, 2"):
            answer.figure("position_alone", heads=wrong)
    assert answer.figure("position_alone", heads=2)


def test_somebody_elses_csv_is_not_overwritten(tmp_path):
    (tmp_path / "partners.csv").write_text("mine")
    with pytest.raises(OutputError, match=r"partners\.csv was not written by detoklens"):
        dl.study("demo").ask(dl.Partners(["ion"]), tmp_path)
    assert (tmp_path / "partners.csv").read_text() == "mine"


def test_a_damaged_answer_is_computed_again(written):
    path = written / "partners.parquet"
    content = bytearray(path.read_bytes())
    content[40:60] = bytes(20)
    path.write_bytes(bytes(content))
    again = dl.study("demo").ask(dl.Partners(["ion"], top=2), written)
    assert dl.read_answer(written).tables["partners"].equals(again.tables["partners"])


def test_two_answers_to_one_question_say_what_to_do(written):
    dl.study("demo").ask(dl.Auroc(roc=["ion"])).write(written)
    dl.study("demo").ask(dl.Auroc(truth="merges", bootstrap=0, controls=False, tokens=["ion"])).write(written)
    with pytest.raises(OutputError, match="2 answers to auroc; write each to a separate folder"):
        dl.read_answer(written, "auroc")


def test_documents_that_are_too_short_are_told_in_few_lines() -> None:
    documents = [np.zeros(length, np.int64) for length in (3, 5, 8)]
    assert too_short(documents, [2, 4]) == ["1 of 3 documents are too short for query position 4"]
    many = too_short(documents, [1, 3, 4, 5, 6, 7])
    assert many == ["1 to 2 of 3 documents are too short for query positions 3 to 7"]
