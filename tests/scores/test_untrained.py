"""Untrained tokens: found next to tokens that no text has, and left out of rankings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import detoklens as dl
from detoklens.scores.untrained import impossible_tokens, untrained_tokens


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


@pytest.mark.parametrize("question", [dl.Partners(["ion"], top=4096), dl.Lexicon(top=2000)])
def test_rankings_leave_them_out_unless_asked(question: dl.Partners | dl.Lexicon) -> None:
    study = dl.study("demo")
    name = "partners" if isinstance(question, dl.Partners) else "lexicon"
    kept = study.ask(question).tables[name]["key_token_id"]
    assert np.isin(kept, study.layer.meaningful_tokens).all()
    everything = study.ask(replace(question, all_tokens=True)).tables[name]["key_token_id"]
    assert name == "lexicon" or everything.n_unique() == study.layer.vocab_size


def test_they_are_listed() -> None:
    study = dl.study("demo")
    listed = study.ask(dl.Frequency()).tables["untrained"]
    assert listed["token_id"].to_list() == np.flatnonzero(study.layer.untrained).tolist()
