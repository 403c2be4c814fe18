"""Compiled loops over texts and token ids: numbered words, merges of bytes to tokens, bigram counts."""

import numpy as np

from detoklens.kernels.compiling import compiled

ONE, BYTE, LENGTH = np.uint64(1), np.uint64(8), np.uint64(56)
"""One, the bits of a byte, and the place of a word's length in its last block."""
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Multiplying by it spreads a number over the upper bits."""


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
    table of the numbers of known words, -1 if empty; `kept` holds each in blocks of eight bytes, with its length in the
    upper byte of the last block. A word that is too long to keep, or finds the table full, gets a new number at each
    occurrence, above those of all known words. Unsigned places save numba the check for negative indices.
    """
    longest, mask = np.uint64(8 * kept.shape[1] - 1), np.uint64(len(slots) - 1)
    numbers, words_before = np.empty(len(text), np.int32), np.empty(len(starts), np.int64)
    new, passing = np.empty((len(text), 2), np.int32), np.empty((len(text), 2), np.int32)
    blocks, table = np.zeros(kept.shape[1], np.uint64), joined.ravel()
    words, n_passing, first_new = np.uint64(0), 0, known
    for document in range(len(starts) - 1):
        words_before[document] = words
        begin, end = np.uint64(starts[document]), np.uint64(starts[document + 1])
        while begin < end:
            place, filled, hashed = _word_from(text, begin, end, table, seed, blocks)
            number = -1
            if place - begin <= longest:
                blocks[-1] |= (place - begin) << LENGTH
                slot = hashed & mask
                while slots[slot] >= 0 and not _is_kept(kept, np.uint64(slots[slot]), blocks, filled):
                    slot = (slot + ONE) & mask
                if slots[slot] < 0 and known < len(kept):
                    slots[slot] = known
                    kept[known] = blocks
                    new[known - first_new] = begin, place
                    known += 1
                number = slots[slot]
            if number < 0:
                passing[n_passing] = begin, place
                n_passing += 1
                number = -n_passing
            numbers[words] = number
            words += ONE
            begin = place
    words_before[-1] = words
    if n_passing:
        for word in range(words):  # -1, -2, … become the numbers from `known` on
            if numbers[word] < 0:
                numbers[word] = known - 1 - numbers[word]
    return numbers[:words], words_before, np.concatenate((new[: known - first_new], passing[:n_passing])), known


