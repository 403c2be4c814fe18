"""Head cards against the questions and measures that they come from, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from detoklens import demo
from detoklens.errors import RangeError
from detoklens.figures import theme
from detoklens.measures import words as word_list
from detoklens.measures.heatmap import self_match_scores
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.frequency import Frequency
from detoklens.questions.heads.question import HEADS, MEASURES, Heads
from detoklens.questions.shape import Shape
from detoklens.questions.store import read_answer
from detoklens.questions.study import Study, Work
from detoklens.questions.words import Words
from detoklens.scores.layer import Layer
from detoklens.tables.files import Parts
from detoklens.tables.rendering import text_table
from detoklens.wording import column_cells
from tests.layers import random_layer
from tests.spelled import counts_of, spelled_layer

pytestmark = pytest.mark.usefixtures("few_words")


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    layer = spelled_layer(tmp_path_factory.mktemp("spelled"))
    return Study(layer, counts_of(layer), work=Work(workers=1))


@pytest.fixture(scope="module")
def cards(study) -> pl.DataFrame:
    return study.ask(Heads()).tables["heads"]


@pytest.fixture(scope="module")
def silent() -> Study:
    return Study(random_layer(n_heads=5), work=Work(workers=1))


def test_a_card_holds_what_the_other_questions_say(study, cards) -> None:
    layer = study.layer
    controls = study.ask(Auroc(pieces=True, bootstrap=0)).tables["auroc_controls"]
    words = study.ask(Words()).tables["words_by_head"]
    shapes = study.ask(Shape([layer.n_positions // 2])).tables["shape"]
    frequency = study.ask(Frequency()).tables["frequency_by_head"]
    expected = {
        "head": [0, 1, 2],
        "auroc": controls["auroc"],
        "above_null": controls["above_null"],
        "matched": controls["matched"],
        "matched_null": controls["matched_null"],
        "within_class": controls["within_class"],
        "frequency": controls["frequency"],
        "word_share": words["median_share"],
        "word_null": words["null_median_share"],
        "self_match": self_match_scores(layer.token_affinity().of_tokens(layer.meaningful_tokens)).mean(axis=1),
        "on_previous": shapes["on_previous"],
        "frequency_spearman": frequency["spearman"],
        "frequency_slope": frequency["slope"],
    }
    for name, values in expected.items():
        assert cards[name].to_list() == pytest.approx(list(values)), name
    assert cards["position_class"].to_list() == shapes["class"].to_list()
    assert (cards["auroc"] - cards["auroc_null"]).to_list() == pytest.approx(cards["above_null"].to_list())
    assert cards.columns == HEADS.names


def test_some_heads_have_the_rows_that_they_have_among_all(study, cards) -> None:
    some = study.ask(Heads(heads=[2, 0], sort="effective_rank")).tables["heads"]
    assert sorted(some["head"]) == [0, 2]
    for row in some.iter_rows(named=True):
        assert row == pytest.approx(cards.row(row["head"], named=True)), row["head"]


def test_cards_are_about_the_asked_scores(study) -> None:
    asked = {"centred": True, "scale": 3}
    cards = study.ask(Heads(**asked)).tables["heads"]
    affinity = study.layer.token_affinity(3, centred=True).of_tokens(study.layer.meaningful_tokens)
    expected = {
        "auroc": study.ask(Auroc(**asked, pieces=True, bootstrap=0)).tables["auroc_controls"]["auroc"],
        "word_share": study.ask(Words(**asked)).tables["words_by_head"]["median_share"],
        "self_match": self_match_scores(affinity).mean(axis=1),
        "frequency_slope": study.ask(Frequency(scale=3)).tables["frequency_by_head"]["slope"],
    }
    for name, values in expected.items():
        assert cards[name].to_list() == pytest.approx(list(values)), name


def test_position_alone_is_asked_with_the_mean_that_was_asked_for(study) -> None:
    weights = study.layer.weights
    no_table = {"position_embeddings": weights.position_embeddings[:0], "longest_text": 40}
    rotary = replace(weights, **no_table, rotary_frequencies=np.array([1.0, 0.3]))
    turned = Study(Layer(replace(study.layer.checkpoint, first_layer=rotary)), study.counts, work=study.work)
    seen = {mean: turned.ask(Shape([20], mean=mean)).tables["shape"] for mean in ("vocabulary", "frequency")}
    assert not seen["vocabulary"]["on_previous"].equals(seen["frequency"]["on_previous"])
    for mean, expected in {"none": "vocabulary", "frequency": "frequency"}.items():
        found = turned.ask(Heads(mean=mean)).tables["heads"]
        assert found["on_previous"].equals(seen[expected]["on_previous"])


def test_an_auroc_that_was_asked_before_is_not_computed_again(study, monkeypatch) -> None:
    study.ask(Auroc(pieces=True))
    monkeypatch.setattr(Auroc, "ask", None)
    assert study.ask(Heads(sort="self_match")).tables["heads"]["auroc"].null_count() == 0


def test_a_tokenizer_that_splits_no_word_says_nothing_of_words(study, monkeypatch) -> None:
    monkeypatch.setattr(word_list, "shipped_words", lambda: ["the"])
    unsplit = Study(study.layer, study.counts, work=study.work).ask(Heads()).tables["heads"]
    assert unsplit["word_share"].null_count() == unsplit["word_null"].null_count() == 3
    assert unsplit["auroc"].null_count() == 0


def test_an_interrupted_question_keeps_what_it_ranked(study, tmp_path, monkeypatch) -> None:
    keep, kept = Parts.save, []

    def keep_one(parts, number, arrays):
        keep(parts, number, arrays)
        kept.append(number)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Parts, "save", keep_one)
        with pytest.raises(KeyboardInterrupt):
            Study(study.layer, study.counts, work=study.work).ask(Heads(), tmp_path)
    assert kept == [0]
    monkeypatch.setattr(Parts, "save", None)
    found = Study(study.layer, study.counts, work=study.work).ask(Heads(), tmp_path)
    assert found.tables["heads"].equals(study.ask(Heads()).tables["heads"])
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["heads", "heads", "scorecard", "scorecard"]


def test_the_nulls_are_drawn_by_the_studys_seed(study, cards) -> None:
    other = Study(study.layer, study.counts, seed=3, work=study.work).ask(Heads()).tables["heads"]
    assert other["auroc"].equals(cards["auroc"])
    assert not other["auroc_null"].equals(cards["auroc_null"])


def test_what_is_not_known_is_null(silent) -> None:
    cards = silent.ask(Heads()).tables["heads"]
    for column in ("auroc", "auroc_null", "above_null", "matched", "word_share", "word_null", "frequency_spearman"):
        assert cards[column].null_count() == 5
    for column in ("self_match", "symmetric_share", "effective_rank", "position_class"):
        assert cards[column].null_count() == 0


def test_sorting_puts_the_largest_first_and_unknown_last(silent) -> None:
    cards = silent.ask(Heads()).tables["heads"].with_columns(auroc=pl.Series([0.5, None, 0.9, 0.7, 0.1]))
    assert Heads(sort="auroc")._sorted(cards)["head"].to_list() == [2, 3, 0, 4, 1]
    assert Heads(sort="auroc", ascending=True)._sorted(cards)["head"].to_list() == [4, 0, 3, 2, 1]
    norms = silent.ask(Heads(sort="spectral_norm")).tables["heads"]["spectral_norm"].to_list()
    assert norms == sorted(norms, reverse=True)


def test_heads_and_columns_that_do_not_exist_are_refused(silent) -> None:
    with pytest.raises(RangeError, match="head 5 does not exist"):
        silent.ask(Heads(heads=[5]))
    with pytest.raises(RangeError, match="unknown column 'size' to sort by; choose one of head, auroc"):
        Heads(sort="size")


def test_an_answer_is_kept_and_read_again(study, tmp_path) -> None:
    first = study.ask(Heads(sort="above_null"))
    first.write(tmp_path)
    again = read_answer(tmp_path)
    assert again.question == first.question
    assert again.tables["heads"].equals(first.tables["heads"])
    assert (again.sentence, again.command) == (first.sentence, first.command)
    assert list(again.figures) == ["head_cards"]


def test_the_scorecard_is_printed_and_the_cards_have_what_matters_first(study, silent) -> None:
    answer = study.ask(Heads(sort="effective_rank"))
    [view] = answer.views
    assert len(view.frame.columns) == 10
    assert view.frame.columns[:2] == ["head", "effective_rank"]
    assert view.frame["effective_rank"].equals(answer.tables["heads"]["effective_rank"])
    assert study.ask(Heads()).views[0].frame.columns[3:] == [measure.replace("_", " ") for measure in MEASURES]
    cards = answer.question.view(answer.tables, "heads")
    heading, _, *rows = text_table(cards.frame, "", 80).splitlines()[:5]
    shown = heading.split()
    assert "self_match" in shown
    for name in shown:
        assert all(cell in row for row, cell in zip(rows, column_cells(cards.frame[name].to_list()), strict=True))
    assert all(len(row) <= 80 for row in rows)
    unknown = Heads().view(silent.ask(Heads()).tables, "heads")
    assert unknown.frame.columns[:3] == ["head", "self_match", "position_class"]
    assert sorted(unknown.frame.columns) == sorted(HEADS.names)


def made(**columns: list[float | None]) -> dict[str, pl.DataFrame]:
    size = len(next(iter(columns.values())))
    known = {name: [None] * size for name in HEADS.names} | {"head": list(range(size))} | columns
    return {"heads": HEADS.frame(known)}


JUDGED = {"matched": 0.7, "matched_above_null": 0.1, "matched_frequency": 0.6, "frequency": 0.5}
JUDGED |= {"above_within_class": 0.2, "within_class_tokens": 90, "query_tokens": "continuation"}
JUDGED |= {"above_within_cluster": 0.19, "within_cluster_tokens": 80, "auroc_low": 0.55, "above_null_low": 0.005}


def judged(**columns: list[float | None]) -> dict[str, pl.DataFrame]:
    size = len(next(iter(columns.values())))
    return made(**{name: [value] * size for name, value in JUDGED.items()} | columns)


def test_the_head_that_detokenizes_and_the_one_that_matches_itself_are_named() -> None:
    tables = judged(auroc=[0.9, 0.8], above_null=[0.3, 0.01], self_match=[0.5, 4.12])
    assert Heads().summarize(tables) == (
        "L0H0 detokenizes: AUROC 0.900 on continuation tokens; 0.100 above its strongest control, the "
        "frequency-matched null; we require 0.05. Frequency alone has 0.500; among equally frequent keys 0.600, the "
        "head 0.700. L0H1 matches its own token most (mean z +4.120)."
    )
    assert Heads().verdict(tables).heads == ("L0H0",)


def test_where_nothing_stands_out_that_is_said() -> None:
    tables = judged(auroc=[0.6, 0.5], above_null=[0.01, 0.0], self_match=[-0.5, -1.2])
    assert Heads().summarize(tables) == (
        "No head detokenizes: the closest, L0H0, has AUROC 0.600 on continuation tokens; it exceeds the plain null by "
        "0.010; we require more than 0.05. No head matches its own token."
    )
    assert Heads().verdict(tables).value == "no"


def test_without_counts_words_tell_and_without_words_nothing() -> None:
    told = made(word_share=[0.4, 0.05], word_null=[0.45, 0.5], word_pairs=[999, 999], self_match=[0.0, 0.0])
    assert (
        Heads()
        .summarize(told)
        .startswith(
            "L0H1 finds a word's preceding piece: median rank in the top 5 % of the vocabulary, another word's piece "
            "in the top 50 %. No head matches"
        )
    )
    assert Heads().verdict(told).heads == ("L0H1",)
    unclear = made(word_share=[0.4, 0.45], word_null=[0.45, 0.5], word_pairs=[999, 999], self_match=[0.0, 0.0])
    assert (
        Heads().summarize(unclear).startswith("No head clearly finds a word's preceding piece; the closest is L0H0: ")
    )
    assert Heads().verdict(unclear).value == "no"
    nothing = made(self_match=[0.0, None])
    assert Heads().summarize(nothing).startswith("Untestable: this needs counts, or a tokenizer that splits words.")
    assert Heads().verdict(nothing).value == "untestable"
    assert Heads().summarize(made(self_match=[None])).endswith("Self-match is undefined.")


def test_models_are_compared_by_the_best_of_each() -> None:
    early = judged(auroc=[0.6, 0.6], above_null=[-0.01, -0.02], self_match=[0.5, 1.0])
    late = judged(auroc=[0.7], above_null=[0.2], self_match=[3.0])
    assert Heads().summarize_comparison({"early": early, "late": late}) == (
        "Heads that detokenize on continuation tokens: none (L0H0: closest, −0.010 above its strongest control) in "
        "early and L0H0 (+0.100 above its strongest control) in late. "
        "The highest self-match (z) is +1.000 in early (L0H1) and +3.000 in late (L0H0)."
    )
    assert "detokenize" not in Heads().summarize_comparison(
        {"one": made(self_match=[1.0]), "two": made(self_match=[2.0])}
    )


def test_the_scorecard_has_a_mark_and_a_reason_for_every_head_and_measure(study, silent) -> None:
    found = study.ask(Heads())
    marks = found.tables["scorecard"]
    assert marks["measure"].to_list() == list(MEASURES) * 3
    assert set(marks["verdict"]) <= {"yes", "no", "not testable"}
    assert marks["why"].null_count() == 0
    assert marks.filter(measure="detokenizes")["value"].equals(found.tables["heads"]["margin"], check_names=False)
    view, reasons = found.page_views
    assert view.open > reasons.open
    assert [note.partition(":")[0] for note in view.notes[:8]] == ["strength", *view.frame.columns[2:]]
    assert all("; yes: " in note for note in view.notes[2:8])
    assert (
        view.notes[2]
        == "detokenizes: AUROC minus its strongest control; yes: more than 0.05 above every control, with an interval above 0"
    )
    assert len(reasons.frame) == len(marks)
    assert view.frame.columns[0] == "head"
    assert len(view.frame.columns) <= 10
    unknown = silent.ask(Heads()).tables["scorecard"].filter(head=0)
    why = {row["measure"]: row["why"] for row in unknown.iter_rows(named=True) if row["verdict"] == "not testable"}
    assert set(why) == {"detokenizes", "looks_back", "writes_words", "prefers_rare"}
    assert "counts" in why["detokenizes"]


def test_the_demos_snapshots_are_lines_over_training_tokens() -> None:
    assert [demo.training_tokens(name) for name in ("demo@0", "demo@1048576", "demo", "gpt2")] == [
        0,
        1_048_576,
        22_405_120,
        None,
    ]
    tables = judged(auroc=[0.9, 0.8], above_null=[0.3, 0.01], self_match=[0.5, 4.12], margin=[0.1, 0.0])["heads"]
    (compared,) = Heads.compared_figures
    figure = compared.draw({"heads": {"demo@0": tables, "demo": tables}})
    assert figure.axes[0].get_title(loc="left") == "AUROC − strongest control"
    drawn = [line.get_xdata().tolist() for line in figure.axes[0].lines if line.get_label() != theme.REFERENCE]
    assert drawn == [[0.0, 22.40512]] * 2
    named = compared.draw({"heads": {"demo@0": tables, "other": tables}})
    assert named.axes[0].lines[-1].get_xdata().tolist() == [0, 1]
