"""`Auroc` asked of a study: what it needs, what decides its numbers, what it says and keeps."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from detoklens.corpus.counts import Counts
from detoklens.errors import DetokLensError, MissingError, RangeError, TokenError
from detoklens.kernels.product import multiply
from detoklens.kernels.ranking import AUROC
from detoklens.measures.auroc import measure_heads
from detoklens.measures.positives import seen_pairs
from detoklens.questions.auroc.compute import AUROC_CONTROLS
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.store import read_answer
from detoklens.questions.study import Study, Work
from detoklens.scores.layer import Layer
from detoklens.tables.files import Parts
from tests.layers import random_first_layer, random_layer, with_rotary_positions
from tests.measures.auroc_oracle import auroc_table
from tests.spelled import LINES, counts_of, spelled_layer

FEW = Auroc(bootstrap=20)


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    return spelled_layer(tmp_path_factory.mktemp("spelled"))


@pytest.fixture(scope="module")
def study(layer) -> Study:
    return Study(layer, counts_of(layer), work=Work(workers=1))


@pytest.fixture(scope="module")
def answer(study):
    return study.ask(FEW)


def test_the_numbers_are_scikit_learns(study, answer) -> None:
    affinity, pairs = study.layer.token_affinity(), seen_pairs(study.counts.bigrams)
    found = answer.tables["auroc_by_token"]["auroc"].to_numpy().reshape(3, -1)
    np.testing.assert_allclose(found, auroc_table(affinity, pairs), rtol=0, atol=1e-9)


def test_the_controls_are_those_of_the_measures(study, answer) -> None:
    pairs, counted = seen_pairs(study.counts.bigrams), study.counts.tokens
    measured = measure_heads(study.layer.token_affinity(), pairs, range(study.layer.vocab_size), counted)
    for name in ("shuffled_queries", "permuted_keys"):
        means = np.nanmean(getattr(measured, name)[..., AUROC], axis=1)
        assert answer.tables["auroc_controls"][name].to_list() == pytest.approx(means.tolist())


def test_tokens_are_named_by_text_or_id_and_each_is_asked_once(study) -> None:
    the = study.layer.token_id(" the")
    found = study.ask(Auroc([" the", 80, the], bootstrap=0)).tables["auroc_by_token"]
    assert found.filter(head=0)["token_id"].to_list() == sorted([80, the])


def test_pieces_are_the_word_internal_tokens(study) -> None:
    found = study.ask(replace(FEW, pieces=True)).tables["auroc_by_token"]
    assert found.filter(head=0)["token_id"].to_list() == study.layer.vocabulary.word_internal()


def test_some_heads_have_the_rows_that_they_have_among_all(study, answer) -> None:
    some = study.ask(replace(FEW, heads=[2, 0])).tables
    for name in ("auroc", "auroc_by_head", "auroc_controls", "precision_by_head"):
        expected = pl.concat([answer.tables[name].filter(head=head) for head in (2, 0)])
        assert_frame_equal(some[name], expected, rel_tol=1e-12)


def test_what_is_missing_is_said_in_one_line(layer) -> None:
    without = Study(layer)
    with pytest.raises(MissingError, match=r"corpus counts, unless the truth is merges or words: study") as caught:
        without.ask(Auroc())
    assert caught.value.need == "counts"
    with pytest.raises(MissingError, match="matched negatives need token frequencies"):
        without.ask(Auroc(truth="merges", negatives="matched"))
    silent = Study(random_layer(), work=Work(workers=1))
    for question in (Auroc(truth="merges"), Auroc(truth="words")):
        with pytest.raises(MissingError, match="needs a tokenizer") as caught:
            silent.ask(question)
        assert caught.value.need == "vocabulary"


def test_merges_and_words_need_no_counts(layer) -> None:
    without = Study(layer, work=Work(workers=1))
    for truth, said in (("merges", "the tokenizer's merges"), ("words", "neighbouring pieces of words")):
        found = without.ask(Auroc(truth=truth, bootstrap=0))
        assert found.tables["auroc_controls"]["frequency"].null_count() == 3
        assert f" on all tokens against {said}" in found.sentence
        assert found.verdict.value != "yes"
        assert "frequency alone" not in found.sentence


def test_words_may_be_given_themselves(layer, tmp_path) -> None:
    (tmp_path / "words.txt").write_text("sapiens\ncentury", encoding="utf-8")
    without = Study(layer, work=Work(workers=1))
    given = without.ask(Auroc(truth="words", words=["sapiens", "century"], bootstrap=0))
    by_file = without.ask(Auroc(truth="words", words=str(tmp_path / "words.txt"), bootstrap=0))
    assert given.tables["auroc_by_token"].equals(by_file.tables["auroc_by_token"])
    assert given.command.endswith("--truth words --words WORDS.txt --bootstrap 0")


def test_parameters_that_can_not_be_are_refused_before_any_work() -> None:
    with pytest.raises(RangeError, match=r"Auroc\(k=0\): at least 1 is needed"):
        Auroc(k=0)
    with pytest.raises(RangeError, match=r"Auroc\(truth='corpus'\): truth is one of 'counts', 'merges', 'words'"):
        Auroc(truth="corpus")
    with pytest.raises(RangeError, match="tokens is a list, each text or a whole number or None"):
        Auroc(tokens=[1.5])
    with pytest.raises(TokenError, match="tokens is empty"):
        Auroc(tokens=[])
    with pytest.raises(TokenError, match="roc is empty"):
        Auroc(roc=[])
    with pytest.raises(DetokLensError, match="an ROC curve uses all other keys as negatives"):
        Auroc(roc=[1], negatives="matched")


def test_provenance_holds_what_decides_the_numbers_and_nothing_else(layer, tmp_path) -> None:
    counts, other = counts_of(layer), counts_of(layer, LINES[:2])

    def changes(question: Auroc, **of_study) -> bool:
        plain = {"counts": counts, "seed": 0}
        made = [Study(layer, **given).provenance(question) for given in (plain, plain | of_study)]
        return made[0] != made[1]

    assert changes(Auroc(), seed=1)
    assert changes(Auroc(controls=False), seed=1)
    assert not changes(Auroc(controls=False, bootstrap=0), seed=1)
    assert not changes(Auroc(roc=[70]), seed=1)
    assert changes(Auroc(roc=[70]), counts=other)
    assert changes(Auroc(truth="merges"), counts=other)
    assert not changes(Auroc(truth="merges", controls=False), counts=other)
    assert not changes(Auroc(truth="merges", roc=[70]), counts=other)
    study = Study(layer, counts)
    assert study.provenance(Auroc([" the"])) == study.provenance(Auroc([layer.token_id(" the")]))


def test_an_answer_is_kept_and_read_again(answer, study, tmp_path) -> None:
    answer.write(tmp_path / "judged")
    curves = study.ask(Auroc(roc=[" the"]))
    curves.write(tmp_path / "curves")
    for first, folder in ((answer, "judged"), (curves, "curves")):
        again = read_answer(tmp_path / folder)
        assert again.question == first.question
        assert (again.sentence, again.command) == (first.sentence, first.command)
        assert list(again.figures) == list(first.figures)
        for name, frame in first.tables.items():
            assert frame.equals(again.tables[name]), name


def counts_with_every_token(layer) -> Counts:
    """Each token before the next: enough query tokens for several blocks."""
    tokens = np.arange(layer.vocab_size, dtype=np.uint32)
    ones = np.ones(len(tokens), np.int64)
    return Counts.from_arrays(ones, tokens, np.roll(tokens, 1), ones, layer.vocabulary.fingerprint)


def test_an_interrupted_question_goes_on_where_it_stopped(layer, tmp_path) -> None:
    counts = counts_with_every_token(layer)
    keep, saved, computed = Parts.save, [], []

    def keep_one(parts, number, arrays):
        if saved:
            raise KeyboardInterrupt
        saved.append(number)
        keep(parts, number, arrays)

    with patch.object(Parts, "save", keep_one), pytest.raises(KeyboardInterrupt):
        Study(layer, counts, work=Work(workers=1)).ask(FEW, tmp_path)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".parts"] == []

    def count_and_keep(parts, number, arrays):
        computed.append(number)
        keep(parts, number, arrays)

    with patch.object(Parts, "save", count_and_keep):
        found = Study(layer, counts, work=Work(workers=1)).ask(FEW, tmp_path)
    assert saved == [0]
    assert 0 not in computed
    assert computed
    assert found.tables["auroc_controls"].equals(Study(layer, counts).ask(FEW).tables["auroc_controls"])
    assert not list(tmp_path.glob(".*"))


def controls(*above: float | None, **columns: float | None) -> pl.DataFrame:
    """Heads of AUROC 0.8 with these margins above their plain nulls, frequency alone 0.7, everything else alike."""
    same = {"auroc": 0.8, "auroc_low": 0.79, "auroc_high": 0.81, "frequency": 0.7} | columns
    given = {"head": range(len(above)), "above_null": above, "above_null_low": above} | {
        name: [each] * len(above) for name, each in same.items()
    }
    unknown = {name: [None] * len(above) for name in AUROC_CONTROLS.names}
    return AUROC_CONTROLS.frame(unknown | given)


ALL_CONTROLS = {"matched": 0.65, "matched_low": 0.64, "matched_high": 0.66, "matched_above_null": 0.1}
ALL_CONTROLS |= {"matched_above_null_low": 0.09, "matched_above_null_high": 0.11, "matched_frequency": 0.51}
ALL_CONTROLS |= {"above_within_class": 0.15, "above_within_class_low": 0.14, "within_class_tokens": 900}
ALL_CONTROLS |= {"above_within_cluster": 0.12, "above_within_cluster_low": 0.11, "above_within_cluster_high": 0.13}
ALL_CONTROLS |= {"within_cluster_tokens": 800}


def said(question: Auroc, judged: pl.DataFrame) -> str:
    return question.summarize(
        {"auroc_controls": judged, "auroc_by_head": pl.DataFrame({"tokens": [1200] * len(judged)})}
    )


def test_the_sentence_names_the_head_its_interval_and_its_strongest_control() -> None:
    assert said(Auroc(), controls(0.3, 0.01, **ALL_CONTROLS)) == (
        "L0H0 detokenizes: AUROC 0.800 [0.790, 0.810] on all tokens; 0.100 [0.090, 0.110] above its strongest control, "
        "the frequency-matched null; we require 0.05. Frequency alone has 0.700; among equally frequent keys 0.510, the head 0.650."
    )
    pieces = said(
        Auroc(pieces=True),
        controls(0.3, **ALL_CONTROLS | {"above_within_cluster": 0.02, "above_within_cluster_low": 0.01}),
    )
    assert pieces == (
        "No head detokenizes. L0H0 is class-level, not lexical: AUROC 0.800 [0.790, 0.810] on continuation tokens; it "
        "exceeds the within-cluster null by 0.020 [0.010, 0.130]; we require more than 0.05."
    )
    some = said(Auroc([1, 2], positives="pmi", pmi_above=2), controls(0.3))
    assert "[0.790, 0.810] on 1,200 tokens against corpus bigrams of a PMI above 2" in some
    assert "[0.790, 0.810] on all tokens among equally frequent keys" in said(Auroc(negatives="matched"), controls(0.3))


def test_the_verdict_is_that_of_the_controls() -> None:
    found = Auroc().verdict({"auroc_controls": controls(0.3, 0.01, 0.2, **ALL_CONTROLS)})
    assert (found.value, found.heads) == ("yes", ("L0H0", "L0H2"))
    assert (
        found.reason
        == "L0H0 exceeds every control; 0.100 [0.090, 0.110] above its strongest control, the frequency-matched null"
    )
    assert Auroc(controls=False).verdict({"auroc_controls": controls(None)}).value == "untestable"
    assert Auroc(roc=[1]).verdict({"roc_points": pl.DataFrame()}) is None


def test_without_nulls_or_positives_it_is_untestable() -> None:
    assert said(Auroc(controls=False), controls(None, None, frequency=None)) == (
        "Untestable: no null was computed. The strongest head is L0H0: AUROC 0.800 [0.790, 0.810] on all tokens."
    )
    nothing = controls(None, None).with_columns(auroc=pl.lit(None, pl.Float64))
    assert said(Auroc(), nothing) == "Untestable: no query token has both positives and negatives."


def test_query_tokens_are_exchanged_within_classes_and_clusters(study, answer) -> None:
    both = answer.tables["auroc_controls"]
    classes = study.ask(replace(FEW, within="class")).tables["auroc_controls"]
    clusters = [name for name in both.columns if "within_cluster" in name]
    assert both["within_class"].null_count() == 0
    assert (both["within_cluster_tokens"] == 0).all()  # a short text: too few tokens have enough bigrams
    assert both["within_cluster"].null_count() == len(both)
    assert classes.select(clusters).null_count().row(0) == (len(classes),) * len(clusters)
    assert classes.drop(clusters).equals(both.drop(clusters))
    silent = Study(random_layer(vocab_size=study.layer.vocab_size), study.counts, work=Work(workers=1)).ask(FEW)
    assert silent.tables["auroc_controls"]["within_class"].null_count() == len(silent.tables["auroc_controls"])
    assert silent.verdict.value in ("no", "untestable")


def test_curves_are_said_by_their_largest_areas(study) -> None:
    seen = np.flatnonzero(seen_pairs(study.counts.bigrams).sizes)[:6].tolist()
    answer = study.ask(Auroc(roc=seen))
    areas = study.ask(Auroc(seen, bootstrap=0)).tables["auroc_by_token"]
    best = areas.filter(token_id=seen[0]).sort("auroc", descending=True).row(0, named=True)
    assert answer.sentence.startswith("Largest areas under the ROC curves of the first 4 of 6 query tokens: ")
    assert f"{best['auroc']:.3f} for “{best['token']}” (L0H{best['head']})" in answer.sentence
    assert answer.sentence.endswith("; 0.5 is chance.")
    silent = Study(random_layer(vocab_size=study.layer.vocab_size), study.counts, work=Work(workers=1))
    assert f"for id {seen[0]} (" in silent.ask(Auroc(roc=seen[:1])).sentence


def test_a_comparison_names_the_heads_of_each_model() -> None:
    by_label = {
        "early": {"auroc_controls": controls(-0.02, -0.01, **ALL_CONTROLS)},
        "late": {"auroc_controls": controls(0.2, 0.01, **ALL_CONTROLS)},
    }
    assert Auroc(pieces=True).summarize_comparison(by_label) == (
        "Heads that detokenize on continuation tokens: none (L0H1: closest, −0.010 above its strongest control) in "
        "early and L0H0 (+0.100 above its strongest control) in late."
    )
    alone = {label: {"auroc_controls": controls(None)} for label in by_label}
    assert Auroc(controls=False).summarize_comparison(alone).startswith("early: Untestable: no null was computed.")


def rotary_study(layer: Layer) -> Study:
    """A spelled vocabulary with rotary positions, two heads to a key."""
    plain = random_first_layer(n_heads=4, d_head=6, vocab_size=layer.vocab_size, dtype="float32")
    rotary = Layer(replace(layer.checkpoint, first_layer=with_rotary_positions(plain, 2)))
    rotary.meaningful_tokens = np.arange(2, layer.vocab_size)
    rotary.untrained = np.arange(layer.vocab_size) < 2
    return Study(rotary, counts_of(layer), work=Work(1))


@pytest.mark.parametrize("centred", [False, True])
def test_a_mean_shifts_the_scores_of_keys(layer, centred):
    study = rotary_study(layer)
    asked = Auroc(mean="vocabulary", centred=centred, controls=False)
    split = study.layer.token_affinity(centred=centred, mean="vocabulary")
    tokens = np.arange(study.layer.vocab_size)
    expected = measure_heads(split, seen_pairs(study.counts.bigrams), tokens).heads[..., AUROC]
    found = study.ask(asked).tables["auroc_by_token"]["auroc"].to_numpy().reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    plain = study.ask(replace(asked, mean="none")).tables["auroc_by_token"]["auroc"].to_numpy().reshape(expected.shape)
    assert np.nanmax(np.abs(plain - found)) > 0.01 or centred


def test_upcoming_questions_with_the_same_scores_are_computed_together(layer, tmp_path):
    questions = [Auroc(pieces=True), Auroc(pieces=True, mean="vocabulary"), Auroc(), Auroc(negatives="matched")]
    together = rotary_study(layer)
    together.upcoming = questions[1:]
    with patch("detoklens.kernels.product.multiply", wraps=multiply) as product:
        first = together.ask(questions[0], tmp_path)
        assert list(together.prepared) == questions[1:3]
        products = product.call_count
        answers = [first, *(together.ask(question) for question in questions[1:3])]
        assert product.call_count == products
    assert not together.prepared
    for question, answer in zip(questions, answers, strict=False):
        alone = rotary_study(layer).ask(question)
        assert answer.sentence == alone.sentence
        assert answer.notes == alone.notes
        assert any("left out of means" in note for note in answer.notes) == (question.mean == "vocabulary")
        for name, table in alone.tables.items():
            assert_frame_equal(answer.tables[name], table, check_exact=True)
