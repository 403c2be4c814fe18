"""What the questions about tokens say of trained models: the demo detokenizes, a speech decoder does not."""

from __future__ import annotations

import numpy as np
import pytest

from detoklens import demo
from detoklens.corpus.counts import Counts
from detoklens.loading import load
from detoklens.measures.auroc import measure_heads
from detoklens.measures.heatmap import self_match_scores
from detoklens.measures.positives import seen_pairs
from detoklens.measures.token_classes import orthographic_classes
from detoklens.measures.words import shipped_words, split_words
from detoklens.questions.auroc.compute import controls_by_head
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.auroc.verdict import judge_heads
from detoklens.questions.heads.question import Heads
from detoklens.questions.lexicon import Lexicon
from detoklens.questions.study import Study, Work, study
from detoklens.questions.twins.question import Twins
from detoklens.questions.words import Words
from detoklens.scores.affinity import Affinity
from detoklens.scores.layer import Layer

N_RANDOM = 8  # heads of random weights


@pytest.fixture(scope="module")
def demo_study():
    if not demo.CHECKPOINT.is_dir():
        pytest.skip("NOT TESTED ON THE DEMO: its checkpoint is missing from the package")
    return study("demo", workers=1)


def words_by_head(asked, centred):
    by_head = asked.ask(Words(centred=centred)).tables["words_by_head"]
    return by_head.with_columns(gain=by_head["null_median_share"] - by_head["median_share"])


def test_most_shipped_words_are_split_by_the_demo(demo_study):
    split = split_words(demo_study.layer.vocabulary, shipped_words())
    assert sum(len(word.token_ids) > 1 for word in split) >= 500


def test_the_demos_best_head_ranks_pieces_far_above_chance(demo_study):
    """The median rank of the piece before is in the top tenth of the vocabulary; chance is the middle."""
    answer = demo_study.ask(Words())
    best = answer.tables["words_by_head"].sort("median_share").row(0, named=True)
    assert best["pairs"] >= 500
    assert best["median_share"] < 0.1
    assert best["null_median_share"] - best["median_share"] > 0.1
    assert answer.sentence.startswith(f"L0H{best['head']} finds a word's preceding piece: its median rank (top ")


def test_the_demos_lexicon_are_pairs_of_its_corpus(demo_study):
    best = words_by_head(demo_study, centred=True).sort("gain", descending=True)["head"][0]
    found = demo_study.ask(Lexicon(2000, heads=[best], centred=True)).tables["lexicon_by_head"]
    chance = len(demo_study.counts.bigrams.prefixes) / demo_study.layer.vocab_size**2
    assert found["seen_share"][0] > 3 * chance


