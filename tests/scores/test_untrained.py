"""Untrained tokens: found next to tokens that no text has, and left out of means, candidates and rankings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

import detoklens as dl
from detoklens.questions.base import Question
from detoklens.scores.layer import Layer
from detoklens.scores.untrained import impossible_tokens, untrained_tokens
from detoklens.tokens.vocabulary import Vocabulary
from tests.layers import as_layer, random_first_layer, with_rotary_positions


@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 1e-4, 0.1]),
    shift=st.sampled_from([0.0, 3.0]),
    share=st.sampled_from([0.02, 0.5, 0.9]),
)
def test_a_planted_share_is_found_exactly(seed: int, spread: float, shift: float, share: float) -> None:
    """Whether untrained rows kept small random values, decayed to 0 or were pushed together, and however many."""
    random = np.random.default_rng(seed)
    planted = random.permutation(1000) < share * 1000
    embeddings = random.normal(size=(1000, 64))
    embeddings[planted] = shift + spread * random.normal(size=(planted.sum(), 64))
    impossible = np.zeros(1000, bool)
    impossible[random.choice(np.flatnonzero(planted), 13, replace=False)] = True
    np.testing.assert_array_equal(untrained_tokens(embeddings, impossible), planted)


@given(seed=st.integers(0, 2**32 - 1), number=st.integers(0, 40), width=st.integers(8, 200))
def test_random_weights_have_none(seed: int, number: int, width: int) -> None:
    embeddings = np.random.default_rng(seed).normal(size=(500, width))
    assert not untrained_tokens(embeddings, np.arange(500) < number).any()


def test_one_trained_name_among_the_impossible_changes_nothing() -> None:
    random = np.random.default_rng(0)
    embeddings, untrained = random.normal(size=(400, 32)), np.arange(400) < 20
    embeddings[untrained] = 1e-3 * random.normal(size=(20, 32))
    found = untrained_tokens(embeddings, np.isin(np.arange(400), [0, 1, 2, 3, 4, 399]))
    np.testing.assert_array_equal(found, untrained)


def test_the_demo() -> None:
    """It never met most control characters and bytes of other scripts."""
    layer = dl.load("demo")
    impossible = impossible_tokens(layer.vocabulary, layer.vocab_size)
    assert impossible.sum() == 13
    assert layer.untrained[impossible].all()
    assert layer.untrained[layer.token_id("\x0b")]
    assert not layer.untrained[layer.token_id(" the")]
    assert not np.isin(layer.meaningful_tokens, np.flatnonzero(layer.untrained)).any()


def test_a_trained_token_that_no_text_contains_is_left_out_too() -> None:
    """As in MiniLM, whose `[unused80]` lies among its function words."""
    names = ["[PAD]", "[UNK]", *(f"[unused{number}]" for number in range(8)), "a", "b", *(f"w{n}" for n in range(30))]
    tokenizer = Tokenizer(WordPiece({name: token for token, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]"])
    first = random_first_layer(n_heads=2, d_head=6, vocab_size=len(names))
    first.token_embeddings[2:9] = 0.01 * first.token_embeddings[2:9]  # [unused7] keeps an embedding like any other's
    study = dl.study(Layer(replace(as_layer(first).checkpoint, vocabulary=Vocabulary(tokenizer))))
    assert study.layer.meaningful_tokens.tolist() == list(range(10, len(names)))
    [note] = study.ask(dl.Lexicon(top=3)).notes
    assert note.startswith(
        "7 tokens that training barely changed and 1 token that no text contains are left out of means, candidates and rankings ("
    )
    table = study.ask(dl.Frequency()).tables["untrained"]
    assert table.select("token", "trained").rows() == [(f"[unused{n}]", n == 7) for n in range(8)]


def test_minilm(minilm_folder: Path) -> None:
    """`[unused80]` is its only name that training changed; all 994 names are left out."""
    layer = dl.load(minilm_folder)
    trained = np.flatnonzero(layer.impossible & ~layer.untrained)
    assert [layer.vocabulary.raw(token) for token in trained] == ["[unused80]"]
    assert layer.impossible.sum() == 994
    assert not np.isin(layer.meaningful_tokens, np.flatnonzero(layer.impossible)).any()


@pytest.fixture(scope="module")
def by_default() -> dl.Study:
    return dl.study("demo")


@pytest.fixture(scope="module")
def with_all() -> dl.Study:
    return dl.study("demo", all_tokens=True)


@pytest.mark.parametrize(
    ("question", "table", "column"),
    [
        (dl.Partners(["ion"], top=4096), "partners", "key_token_id"),
        (dl.Lexicon(top=2000), "lexicon", "key_token_id"),
        (dl.Heatmap(tokens=2000), "heatmap_tokens", "token_id"),
    ],
)
def test_they_are_left_out_unless_asked_for(
    by_default: dl.Study, with_all: dl.Study, question: Question, table: str, column: str
) -> None:
    few, many = by_default.ask(question), with_all.ask(question)
    assert np.isin(few.tables[table][column], by_default.layer.meaningful_tokens).all()
    assert table == "lexicon" or not np.isin(many.tables[table][column], by_default.layer.meaningful_tokens).all()
    [note] = [note for note in few.notes if "left out" in note]
    assert note.startswith("82 tokens that training barely changed are left out of means, candidates and rankings (")
    assert not any("left out" in note for note in many.notes)
    assert many.provenance.options["all_tokens"]
    assert "all_tokens" not in few.provenance.options
    assert " demo --all-tokens" in many.command


def test_twins_are_ranked_among_the_others(by_default: dl.Study, with_all: dl.Study) -> None:
    few, many = (study.ask(dl.Twins(triples=40, bootstrap=0)) for study in (by_default, with_all))
    sizes = [answer.tables["twins_by_condition"]["candidates"][0] for answer in (few, many)]
    assert sizes == [len(by_default.layer.meaningful_tokens), by_default.layer.vocab_size]
    assert not np.isin(few.tables["twins"]["token_id"], np.flatnonzero(by_default.layer.untrained)).any()


def test_words_are_ranked_among_the_others(by_default: dl.Study, with_all: dl.Study) -> None:
    """A piece that is itself left out would still be ranked."""
    few, many = (study.ask(dl.Words()).tables["word_ranks"] for study in (by_default, with_all))
    assert (few["rank"] <= many["rank"]).all()
    assert (few["rank"] < many["rank"]).any()
    np.testing.assert_array_equal(few["score"], many["score"])
    dropped = len(np.setdiff1d(np.arange(4096), by_default.layer.meaningful_tokens))
    assert (many["rank"] - few["rank"]).max() <= dropped


def test_means_over_the_vocabulary_leave_them_out(by_default: dl.Study) -> None:
    """40 rows without a token: no weight in the mean, unless all tokens are asked for."""
    vocabulary = by_default.layer.vocabulary
    size = vocabulary.size + 40
    plain = random_first_layer(n_heads=2, d_head=6, vocab_size=size)
    plain.token_embeddings[vocabulary.size :] = 5.0
    rotary = replace(
        plain,
        position_embeddings=plain.position_embeddings[:0],
        longest_text=40,
        rotary_frequencies=np.array([1.0, 0.3]),
    )
    checkpoint = replace(as_layer(rotary).checkpoint, vocabulary=vocabulary)
    layer, everything = Layer(checkpoint), Layer(checkpoint, all_tokens=True)
    kept = np.isin(np.arange(size), layer.meaningful_tokens).astype(float)
    assert kept.sum() == vocabulary.size - len(vocabulary.apart) - 13, "13 bytes are in no text"
    ids = [5, 500, 7]
    by_weight = {"ee": layer.terms(ids, mean=kept)["ee"], "all": layer.terms(ids, mean=np.ones(size))["ee"]}
    np.testing.assert_array_equal(layer.terms(ids, mean="vocabulary")["ee"], by_weight["ee"])
    np.testing.assert_array_equal(everything.terms(ids, mean="vocabulary")["ee"], by_weight["all"])
    assert np.abs(by_weight["all"] - by_weight["ee"]).max() > 1e-3


def test_another_tokenizer_with_as_many_of_them_is_another_provenance() -> None:
    checkpoint = as_layer(with_rotary_positions(random_first_layer(n_heads=4, d_head=6, vocab_size=9), 2)).checkpoint
    first, last = Layer(checkpoint), Layer(checkpoint)
    first.meaningful_tokens, last.meaningful_tokens = np.arange(1, 9), np.arange(8)
    found = [dl.study(layer).provenance(dl.Positions()) for layer in (first, last, Layer(checkpoint))]
    assert len({provenance.to_json() for provenance in found}) == 3
    alike = [dl.study(layer).provenance(dl.Positions(mean="none")) for layer in (first, last)]
    assert alike[0] == alike[1]


def test_they_are_listed() -> None:
    study = dl.study("demo")
    listed = study.ask(dl.Frequency()).tables["untrained"]
    assert listed["token_id"].to_list() == np.flatnonzero(study.layer.untrained).tolist()
