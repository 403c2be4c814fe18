"""Partners against the definition of Tᵉᵉ, written out token by token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.corpus.counts import Counts
from detoklens.errors import RangeError
from detoklens.measures.ranking import pair_counts, scores_of
from detoklens.questions.partners import PARTNERS, Partners
from detoklens.questions.study import Study
from tests.layers import random_layer, sizes
from tests.spelled import counts_of, spelled_layer


def partners(layer, token_ids, counts=None, **asked):
    return Study(layer, counts).ask(Partners(token_ids, **asked)).tables["partners"]


@pytest.fixture(scope="module")
def spelled(tmp_path_factory):
    return spelled_layer(tmp_path_factory.mktemp("spelled"))


def normalised(layer, token, scale):
    """e C diag(γ) / σ, from the weights as they are stored."""
    embedding, weights = layer.weights.token_embeddings[token], layer.weights
    positions = weights.position_embeddings if scale == "mean" else np.zeros_like(embedding)[None]
    if isinstance(scale, int):
        positions = weights.position_embeddings[scale : scale + 1]
    sigma = np.mean([np.sqrt((embedding + position).var() + weights.norm_epsilon) for position in positions])
    return (embedding - embedding.mean()) * weights.norm_gain / sigma


def brute_force(layer, head, scale):
    """Tᵉᵉ of all pairs of one head, [query, key]."""
    vectors = np.array([normalised(layer, token, scale) for token in range(layer.vocab_size)])
    queries = vectors @ layer.weights.query_weight[:, head]
    return queries @ (vectors @ layer.weights.key_weight[:, head]).T


@settings(max_examples=40)
@given(sizes, st.sampled_from(["mean", "bare", 0]), st.booleans(), st.data())
def test_partners_are_the_largest_scores_of_the_definition(size, scale, centred, data):
    layer = random_layer(**size)
    head = data.draw(st.integers(0, layer.n_heads - 1))
    query = data.draw(st.integers(0, layer.vocab_size - 1))
    expected = brute_force(layer, head, scale)
    tolerance = 1e-6 * np.abs(expected).max()
    if centred:
        expected = expected - expected.mean(axis=0)
    found = partners(layer, [query], top=5, heads=[head], scale=scale, centred=centred)
    best = np.sort(expected[query])[::-1][:5]
    assert found["rank"].to_list() == list(range(1, len(best) + 1))
    np.testing.assert_allclose(found["score"], best, rtol=0, atol=tolerance)
    np.testing.assert_allclose(expected[query][found["key_token_id"]], best, rtol=0, atol=tolerance)


def test_a_scale_that_does_not_exist_is_refused():
    with pytest.raises(RangeError, match="scale is"):
        Partners([1], scale="median")  # type: ignore[arg-type]
    with pytest.raises(RangeError, match="position 99 does not exist"):
        partners(random_layer(n_positions=11), [1], scale=99)


def test_rows_come_query_by_query_and_head_by_head():
    found = partners(random_layer(), [4, 2], top=2, heads=[2, 0])
    assert found["query_token_id"].to_list() == [4] * 4 + [2] * 4
    assert found["head"].to_list() == [2, 2, 0, 0] * 2
    assert found["rank"].to_list() == [1, 2] * 4


def test_a_query_alone_has_the_same_partners_as_among_others():
    layer = random_layer(dtype="float32")
    together = partners(layer, list(range(layer.vocab_size)), top=4)
    alone = partners(layer, [7], top=4)
    assert together.filter(query_token_id=7).equals(alone)


def test_a_score_has_the_same_bits_wherever_it_is_shown():
    """Partners, words, heatmap and lexicon multiply in one way."""
    from detoklens.questions.heatmap import Heatmap
    from detoklens.questions.lexicon import Lexicon

    layer = random_layer(dtype="float32", vocab_size=40)
    scores = {query: scores_of(layer.token_affinity(), query) for query in range(40)}
    shown = [
        partners(layer, list(range(40)), top=40),
        Study(layer).ask(Heatmap(tokens=40)).tables["heatmap"].filter(layer_norm=True),
        Study(layer).ask(Lexicon(top=1600)).tables["lexicon"],
    ]
    for table in shown:
        rows = table.select("query_token_id", "head", "key_token_id", "score").iter_rows()
        assert all(scores[query][head, key] == np.float32(score) for query, head, key, score in rows)
        assert len(table) == 1600 * 3


def test_equal_keys_are_ordered_by_id():
    layer = random_layer()
    layer.weights.token_embeddings[[3, 9, 20]] = layer.weights.token_embeddings[3]
    found = partners(layer, [5], top=layer.vocab_size, heads=[1])["key_token_id"].to_list()
    assert found.index(9) == found.index(3) + 1
    assert found.index(20) == found.index(3) + 2


def test_text_and_counts_of_a_spelled_vocabulary(spelled):
    counts = counts_of(spelled)
    key, query = spelled.vocabulary.encode(" sapient")[:2]
    found = partners(spelled, [query], top=spelled.vocab_size, heads=[0], counts=counts)
    row = found.filter(key_token_id=key).row(0, named=True)
    assert found.columns == [column.name for column in PARTNERS.columns]
    assert row["joined"] == spelled.vocabulary.text(key) + spelled.vocabulary.text(query)
    assert row["key_token"] == spelled.vocabulary.text(key)
    assert row["count"] == dict(zip(*map(list, counts.predecessors(query)), strict=True))[key] > 0
    assert found["count"].sum() == counts.predecessors(query).counts.sum()


def test_without_tokenizer_and_counts_texts_are_null_and_count_is_absent():
    found = partners(random_layer(), [1], top=3)
    assert "count" not in found.columns
    assert found["key_token"].null_count() == found["joined"].null_count() == len(found)


@given(st.data())
def test_pair_counts_are_those_of_a_dictionary(data):
    tokens = st.integers(0, 50)
    pairs = data.draw(st.dictionaries(st.tuples(tokens, tokens), st.integers(1, 9), min_size=1))
    keys, queries = np.array(list(pairs)).T
    counts = Counts.from_arrays(np.ones(51, np.int64), queries, keys, np.array(list(pairs.values())))
    asked = data.draw(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=80))
    found = pair_counts(counts, *np.array(asked).T)
    assert found.tolist() == [pairs.get(pair, 0) for pair in asked]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"token_ids": [23]}, "token id 23 does not exist; token ids go from 0 to 22"),
        ({"token_ids": [1], "heads": [3]}, "head 3 does not exist; heads go from 0 to 2"),
        ({"token_ids": [1], "scale": 11}, "position 11 does not exist; positions go from 0 to 10"),
        ({"token_ids": [1], "top": 0}, "at least 1 is needed"),
    ],
)
def test_what_does_not_exist_is_refused(asked, message):
    with pytest.raises(RangeError, match=message):
        partners(random_layer(), **asked)


def test_a_page_shows_the_seam_of_joined_texts(spelled):
    answer = Study(spelled).ask(Partners([7], top=2, heads=[0]))
    (page,) = answer.page_views
    row = page.frame.row(0, named=True)
    assert row["joined"] == f"{row['key_token']}·{row['query_token']}"
    assert answer.tables["partners"]["joined"][0] == row["key_token"] + row["query_token"]
