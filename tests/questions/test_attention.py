"""Attention on text, asked of a study."""

from __future__ import annotations

import polars as pl
import pytest

from detoklens.errors import MissingError, RangeError
from detoklens.questions.attention import Attention
from detoklens.questions.study import Study
from tests.layers import random_layer
from tests.questions.asking import (
    TERMINAL,
    assert_command_gives_the_same,
    assert_kept_and_read_again,
    same_tables,
    shown_lines,
    text_study,
    write_study,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def study(files):
    return text_study(*files)


def agreement(distances: dict[int, list[float]], documents: int = 12) -> dict[str, pl.DataFrame]:
    rows = [
        {"head": head, "query_position": place, "total_variation": distance, "documents": documents - place}
        for head, of_head in distances.items()
        for place, distance in enumerate(of_head)
    ]
    return {"attention_agreement": pl.DataFrame(rows)}


def test_python_and_command_line_give_the_same(study, tmp_path):
    assert_command_gives_the_same(study.ask(Attention([4, 20], heads=[2, 0], band=0.8)), tmp_path / "some")
    assert_command_gives_the_same(study.ask(Attention()), tmp_path / "all")


def test_an_answer_is_read_again(study, tmp_path):
    assert_kept_and_read_again(study, Attention([4], heads=[1]), tmp_path)


def test_default_positions_are_the_papers_scaled_to_the_length(files, study):
    assert study.ask(Attention()).tables["attention"]["query_position"].unique().to_list() == [1, 15, 31]
    cut = text_study(*files, length=8)
    assert cut.ask(Attention()).tables["attention"]["query_position"].unique().to_list() == [0, 3, 7]
    named = cut.provenance(Attention([0, 3, 7]))
    assert named == cut.provenance(Attention()), "the same question in other words"


def test_what_decides_the_numbers_is_kept_and_nothing_else(files, study):
    provenance = study.provenance(Attention([4], heads=[1, 1, 0]))
    assert set(provenance.options) == {"heads", "query_positions", "band", "documents_digest"}
    assert provenance.options["heads"] == [1, 0]
    assert provenance.counts_fingerprint is None
    other_seed = text_study(*files, seed=1, documents=20)
    assert other_seed.provenance(Attention()) != text_study(*files, documents=20).provenance(Attention())
    assert text_study(*files, seed=0, documents=40).provenance(Attention([4])) == study.provenance(Attention([4]))


def test_notes_say_what_was_read_each_time(study):
    first, second = study.ask(Attention([20])), study.ask(Attention([4, 20]))
    for answer in (first, second):
        assert "40 documents of 2 to 32 tokens (40 read)" in answer.notes
        assert any(note.endswith("documents are too short for query position 20") for note in answer.notes)


def test_the_sentence_names_the_nearest_and_the_farthest_head():
    said = Attention().summarize(agreement({0: [0.5, 0.7], 1: [0.1, 0.2], 2: [0.3, 0.3]}))
    assert said == (
        "On 12 documents, positions alone predict L0H1's attention best (total variation 0.15; 0 is equal, 1 disjoint) "
        "and L0H0's worst (0.60)."
    )
    alone = Attention().summarize(agreement({3: [0.25]}, documents=1))
    assert alone == (
        "On 1 document, L0H3's attention differs from the softmax of Tᵖ + Tᵖᵖ (total variation 0.25; 0 is equal, "
        "1 disjoint)."
    )


def test_models_are_compared_by_their_mean_distance():
    said = Attention().summarize_comparison({"start": agreement({0: [0.0, 0.2]}), "end": agreement({0: [0.5, 0.7]})})
    assert said.endswith("mean over heads and query positions: 0.10 in start and 0.60 in end.")


def test_a_terminal_shows_where_attention_goes_measured_and_predicted(study):
    answer = study.ask(Attention([0, 20]))
    lines = shown_lines(answer)
    assert max(map(len, lines)) <= TERMINAL
    row = answer.tables["attention_agreement"].row(1, named=True)
    for region in ("first", "far", "recent", "self"):
        cell = f"{100 * row[f'measured_{region}']:.0f} ({100 * row[f'predicted_{region}']:.0f}) %"
        assert cell in lines[4]
    assert "100 (100) %" in lines[3], "the first query has only itself"


def test_every_figure_can_be_drawn_of_the_answer(study):
    answer = study.ask(Attention([4, 20]))
    assert list(answer.figures) == ["attention", "attention_near", "attention_parts"]
    for name in answer.figures:
        assert answer.figure(name, heads=[2, 0], width="column").get_size_inches()[0] == 3.3


def test_bad_questions_are_one_line(study):
    with pytest.raises(MissingError, match="Attention needs text: study"):
        Study(random_layer()).ask(Attention())
    for band in (0, 1.5, -0.1, float("nan")):
        with pytest.raises(RangeError, match="is not a share of documents"):
            Attention(band=band)
    with pytest.raises(RangeError, match="no query position was given"):
        study.ask(Attention([]))
    with pytest.raises(RangeError, match="position 32 does not exist"):
        study.ask(Attention([32]))
    with pytest.raises(RangeError, match="query_positions is a list, each a whole number or None"):
        Attention("four")


def test_texts_may_be_given_as_they_are(files):
    from detoklens.loading import load
    from detoklens.questions.texts import Texts

    given = ("the sapient north wind met the chemist", "aliens from Tokyo")
    layer = load(files[0])
    study = Study(layer, texts=Texts(given=given))
    assert [ids.tolist() for ids in study.documents] == [layer.vocabulary.encode(text) for text in given]
    assert not same_tables(study.ask(Attention([2])), text_study(*files).ask(Attention([2])))


def test_figures_say_what_share_of_documents_a_band_holds(study):
    answer = study.ask(Attention([5], band=0.9))
    assert "the band that contains 90 % of them" in answer.figures["attention"].caption
    legend = [text.get_text() for text in answer.figure("attention_near").legends[0].get_texts()]
    assert legend[1] == "90 % of documents"
