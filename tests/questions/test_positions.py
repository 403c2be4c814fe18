"""What the questions about positions have in common: tables, provenance, sentence, views, and the way to a folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from detoklens.errors import MissingError, RangeError
from detoklens.measures.positions import position_curves
from detoklens.questions.base import Question
from detoklens.questions.positions.question import POSITIONS, OverVocabulary, Positions
from detoklens.questions.shape import Shape
from detoklens.questions.store import Store, read_answer
from detoklens.questions.study import Study, study
from detoklens.questions.variance import Variance
from detoklens.scores.layer import Layer
from detoklens.tables.rendering import text_table
from tests.cli.test_position_commands import counted
from tests.command_line import run
from tests.layers import random_layer
from tests.spelled import counts_of, spelled_layer, write_spelled

ALL = (Positions, Shape, Variance)


@pytest.fixture(scope="module")
def spelled(tmp_path_factory: pytest.TempPathFactory) -> Layer:
    return spelled_layer(tmp_path_factory.mktemp("spelled"))


def test_the_table_holds_every_number_of_the_curves_in_order() -> None:
    layer = random_layer(n_positions=9)
    table = Study(layer).ask(Positions([3, 8], average="mean-of-ratio", band=0.7)).tables["positions"]
    curves = position_curves(layer, [3, 8], "mean-of-ratio", coverage=0.7)
    for name in ("mean", "at_smallest_scale", "at_largest_scale"):
        assert table[name].to_list() == np.concatenate([getattr(curve, name).ravel() for curve in curves]).tolist()
    lows = np.concatenate([curve.low.ravel() for curve in curves])
    assert table["low"].to_list() == [None if np.isnan(low) else low for low in lows]
    assert table["quantity"].unique(maintain_order=True).to_list() == ["p", "pp", "p+pp", "attention"]
    one = table.filter(quantity="pp", query_position=3, layer_norm=False, head=2)
    assert one["key_position"].to_list() == [0, 1, 2, 3]
    assert one["mean"].to_list() == curves[2].mean[2].tolist()


def test_attention_has_no_band_and_p_no_query() -> None:
    table = Study(random_layer()).ask(Positions()).tables["positions"]
    attention = table.filter(quantity="attention")
    assert attention["low"].null_count() == attention["high"].null_count() == len(attention)
    assert table.filter(pl.col("query_position").is_null())["quantity"].unique().to_list() == ["p"]


@pytest.mark.parametrize("question", [Positions(heads=[2, 0]), Shape(heads=[2, 0])])
def test_chosen_heads_are_those_of_the_whole(question: Positions | Shape) -> None:
    asked = Study(random_layer(n_positions=70))
    whole = asked.ask(type(question)()).tables
    for name, table in asked.ask(question).tables.items():
        assert_frame_equal(table, whole[name].filter(pl.col("head").is_in([0, 2])))


@pytest.mark.parametrize("kind", ALL)
def test_counts_decide_only_where_they_weight_the_vocabulary(kind: type[OverVocabulary], spelled: Layer) -> None:
    """New counts do not redo what never looks at them."""
    counts, other = counts_of(spelled), counts_of(spelled, ["the north wind"])
    even, frequency = kind(), kind(weights="frequency")
    without, known, changed = Study(spelled), Study(spelled, counts), Study(spelled, other)
    assert without.provenance(even) == known.provenance(even) == changed.provenance(even)
    assert known.provenance(even).counts_fingerprint is None
    assert known.provenance(frequency).counts_fingerprint == counts.fingerprint
    assert known.provenance(frequency) != changed.provenance(frequency)
    name = kind.tables[0].name
    assert not known.ask(even).tables[name].equals(known.ask(frequency).tables[name])
    assert_frame_equal(known.ask(even).tables[name], without.ask(even).tables[name])


@pytest.mark.parametrize("kind", ALL)
def test_the_seed_is_in_the_provenance_only_if_it_draws_controls(kind: type[Question], spelled: Layer) -> None:
    same = Study(spelled, seed=1).provenance(kind()) == Study(spelled, seed=2).provenance(kind())
    assert same == ("seed" not in kind.uses)
    assert Study(spelled).provenance(kind()).tokenizer_fingerprint is None


def test_provenance_holds_what_was_left_to_the_model() -> None:
    asked = Study(random_layer(n_positions=11))
    assert asked.provenance(Positions()).options["query_positions"] == [0, 5, 10]
    assert asked.provenance(Positions()) == asked.provenance(Positions([10, 5, 0], heads=[0, 1, 2]))
    assert asked.provenance(Shape()) != asked.provenance(Shape([5]))


@pytest.mark.parametrize("kind", ALL)
def test_weights_without_counts_are_missed_in_pythons_words(kind: type[OverVocabulary]) -> None:
    with pytest.raises(MissingError, match="weights by frequency need corpus counts: study") as caught:
        Study(random_layer()).ask(kind(weights="frequency"))
    assert caught.value.need == "counts"


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (Positions([11]), "position 11 does not exist; positions go from 0 to 10"),
        (Shape([-1]), "position -1"),
        (Positions([]), "no query position was given"),
        (Shape(heads=[3]), "head 3 does not exist"),
        (Positions(band=95), "the band must be a share of the vocabulary between 0 and 1, such as 0.95, not 95.0"),
    ],
)
def test_what_is_not_there_is_refused(question: Question, said: str) -> None:
    with pytest.raises(RangeError, match=said):
        Study(random_layer(n_positions=11)).ask(question)


def test_wrong_types_are_one_line() -> None:
    with pytest.raises(RangeError, match="weights is one of 'even', 'frequency'"):
        Variance(weights="rare")  # type: ignore[arg-type]
    with pytest.raises(RangeError, match="average is one of"):
        Shape(average="mean")  # type: ignore[arg-type]


def attention_of(*rows: list[float]) -> pl.DataFrame:
    """Attention of some heads from the same query position."""
    frames = [
        {"head": head, "quantity": "attention", "query_position": len(row) - 1, "mean": row, "layer_norm": True}
        | {"key_position": range(len(row))}
        for head, row in enumerate(rows)
    ]
    table = pl.concat([pl.DataFrame(frame) for frame in frames])
    others = [pl.lit(None).alias(name) for name in POSITIONS.names if name not in table.columns]
    return POSITIONS.conform(table.with_columns(others))


def test_the_sentence_names_the_sharpest_and_the_broadest_head() -> None:
    said = Positions().summarize({"positions": attention_of([0.3, 0.4, 0.3], [0.1, 0.1, 0.8], [0.35, 0.35, 0.3])})
    assert said == (
        "By position alone, attention from position 2 is sharpest in L0H1 (80 % on key 2) and broadest in L0H2 "
        "(35 % on key 1)."
    )


def test_the_sentence_of_one_head_and_of_a_small_share() -> None:
    said = Positions().summarize({"positions": attention_of([0.0021] + [0.002] * 498 + [0.0019])})
    assert said == "By position alone, attention from position 499 is highest in L0H0 (0.2 % on key 0)."


def test_compared_models_are_told_by_their_sharpest_heads() -> None:
    both = {"early": attention_of([0.3, 0.7]), "late": attention_of([0.5, 0.5], [0.99, 0.01])}
    said = Positions().summarize_comparison({label: {"positions": table} for label, table in both.items()})
    assert said == (
        "Largest attention by position alone on a single key: 70 % in early (L0H0) and 99 % in late (L0H1)."
    )


def test_each_curve_is_one_line_for_eyes() -> None:
    tables = Study(random_layer(n_positions=30)).ask(Positions([4, 29])).tables
    (view,) = Positions().views(tables)
    assert view.frame.columns == ["head", "quantity", "query", "lowest", "highest", "at key", "along the keys"]
    assert len(view.frame) == 3 * (1 + 2 * 2), "p, and pp and attention from both queries, for three heads"
    row = view.frame.row(2, named=True)
    values = tables["positions"].filter(head=0, quantity="attention", query_position=4)["mean"].to_list()
    assert (row["head"], row["quantity"], row["query"]) == (0, "attention", 4)
    assert row["lowest"] == pytest.approx(min(values), rel=5e-3)
    assert row["highest"] == pytest.approx(max(values), rel=5e-3)
    assert row["at key"] == values.index(max(values))
    assert len(row["along the keys"]) == 5
    assert row["along the keys"][row["at key"]] == "█"


def test_curves_fit_80_columns_whatever_their_numbers() -> None:
    tables = Study(random_layer(n_positions=120)).ask(Positions()).tables
    extreme = tables["positions"].with_columns(
        pl.col("mean") * -1.2345678e-11, pl.col("key_position", "query_position") + 123_000
    )
    (view,) = Positions().views({"positions": extreme})
    shown = text_table(view.frame, view.title, 80)
    assert " more columns" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "e-1" in shown


@pytest.mark.parametrize(
    "question",
    [
        Positions([4, 10], band=0.8, heads=[1]),
        Shape([4, 10], average="mean-of-ratio", heads=[0, 2]),
        Variance(weights="frequency"),
        Positions(),
    ],
    ids=["positions", "shape", "variance", "default"],
)
def test_its_command_gives_the_same_tables(question: Question, tmp_path: Path) -> None:
    model = write_spelled(tmp_path / "model")
    answer = study(model, counts=counted(tmp_path, model)).ask(question)
    words = shlex.split(answer.command)
    assert words[:2] == ["detoklens", question.name()]
    assert ("--counts" in words) == (question == Variance(weights="frequency"))
    run(*words[1:], "--out", tmp_path / "made", "--format", "json")
    again = read_answer(tmp_path / "made")
    for name, table in answer.tables.items():
        assert_frame_equal(again.tables[name], table)
    assert again.provenance == answer.provenance


@pytest.mark.parametrize("kind", ALL)
def test_an_answer_is_read_back_whole(kind: type[Question], tmp_path: Path) -> None:
    answer = Study(random_layer(n_positions=60)).ask(kind())
    written = answer.write(tmp_path / "results")
    assert {path.stem for path in written} == set(answer.tables)
    again = read_answer(tmp_path / "results")
    assert again.question == answer.question
    assert again.sentence == answer.sentence
    assert (again.command, again.provenance, str(again)) == (answer.command, answer.provenance, str(answer))
    for name, table in answer.tables.items():
        assert_frame_equal(again.tables[name], table)
    assert list(again.figures) == list(answer.figures)
    assert again.figure(width="column").get_size_inches()[0] == pytest.approx(3.3)


@pytest.mark.parametrize("kind", ALL)
def test_an_answer_is_read_back_from_files_with_a_label(kind: type[Question], tmp_path: Path) -> None:
    answer = Study(random_layer(n_positions=60)).ask(kind())
    Store(tmp_path, "mine").keep(answer)
    assert all(path.stem.startswith("mine") for path in tmp_path.iterdir())
    again = read_answer(tmp_path)
    for name, table in answer.tables.items():
        assert_frame_equal(again.tables[name], table)


@pytest.mark.parametrize("kind", ALL)
def test_a_notebook_sees_sentence_table_and_figure(kind: type[Question]) -> None:
    answer = Study(random_layer(n_positions=30, n_heads=5)).ask(kind())
    html = answer._repr_html_()
    assert html.startswith("<p><strong>")
    assert "<table>" in html
    assert "<svg" in html
    for view, shown in zip(answer.views, html.split("<table>")[1:], strict=True):
        named = re.findall(r"L0H(\d+)", answer.sentence)
        if view.frame.columns[0] == "head" and len(view.frame) > 10 and named:
            assert re.search(r"<td[^>]*>(\d+)</td>", shown)[1] in named, "the rows of the head that the sentence names"


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("n_positions", [1, 2, 4])
def test_tiny_models_are_answered_in_words_and_tables(kind: type[Question], n_positions: int) -> None:
    answer = Study(random_layer(n_heads=1, n_positions=n_positions)).ask(kind())
    assert answer.sentence.endswith(".")
    assert "None" not in str(answer)
    assert answer.sentence in str(answer)


def test_a_curve_that_was_asked_before_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = random_layer(n_positions=9)
    Study(layer).ask(Positions(), tmp_path)
    monkeypatch.setattr("detoklens.measures.positions.position_curves", None)
    assert len(Study(layer).ask(Positions(), tmp_path).tables["positions"])


def test_progress_goes_over_all_positions() -> None:
    """The pass over σ tells how many positions are done."""
    told: list[tuple[str, int, int]] = []

    class Watching:
        def __init__(self, title: str) -> None:
            self.title = title

        def __enter__(self):
            return lambda done, total: told.append((self.title, done, total))

        def __exit__(self, *_error: object) -> None: ...

    for kind in ALL:
        Study(random_layer(n_positions=9)).ask(kind(), watching=Watching)
    assert told == [("computing σ", 9, 9)] * 3


@pytest.mark.parametrize(("band", "shown"), [(0.95, "95 %"), (0.975, "97.5 %")])
def test_figures_say_what_share_a_band_holds(band: float, shown: str) -> None:
    answer = Study(random_layer()).ask(Positions([5], band=band))
    captions = [answer.figures[name].caption for name in ("position_alone", "position_comparison", "position_sum")]
    assert [f"band of {shown} of the " in caption for caption in captions] == [True] * 3
    assert not any("{" in spec.caption for spec in answer.figures.values())
    legend = [text.get_text() for text in answer.figure("position_alone").legends[0].get_texts()]
    assert legend == ["mean σ", f"{shown} of tokens"]
