"""The calibration models have the stated ground truth; the suite runs, caches and tabulates their verdicts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from calibration import adversaries, run, table
from calibration.adversaries import NULLS, PLANTED, RELABELLED, Model
from calibration.texts import EMBEDDINGS, small_texts

import detoklens as dl
from detoklens.demo import COUNTS
from detoklens.measures.token_classes import word_evidence
from detoklens.questions.lookback.compute import PARTS
from detoklens.questions.lookback.verdict import judge_lookback

PAGE = f"Before.\n{table.BEGIN}\nold\n{table.END}\nAfter.\n"


def loaded(model: Model, folder: Path) -> dl.Layer:
    return dl.load(model.write(folder))


def test_small_texts_have_words_in_pieces_and_counts() -> None:
    texts = small_texts()
    assert texts.size == len(texts.counts.tokens) == 1000
    assert texts.counts.tokens.sum() == texts.counts.bigrams.counts.sum() + 300, "a pair fewer than tokens a document"
    queries, keys = texts.lexical_factors(24)
    dense = texts.association.toarray()
    assert np.corrcoef((queries @ keys.T).ravel(), dense.ravel())[0, 1] > 0.4


@pytest.mark.parametrize("name", sorted(set(EMBEDDINGS) - {"demo"}))
def test_embeddings_are_the_same_for_the_same_seed(name: str) -> None:
    first, again, other = (EMBEDDINGS[name](small_texts(), 32, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("embeddings", ["iid", "spelled"])
def test_a_copier_looks_at_the_previous_token_whatever_it_is_and_adds_it(embeddings: str, tmp_path: Path) -> None:
    layer = loaded(adversaries.copier(embeddings, 0), tmp_path)
    ids = np.random.default_rng(0).integers(1, 1000, 6)
    attention = layer.terms(ids).attention()[0]
    np.testing.assert_allclose(attention[range(1, 6), range(5)], 1, atol=1e-6)
    embedded = layer.weights.token_embeddings
    np.testing.assert_allclose(layer.attention_output(ids)[1:], embedded[ids[:-1]], atol=1e-4)
    after = layer.block_output(ids)[1:]
    positions = layer.weights.position_embeddings[1:6]
    np.testing.assert_allclose(after, embedded[ids[1:]] + positions + embedded[ids[:-1]], atol=1e-4)


@pytest.mark.parametrize("number", [6, 16])
def test_a_cluster_head_knows_clusters_and_nothing_else(number: int, tmp_path: Path) -> None:
    layer = loaded(adversaries.cluster_head(number, 0), tmp_path)
    clusters = small_texts().clusters(number)
    assert len(set(clusters)) == number
    scores = layer.token_affinity(heads=[0]).scores(np.arange(1000))[0] * layer.attention_scale
    expected = small_texts().cluster_association(clusters)[clusters][:, clusters]
    np.testing.assert_allclose(scores, expected, atol=1e-3)


def test_a_frequency_head_knows_the_product_of_frequencies(tmp_path: Path) -> None:
    layer = loaded(adversaries.frequency_head(0), tmp_path)
    scores = layer.token_affinity(heads=[0]).scores(np.arange(50))[0] * layer.attention_scale
    logs = small_texts().log_counts
    np.testing.assert_allclose(scores, np.outer(logs[:50], logs), atol=1e-3)


def test_a_same_token_head_ranks_each_token_itself_first(tmp_path: Path) -> None:
    layer = loaded(adversaries.same_token_head(0), tmp_path)
    scores = layer.token_affinity(heads=[0]).scores(np.arange(1000))[0]
    assert (scores.argmax(axis=1) == np.arange(1000)).mean() > 0.9


def test_a_lexical_head_is_noise_and_so_much_of_the_corpus(tmp_path: Path) -> None:
    dense, found = small_texts().association.toarray().ravel(), []
    for strength in (0.25, 1.0, 4.0):
        layer = loaded(adversaries.lexical_head(strength, 0), tmp_path / str(strength))
        scores = layer.token_affinity(heads=[0]).scores(np.arange(1000))[0]
        found.append(np.corrcoef(scores.ravel(), dense)[0, 1])
    assert found == sorted(found)
    assert found[0] < 0.25 < found[-1]


def test_a_whole_writer_puts_the_words_token_in_place_of_its_pieces(tmp_path: Path) -> None:
    from detoklens.measures.twins import chains, merge_splits, word_tokens

    layer = loaded(adversaries.writer(1.0, 0), tmp_path)
    splits = merge_splits(layer.vocabulary)
    words = chains(splits, word_tokens(layer.vocabulary, splits), 2)
    embedded, places = layer.weights.token_embeddings, layer.weights.position_embeddings
    for whole, pieces in list(zip(words.whole, words.pieces, strict=True))[::40]:
        state = layer.block_output(np.array([0, *pieces]))[-1] - places[2]
        assert int((embedded @ state).argmax()) == whole


def test_a_planted_bias_has_its_cosine_with_the_steepest_direction(tmp_path: Path) -> None:
    layer = loaded(adversaries.frequency_bias(0.6, 0), tmp_path)
    keys = layer.token_affinity("mean").key_of(0).astype(np.float64)
    steepest, bias = -small_texts().log_counts @ keys, layer.common_part(None).query[0]
    assert bias @ steepest / np.linalg.norm(bias) / np.linalg.norm(steepest) == pytest.approx(0.6, abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "strength", "name", "value"),
    [
        ("frequency bias", 1.0, "frequency", "yes"),
        ("wave", 1.0, "shape", "yes"),
        ("lexical", 1.0, "auroc --pieces", "yes"),
        ("writer", 1.0, "twins", "yes"),
        ("copier, spelled", None, "twins", "no"),
        ("16 clusters", None, "auroc --pieces", "no"),
    ],
)
def test_what_is_planted_is_found_and_adversaries_are_not(
    kind: str, strength: float | None, name: str, value: str, tmp_path: Path
) -> None:
    model = NULLS[kind](0) if strength is None else PLANTED[kind](strength, 0)
    study = dl.study(model.write(tmp_path), counts=model.texts.counts, workers=1)
    assert study.ask(run.questions(run.Task(kind, strength, 0))[name]).verdict.value == value


def test_a_switch_looks_back_from_continuation_tokens_only(tmp_path: Path) -> None:
    """By its strength at offset 1 and the cosine elsewhere, up to the noise of the other dimensions."""
    layer = loaded(adversaries.switch("position", 2.0, 0), tmp_path)
    continues = np.isin(np.arange(1000), small_texts().vocabulary.word_internal())
    for offset in (1, 2, 4):
        scores = layer.token_affinity(heads=[0], offset=offset).scores(np.arange(1000))[0] * layer.attention_scale
        lift = scores[continues].mean() - scores[~continues].mean()
        assert lift == pytest.approx(2.0 * np.cos(offset - 1), abs=0.35)


@pytest.mark.parametrize("part", PARTS)
def test_a_switch_is_found_in_the_planted_part_and_has_its_strength(part: str, tmp_path: Path) -> None:
    model = adversaries.switch(part, 0.5, 0)
    answer = dl.study(model.write(tmp_path), counts=model.texts.counts, workers=1).ask(dl.Lookback())
    assert answer.verdict is not None
    assert answer.verdict.heads == ("L0H0",)
    found = judge_lookback(answer.tables["lookback_by_head"])[0]
    assert found.part == part
    assert found.total["difference"] == pytest.approx(0.5, rel=0.1)
    assert found.parts[part]["difference"] >= 0.9 * found.total["difference"]


def test_every_task_has_a_file_and_a_seed_of_its_own() -> None:
    chosen = run.tasks(2)
    assert len({task.file for task in chosen}) == len({task.seed for task in chosen}) == len(chosen)
    assert {task.kind for task in chosen} == set(NULLS) | set(PLANTED) | set(RELABELLED)
    numbers = Counter(task.kind for task in run.tasks())
    assert numbers["random, iid"] == numbers["encoder, spelled"] == 12
    assert numbers["same token"] == 6
    assert numbers["permuted labels, demo"] == 120


def test_permuted_labels_keep_the_number_of_each_class_in_every_bin_and_differ_by_seed() -> None:
    layer, counts = dl.load("demo"), dl.Counts.open(COUNTS)
    given = (layer, counts, word_evidence(layer.vocabulary, counts))
    plain, one, other = (question.classes(*given) for question in (dl.Lookback(), *map(run.permuted_lookback, (0, 1))))
    bins = np.log2(np.maximum(counts.tokens, 1)).astype(int)
    for label in ("C", "W", "F", ""):
        assert np.array_equal(np.bincount(bins[plain == label]), np.bincount(bins[one == label]))
    assert np.array_equal(plain == "F", one == "F")
    assert 0.1 < np.mean(plain[plain == "C"] == one[plain == "C"]) < 0.9
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("kind", list(RELABELLED))
def test_permuted_labels_give_no_switch(kind: str) -> None:
    found = run.answer(run.Task(kind, None, 3))["verdicts"]
    assert list(found) == ["lookback"]
    assert found["lookback"]["value"] == "no"


def test_a_run_takes_up_what_is_finished_and_tabulates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = run.tasks(1)
    for task in chosen:
        value = "yes" if task.strength == 1.0 else "untestable" if task.kind.startswith("copier") else "no"
        said = {"value": value, "heads": [], "reason": ""}
        asked = {name: None if name == "twins" else said for name in run.VERDICTS}
        one = {"kind": task.kind, "strength": task.strength, "seed": task.seed, "seconds": 1.0, "verdicts": asked}
        (tmp_path / task.file).write_text(json.dumps(one))
    monkeypatch.setattr(run, "answer", None)  # nothing is asked again
    found = list(run.run(chosen, tmp_path, 1))
    assert len(found) == len(chosen)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    tables = table.write_tables(found, page, "code abc, 3 minutes")
    assert tables.startswith("83 models (code abc, 3 minutes).\n\nNo verdict is wrong for any model")
    assert "| `shape` | 0 of 10 [0.0, 30.8] % | 0 of 8 [0.0, 36.9] % | untestable |" in tables
    assert "| `lookback` | 0 of 10 [0.0, 30.8] % |" in tables
    assert "| 0 of 30 [0.0, 11.6] % |" in tables, "ten permutations of each model's labels"
    assert "| `twins` | – | – |" in tables
    assert "1: 1 of 1" in tables
    assert page.read_text().startswith("Before.\n")
    assert page.read_text().endswith("\nAfter.\n")
    assert table.write_tables(found, page, "code abc, 3 minutes") == tables
    found[0]["verdicts"]["lookback"] = {"value": "yes"}
    assert table.most_often_wrong(found).endswith("`lookback` is wrong most often: 1 of 10 [0.3, 44.5] %.")
    assert page.read_text().count(table.BEGIN) == 1


@pytest.mark.slow
def test_no_verdict_is_yes_for_a_random_model() -> None:
    found = run.answer(run.Task("random, spelled", None, 1000))["verdicts"]
    assert list(found) == list(run.VERDICTS)
    assert {name: verdict["value"] for name, verdict in found.items()} == dict.fromkeys(run.VERDICTS, "no")
