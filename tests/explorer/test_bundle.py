"""A bundle's numbers are the package's own: what a page can compute from its files is what the layer says."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from detoklens.errors import OutputError
from detoklens.explorer import arrays
from detoklens.explorer import arrays as corpus_counts
from detoklens.explorer import bundle as cards
from detoklens.explorer.arrays import TOLERANCE, sample, thin_covariance
from detoklens.explorer.bundle import add_cards, check_bundle, write_bundle
from detoklens.measures.positions import PositionScores
from detoklens.questions.heads.question import Heads
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer
from tests.explorer.kinds import KINDS, study_of
from tests.explorer.reading import Bundle
from tests.layers import as_layer, random_first_layer
from tests.measures.test_trained_range import planted_table

HALF = 2.0**-11  # what half precision may be off, of each number
IDS = [5, 17, 5, 200, 81, 301, 17, 44, 9]


@pytest.mark.parametrize("kind", KINDS)
def test_terms_and_attention_are_the_layers(bundles, kind):
    study, found = bundles[kind]
    for split in [each["name"] for each in found.said["splits"]]:
        terms = study.layer.terms(IDS, None if split == "biases" else "vocabulary")
        for head in range(study.layer.n_heads):
            ours = found.terms(head, IDS, split)
            assert tuple(ours) == terms.names
            for name, part in ours.items():
                np.testing.assert_allclose(part, terms.full(name)[head], atol=4 * HALF * _size(terms.full(name)))
            attention = found.attention(head, IDS, split)
            np.testing.assert_allclose(attention, terms.attention()[head], atol=1e-3)
            without = found.attention(head, IDS, split, off=(terms.names[-1],))
            np.testing.assert_allclose(without, terms.attention_without(terms.names[-1])[head], atol=1e-3)


def _size(part: np.ndarray) -> float:
    return float(np.abs(part).max())


@pytest.mark.parametrize("kind", KINDS)
def test_affinities_are_the_layers(bundles, kind):
    study, found = bundles[kind]
    for centred, split in ((False, "biases"), (True, "biases"), (False, "vocabulary")):
        if split == "vocabulary" and study.layer.positions == "learned":
            continue
        mean = None if split == "biases" else split
        theirs = study.layer.token_affinity(centred=centred, offset=3, mean=mean).scores(np.arange(50))
        for head in range(study.layer.n_heads):
            ours = found.affinity(head, 3, centred, split)[:50]
            np.testing.assert_allclose(ours, theirs[head], atol=4 * HALF * _size(theirs))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("learned")])
def test_position_terms_are_the_layers(bundles, kind):
    study, found = bundles[kind]
    scale = found.array("position_scale")
    scores = PositionScores.of(study.layer, 1 / scale)
    np.testing.assert_allclose(scale, study.layer.scales.mean_over_tokens(), rtol=1e-6)
    for head in range(study.layer.n_heads):
        keys, query = found.array(f"position_key_{head}"), found.array(f"position_query_{head}")[30]
        np.testing.assert_allclose(keys @ found.array("bias_query")[head], scores.self_assertion[head], atol=1e-4)
        seen = keys[:31] if study.layer.is_causal else keys
        np.testing.assert_allclose(seen @ query, scores.comparison(30)[head], atol=1e-4)


def test_the_kernel_is_the_layers(bundles):
    study, found = bundles["rotary"]
    offsets = np.arange(20)
    for head in range(study.layer.n_heads):
        asking = np.tile(found.array("mean_query")[head], (len(offsets), 1))
        kernel = found.turned(asking, offsets, squared=True) @ found.array("mean_key")[found.keys_of(head)]
        np.testing.assert_allclose(kernel, study.layer.kernel(offsets)[head], atol=1e-4)


def test_the_error_of_sigma_is_measured(bundles):
    study, found = bundles["learned"]
    thin = thin_covariance(study.layer.scales, 40)
    stored = found.said["arrays"]["token_covariance"]
    assert stored["error"] == pytest.approx(thin.error)
    assert 0 < thin.error < 5 * TOLERANCE  # half precision is off as well
    ids = [7] * 40
    ours, theirs = found.scales(ids), study.layer.scale(np.arange(40), ids)
    assert np.abs(ours / theirs - 1).max() <= thin.error + 1e-6


def test_a_smooth_table_of_positions_needs_few_factors(tokens):
    from detoklens.weights.scale import ScaleTable

    weights = study_of("learned", tokens).layer.weights
    along = np.outer(np.linspace(0, 1, 40), weights.position_embeddings[0]).astype(np.float32)
    thin = thin_covariance(ScaleTable(replace(weights, position_embeddings=along)), 40)
    assert thin.token.shape[1] == 1


def test_the_page_knows_how_many_positions_were_trained(tmp_path):
    weights = random_first_layer(n_heads=4, d_head=16)
    table = planted_table(50, 120, features=64).astype(weights.position_embeddings.dtype)
    write_bundle(Study(as_layer(replace(weights, position_embeddings=table))), tmp_path / "bundle")
    model = json.loads((tmp_path / "bundle" / "bundle.json").read_text())["model"]
    assert (model["trained_positions"], model["n_positions"]) == (50, 120)


def test_half_precision_keeps_small_and_large_numbers(tmp_path):
    values = np.random.default_rng(0).uniform(0.1, 1, size=(50, 8)) * 10.0 ** np.arange(-4, 4)
    written = arrays.Arrays(tmp_path)
    for size in (1e-12, 1.0, 1e12):
        written.add_half("some", values * size)
        about = written.described["some"]
        stored = np.fromfile(tmp_path / about["file"], "<f2").reshape(50, 8) * np.float64(about["multiplier"])
        np.testing.assert_allclose(stored, values * size, rtol=HALF)
        assert 0 < about["error"] <= HALF
    written.add_half("nothing", np.zeros((3, 2)))
    assert written.described["nothing"]["error"] == 0


@pytest.mark.parametrize("way", ["by_query", "by_key"])
def test_counts_are_found_both_ways(bundles, way):
    study, found = bundles["learned"]
    for query in {*study.layer.vocabulary.encode("Homo sapiens met in the century"), 3}:
        keys, occurrences = study.counts.predecessors(query)
        for key, count in zip(keys, occurrences, strict=True):
            assert found.count(int(key), query, way) == count
    assert found.count(3, 3, way) == 0
    assert found.array("token_counts").tolist() == study.counts.tokens.tolist()


def test_rare_pairs_are_left_out_where_there_are_too_many(tokens, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_counts, "PAIRS_PER_SHARD", 7)  # rows run over several files
    study = study_of("learned", tokens)
    most = int((study.counts.bigrams.counts >= 6).sum())
    said = corpus_counts.write_counts(study.counts, study.layer.vocab_size, tmp_path, most)
    assert said["threshold"] == 6
    assert said["pairs"] == most
    (tmp_path / "fewer").mkdir()
    fewer = corpus_counts.write_counts(study.counts, study.layer.vocab_size, tmp_path / "fewer", most - 1)
    assert fewer["threshold"] == 7  # not all pairs of one count can be kept, so none is
    assert fewer["pairs"] < most - 1
    found = Bundle(tmp_path)
    found.said = {"counts": said}
    for query in range(study.layer.vocab_size):
        for key, count in zip(*study.counts.bigrams.predecessors(query), strict=True):
            expected = count if count >= 6 else 0
            assert found.count(int(key), query) == found.count(int(key), query, "by_key") == expected


def test_tokens_are_the_vocabularys(bundles):
    study, found = bundles["learned"]
    said = json.loads((found.folder / "tokens.json").read_text(encoding="utf-8"))
    vocabulary = study.layer.vocabulary
    assert said["texts"] == [vocabulary.text(token) for token in range(study.layer.vocab_size)]
    halves = [token for token, text in enumerate(said["texts"]) if "\\x" in text]
    assert sorted(map(int, said["bytes"])) == halves
    assert all(bytes.fromhex(found) == vocabulary.as_bytes(int(token)) for token, found in said["bytes"].items())
    assert (found.folder / "tokenizer.json").read_text(encoding="utf-8") == vocabulary.to_json()


@pytest.mark.usefixtures("few_words")
def test_head_cards_are_the_questions_answer(bundles):
    study, found = bundles["learned"]
    said = json.loads((found.folder / "heads.json").read_text(encoding="utf-8"))
    answer = study.ask(Heads())
    names = [column["name"] for column in said["columns"]]
    assert said["rows"] == answer.tables["heads"].select(names).to_dicts()
    assert said["sentence"] == answer.sentence
    assert said["verdict"] == answer.verdict.to_dict()
    assert {column["name"] for column in said["missing"]}.isdisjoint(names)
    assert len(names) + len(said["missing"]) == len(answer.tables["heads"].columns)


@pytest.mark.usefixtures("few_words")
def test_head_cards_may_come_later(tokens, tmp_path):
    study = study_of("rotary", tokens, with_counts=False)
    folder = write_bundle(study, tmp_path / "out", cards_later=True)
    assert check_bundle(folder)["heads_pending"]
    assert not (folder / "heads.json").exists()
    add_cards(study, folder)
    assert len(json.loads((folder / "heads.json").read_text())["rows"]) == study.layer.n_heads


def test_what_hinders_head_cards_is_said_on_the_page(tokens, tmp_path, monkeypatch):
    study = study_of("learned", tokens)

    def fail(_study):
        raise OutputError("the disk is full")

    monkeypatch.setattr(cards, "head_cards", fail)
    (tmp_path / "out").mkdir()
    add_cards(study, tmp_path / "out")
    assert json.loads((tmp_path / "out/heads.json").read_text()) == {"problem": "the disk is full"}


def test_head_cards_that_take_hours_are_left_out(tokens, tmp_path, monkeypatch):
    monkeypatch.setattr(cards, "MOST_WORK", 1.0)
    study = study_of("learned", tokens)
    said = check_bundle(write_bundle(study, tmp_path / "out"))
    assert said["heads"] is None
    assert "takes hours" in said["views"]["heads"]
    assert not (tmp_path / "out/heads.json").exists()


def test_what_is_not_there_has_a_reason(bundles, plain):
    reasons = plain.said["reasons"]
    assert "counts" in reasons["counts"]
    assert "tokenizer" in reasons["vocabulary"]
    assert plain.said["sample"]["text"] is None
    assert not (plain.folder / "tokens.json").exists()
    assert bundles["rotary"][1].said["reasons"]["offset"] is None
    assert bundles["rotary"][1].said["reasons"]["layer_norm"] is not None
    assert bundles["learned"][1].said["reasons"]["layer_norm"] is None


def test_special_and_untrained_tokens_are_no_partners(bundles, tokens, plain, tmp_path):
    study, found = bundles["learned"]
    assert found.said["left_out"] == sorted({*range(study.layer.vocab_size)} - {*study.layer.meaningful_tokens})
    assert found.said["left_out"]
    assert plain.said["left_out"] == []
    everything = Study(Layer(study.layer.checkpoint, all_tokens=True))
    folder = write_bundle(everything, tmp_path / "all", cards_later=True)
    assert check_bundle(folder)["left_out"] == []


def test_a_sample_is_a_piece_inside_a_word(bundles):
    study, found = bundles["learned"]
    shown = found.said["sample"]
    assert shown["ids"] == study.layer.vocabulary.encode(shown["text"])
    assert len(shown["ids"]) <= study.layer.n_positions  # the whole text would be longer
    assert shown["token"] in study.layer.vocabulary.word_internal()


def test_the_head_shown_first_is_the_one_that_joins():
    """L0H1 of the demo model, by what its card says (AUROC 0.85 of all bigrams, the next has 0.68)."""
    from detoklens.loading import load

    assert sample(load("demo"), 256)["head"] == 1
