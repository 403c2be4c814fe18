"""Word-by-word tokenization for tokenizers that don't split text: known words are not tokenized again.

The BPE of Gemma, Mistral and Llama 2 treats a text as one long word. It can be split without changing ids wherever no
token contains two adjacent characters, since no merge can join them. Their tokens never have a `▁` after a letter, so
texts split into words that can be tokenized separately.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, UInt8, UInt32

from detoklens.kernels.interning import ids_of_words, intern_words

SPACE, LOWER_BLOCK = " ", "▁"
REPLACE = {"type": "Replace", "pattern": {"String": SPACE}, "content": LOWER_BLOCK}
PREPEND = {"type": "Prepend", "prepend": LOWER_BLOCK}
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
PLAIN = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
"""Settings that would make a word's ids depend on more than its merges."""

WORDS_KEPT, LONGEST_KEPT = 1 << 18, 31
"""13 MB; 100 MB of English have 195,000 words. Longer words are tokenized each time."""
MANY, MOST_NEW = 1 << 14, 1 / 3
"""New words in a batch, and their share of its bytes: above both, as for random numbers, texts are tokenized whole."""
MOST_PASSING = 1 / 16
"""Share of a batch's words that a full table can't take; above it, the table is cleared."""

LARGEST = 2**31 - 1
"""Largest batch in bytes: offsets are 32-bit numbers."""

Ids = tuple[UInt32[np.ndarray, "token_in_batch"], Int[np.ndarray, "document_and_end"]]


class WordByWord:
    """Encodes texts to token ids with an encoder of words that is called for new words only."""

    def __init__(
        self, joined: Bool[np.ndarray, "256 256"], prefix: bytes, encode: Callable[[list[bytes]], Ids]
    ) -> None:
        self._joined, self._prefix, self._encode = joined, prefix, encode
        self._seed = np.uint64(secrets.randbits(64))  # so that no text can be crafted to collide in the table
        self._one_at_a_time = Lock()  # the compiled loops release the GIL
        self._kept = np.empty((WORDS_KEPT, LONGEST_KEPT + 1), np.uint8)
        self._forget()

    def _forget(self) -> None:
        self._slots = np.full(2 * WORDS_KEPT, -1, np.int32)
        self._known = 0
        self._ids, self._id_starts = np.empty(0, np.uint32), np.zeros(1, np.int64)

    def encode(self, texts: Sequence[bytes]) -> Ids:
        rows = [self._prefix + text if text else text for text in texts]
        if sum(map(len, rows)) > LARGEST:
            return self._encode(rows)
        with self._one_at_a_time:
            try:
                found = self._of_words(*_in_a_row(rows))
            except BaseException:
                self._forget()  # the table may hold words without ids
                raise
        return self._encode(rows) if found is None else found

    def _of_words(self, text: UInt8[np.ndarray, "byte"], starts: Int[np.ndarray, "text_and_end"]) -> Ids | None:
        """The ids of the words; None, with an empty table, if too many words are new to be worth it."""
        numbers, words_before, new, known = intern_words(
            text, starts, self._joined, self._seed, self._slots, self._kept, self._known
        )
        if len(new) > MANY and np.diff(new).sum() > MOST_NEW * len(text):
            self._forget()
            return None
        ids, id_starts = self._ids, self._id_starts
        if len(new):
            raw = text.tobytes()
            new_ids, offsets = self._encode([raw[begin:end] for begin, end in new.tolist()])
            ids = np.concatenate([ids, new_ids])
            id_starts = np.concatenate([id_starts, id_starts[-1] + offsets[1:]])
        found = ids_of_words(numbers, words_before, id_starts, ids)
        self._known, self._id_starts, self._ids = known, id_starts[: known + 1], ids[: id_starts[known]]
        if len(id_starts) - 1 - known > MOST_PASSING * len(numbers):
            self._forget()
        return found


def _in_a_row(texts: Sequence[bytes]) -> tuple[UInt8[np.ndarray, "byte"], Int[np.ndarray, "text_and_end"]]:
    """The bytes of all texts, and their offsets."""
    return np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)], dtype=np.int64)


def splittable(description: dict[str, Any]) -> tuple[Bool[np.ndarray, "256 256"], bytes] | None:
    """Which bytes may follow which inside a token, and the prefix of a text; None if texts can't be split into words.

    Afterwards the description's normalizer no longer adds that prefix.
    """
    model, normalizer = description["model"], description["normalizer"]
    prepends = normalizer == {"type": "Sequence", "normalizers": [PREPEND, REPLACE]}
    if not prepends and normalizer != REPLACE:
        return None
    if model.get("type") != "BPE" or not model.get("byte_fallback") or any(map(model.get, PLAIN)):
        return None
    if description["pre_tokenizer"] or description["added_tokens"] or not _bytes_stand_alone(model):
        return None
    description["normalizer"] = REPLACE
    return _joined_bytes(model["vocab"]), SPACE.encode() if prepends else b""


def _bytes_stand_alone(model: dict[str, Any]) -> bool:
    """Whether every byte has a token (or its character does), so that nothing is unknown, and none is merged."""
    unknown = [byte for byte, token in enumerate(BYTE_TOKENS) if token not in model["vocab"]]
    if any(byte >= 0x80 or chr(byte) not in model["vocab"] for byte in unknown):
        return False
    merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    return set(BYTE_TOKENS).isdisjoint(part for merge in merges for part in merge)


def _joined_bytes(tokens: Iterable[str]) -> Bool[np.ndarray, "256 256"]:
    """Whether some token has a character ending in the first byte, followed by one starting with the second byte.

    `▁` in a token means a space or itself. Bytes within a character are always joined.
    """
    joined = np.zeros((256, 256), bool)
    joined[:, 0x80:0xC0] = True
    written = b"\xff".join(token.encode("utf-8", "surrogatepass") for token in tokens)
    block, space = LOWER_BLOCK.encode(), SPACE.encode()
    for text in (written, written.replace(block, space)):
        row = np.frombuffer(text, np.uint8)
        joined[row[:-1], row[1:]] = True
    joined[space[0], block[0]] = joined[block[-1], space[0]] = True
    return joined
