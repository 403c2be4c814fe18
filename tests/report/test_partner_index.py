"""The packed partners against the plain ranking of each row."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.analyses.ranking import top_keys
from detoklens.report import partner_index
from detoklens.report.subject import Subject
from tests.spelled import counts_of, spelled_layer


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(1, 25), st.booleans())
def test_the_top_of_many_rows_is_the_top_of_each(seed, keys, top, tied):
    random = np.random.default_rng(seed)
    scores = random.integers(0, 4, (5, keys)).astype(np.float32) if tied else random.normal(size=(5, keys))
    top = min(top, keys)
    expected = [top_keys(row, top) for row in scores]
    np.testing.assert_array_equal(partner_index.top_of_rows(scores, top), expected)


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    layer = spelled_layer(tmp_path_factory.mktemp("spelled") / "model")
    return Subject(layer, counts_of(layer))


def unpacked(index):
    shape = (len(index.searched), index.n_heads, index.top)
    ids = np.frombuffer(base64.b64decode(index.partners), "<u4").reshape(shape)
    bits = np.unpackbits(np.frombuffer(base64.b64decode(index.seen), np.uint8))[: ids.size].reshape(shape)
    return ids, bits.astype(bool)


def test_every_token_has_its_partners_and_whether_the_corpus_has_the_pair(subject):
    index = partner_index.partner_index(subject)
    ids, seen = unpacked(index)
    assert index.note.startswith(f"All {subject.layer.vocab_size} tokens can be searched")
    scores = subject.layer.affinity([300])
    for head in range(3):
        np.testing.assert_array_equal(ids[300, head], top_keys(scores[head, 0], 20))
    prefixes, _ = subject.counts.bigrams.predecessors(300)
    np.testing.assert_array_equal(seen[300], np.isin(ids[300], prefixes))
    assert seen.any()
    assert not seen.all()


def test_a_large_vocabulary_is_cut_to_its_most_frequent_tokens(subject, monkeypatch):
    monkeypatch.setattr(partner_index, "LARGEST", 20_000)
    index = partner_index.partner_index(subject)
    assert len(index.partners) + len(index.seen) <= 20_000
    assert 40 < len(index.searched) < subject.layer.vocab_size
    counts = subject.counts.tokens
    assert min(counts[index.searched]) >= np.sort(counts)[-len(index.searched)]
    assert f"The {len(index.searched)} most frequent of {subject.layer.vocab_size} tokens" in index.note
    without = partner_index.partner_index(Subject(subject.layer))
    assert without.searched == list(range(len(index.searched)))
    assert "first of" in without.note
    assert without.seen is None
