"""The identity that everything rests on: the six terms are the real model's score."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import detoklens
from detoklens.errors import RangeError, TokenError
from detoklens.scores.layer import whole_numbers
from detoklens.scores.terms import Term, Terms
from tests.layers import as_layer, random_first_layer, random_layer, sizes
from tests.real_gpt2 import real_attention_and_output, real_gpt2, real_logits
from tests.spelled import spelled_layer


def text_for(size: dict[str, int], data: st.DataObject) -> list[int]:
    tokens = st.integers(0, size["vocab_size"] - 1)
    return data.draw(st.lists(tokens, min_size=1, max_size=size["n_positions"]))


@settings(max_examples=25)
@given(size=sizes, data=st.data())
def test_real_logits_minus_the_terms_are_constant_along_keys(size, data):
    first_layer = random_first_layer(**size)
    ids = text_for(size, data)
    left = real_logits(real_gpt2(first_layer), ids) - as_layer(first_layer).terms(ids).total()
    np.testing.assert_allclose(left, np.broadcast_to(left[:, :, :1], left.shape), atol=1e-9 * (1 + np.abs(left).max()))


@settings(max_examples=25)
@given(size=sizes, data=st.data())
def test_the_dropped_constant_is_the_key_bias(size, data):
    """real logits − Σ terms = (x_i W̃_Q + b̃_Q) · b̃_K, so it is known, not only constant."""
    first_layer = random_first_layer(**size)
    layer, ids = as_layer(first_layer), text_for(size, data)
    left = real_logits(real_gpt2(first_layer), ids) - layer.terms(ids).total()
    places = np.arange(len(ids))
    inputs = (first_layer.token_embeddings[ids] + first_layer.position_embeddings[places]) / layer.scale(places, ids)[
        :, None
    ]
    queries = np.einsum("id,hdk->hik", inputs, layer.folded.query_weight) + layer.folded.query_bias[:, None]
    expected = np.einsum("hik,hk->hi", queries, layer.folded.key_bias)
    np.testing.assert_allclose(left[:, :, 0], expected, atol=1e-9 * (1 + np.abs(expected).max()))


@settings(max_examples=25)
@given(size=sizes, data=st.data(), scaled=st.booleans())
def test_attention_and_output_equal_the_real_model_in_float64(size, data, scaled):
    first_layer = random_first_layer(**size)
    if not scaled:
        first_layer = replace(first_layer, attention_scale=1.0)
    ids = text_for(size, data)
    attention, output = real_attention_and_output(real_gpt2(first_layer, scale_attn_weights=scaled), ids)
    layer = as_layer(first_layer)
    np.testing.assert_allclose(layer.terms(ids).attention(), attention, atol=1e-10)
    np.testing.assert_allclose(layer.attention_output(ids), output, atol=1e-10 * (1 + np.abs(output).max()))


@settings(max_examples=20)
@given(size=sizes, data=st.data())
def test_attention_and_output_equal_the_real_model_in_float32(size, data):
    # The scores of such a layer are tens, not thousands: embeddings of GPT-2's own size, not of size 1.
    drawn = random_first_layer(**size, dtype="float32")
    first_layer = replace(
        drawn, query_weight=drawn.query_weight * np.float32(0.1), key_weight=drawn.key_weight * np.float32(0.1)
    )
    ids = text_for(size, data)
    attention, output = real_attention_and_output(real_gpt2(first_layer, torch.float32), ids)
    layer = as_layer(first_layer)
    assert layer.terms(ids).total().dtype == np.float32
    np.testing.assert_allclose(layer.terms(ids).attention(), attention, atol=1e-5)
    np.testing.assert_allclose(layer.attention_output(ids), output, atol=1e-5 * (1 + np.abs(output).max()))


def swap_query_and_key(layer):
    return replace(
        layer,
        query_weight=layer.key_weight,
        key_weight=layer.query_weight,
        query_bias=layer.key_bias,
        key_bias=layer.query_bias,
    )


FORGETTING = {
    "gain": lambda layer: replace(layer, norm_gain=np.ones_like(layer.norm_gain)),
    "norm bias": lambda layer: replace(layer, norm_bias=np.zeros_like(layer.norm_bias)),
    "query bias": lambda layer: replace(layer, query_bias=np.zeros_like(layer.query_bias)),
    "epsilon": lambda layer: replace(layer, norm_epsilon=0.0),
    "swapped query and key": swap_query_and_key,
}


@pytest.mark.parametrize("what", FORGETTING)
def test_forgetting_a_part_of_the_scores_is_noticed(what):
    """The comparison above can fail: each mutation moves the attention far beyond the tolerance."""
    first_layer = random_first_layer(epsilon=0.3)
    ids = [3, 1, 4, 1, 5]
    attention, _ = real_attention_and_output(real_gpt2(first_layer), ids)
    mutated = as_layer(FORGETTING[what](first_layer))
    assert np.abs(mutated.terms(ids).attention() - attention).max() > 1e-3


@pytest.mark.parametrize("what", ["value_bias", "output_bias", "norm_bias"])
def test_forgetting_a_bias_of_the_output_is_noticed(what):
    first_layer = random_first_layer()
    ids = [3, 1, 4, 1, 5]
    _, output = real_attention_and_output(real_gpt2(first_layer), ids)
    mutated = as_layer(replace(first_layer, **{what: np.zeros_like(getattr(first_layer, what))}))
    assert np.abs(mutated.attention_output(ids) - output).max() > 1e-3


def test_the_key_bias_changes_no_attention():
    first_layer = random_first_layer()
    ids = [3, 1, 4, 1, 5]
    without = as_layer(replace(first_layer, key_bias=np.zeros_like(first_layer.key_bias)))
    np.testing.assert_array_equal(as_layer(first_layer).terms(ids).attention(), without.terms(ids).attention())


@settings(max_examples=30)
@given(size=sizes, data=st.data())
def test_each_term_is_its_formula(size, data):
    """Σ_ab x_a W_QK x_b written out with the d × d matrix that the package never builds."""
    first_layer, ids = random_first_layer(**size), text_for(size, data)
    layer, places = as_layer(first_layer), np.arange(len(ids))
    sigma = layer.scale(places, ids)
    tokens = first_layer.token_embeddings[ids] / sigma[:, None]
    positions = first_layer.position_embeddings[places] / sigma[:, None]
    matrix = np.einsum("hdk,hek->hde", layer.folded.query_weight, layer.folded.key_weight)
    bias = np.einsum("hk,hek->he", layer.folded.query_bias, layer.folded.key_weight)
    terms = layer.terms(ids)
    for name, query, key in (
        ("ee", tokens, tokens),
        ("pp", positions, positions),
        ("pe", positions, tokens),
        ("ep", tokens, positions),
    ):
        np.testing.assert_allclose(terms[name], np.einsum("id,hde,je->hij", query, matrix, key), atol=1e-8)
    np.testing.assert_allclose(terms.e, np.einsum("he,je->hj", bias, tokens), atol=1e-8)
    np.testing.assert_allclose(terms.p, np.einsum("he,je->hj", bias, positions), atol=1e-8)


def test_terms_say_their_shapes():
    terms = random_layer(n_heads=3, n_positions=7).terms([1, 2, 3, 4])
    assert set(terms.parts) == {str(term) for term in Term}
    for name in ("ee", "pp", "pe", "ep"):
        assert getattr(terms, name).shape == (3, 4, 4)
    for name in ("e", "p"):
        assert getattr(terms, name).shape == (3, 4)


def test_without_leaves_out_exactly_one_term():
    terms = random_layer().terms([1, 2, 3])
    for term in Term:
        np.testing.assert_allclose(terms.without(term) + terms.full(term), terms.total(), atol=1e-12)
    with pytest.raises(RangeError, match="no term 'xx'; the terms are ee, pp, pe, ep, e, p"):
        terms.without("xx")


def test_attention_is_causal_and_sums_to_one():
    attention = random_layer().terms([1, 2, 3, 4, 5]).attention()
    np.testing.assert_allclose(attention.sum(axis=-1), 1, atol=1e-12)
    assert not np.triu(attention, k=1).any()


def test_terms_are_open_for_other_sets():
    offsets = Terms({"kernel": np.zeros((2, 3, 3)), "self": np.ones((2, 3))}, attention_scale=0.5)
    np.testing.assert_array_equal(offsets.total(), np.ones((2, 3, 3)))
    np.testing.assert_array_equal(offsets.without("self"), offsets.kernel)


def test_a_huge_epsilon_switches_layer_norm_off():
    """Some published GPT-2s do without LayerNorm by ε = 1e12: every σ is the same."""
    layer = random_layer(epsilon=1e12)
    np.testing.assert_allclose(layer.scale(range(5), range(5)), 1e6, rtol=1e-9)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "at least one token"),
        ([0] * 12, "a text of 12 tokens is longer than the model's 11 positions"),
        ([23], "token id 23 does not exist; token ids go from 0 to 22"),
        ([-1], "token id -1 does not exist"),
    ],
)
def test_bad_texts_are_refused(ids, message):
    with pytest.raises(RangeError, match=message):
        random_layer().terms(ids)


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([1.5, 2.0], "float"),
        ("ab", "str"),
        (["a"], "str"),
        ([True], "bool"),
        (None, "NoneType"),
        (b"ab", "bytes"),
        ({"a": 1}, "dict"),
        ({1, 2}, "set"),
        ([[1, 2], [3]], "lists of different lengths"),
    ],
)
def test_only_whole_numbers_are_token_ids(ids, found):
    with pytest.raises(TokenError, match=f"token ids must be .*whole numbers, not {found}"):
        whole_numbers(ids)
    with pytest.raises(TokenError, match="too large for any vocabulary"):
        whole_numbers([10**30])


def test_a_text_may_be_given_as_it_is(tmp_path):
    layer = spelled_layer(tmp_path)
    by_text, by_ids = layer.terms(" sapient wind"), layer.terms(layer.vocabulary.encode(" sapient wind"))
    for name in Term:
        np.testing.assert_array_equal(by_text[name], by_ids[name])
    with pytest.raises(RangeError, match="a text needs at least one token"):
        layer.terms("")
    with pytest.raises(TokenError, match="has no tokenizer; pass token ids"):
        random_layer().terms("wind")


WRONG_TEXTS = """
import detoklens
layer = detoklens.load("demo")
for wrong in (None, 3.5, 5, b"ab", {"a": 1}, {1}, ["a"], [1.5], [[1, 2], [3]], [[1, 2], [3, 4]], [None], iter([1]), object()):
    try:
        layer.terms(wrong)
    except detoklens.DetokLensError as error:
        print(error)
