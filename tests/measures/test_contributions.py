"""Contributions equal their definition, in every formula, and mean what they say."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import detoklens
from detoklens.errors import CorpusError, RangeError
from detoklens.measures import contributions as measures
from detoklens.measures.contributions import PAPER, PUBLISHED, Formula
from detoklens.questions.contributions import contribution_table, contributions_by_head
from detoklens.scores import terms
from detoklens.scores.layer import Layer
from tests.layers import as_layer, random_first_layer, random_layer, sizes
from tests.measures.plain_contributions import TERMS, plain_contributions, plain_divergence

FORMULAS = [Formula(*parts) for parts in product(("without", "whole"), ("scaled", "unscaled"), ("sum", "mean"))]


def contributions(layer: Layer, documents, query_positions=None, heads=None, formula: Formula = PAPER) -> pl.DataFrame:
    """What is measured, as the table that people meet."""
    measured = measures.contributions(layer, documents, query_positions, heads, formula)
    return contribution_table(measured, range(layer.n_heads) if heads is None else heads)


def drawn_documents(size: dict[str, int], data: st.DataObject) -> list[list[int]]:
    document = st.lists(st.integers(0, size["vocab_size"] - 1), min_size=1, max_size=size["n_positions"])
    return data.draw(st.lists(document, min_size=1, max_size=5))


def some_documents(layer, lengths, seed=0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(0, layer.vocab_size, length) for length in lengths]


@settings(max_examples=40)
@given(size=sizes, data=st.data(), formula=st.sampled_from(FORMULAS))
def test_equals_the_definition_in_float64_for_every_formula(size, data, formula):
    layer, documents = random_layer(**size), drawn_documents(size, data)
    table = contributions(layer, documents, formula=formula)
    plain = plain_contributions(layer, documents, formula)
    assert table.select("head", "query_position", "term").rows() == sorted(
        plain, key=lambda cell: (cell[0], cell[1], TERMS.index(cell[2]))
    )
    for head, query, term, kl, error, _, count in table.iter_rows():
        values = np.array([divergence for divergence, _ in plain[head, query, term]])
        tolerance = 1e-9 * (1 + values.max())
        assert count == len(values)
        assert kl == pytest.approx(values.mean(), abs=tolerance)
        if count == 1:
            assert error is None
        else:
            assert error == pytest.approx(values.std(ddof=1) / np.sqrt(count), abs=tolerance)


@pytest.mark.parametrize("formula", FORMULAS)
def test_the_share_of_changed_tops_is_counted(formula):
    layer = random_layer(n_positions=9, seed=5)
    documents = some_documents(layer, [9, 4, 7, 9, 2])
    plain = plain_contributions(layer, [ids.tolist() for ids in documents], formula)
    table = contributions(layer, documents, formula=formula)
    expected = [np.mean([changed for _, changed in plain[cell]]) for cell in table.select(pl.nth(0, 1, 2)).rows()]
    np.testing.assert_allclose(table["top_changed"], expected, atol=1e-15)
    assert 0.1 < np.mean(expected) < 0.9


def test_the_published_formula_is_torchs_kl_div():
    layer = random_layer(n_positions=8, seed=3)
    [ids] = some_documents(layer, [8])
    table = contributions(layer, [ids], formula=PUBLISHED)
    terms = layer.terms(ids)
    for head, query, term, kl, *_ in table.iter_rows():
        rows = [torch.from_numpy(scores[head, query, : query + 1]) for scores in (terms.total(), terms.without(term))]
        whole, without = rows
        expected = torch.nn.functional.kl_div(without.log_softmax(0), whole.softmax(0), reduction="none").mean()
        assert kl == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


def test_the_papers_formula_is_torchs_kl_div_the_other_way_round():
    layer = random_layer(n_positions=8, seed=4)
    [ids] = some_documents(layer, [8])
    terms = layer.terms(ids)
    for head, query, term, kl, *_ in contributions(layer, [ids], formula=PAPER).iter_rows():
        scaled = [
            scores[head, query, : query + 1] * layer.attention_scale for scores in (terms.total(), terms.without(term))
        ]
        whole, without = map(torch.from_numpy, scaled)
        expected = torch.nn.functional.kl_div(whole.log_softmax(0), without.softmax(0), reduction="sum")
        assert kl == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_single_precision_is_near_double_precision(seed):
    exact = random_first_layer(n_heads=2, d_head=8, n_positions=150, vocab_size=50, seed=seed)
    gentle = replace(exact, query_weight=exact.query_weight * 0.2, key_weight=exact.key_weight * 0.2)
    rounded = replace(
        gentle,
        **{name: value.astype(np.float32) for name, value in vars(gentle).items() if isinstance(value, np.ndarray)},
    )
    documents = some_documents(as_layer(exact), [150, 70, 33], seed)
    double, single = (contributions(as_layer(layer), documents) for layer in (gentle, rounded))
    np.testing.assert_allclose(single["kl"], double["kl"], rtol=2e-4, atol=2e-5)


def test_distances_have_the_type_of_the_other_terms():
    """The compiled loop takes terms of one type."""
    learned = random_first_layer(n_heads=2, n_positions=20)
    exact = replace(
        learned,
        position_embeddings=learned.position_embeddings[:0],
        alibi_slopes=np.array([0.5, 0.25]),
        longest_text=20,
    )
    rounded = replace(
        exact,
        **{
            name: value.astype(np.float32)
            for name, value in vars(exact).items()
            if isinstance(value, np.ndarray) and name != "alibi_slopes"
        },
    )
    documents = some_documents(as_layer(exact), [20, 7])
    double, single = (contributions(as_layer(layer), documents) for layer in (exact, rounded))
    np.testing.assert_allclose(single["kl"], double["kl"], rtol=2e-4, atol=2e-5)


def test_scores_that_fill_up_a_panel_are_not_checked(monkeypatch):
    """They may be anything, and so may the scores of keys that no query sees."""
    layer = replace(random_first_layer(n_heads=1, n_positions=20, dtype="float32"), alibi_slopes=np.array([0.5]))
    layer = as_layer(replace(layer, position_embeddings=layer.position_embeddings[:0], longest_text=20))
    document = some_documents(layer, [20])
    expected = contributions(layer, document, [3])
    checked = []
    monkeypatch.setattr(measures, "check_rounding", lambda scores, _unit: checked.append(scores.shape))
    monkeypatch.setattr(measures, "LARGEST_ROUNDING", 0.0)
    assert contributions(layer, document, [3]).equals(expected)
    assert checked == [(1, 4)] * 3


def test_a_term_that_documents_do_not_compute_is_noticed(monkeypatch):
    """The compiled loop would read memory beyond the scores."""
    declared = terms.TERMS["learned"]
    monkeypatch.setitem(terms.TERMS, "learned", (*declared, declared[-1]._replace(name="more")))
    layer = random_layer()
    with pytest.raises(AssertionError, match="documents lack a declared term"):
        contributions(layer, some_documents(layer, [5]))


def test_a_layer_without_biases_gains_nothing_from_self_assertion():
    layer = as_layer(replace(random_first_layer(), norm_bias=np.zeros(12), query_bias=np.zeros((3, 4))))
    by_term = mean_of_terms(contributions(layer, some_documents(layer, [11, 11])))
    assert max(by_term["e"], by_term["p"]) < 1e-14
    assert min(by_term[term] for term in ("ee", "pp", "pe", "ep")) > 0.01


def test_a_layer_without_positions_has_only_token_terms():
    layer = as_layer(replace(random_first_layer(), position_embeddings=np.zeros((11, 12))))
    by_term = mean_of_terms(contributions(layer, some_documents(layer, [11, 11])))
    assert max(by_term[term] for term in ("pp", "pe", "ep", "p")) < 1e-14
    assert min(by_term["ee"], by_term["e"]) > 0.01


def mean_of_terms(table: pl.DataFrame) -> dict[str, float]:
    return dict(table.group_by("term").agg(pl.col("kl").mean()).rows())


@settings(max_examples=20)
@given(size=sizes, data=st.data(), formula=st.sampled_from(FORMULAS))
def test_groups_of_one_term_are_the_term_and_all_six_leave_uniform_attention(size, data, formula):
    layer, documents = random_layer(**size), drawn_documents(size, data)
    groups = {f"only {term}": [term] for term in TERMS} | {"all": TERMS, "pair": ("p", "pp")}
    found = measures.contributions(layer, documents, formula=formula, groups=groups)
    tolerance = 1e-9 * (1 + found.mean.max(initial=0))
    np.testing.assert_allclose(found.mean[..., 6:12], found.mean[..., :6], atol=tolerance)
    np.testing.assert_array_equal(found.top_changed[..., 6:12], found.top_changed[..., :6])
    alone = measures.contributions(layer, documents, formula=formula)
    np.testing.assert_array_equal(found.mean[..., :6], alone.mean)
    scale = layer.attention_scale if formula.scaling == "scaled" else 1.0
    for place, query in enumerate(found.query_positions):
        long_enough = [layer.terms(ids) for ids in documents if len(ids) > query]
        for head in range(layer.n_heads):
            whole = [terms.total()[head, query, : query + 1] * scale for terms in long_enough]
            pair = [
                row - scale * (terms.full("p") + terms.full("pp"))[head, query, : query + 1]
                for row, terms in zip(whole, long_enough, strict=True)
            ]
            nothing = [plain_divergence(row, np.zeros(query + 1), formula) for row in whole]
            both = [plain_divergence(row, left, formula) for row, left in zip(whole, pair, strict=True)]
            assert found.mean[head, place, 12] == pytest.approx(np.mean(nothing), abs=tolerance)
            assert found.mean[head, place, 13] == pytest.approx(np.mean(both), abs=tolerance)


def test_groups_of_terms_that_a_layer_lacks_are_left_out():
    layer = random_layer()
    found = measures.contributions(layer, some_documents(layer, [9]), groups={"none": ["x"], "token": ("e", "ee")})
    assert found.terms == (*TERMS, "token")


def test_some_heads_and_positions_are_rows_of_the_whole():
    layer = random_layer(n_heads=4, n_positions=11, seed=8)
    documents = some_documents(layer, [11, 6, 9])
    whole = contributions(layer, documents)
    part = contributions(layer, documents, query_positions=[7, 2], heads=[3, 1])
    assert part["head"].unique(maintain_order=True).to_list() == [3, 1]
    expected = pl.concat(
        whole.filter((pl.col("head") == head) & pl.col("query_position").is_in([2, 7])) for head in (3, 1)
    )
    assert part.select("head", "query_position", "term", "documents").equals(
        expected.select("head", "query_position", "term", "documents")
    )
    np.testing.assert_allclose(part["kl"], expected["kl"], atol=1e-12)


def test_long_rows_in_several_blocks_of_rows_equal_the_definition():
    layer = random_layer(n_heads=1, d_head=3, n_positions=140, vocab_size=30, seed=2)
    [ids] = some_documents(layer, [140])
    positions = [0, 63, 64, 65, 127, 128, 139]
    table = contributions(layer, [ids], query_positions=positions)
    plain = plain_contributions(layer, [ids.tolist()], PAPER)
    expected = [plain[cell][0][0] for cell in table.select(pl.nth(0, 1, 2)).rows()]
    np.testing.assert_allclose(table["kl"], expected, atol=1e-9)


def test_the_summary_ranks_a_heads_terms():
    layer = random_layer(seed=1)
    table = contributions(layer, some_documents(layer, [11] * 3))
    summary = contributions_by_head(table)
    assert summary.height == layer.n_heads * 6
    for head in range(layer.n_heads):
        rows = summary.filter(pl.col("head") == head)
        assert rows["rank"].to_list() == [1, 2, 3, 4, 5, 6]
        assert rows["kl"].is_sorted(descending=True)
        assert rows["share"].sum() == pytest.approx(1)
        term = rows["term"][0]
        own = table.filter((pl.col("head") == head) & (pl.col("term") == term))
        assert rows["kl"][0] == pytest.approx(own["kl"].mean())


def test_real_heads_are_carried_by_what_they_are_known_for(whisper_folder, tiny_text):
    """whisper-tiny.en, three windows of tiny.txt: L0H1 looks for its own token again, L0H2 at the place before."""
    single, double = (detoklens.load(whisper_folder, dtype) for dtype in ("float32", "float64"))
    ids = single.vocabulary.encode(tiny_text.read_text(encoding="utf-8")[:20_000])
    length = single.n_positions
    documents = [ids[begin : begin + length] for begin in range(0, 3 * length, length)]
    table = contributions(single, documents)
    exact = contributions(double, documents)
    np.testing.assert_allclose(table["kl"], exact["kl"], atol=1e-5)
    first = contributions_by_head(exact).filter(pl.col("rank") == 1)
    assert dict(first.select("head", "term").rows()) == {0: "pp", 1: "ee", 2: "pp", 3: "pp", 4: "e", 5: "pp"}
    assert first["share"][1] > 0.9
    assert first["share"][2] > 0.9


def test_documents_that_are_too_short_are_refused_only_when_none_is_left():
    layer = random_layer(n_positions=11)
    documents = some_documents(layer, [3, 5])
    table = contributions(layer, documents, query_positions=[4, 9])
    assert table["query_position"].unique().to_list() == [4]
    assert table["documents"].unique().to_list() == [1]
    with pytest.raises(CorpusError, match="no document reaches query position 9: the longest of 2 has 5 tokens"):
        contributions(layer, documents, query_positions=[9])
    with pytest.raises(CorpusError, match="the longest of 0 has 0 tokens"):
        contributions(layer, [])


def test_positions_and_tokens_that_do_not_exist_are_refused():
    layer = random_layer(n_positions=11, vocab_size=23)
    with pytest.raises(RangeError, match="position 11 does not exist"):
        contributions(layer, [[1, 2, 3]], query_positions=[11])
    with pytest.raises(RangeError, match="token id 23 does not exist"):
        contributions(layer, [[1, 23, 3]])
    with pytest.raises(RangeError, match="position 11 does not exist"):
        contributions(layer, [[1] * 12])
