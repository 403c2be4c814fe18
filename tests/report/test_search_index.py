"""The packed partners against the plain ranking of each row."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from detoklens.measures.ranking import scores_of, top_keys
from detoklens.questions.partners import example_tokens
from detoklens.questions.study import Study
from detoklens.report import search as search_index
from detoklens.report.page import script_json
from tests.layers import random_layer
from tests.spelled import counts_of, spelled_layer

PLENTY = 10_000_000  # bytes


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    layer = spelled_layer(tmp_path_factory.mktemp("spelled") / "model")
    return Study(layer, counts_of(layer))


def unpacked(index, view):
    shape = (len(index["searched"]), index["n_heads"], index["top"])
    ids = np.frombuffer(base64.b64decode(view["partners"]), f"<u{index['id_bytes']}").reshape(shape)
    bits = np.unpackbits(np.frombuffer(base64.b64decode(view["seen"]), np.uint8))[: ids.size].reshape(shape)
    return ids, bits.astype(bool)


@pytest.mark.parametrize("centred", [False, True])
def test_every_token_has_its_partners_and_whether_the_corpus_has_the_pair(study, centred):
    index = search_index.partner_index(study, PLENTY)
    ids, seen = unpacked(index, index["centred" if centred else "plain"])
    assert index["note"].startswith(f"Covers all {study.layer.vocab_size} tokens.")
    scores = scores_of(study.layer.token_affinity(centred=centred), 300)
    for head in range(3):
        ranked = study.layer.meaningful_tokens
        np.testing.assert_array_equal(ids[300, head], ranked[top_keys(scores[[head]][:, ranked], 20)[0]])
    special = sorted(study.layer.vocabulary.apart)
    assert special
    assert not np.isin(ids, special).any()
    assert (
        f"without {study.layer.vocab_size - len(ranked)} tokens that are special, untrained or in no text"
        in index["note"]
    )
    prefixes, _ = study.counts.bigrams.predecessors(300)
    np.testing.assert_array_equal(seen[300], np.isin(ids[300], prefixes))
    assert seen.any()
    assert not seen.all()


@pytest.mark.parametrize("room", [30_000, 50_000])
def test_a_large_vocabulary_is_cut_to_its_most_frequent_tokens(study, room):
    index = search_index.partner_index(study, room)
    assert search_index.FEWEST < len(index["searched"]) < study.layer.vocab_size
    assert index["top"] == 10
    assert 0.9 * room < len(script_json(index)) < room
    counts = study.counts.tokens
    examples = set(example_tokens(study))
    assert examples < set(index["searched"])
    others = [token for token in index["searched"] if token not in examples]
    assert min(counts[others]) >= np.sort(counts)[-len(index["searched"])]
    searched = len(index["searched"])
    assert f"Covers the {searched} most frequent of {study.layer.vocab_size} tokens and some" in index["note"]
    without = search_index.partner_index(Study(study.layer), room)
    assert set(without["searched"]) - set(example_tokens(Study(study.layer))) < set(range(len(without["searched"])))
    assert " first of " in without["note"]
    assert without["plain"]["seen"] is without["centred"]["seen"] is None


def test_without_a_tokenizer_partners_are_ids():
    layer = random_layer(vocab_size=33)
    index = search_index.partner_index(Study(layer), PLENTY)
    assert index["tokens"] is None
    assert index["searched"] == list(range(33))
    ids = np.frombuffer(base64.b64decode(index["plain"]["partners"]), "<u2").reshape(33, layer.n_heads, 20)
    np.testing.assert_array_equal(ids[7, 0], top_keys(scores_of(layer.token_affinity(), 7)[[0]], 20)[0])
