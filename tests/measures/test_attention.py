"""Attention on text is the real model's, and its agreement with the prediction is what the words say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import detoklens
from detoklens.errors import CorpusError, RangeError
from detoklens.measures.attention import Band, Measured, region_masses, text_attention
from detoklens.measures.positions import predicted_attention
from detoklens.scores.layer import Layer
from tests.layers import as_layer, random_first_layer, random_layer, sizes
from tests.real_gpt2 import real_attention_and_output, real_gpt2


def random_documents(vocab_size: int, lengths: list[int], seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, vocab_size, length).tolist() for length in lengths]


def by_query(layer: Layer, documents: list[list[int]], positions: list[int]) -> dict[int, Measured]:
    return {each.query_position: each for each in text_attention(layer, documents, positions)}


@settings(max_examples=20)
@given(size=sizes, data=st.data())
def test_equals_the_attention_of_transformers(size, data):
    first_layer = random_first_layer(**size)
    lengths = data.draw(st.lists(st.integers(1, size["n_positions"]), min_size=1, max_size=4))
    documents = random_documents(size["vocab_size"], lengths, size["seed"])
    query = data.draw(st.integers(0, max(lengths) - 1))
    measured = by_query(as_layer(first_layer), documents, [query])[query]
    real = [real_attention_and_output(real_gpt2(first_layer), ids)[0] for ids in documents if len(ids) > query]
    for head in range(size["n_heads"]):
        expected = np.mean([attention[head, query, : query + 1] for attention in real], axis=0)
        np.testing.assert_allclose(measured.mean[head], expected, atol=1e-5)
    assert measured.documents == len(real)


def test_equals_transformers_on_real_weights(whisper_folder, tiny_text):
    from transformers import WhisperModel

    layer = detoklens.load(whisper_folder)
    ids = layer.vocabulary.encode(tiny_text.read_text(encoding="utf-8")[:40_000])
    documents = [ids[begin : begin + layer.n_positions] for begin in range(0, 3 * layer.n_positions, layer.n_positions)]
    model = WhisperModel.from_pretrained(
        whisper_folder, decoder_layers=1, encoder_layers=1, attn_implementation="eager", dtype=torch.float64
    ).eval()
    with torch.no_grad():
        states = model.decoder(input_ids=torch.tensor(documents), output_attentions=True)
    real = states.attentions[0].numpy()
    positions = [5, 200, layer.n_positions - 1]
    measured = by_query(layer, documents, positions)
    for query in positions:
        for head in range(layer.n_heads):
            rows = real[:, head, query, : query + 1]
            np.testing.assert_allclose(measured[query].mean[head], rows.mean(axis=0), atol=1e-5)
            np.testing.assert_allclose(measured[query].high[head], np.quantile(rows, 0.975, axis=0), atol=1e-5)


def test_the_prediction_stands_beside_the_measurement():
    layer = random_layer(n_positions=11, seed=6)
    documents = random_documents(layer.vocab_size, [11, 8, 11, 11])
    measured = by_query(layer, documents, [7, 10])
    for query, predicted in zip([7, 10], predicted_attention(layer, [7, 10]), strict=True):
        real = np.array([layer.terms(ids).attention()[:, query, : query + 1] for ids in documents if len(ids) > query])
        found = measured[query]
        masses, predicted_masses = region_masses(found.mean), region_masses(found.predicted)
        for head in range(layer.n_heads):
            np.testing.assert_allclose(found.predicted[head], predicted[head], atol=1e-12)
            rows = real[:, head]
            distances = np.abs(rows - predicted[head]).sum(axis=1) / 2
            mean_distance = np.abs(rows.mean(axis=0) - predicted[head]).sum() / 2
            assert found.distance[head] == pytest.approx(mean_distance, abs=1e-6)
            assert found.document_distance[head] == pytest.approx(distances.mean(), abs=1e-6)
            assert masses["first"][head] == pytest.approx(rows[:, 0].mean(), abs=1e-6)
            assert masses["self"][head] == pytest.approx(rows[:, -1].mean(), abs=1e-6)
            assert masses["far"][head] == 0
            assert predicted_masses["recent"][head] == pytest.approx(predicted[head, 1:-1].sum(), abs=1e-6)


def test_a_layer_of_positions_alone_agrees_with_its_prediction():
    from dataclasses import replace

    drawn = random_first_layer(n_positions=30, vocab_size=5)
    layer = as_layer(replace(drawn, token_embeddings=np.zeros_like(drawn.token_embeddings)))
    for measured in text_attention(layer, random_documents(5, [30] * 3), [10, 29]):
        assert measured.distance.max() < 1e-6
        assert measured.document_distance.max() < 1e-6


@given(query=st.integers(0, 60), seed=st.integers(0, 99))
def test_each_key_is_in_one_region(query, seed):
    attention = np.random.default_rng(seed).dirichlet(np.ones(query + 1), size=3)
    masses = region_masses(attention)
    np.testing.assert_allclose(sum(masses.values()), 1)
    counts = {name: int(mass[0]) for name, mass in region_masses(np.ones((1, query + 1))).items()}
    assert counts["self"] == 1
    assert counts["first"] == (query > 0)
    assert counts["recent"] == max(0, min(15, query - 1))
    assert counts["far"] == max(0, query - 16)


@settings(max_examples=60)
@given(
    documents=st.integers(1, 120),
    share=st.sampled_from([0.5, 0.8, 0.95, 1.0]),
    block=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_the_band_is_numpys_quantiles(documents, share, block, seed):
    values = np.random.default_rng(seed).normal(size=(documents, 2, 3)).astype(np.float32)
    band = Band((2, 3), documents, share)
    for begin in range(0, documents, block):
        band.add(values[begin : begin + block])
    exact = values.astype(np.float64)
    np.testing.assert_allclose(band.mean(), exact.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(band.low(), np.quantile(exact, (1 - share) / 2, axis=0), atol=1e-9)
    np.testing.assert_allclose(band.high(), np.quantile(exact, (1 + share) / 2, axis=0), atol=1e-9)


def test_short_documents_count_only_where_they_reach():
    layer = random_layer(n_positions=11)
    measured = text_attention(layer, random_documents(layer.vocab_size, [3, 6, 11]), [2, 5, 10])
    assert [each.documents for each in measured] == [3, 2, 1]
    assert measured[2].mean.shape == (3, 11)
    assert list(by_query(layer, random_documents(layer.vocab_size, [3, 6]), [2, 10])) == [2]


def test_what_cannot_be_looked_at_is_refused():
    layer = random_layer(n_positions=11)
    with pytest.raises(CorpusError, match="no document reaches query position 9"):
        text_attention(layer, [[1, 2]], [9])
    with pytest.raises(RangeError, match="position 11 does not exist"):
        text_attention(layer, [[1, 2]], [11])
    with pytest.raises(RangeError, match="head 3 does not exist"):
        text_attention(layer, [[1, 2]], [1], heads=[3])
