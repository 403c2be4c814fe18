"""A text's own decomposition: every number is that of the terms, and the explaining term is the one that matters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.errors import RangeError
from detoklens.questions.explain.compute import Explanation, explain, pair_table, strongest_links
from detoklens.scores.layer import Layer
from detoklens.scores.terms import Term
from detoklens.weights.checkpoint import Checkpoint
from tests.layers import random_first_layer, random_layer, sizes


def some_ids(layer: Layer, seed: int) -> list[int]:
    random = np.random.default_rng(seed)
    return random.integers(0, layer.vocab_size, random.integers(1, layer.n_positions + 1)).tolist()


def pairs_of(found: Explanation) -> pl.DataFrame:
    return pair_table(found, [str(token) for token in found.token_ids])


def links_of(found: Explanation, top: int) -> pl.DataFrame:
    return strongest_links(found, [str(token) for token in found.token_ids], top)


def plain_softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


@given(sizes)
def test_every_pair_says_what_the_terms_say(size: dict) -> None:
    layer = random_layer(**size)
    ids = some_ids(layer, size["seed"])
    terms = layer.terms(ids)
    pairs = pairs_of(explain(layer, ids))
    assert len(pairs) == layer.n_heads * len(ids) * (len(ids) + 1) // 2
    parts = np.stack([pairs[name].to_numpy() for name in Term])
    np.testing.assert_allclose(parts.sum(axis=0), pairs["score"], rtol=1e-9, atol=1e-9 * np.abs(parts).max())
    for (head, query), row in pairs.group_by("head", "query_position", maintain_order=True):
        assert row["key_position"].to_list() == list(range(query + 1))
        assert row["key_token"].to_list() == ids[: query + 1]
        assert row["query_token"].to_list() == [ids[query]] * (query + 1)
        scale = layer.attention_scale
        np.testing.assert_allclose(row["attention"], plain_softmax(row["score"].to_numpy() * scale), atol=1e-9)
        for term in Term:
            np.testing.assert_allclose(row[term], terms.full(term)[head, query, : query + 1])
            left = (row["score"] - row[term]).to_numpy() * scale
            np.testing.assert_allclose(row[f"without_{term}"], plain_softmax(left), atol=1e-6)


@given(sizes, st.integers(1, 9))
def test_links_are_the_pairs_with_the_largest_attention(size: dict, top: int) -> None:
    """A query that sees only itself is left out: its attention is 1 whatever the scores."""
    layer = random_layer(**size)
    found = explain(layer, some_ids(layer, size["seed"]))
    pairs = pairs_of(found)
    if len(found.token_ids) > 1:
        pairs = pairs.filter(pl.col("query_position") > 0)
    for (head,), links in links_of(found, top).group_by("head", maintain_order=True):
        of_head = pairs.filter(pl.col("head") == head)
        expected = of_head["attention"].sort(descending=True).head(top)
        assert links["attention"].to_list() == expected.to_list()
        assert links["rank"].to_list() == expected.rank("min", descending=True).to_list()


def test_links_of_equal_attention_have_equal_rank() -> None:
    first = random_first_layer(n_heads=1, d_head=8, vocab_size=6, seed=1)
    layer = Layer(Checkpoint("flat", {}, replace(first, attention_scale=0.0), None, None))
    links = links_of(explain(layer, [0, 1, 2]), 4)
    assert links["attention"].round(6).to_list() == [0.5, 0.5, 0.333333, 0.333333]
    assert links["rank"].to_list() == [1, 1, 3, 3]


@given(sizes)
def test_the_explaining_term_is_the_one_without_which_least_is_left(size: dict) -> None:
    layer = random_layer(**size)
    found = explain(layer, some_ids(layer, size["seed"]))
    keys = ["head", "query_position", "key_position"]
    both = links_of(found, 5).join(pairs_of(found).drop("attention"), on=keys, how="left", maintain_order="left")
    for link in both.iter_rows(named=True):
        without = {term: link[f"without_{term}"] for term in Term}
        if link["term"] is None:
            assert link["without_term"] is None
            assert min(without.values()) >= link["attention"] - 1e-6
        else:
            assert without[link["term"]] == link["without_term"] == pytest.approx(min(without.values()), abs=1e-9)
            assert link["without_term"] <= link["attention"] + 1e-9


def test_a_link_that_rounds_to_one_still_has_its_term() -> None:
    """With scores this steep, a key's lead over the next one is its log-odds."""
    first = random_first_layer(n_heads=1, d_head=8, vocab_size=6, seed=1)
    layer = Layer(Checkpoint("steep", {}, replace(first, attention_scale=50.0), None, None))
    found = explain(layer, [0, 1, 2, 3])
    saturated = links_of(found, 9).filter(attention=1.0, without_term=1.0)
    link = saturated.row(0, named=True)
    row = pairs_of(found).filter(pl.col("query_position") == link["query_position"])
    j = link["key_position"]
    leads = {}
    for term in Term:
        left = (row["score"] - row[term]).to_numpy()
        leads[term] = left[j] - np.delete(left, j).max()
    assert link["term"] == min(leads, key=leads.get)