@compiled()
def _word_from(
    text: np.ndarray, begin: np.uint64, end: np.uint64, table: np.ndarray, seed: np.uint64, blocks: np.ndarray
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Write the word that starts here into `blocks`; return its end, its last filled block, and its hash."""
    byte = np.uint64(text[begin])
    block, shift, filled, hashed, last = byte, BYTE, np.uint64(0), seed, np.uint64(len(blocks) - 1)
    blocks[last] = 0
    place = begin + ONE
    while place < end:
        before, byte = byte, np.uint64(text[place])
        if not table[(before << BYTE) | byte]:
            break
        if shift == 64:
            blocks[min(filled, last)] = block
            hashed = (hashed ^ block) * GOLDEN
            hashed ^= hashed >> np.uint64(32)
            filled += ONE
            block = shift = np.uint64(0)
        block |= byte << shift
        shift += BYTE
        place += ONE
    blocks[min(filled, last)] = block
    hashed = (hashed ^ block) * GOLDEN
    return place, filled, hashed ^ (hashed >> np.uint64(32))


@compiled()
def _is_kept(kept: np.ndarray, row: np.uint64, blocks: np.ndarray, filled: np.uint64) -> bool:
    """Whether this row of the known words equals the word in `blocks`."""
    same = kept[row, len(blocks) - 1] == blocks[len(blocks) - 1] and kept[row, filled] == blocks[filled]
    for block in range(filled):
        same = same and kept[row, block] == blocks[block]
    return same


@compiled()
def clear_words(text: np.ndarray, spans: np.ndarray, unclear: np.ndarray, longest: int) -> np.ndarray:
    """Whether each word is short enough and has only characters below len(unclear) that are not unclear."""
    is_clear = np.zeros(len(spans), np.bool_)
    for word in range(len(spans)):
        place, end = spans[word]
        if end - place > longest:
            continue
        while place < end:
            byte = np.uint32(text[place])
            size = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            code = byte if size == 1 else byte & np.uint32(0xFF >> (size + 1))
            for later in range(place + 1, place + size):
                code = (code << np.uint32(6)) | (np.uint32(text[later]) & np.uint32(0x3F))
            if code >= len(unclear) or unclear[code]:
                break
            place += size
        is_clear[word] = place >= end
    return is_clear


@compiled()
def words_in_a_row(
    text: np.ndarray, spans: np.ndarray, is_chosen: np.ndarray, separator: int
) -> tuple[np.ndarray, np.ndarray]:
    """The chosen words, a separator after each, and where each ends, its separator included."""
    size, number = 0, 0
    for word in range(len(spans)):
        if is_chosen[word]:
            size += spans[word, 1] - spans[word, 0] + 1
            number += 1
    row, ends = np.empty(size, np.uint8), np.empty(number, np.int64)
    filled, number = 0, 0
    for word in range(len(spans)):
        if is_chosen[word]:
            for place in range(spans[word, 0], spans[word, 1]):
                row[filled] = text[place]
                filled += 1
            row[filled] = separator
            filled += 1
            ends[number] = filled
            number += 1
    return row, ends


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
    joined = np.empty(offsets[-1], ids.dtype)
    filled = 0
    for number in numbers:
        for place in range(id_starts[number], id_starts[number + 1]):
            joined[filled] = ids[place]
            filled += 1
    return joined, offsets


@compiled()
def tabulate_merges(pairs: np.ndarray, merges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A hash table from pairs of ids to their rank and merged id: keys (all ones if empty), and rows of both."""
    size = 4
    while size < 2 * len(pairs):
        size *= 2
    keys, table = np.full(size, ~np.uint64(0)), np.zeros((size, 2), np.int32)
    for row in range(len(pairs)):
        key = (pairs[row, 0] << np.uint64(32)) | pairs[row, 1]
        slot = _slot_of(key, keys)
        keys[slot] = key
        table[slot] = merges[row]
    return keys, table


@compiled()
def _slot_of(key: np.uint64, keys: np.ndarray) -> np.uint64:
    """The slot of a key, or the empty slot where it belongs."""
    mask = np.uint64(len(keys) - 1)
    slot = ((key * GOLDEN) >> np.uint64(32)) & mask
    while keys[slot] != key and keys[slot] != ~np.uint64(0):
        slot = (slot + ONE) & mask
    return slot


@compiled()
def merge_pieces(
    text: np.ndarray, starts: np.ndarray, whole: np.ndarray, byte_ids: np.ndarray, keys: np.ndarray, table: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all pieces by byte-pair merges, concatenated, and each piece's offset in them.

    Piece p is text[starts[p] : starts[p + 1]], or the token whole[p] unless that is -1. The leftmost adjacent pair
    with the lowest rank is merged until no pair has a rank. `keys` and `table` are those of `tabulate_merges`.
    """
    no_rank = np.int32(2**31 - 1)
    ids, offsets = np.empty(len(text), np.uint32), np.zeros(len(starts), np.int64)
    longest = 0
    for piece in range(len(starts) - 1):
        longest = max(longest, starts[piece + 1] - starts[piece])
    row, ranks = np.empty(longest + 1, np.int32), np.empty(longest + 1, np.int32)
    slots = np.empty(longest + 1, np.uint64)
    filled = 0
    for piece in range(len(starts) - 1):
        size = starts[piece + 1] - starts[piece]
        if whole[piece] >= 0:
            row[0], size = whole[piece], 1
        else:
            for place in range(size):
                row[place] = byte_ids[text[starts[piece] + place]]
            for place in range(size - 1):
                _look_up(place, row, slots, ranks, keys, table)
        while size > 1:
            best = 0
            for place in range(1, size - 1):
                if ranks[place] < ranks[best]:
                    best = place
            if ranks[best] == no_rank:
                break
            row[best] = table[slots[best], 1]
            size -= 1
            for place in range(best + 1, size):
                row[place] = row[place + 1]
                slots[place], ranks[place] = slots[place + 1], ranks[place + 1]
            if best > 0:
                _look_up(best - 1, row, slots, ranks, keys, table)
            if best < size - 1:
                _look_up(best, row, slots, ranks, keys, table)
        for place in range(size):
            ids[filled] = row[place]
            filled += 1
        offsets[piece + 1] = filled
    return ids[:filled], offsets


@compiled()
def _look_up(
    place: int, row: np.ndarray, slots: np.ndarray, ranks: np.ndarray, keys: np.ndarray, table: np.ndarray
) -> None:
    """Find the merge of the ids at this place and the next."""
    key = (np.uint64(row[place]) << np.uint64(32)) | np.uint64(row[place + 1])
    slots[place] = _slot_of(key, keys)
    ranks[place] = table[slots[place], 0] if keys[slots[place]] == key else np.int32(2**31 - 1)


@compiled()
def run_lengths(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys of a sorted array, and their counts."""
    distinct = 1 if len(keys) else 0
    for place in range(1, len(keys)):
        distinct += keys[place] != keys[place - 1]
    run_keys = np.empty(distinct, keys.dtype)
    run_counts = np.zeros(distinct, np.int64)
    row = -1
    for place in range(len(keys)):
        if place == 0 or keys[place] != keys[place - 1]:
            row += 1
            run_keys[row] = keys[place]
        run_counts[row] += 1
    return run_keys, run_counts


@compiled()
def add_runs(
    left_keys: np.ndarray, left_counts: np.ndarray, right_keys: np.ndarray, right_counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The sum of two sorted runs: each key of either, with the counts of both added.

    Unsigned places save numba the check for negative indices: about twice as fast.
    """
    one = np.uint64(1)
    left_end, right_end = np.uint64(len(left_keys)), np.uint64(len(right_keys))
    keys = np.empty(left_end + right_end, left_keys.dtype)
    counts = np.empty(left_end + right_end, np.int64)
    left = right = row = np.uint64(0)
    while left < left_end or right < right_end:
        if right == right_end or (left < left_end and left_keys[left] < right_keys[right]):
            keys[row], counts[row] = left_keys[left], left_counts[left]
            left += one
        elif left == left_end or right_keys[right] < left_keys[left]:
            keys[row], counts[row] = right_keys[right], right_counts[right]
            right += one
        else:
            keys[row], counts[row] = left_keys[left], left_counts[left] + right_counts[right]
            left += one
            right += one
        row += one
    return keys[:row], counts[:row]


@compiled()
def write_pair_keys(ids: np.ndarray, offsets: np.ndarray, vocabulary_size: int, keys: np.ndarray, filled: int) -> int:
    """Write suffix · V + prefix of each pair inside a document into `keys` from `filled` on; return the new end.

    Document d is ids[offsets[d] : offsets[d + 1]]; no pair joins two documents.
    """
    for document in range(len(offsets) - 1):
        for place in range(offsets[document] + 1, offsets[document + 1]):
            keys[filled] = np.uint64(ids[place]) * np.uint64(vocabulary_size) + np.uint64(ids[place - 1])
            filled += 1
    return filled


@compiled()
def add_token_counts(ids: np.ndarray, totals: np.ndarray) -> None:
    """Add the number of times that each id occurs to `totals`."""
    for token_id in ids:
        totals[token_id] += 1
