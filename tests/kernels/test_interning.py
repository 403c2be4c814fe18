"""The compiled loops over the bytes of texts, beside their plain meaning."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detoklens.kernels.tokens import (
    clear_words,
    ids_of_words,
    intern_words,
    merge_pieces,
    tabulate_merges,
    words_in_a_row,
)

LETTERS = b"ab \xff"
documents = st.lists(st.lists(st.sampled_from(LETTERS), max_size=30).map(bytes), max_size=6)
together = st.lists(st.booleans(), min_size=16, max_size=16)


def words_in(text: bytes, joined: np.ndarray) -> list[bytes]:
    """Cut before every byte that is not joined to the one before."""
    cuts = [place for place in range(1, len(text)) if not joined[text[place - 1], text[place]]]
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)] if text else []


def joining(pairs: list[bool]) -> np.ndarray:
    joined = np.zeros((256, 256), bool)
    joined[np.ix_(list(LETTERS), list(LETTERS))] = np.array(pairs).reshape(4, 4)
    return joined


@given(st.lists(documents, min_size=1, max_size=3), together, st.integers(0, 2**64 - 1), st.integers(1, 3))
def test_words_are_numbered_as_they_are_met(
    batches: list[list[bytes]], pairs: list[bool], seed: int, blocks: int
) -> None:
    """Up to five words of limited length are kept, from batch to batch; each other one is numbered beyond them."""
    joined, slots, kept = joining(pairs), np.full(16, -1, np.int32), np.zeros((5, blocks), np.uint64)
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
        known += [word for word in dict.fromkeys(met) if len(word) < 8 * blocks and word not in known][: 5 - before]
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


WORDS = st.lists(st.text("ab é“日\u0600\U0001f600", min_size=1, max_size=5), min_size=1, max_size=6)


@given(WORDS, st.sets(st.sampled_from("aé“")), st.integers(1, 12))
def test_clear_words_are_told_by_their_characters(words: list[str], unclear: set[str], longest: int) -> None:
    raw = [word.encode() for word in words]
    ends = np.cumsum([*map(len, raw)])
    spans = np.stack([ends - [*map(len, raw)], ends], axis=1).astype(np.int32)
    text, table = np.frombuffer(b"".join(raw), np.uint8), np.zeros(0x2070, bool)
    table[[ord(character) for character in unclear]] = True
    found = clear_words(text, spans, table, longest)
    clear = [len(word.encode()) <= longest and max(word) < chr(0x2070) and unclear.isdisjoint(word) for word in words]
    assert found.tolist() == clear
    row, row_ends = words_in_a_row(text, spans, found, 1)
    chosen = [word + b"\1" for word, is_chosen in zip(raw, clear, strict=True) if is_chosen]
    assert row.tobytes() == b"".join(chosen)
    assert row_ends.tolist() == np.cumsum([*map(len, chosen)]).tolist()


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20),
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=5),
)
def test_the_leftmost_pair_of_the_lowest_rank_is_merged_first(
    chosen: list[tuple[int, int]], pieces: list[list[int]]
) -> None:
    merges: dict[tuple[int, int], int] = {}
    for left, right in chosen:
        merges.setdefault((left % (3 + len(merges)), right % (3 + len(merges))), len(merges))
    pairs = np.array(list(merges), np.uint64).reshape(-1, 2)
    table = tabulate_merges(pairs, np.array([(rank, 3 + rank) for rank in merges.values()], np.int32).reshape(-1, 2))
    starts = np.cumsum([0, *map(len, pieces)])
    text = np.array([byte for piece in pieces for byte in piece], np.uint8)
    whole = np.full(len(pieces), -1, np.int32)
    whole[-1] = 77
    ids, offsets = merge_pieces(text, starts, whole, np.arange(256, dtype=np.int32), *table)
    expected = []
    for piece in pieces[:-1]:
        row = list(piece)
        while ranked := [(merges[pair], place) for place, pair in enumerate(pairwise(row)) if pair in merges]:
            rank, place = min(ranked)
            row[place : place + 2] = [3 + rank]
        expected.append(row)
    assert [row.tolist() for row in np.split(ids, offsets[1:-1])] == [*expected, [77]]