@given(sizes)
def test_lifts_say_how_much_each_key_gains(size: dict) -> None:
    """log(α_j / geometric mean of α over the keys) is the sum of the lifts."""
    layer = random_layer(**{**size, "epsilon": 1.0})
    found = explain(layer, some_ids(layer, size["seed"]))
    attention = found.attention
    for link in links_of(found, 3).iter_rows(named=True):
        row = attention[link["head"], link["query_position"], : link["query_position"] + 1]
        if row.min() < 1e-200:
            continue
        gained = np.log(link["attention"]) - np.log(row).mean()
        assert sum(link[f"lift_{term}"] for term in Term) == pytest.approx(gained, rel=1e-6, abs=1e-6)


def test_heads_are_chosen_and_named() -> None:
    layer = random_layer(n_heads=4)
    some, every = explain(layer, [1, 2, 3], [3, 1]), explain(layer, [1, 2, 3])
    assert pairs_of(some)["head"].unique(maintain_order=True).to_list() == [3, 1]
    assert pairs_of(some).filter(pl.col("head") == 3).equals(pairs_of(every).filter(pl.col("head") == 3))
    assert links_of(some, 1)["head"].to_list() == [3, 1]


def test_one_token_attends_to_itself_for_no_reason() -> None:
    links = links_of(explain(random_layer(), [4]), 5)
    assert links["attention"].to_list() == [1.0] * 3
    assert links["term"].null_count() == 3


def test_a_planted_partner_is_explained_by_ee() -> None:
    first = random_first_layer(n_heads=1, d_head=8, vocab_size=6, seed=3)
    layer = Layer(Checkpoint("planted", {}, replace(first, token_embeddings=first.token_embeddings * 30), None, None))
    links = links_of(explain(layer, [0, 1, 2, 3]), 1)
    assert links["term"].to_list() == ["ee"]


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "at least one token"),
        ([0] * 12, "12 tokens is longer than the model's 11 positions"),
        ([99], "token id 99"),
    ],
)
def test_texts_that_do_not_fit_are_refused(ids: list[int], said: str) -> None:
    with pytest.raises(RangeError, match=said):
        explain(random_layer(n_positions=11), ids)


def test_heads_that_are_not_there_are_refused() -> None:
    with pytest.raises(RangeError, match="head 3 does not exist"):
        explain(random_layer(n_heads=3), [1], [3])


def test_an_explanation_says_what_it_holds() -> None:
    shown = repr(explain(random_layer(n_heads=4), [1, 2, 3], [3, 1]))
    assert shown == (
        "Explanation of 3 tokens in L0H3 and L0H1: score, attention, and attention without each of "
        "ee, pp, pe, ep, e and p, all [head 2, query 3, key 3]"
    )
