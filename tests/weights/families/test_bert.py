"""BERT, RoBERTa, ELECTRA: equal to transformers; not causal, token types, positions after the padding index."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import detoklens
from detoklens.errors import RangeError, UnsupportedModelError
from detoklens.model.verify import default_token_ids, verify
from tests.weights.families.tiny import IDS, assert_equals_real, saved, tiny

SIZES = {
    "hidden_size": 21,
    "num_attention_heads": 3,
    "intermediate_size": 19,
    "vocab_size": 23,
    "num_hidden_layers": 2,
    "max_position_embeddings": 30,
    "layer_norm_eps": 0.02,
}


@pytest.mark.parametrize("settings", [{}, {"type_vocab_size": 1, "hidden_act": "relu"}, {"is_decoder": True}], ids=str)
def test_bert_is_exact(settings):
    layer = assert_equals_real(tiny("bert", **SIZES | settings))
    assert layer.positions == "learned"
    later = np.triu(layer.terms(IDS).attention(), k=1)
    assert layer.is_causal == (not later.any()) == bool(settings.get("is_decoder"))


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta"])
def test_roberta_is_exact(family, tmp_path):
    folder = saved(tiny(family, **SIZES, pad_token_id=7), tmp_path)
    layer = assert_equals_real(folder)
    assert layer.n_positions == 30 - 8
    with pytest.raises(RangeError, match="token id 7 is padding, which has no position"):
        layer.terms([1, 7])
    ids = default_token_ids(layer, None, None)
    assert len(ids) == 22
    assert verify(layer, ids)["passed"].all()


def test_electra_is_exact():
    assert_equals_real(tiny("electra", **SIZES, embedding_size=21))
    with pytest.raises(UnsupportedModelError, match="embedding_size = 12 is not hidden_size"):
        detoklens.load(tiny("electra", **SIZES, embedding_size=12))


def test_relative_positions_are_refused(tmp_path):
    folder = saved(tiny("bert", **SIZES), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"position_embedding_type": "relative_key"}))
    with pytest.raises(UnsupportedModelError, match="position_embedding_type = 'relative_key' is not handled"):
        detoklens.load(folder)


def test_real_weights_agree(minilm_folder: Path):
    layer = detoklens.load(minilm_folder)
    frame = verify(layer, default_token_ids(layer, None, 128))
    assert frame["passed"].all(), frame
    assert (layer.n_heads, layer.d_head, layer.is_causal) == (12, 32, False)