def test_no_head_of_a_speech_decoder_joins_words_but_one_matches_itself(whisper_folder):
    layer = load(whisper_folder)
    words = words_by_head(Study(layer), centred=False)
    assert words["gain"].max() < 0.1
    assert words["first"].max() < 0.001
    self_match = self_match_scores(layer.token_affinity()).mean(axis=1)
    assert self_match.argmax() == 1
    assert self_match[1] > 4
    assert sorted(self_match)[-2] < 2.5


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_demos_head_is_named_and_frequency_does_not_explain_it(demo_study, seed):
    """Over all tokens frequency alone ranks better; among equally frequent keys the head does."""
    asked = Study(demo_study.layer, demo_study.counts, seed=seed, work=Work(workers=1))
    pieces, everything = asked.ask(Auroc(pieces=True)), asked.ask(Auroc())
    assert pieces.verdict.heads == everything.verdict.heads == ("L0H1",)
    assert pieces.tables["auroc_controls"]["above_within_class"][1] == pytest.approx(0.2, abs=0.01)
    assert everything.tables["auroc_controls"]["above_within_class"][1] == pytest.approx(0.107, abs=0.01)
    assert pieces.tables["auroc_controls"]["above_within_cluster"][1] == pytest.approx(0.14, abs=0.01)
    assert everything.tables["auroc_controls"]["above_within_cluster"][1] == pytest.approx(0.064, abs=0.01)
    assert everything.sentence.startswith("L0H1 detokenizes: AUROC 0.851 [0.848, 0.854] on all tokens; ")
    assert everything.sentence.endswith(
        "Frequency alone ranks keys better (0.886), but not among equally frequent keys."
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_head_of_a_speech_decoder_is_named(whisper_folder, tiny_text, seed):
    """Judged from 512 query tokens of a short text."""
    layer = load(whisper_folder)
    ids = np.array(layer.vocabulary.encode(tiny_text.read_text(encoding="utf-8")), np.int64)
    (suffixes, prefixes), times = np.unique(np.stack([ids[1:], ids[:-1]]), axis=1, return_counts=True)
    tokens = np.bincount(ids, minlength=layer.vocab_size)
    pairs = suffixes.astype(np.uint32), prefixes.astype(np.uint32), times
    counts = Counts.from_arrays(tokens, *pairs, layer.vocabulary.fingerprint)
    asked = np.random.default_rng(seed).choice(np.unique(ids[1:]), 512, replace=False).tolist()
    answer = Study(layer, counts, seed=seed, work=Work(workers=1)).ask(Auroc(asked))
    assert answer.sentence.startswith("No head detokenizes")
    assert answer.verdict.value == "no"


def structured_embeddings(structure: str, layer: Layer, random: np.random.Generator) -> np.ndarray:
    """Embeddings that hold spelling, orthographic class, or what the demo model learned; nothing of pairs as such."""
    size = layer.vocab_size
    if structure == "demo":
        found = layer.weights.token_embeddings.astype(np.float64)
    elif structure == "class":
        found = np.eye(8)[orthographic_classes(layer.vocabulary, size)] @ random.standard_normal((8, 64))
    else:
        letters = random.standard_normal((256, 64))
        found = np.stack([letters[list(layer.vocabulary.as_bytes(token))].sum(axis=0) for token in range(size)])
    found = found + 0.1 * found.std() * random.standard_normal(found.shape)
    return (found - found.mean(axis=1, keepdims=True)) / found.std(axis=1, keepdims=True)


@pytest.mark.parametrize("pieces", [True, False])
@pytest.mark.parametrize("structure", ["spelled", "class", "demo"])
def test_random_heads_on_structured_embeddings_are_never_lexical(demo_study, structure, pieces):
    layer, random = demo_study.layer, np.random.default_rng(3)
    embeddings = structured_embeddings(structure, layer, random)
    query, key = (
        np.stack([embeddings @ random.standard_normal((embeddings.shape[1], 16)) for _ in range(N_RANDOM)])
        for _ in range(2)
    )
    pairs = seen_pairs(demo_study.counts.bigrams)
    asked = layer.vocabulary.word_internal() if pieces else np.flatnonzero(pairs.sizes)
    asked = random.choice(asked, 300, replace=False)
    classes = orthographic_classes(layer.vocabulary, layer.vocab_size)
    affinity = Affinity(query.astype(np.float32), key.astype(np.float32))
    measures = measure_heads(affinity, pairs, asked, demo_study.counts.tokens, groups={"within_class": classes})
    judged = judge_heads(controls_by_head(measures, range(N_RANDOM), 200, 0))
    assert [each.row for each in judged if each.level == "lexical"] == []


@pytest.mark.usefixtures("shared_answers")
def test_the_demos_scorecard_names_the_head_that_every_question_names() -> None:
    found = study("demo", workers=2).ask(Heads())
    yes = found.tables["scorecard"].filter(verdict="yes")
    assert set(yes.filter(measure="detokenizes")["head"]) == set(yes.filter(measure="looks_back")["head"]) == {1}
    assert yes.filter(measure="writes_words").is_empty()
    row = found.page_views[0].frame.row(1, named=True)
    assert row["looks back"].startswith("yes (+0.5")
    lost = found.tables["scorecard"].filter(measure="writes_words")["value"].to_list()
    cuts = study("demo", workers=2).ask(Twins()).tables["twins_by_condition"].filter(place="block", pieces=2)
    assert lost == [cuts.filter(condition=f"cut_L0H{head}")["share_lost"][0] for head in range(4)]
    assert row["writes words"] == "no", "a share of what the layer does not do would only confuse"
    assert " ".join(found.page_views[0].notes).count("1.04") == 1, "the layer's number, once"
    assert row["score varies with"].startswith("offset 80 %")
