"""Head cards: W_QK's numbers against the d × d matrix itself, the rest against the analyses that they come from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from detoklens.analyses.bilinear import bilinear_form
from detoklens.analyses.frequency import frequency_by_head
from detoklens.analyses.heads import head_cards, sorted_cards
from detoklens.analyses.self_match import self_match_scores
from detoklens.analyses.shape import shape
from detoklens.analyses.word_list import shipped_words, split_words
from detoklens.analyses.words import word_ranks
from detoklens.errors import RangeError
from detoklens.tables.heads import HEADS
from tests.layers import random_layer, sizes
from tests.spelled import counts_of, spelled_layer


@settings(max_examples=60)
@given(sizes)
def test_the_form_is_that_of_the_whole_matrix(size):
    layer = random_layer(**size)
    weights = layer.weights
    d_model = layer.d_model
    norm = (np.eye(d_model) - 1 / d_model) @ np.diag(weights.norm_gain)
    for head in range(layer.n_heads):
        whole = norm @ weights.query_weight[:, head] @ weights.key_weight[:, head].T @ norm.T
        symmetric, antisymmetric = (whole + whole.T) / 2, (whole - whole.T) / 2
        values = np.linalg.svd(whole, compute_uv=False)
        values[values < 1e-12 * values[0]] = 0
        shares = values[values > 0] / values.sum()
        found = bilinear_form(layer.folded, head)
        assert found.symmetric_share == pytest.approx(np.sum(symmetric**2) / np.sum(whole**2), abs=1e-9)
        assert found.antisymmetric_share == pytest.approx(np.sum(antisymmetric**2) / np.sum(whole**2), abs=1e-9)
        assert found.effective_rank == pytest.approx(np.exp(-np.sum(shares * np.log(shares))), rel=1e-6)
        assert found.participation_ratio == pytest.approx(np.sum(values**2) ** 2 / np.sum(values**4))
        assert found.spectral_norm == pytest.approx(values[0])


def test_a_symmetric_head_is_all_symmetric_and_a_dead_one_is_undefined():
    layer = random_layer()
    layer.folded.key_weight[0] = layer.folded.query_weight[0]
    layer.folded.key_weight[1] = 0
    assert bilinear_form(layer.folded, 0).symmetric_share == pytest.approx(1)
    assert np.isnan(bilinear_form(layer.folded, 1).symmetric_share)
    assert bilinear_form(layer.folded, 1).spectral_norm == 0


@pytest.fixture(scope="module")
def spelled(tmp_path_factory):
    return spelled_layer(tmp_path_factory.mktemp("spelled"))


def test_a_card_holds_what_the_analyses_say(spelled):
    from detoklens.analyses.auroc import controls_by_head, measure_heads, seen_pairs

    counts = counts_of(spelled)
    cards = head_cards(spelled, counts)
    affinity = spelled.token_affinity()
    measured = measure_heads(affinity, seen_pairs(counts.bigrams), range(spelled.vocab_size), counts.tokens)
    controls = controls_by_head(measured, [0, 1, 2])
    _, words = word_ranks(spelled, split_words(spelled.vocabulary, shipped_words()))
    shapes, _ = shape(spelled, [spelled.n_positions // 2])
    frequency = frequency_by_head(spelled, counts)
    expected = {
        "head": [0, 1, 2],
        "auroc": controls["auroc"],
        "above_null": controls["above_null"],
        "word_share": words["median_share"],
        "word_null": words["null_median_share"],
        "self_match": self_match_scores(affinity).mean(axis=1),
        "on_previous": shapes["on_previous"],
        "frequency_spearman": frequency["spearman"],
        "frequency_slope": frequency["slope"],
    }
    for name, values in expected.items():
        assert cards[name].to_list() == pytest.approx(list(values)), name
    assert cards["position_class"].to_list() == shapes["class"].to_list()
    assert (cards["auroc"] - cards["auroc_null"]).to_list() == pytest.approx(cards["above_null"].to_list())
    assert cards.columns == [column.name for column in HEADS.columns]


def test_some_heads_have_the_rows_that_they_have_among_all(spelled):
    counts = counts_of(spelled)
    some, every = head_cards(spelled, counts, heads=[2, 0]), head_cards(spelled, counts)
    assert some["head"].to_list() == [2, 0]
    for column in ("auroc", "word_share", "self_match", "effective_rank"):
        assert some[column].to_list() == pytest.approx([every[column][2], every[column][0]])


def test_tables_computed_before_are_taken_as_they_are(spelled):
    from detoklens.analyses.auroc import controls_by_head, measure_heads, seen_pairs

    counts = counts_of(spelled)
    affinity = spelled.token_affinity()
    measured = measure_heads(affinity, seen_pairs(counts.bigrams), range(spelled.vocab_size), counts.tokens)
    _, words = word_ranks(spelled, split_words(spelled.vocabulary, shipped_words()))
    given = head_cards(spelled, counts, controls=controls_by_head(measured, [0, 1, 2]), words=words)
    assert given.equals(head_cards(spelled, counts))


def test_what_is_not_known_is_null():
    cards = head_cards(random_layer())
    for column in ("auroc", "auroc_null", "above_null", "word_share", "word_null", "frequency_spearman"):
        assert cards[column].null_count() == 3
    for column in ("self_match", "symmetric_share", "effective_rank", "position_class"):
        assert cards[column].null_count() == 0


def test_sorting_puts_the_largest_first_and_unknown_last():
    cards = head_cards(random_layer(n_heads=5)).with_columns(auroc=np.array([0.5, np.nan, 0.9, 0.7, 0.1]))
    cards = HEADS.conform(cards)
    assert sorted_cards(cards, "auroc")["head"].to_list() == [2, 3, 0, 4, 1]
    assert sorted_cards(cards, "auroc", ascending=True)["head"].to_list() == [4, 0, 3, 2, 1]


def test_heads_that_do_not_exist_are_refused():
    with pytest.raises(RangeError, match="head 3 does not exist"):
        head_cards(random_layer(), heads=[3])
