"""Compiled loops over the bytes of texts: split them into words and number the distinct ones."""

import numpy as np

from detoklens.kernels.compiling import compiled

PRIME = np.uint64(0x100000001B3)  # of the FNV-1a hash


@compiled()
def intern_words(
    text: np.ndarray,
    starts: np.ndarray,
    joined: np.ndarray,
    seed: np.uint64,
    slots: np.ndarray,
    kept: np.ndarray,
    known: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return each word's number, the number of words before each document and in total, the start and end of each word
    with a new number, and the number of known words.

    Document d is text[starts[d] : starts[d + 1]]; a word continues while joined[previous byte, byte]. `slots` is a hash
    table of the numbers of known words, -1 if empty; `kept` holds the bytes of each, with its length in the last byte
    of its row. A word that is too long to keep, or finds the table full, gets a new number at each occurrence, above
    those of all known words.
    """
    longest, mask = kept.shape[1] - 1, np.uint64(len(slots) - 1)
    numbers, words_before = np.empty(len(text), np.int32), np.empty(len(starts), np.int64)
    new, passing = np.empty((len(text), 2), np.int32), np.empty((len(text), 2), np.int32)
    words, n_passing, first_new = 0, 0, known
    for document in range(len(starts) - 1):
        words_before[document] = words
        begin = starts[document]
        while begin < starts[document + 1]:
            end, hashed = _word_from(text, begin, starts[document + 1], joined, seed)
            number = -1
            if end - begin <= longest:
                slot = hashed & mask
                while slots[slot] >= 0 and not _is(kept[slots[slot]], text, begin, end):
                    slot = (slot + np.uint64(1)) & mask
                if slots[slot] < 0 and known < len(kept):
                    slots[slot] = known
                    _keep(kept[known], text, begin, end)
                    new[known - first_new] = begin, end
                    known += 1
                number = slots[slot]
            if number < 0:
                passing[n_passing] = begin, end
                n_passing += 1
                number = -n_passing
            numbers[words] = number
            words += 1
            begin = end
    words_before[-1] = words
    if n_passing:
        _number_beyond(numbers[:words], known)
    return numbers[:words], words_before, np.concatenate((new[: known - first_new], passing[:n_passing])), known


@compiled()
def _keep(row: np.ndarray, text: np.ndarray, begin: int, end: int) -> None:
    row[: end - begin] = text[begin:end]
    row[-1] = end - begin


@compiled()
def _number_beyond(numbers: np.ndarray, known: int) -> None:
    """-1, -2, … become the numbers from `known` on."""
    for word in range(len(numbers)):
        if numbers[word] < 0:
            numbers[word] = known - 1 - numbers[word]


@compiled()
def _word_from(text: np.ndarray, begin: int, end: int, joined: np.ndarray, seed: np.uint64) -> tuple[int, np.uint64]:
    """The end of the word that starts here, at most `end`, and its hash."""
    before = text[begin]
    hashed = (seed ^ np.uint64(before)) * PRIME
    place = begin + 1
    while place < end:
        byte = text[place]
        if not joined[before, byte]:
            break
        hashed = (hashed ^ np.uint64(byte)) * PRIME
        before = byte
        place += 1
    return place, hashed ^ (hashed >> np.uint64(32))


@compiled()
def _is(word: np.ndarray, text: np.ndarray, begin: int, end: int) -> bool:
    """Whether this row of the known words equals the word in the text."""
    same = word[-1] == end - begin
    place = begin
    while same and place < end:
        same = word[place - begin] == text[place]
        place += 1
    return same


@compiled()
def ids_of_words(
    numbers: np.ndarray, words_before: np.ndarray, id_starts: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all words, concatenated, and the offsets of the documents in them.

    Word n has ids[id_starts[n] : id_starts[n + 1]]; words_before[d] words precede document d.
    """
    offsets = np.zeros(len(words_before), np.int64)
    for document in range(len(words_before) - 1):
        length = 0
        for word in range(words_before[document], words_before[document + 1]):
            length += id_starts[numbers[word] + 1] - id_starts[numbers[word]]
        offsets[document + 1] = offsets[document] + length
    found = np.empty(offsets[-1], ids.dtype)
    filled = 0
    for number in numbers:
        for place in range(id_starts[number], id_starts[number + 1]):
            found[filled] = ids[place]
            filled += 1
    return found, offsets
