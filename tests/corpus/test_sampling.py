"""Anyone gets the same documents, in whatever order and files the texts come."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.corpus.documents import rank, sample_by_hash
from detoklens.errors import RangeError

texts = st.lists(st.text(max_size=4), max_size=30)


@given(texts=texts, size=st.integers(1, 12), seed=st.integers(0, 3), data=st.data())
def test_the_sample_is_the_lowest_ranks_in_any_order(texts, size, seed, data):
    expected = sorted({text for text in texts if text}, key=lambda text: rank(text, seed))[:size]
    assert sample_by_hash(texts, size, str, seed).documents == expected
    shuffled = data.draw(st.permutations(texts))
    assert sample_by_hash(shuffled, size, str, seed).documents == expected


@given(texts=texts, size=st.integers(1, 12))
def test_a_larger_sample_begins_with_the_smaller(texts, size):
    smaller = sample_by_hash(texts, size, str).documents
    assert sample_by_hash(texts, size + 3, str).documents[: len(smaller)] == smaller


def test_the_rank_is_the_documented_hash():
    digest = hashlib.sha256("7\nnaïve text".encode()).hexdigest()
    assert f"{rank('naïve text', 7):064x}" == digest
    assert rank("a", 0) != rank("a", 1)


def test_what_was_passed_over_is_counted():
    sample = sample_by_hash(["a", "", "b", "a", ""], 5, str)
    assert (sample.read, sample.empty, sample.repeated) == (5, 2, 1)
    assert sorted(sample.documents) == ["a", "b"]


def test_only_what_may_be_sampled_is_kept():
    kept: list[str] = []
    in_order = sorted((str(number) for number in range(500)), key=rank)
    sample_by_hash(in_order, 5, lambda text: kept.append(text) or text)
    assert kept == in_order[:5]


def test_a_sample_of_nothing_is_refused():
    with pytest.raises(RangeError, match="documents must be at least 1"):
        sample_by_hash(["a"], 0, str)
