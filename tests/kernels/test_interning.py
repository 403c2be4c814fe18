"""The compiled loops over the bytes of texts, beside their plain meaning."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detoklens.kernels.interning import ids_of_words, intern_words

LETTERS = b"ab \xff"
documents = st.lists(st.lists(st.sampled_from(LETTERS), max_size=12).map(bytes), max_size=6)
together = st.lists(st.booleans(), min_size=16, max_size=16)


def words_in(text: bytes, joined: np.ndarray) -> list[bytes]:
    """Cut before every byte that is not joined to the one before."""
    cuts = [place for place in range(1, len(text)) if not joined[text[place - 1], text[place]]]
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)] if text else []


def joining(pairs: list[bool]) -> np.ndarray:
    joined = np.zeros((256, 256), bool)
    joined[np.ix_(list(LETTERS), list(LETTERS))] = np.array(pairs).reshape(4, 4)
    return joined


@given(st.lists(documents, min_size=1, max_size=3), together, st.integers(0, 2**64 - 1))
def test_words_are_numbered_as_they_are_met(batches: list[list[bytes]], pairs: list[bool], seed: int) -> None:
    """Up to five words of up to three bytes are kept, from batch to batch; each other one is numbered beyond them."""
    joined, slots, kept = joining(pairs), np.full(16, -1, np.int32), np.zeros((5, 4), np.uint8)
    known: list[bytes] = []
    for texts in batches:
        numbers, words_before, bounds, n_known = intern_words(
            np.frombuffer(b"".join(texts), np.uint8),
            np.cumsum([0, *map(len, texts)], dtype=np.int64),
            joined,
            np.uint64(seed),
            slots,
            kept,
            len(known),
        )
        words = [words_in(text, joined) for text in texts]
        met = [word for document in words for word in document]
        before = len(known)
        known += [word for word in dict.fromkeys(met) if len(word) <= 3 and word not in known][: 5 - before]
        passing = [word for word in met if word not in known]
        assert n_known == len(known)
        row = b"".join(texts)
        assert [row[begin:end] for begin, end in bounds] == known[before:] + passing
        assert [([*known, *passing])[number] for number in numbers] == met
        assert np.diff(words_before).tolist() == [len(document) for document in words]


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=5))
def test_ids_of_words_stand_in_a_row(document_words: list[list[int]]) -> None:
    ids_of = [[], [7], [8, 9], [10, 11, 12]]
    id_starts = np.cumsum([0, *map(len, ids_of)], dtype=np.int64)
    ids = np.array([number for word in ids_of for number in word], np.uint32)
    numbers = np.array([word for words in document_words for word in words], np.int32)
    words_before = np.cumsum([0, *map(len, document_words)], dtype=np.int64)
    found, offsets = ids_of_words(numbers, words_before, id_starts, ids)
    expected = [[number for word in words for number in ids_of[word]] for words in document_words]
    assert found.tolist() == [number for row in expected for number in row]
    assert np.diff(offsets).tolist() == [len(row) for row in expected]