"""


def test_a_text_of_a_wrong_type_is_one_clear_line():
    """In a process of its own: here shapes and types in signatures are checked before anything else."""
    done = subprocess.run([sys.executable, "-c", WRONG_TEXTS], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 13
    assert all(
        line.startswith(("token ids must be ", "a text must be a string or ", "this mapping has no input_ids"))
        for line in lines
    )


def test_terms_say_their_names_and_shapes():
    assert repr(random_layer(d_head=4).terms([1, 2])) == (
        "Terms: ee, pp, pe, ep [head 3, query 2, key 2]; e, p [head 3, key 2]; attention scale 0.5"
    )


def test_the_real_whisper_decoder_agrees(whisper_folder):
    from detoklens.model.verify import run_real_layer

    ids = [int(i) for i in np.random.default_rng(1).integers(0, 50257, 448)]
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
        layer = detoklens.load(whisper_folder, dtype=dtype)
        real = run_real_layer(whisper_folder, layer.checkpoint.config, ids, dtype)
        np.testing.assert_allclose(layer.terms(ids).attention(), real.attention, atol=tolerance)
        np.testing.assert_allclose(layer.attention_output(ids), real.output, atol=10 * tolerance)
        np.testing.assert_allclose(layer.head_outputs(ids), real.head_outputs, atol=10 * tolerance)
