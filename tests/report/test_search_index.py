"""The packed partners against the plain ranking of each row."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from detoklens.measures.ranking import scores_of, top_keys
from detoklens.questions.study import Study
from detoklens.report import search_index
from tests.spelled import counts_of, spelled_layer


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    layer = spelled_layer(tmp_path_factory.mktemp("spelled") / "model")
    return Study(layer, counts_of(layer))


def unpacked(index):
    shape = (len(index.searched), index.n_heads, index.top)
    ids = np.frombuffer(base64.b64decode(index.partners), "<u4").reshape(shape)
    bits = np.unpackbits(np.frombuffer(base64.b64decode(index.seen), np.uint8))[: ids.size].reshape(shape)
    return ids, bits.astype(bool)


def test_every_token_has_its_partners_and_whether_the_corpus_has_the_pair(study):
    index = search_index.partner_index(study)
    ids, seen = unpacked(index)
    assert index.note.startswith(f"All {study.layer.vocab_size} tokens can be searched")
    scores = scores_of(study.layer.token_affinity(), 300)
    for head in range(3):
        np.testing.assert_array_equal(ids[300, head], top_keys(scores[[head]], 20)[0])
    prefixes, _ = study.counts.bigrams.predecessors(300)
    np.testing.assert_array_equal(seen[300], np.isin(ids[300], prefixes))
    assert seen.any()
    assert not seen.all()


def test_a_large_vocabulary_is_cut_to_its_most_frequent_tokens(study, monkeypatch):
    monkeypatch.setattr(search_index, "LARGEST", 20_000)
    index = search_index.partner_index(study)
    assert len(index.partners) + len(index.seen) <= 20_000
    assert 40 < len(index.searched) < study.layer.vocab_size
    counts = study.counts.tokens
    assert min(counts[index.searched]) >= np.sort(counts)[-len(index.searched)]
    assert f"The {len(index.searched)} most frequent of {study.layer.vocab_size} tokens" in index.note
    without = search_index.partner_index(Study(study.layer))
    assert without.searched == list(range(len(index.searched)))
    assert "first of" in without.note
    assert without.seen is None
