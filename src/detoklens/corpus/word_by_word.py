"""Word-by-word tokenization for tokenizers that don't split text: known words are not tokenized again.

The BPE of Gemma, Mistral and Llama 2 treats a text as one long word. It can be split without changing ids where no
token contains two adjacent characters, since no merge can join them. Their tokens never have a `▁` after a letter, so
texts split into words that can be tokenized separately.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, UInt8

from detoklens.corpus.cutting import PieceSplitter, bytes_never_cut
from detoklens.corpus.encoding import Encoded, TokenizersEncoder, tokenizer_description, words_at
from detoklens.corpus.regexes import WORD_END, Unanalysed
from detoklens.errors import TokenError
from detoklens.kernels.tokens import (
    clear_words,
    ids_of_words,
    intern_words,
    merge_pieces,
    tabulate_merges,
    words_in_a_row,
)
from detoklens.tokens.vocabulary import BYTE_OF_CHARACTER

SPACE, LOWER_BLOCK = " ", "▁"
REPLACE = {"type": "Replace", "pattern": {"String": SPACE}, "content": LOWER_BLOCK}
PREPEND = {"type": "Prepend", "prepend": LOWER_BLOCK}
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
AT_SPACES = {"type": "Split", "pattern": {"String": SPACE}, "behavior": "MergedWithPrevious", "invert": False}
"""Gemma's pre-tokenizer, to which its normalizer leaves no spaces."""
PLAIN = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
"""Settings that would make a word's ids depend on more than its merges."""
IN_CONTEXT = ("single_word", "lstrip", "rstrip", "normalized")
"""Settings that would make an added token depend on more than its own text."""

WORDS_KEPT, BLOCKS_KEPT = 1 << 18, 4
"""13 MB; 100 MB of English have 195,000 words. Words of more than 31 bytes are tokenized each time."""
MANY, MOST_NEW = 1 << 14, 1 / 3
"""New words in a batch, and their share of its bytes: above both, as for random numbers, texts are tokenized whole."""
MOST_PASSING = 1 / 16
"""Share of a batch's words that a full table can't take; above it, the table is cleared."""

LARGEST = 2**31 - 1
"""Largest batch in bytes: offsets are 32-bit numbers."""

LONGEST_MERGED = 200
"""Bytes of a word that is merged here, in quadratic time."""

EncodeWords = Callable[[UInt8[np.ndarray, "byte"], Int[np.ndarray, "word 2"]], Encoded]
"""From a text and the start and end of each word in it to the words' ids."""


class WordByWord:
    """Encodes texts to token ids with an encoder of words that is called for new words only."""

    def __init__(
        self,
        joined: Bool[np.ndarray, "256 256"],
        prefix: bytes,
        encode: Callable[[list[bytes]], Encoded],
        encode_words: EncodeWords | None = None,
    ) -> None:
        self._joined, self._prefix, self._encode = joined, prefix, encode
        self._encode_words = encode_words or (lambda text, spans: encode(words_at(text, spans)))
        self._seed = np.uint64(secrets.randbits(64))  # so that no text can be crafted to collide in the table
        self._one_at_a_time = Lock()  # the compiled loops release the GIL
        self._kept = np.empty((WORDS_KEPT, BLOCKS_KEPT), np.uint64)
        self._forget()

    def _forget(self) -> None:
        self._slots = np.full(2 * WORDS_KEPT, -1, np.int32)
        self._known = 0
        self._ids, self._id_starts = np.empty(0, np.uint32), np.zeros(1, np.int64)

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        rows = [self._prefix + text if text else text for text in texts]
        if sum(map(len, rows)) > LARGEST:
            return self._encode(rows)
        with self._one_at_a_time:
            try:
                text = np.frombuffer(b"".join(rows), np.uint8)
                encoded = self._encode_new_words(text, np.cumsum([0, *map(len, rows)], dtype=np.int64))
            except BaseException:
                self._forget()  # the table may hold words without ids
                raise
        return self._encode(rows) if encoded is None else encoded

    def _encode_new_words(
        self, text: UInt8[np.ndarray, "byte"], starts: Int[np.ndarray, "text_and_end"]
    ) -> Encoded | None:
        """The ids of the texts; None, with an empty table, if too many words are new for this to pay off."""
        numbers, words_before, new, known = intern_words(
            text, starts, self._joined, self._seed, self._slots, self._kept, self._known
        )
        if len(new) > MANY and np.diff(new).sum() > MOST_NEW * len(text):
            self._forget()
            return None
        ids, id_starts = self._ids, self._id_starts
        if len(new):
            new_ids, offsets = self._encode_words(text, new)
            ids = np.concatenate([ids, new_ids])
            id_starts = np.concatenate([id_starts, id_starts[-1] + offsets[1:]])
        encoded = Encoded(*ids_of_words(numbers, words_before, id_starts, ids))
        self._known, self._id_starts, self._ids = known, id_starts[: known + 1], ids[: id_starts[known]]
        if len(id_starts) - 1 - known > MOST_PASSING * len(numbers):
            self._forget()
        return encoded


class ByteLevelWords:
    """Encodes words of a byte-level BPE: those of clear characters here, others by `tokenizers`."""

    def __init__(self, description: dict[str, Any], by_tokenizers: EncodeWords) -> None:
        model = description["model"]
        if model.get("type") != "BPE" or model.get("byte_fallback") or any(map(model.get, PLAIN[:-1])):
            raise Unanalysed("other than a plain byte-level BPE")
        vocabulary: dict[str, int] = model["vocab"]
        self._splitter, self._by_tokenizers = PieceSplitter(description), by_tokenizers
        self._byte_ids = np.zeros(256, np.int32)
        self._unclear = self._splitter.unclear.copy()
        for character, byte in BYTE_OF_CHARACTER.items():
            self._byte_ids[byte] = vocabulary.get(character, 0)
            self._unclear[byte if byte < 0x80 else slice(0x80, None)] |= character not in vocabulary
        merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        rows = {(vocabulary[a], vocabulary[b]): (rank, vocabulary[a + b]) for rank, (a, b) in enumerate(merges)}
        pairs, merged = np.array(list(rows), np.uint64), np.array(list(rows.values()), np.int32)
        self._merges = tabulate_merges(pairs.reshape(-1, 2), merged.reshape(-1, 2))
        self._wholes: dict[bytes, int] = {}
        if model.get("ignore_merges"):  # 0xFF, which no text has, for a character outside the byte-level alphabet
            self._wholes = {
                bytes(BYTE_OF_CHARACTER.get(character, 0xFF) for character in token): token_id
                for token, token_id in vocabulary.items()
            }
        contents = [re.escape(token["content"].encode()) for token in description["added_tokens"]]
        self._added = re.compile(b"|".join(contents) or b"(?!)")

    def encode(self, text: UInt8[np.ndarray, "byte"], spans: Int[np.ndarray, "word 2"]) -> Encoded:
        is_clear = clear_words(text, spans, self._unclear, LONGEST_MERGED)
        row, ends = words_in_a_row(text, spans, is_clear, ord(WORD_END))
        added = [match.start() for match in self._added.finditer(row)]
        if added:
            is_clear[np.flatnonzero(is_clear)[np.searchsorted(ends, added, side="right")]] = False
            row, ends = words_in_a_row(text, spans, is_clear, ord(WORD_END))
        pieces, is_start = self._splitter.split(row)
        starts = np.append(np.flatnonzero(is_start), len(pieces))
        whole = np.full(len(starts) - 1, -1, np.int32)  # ids of the pieces that are tokens regardless of the merges
        if self._wholes:
            raw = pieces.tobytes()
            whole[:] = [self._wholes.get(raw[begin:end], -1) for begin, end in pairwise(starts.tolist())]
        ids, offsets = merge_pieces(pieces, starts, whole, self._byte_ids, *self._merges)
        text_ends = np.append(0, ends - np.arange(1, len(ends) + 1))
        offsets = offsets[np.searchsorted(starts, text_ends)]
        if not is_clear.all():
            others, other_offsets = self._by_tokenizers(text, spans[~is_clear])
            ids, offsets = np.concatenate([ids, others]), np.concatenate([offsets, offsets[-1] + other_offsets[1:]])
            order = np.argsort(np.argsort(~is_clear, kind="stable")).astype(np.int32)
            ids, offsets = ids_of_words(order, np.arange(len(spans) + 1), offsets, ids)
        return Encoded(ids, offsets)


def word_by_word_encoder(tokenizer_json: str, parse_special_tokens: bool) -> WordByWord:
    """Tokenizes each new word only, where texts can be cut into words exactly."""
    description = tokenizer_description(tokenizer_json, parse_special_tokens)
    joined = bytes_never_cut(description)
    if joined is None:
        raise TokenError("this tokenizer's text can't be split into words exactly")
    reference = TokenizersEncoder(tokenizer_json, parse_special_tokens)
    try:
        encode_words = ByteLevelWords(description, reference.encode_words).encode
    except (Unanalysed, KeyError, ValueError):  # not a byte-level BPE that is fully understood
        encode_words = reference.encode_words
    return WordByWord(joined, b"", reference.encode, encode_words)


def splittable(description: dict[str, Any]) -> tuple[Bool[np.ndarray, "256 256"], bytes] | None:
    """Which bytes may follow which inside a token, and the prefix of a text; None if texts can't be split into words.

    An added token (Gemma 3 has tabs and HTML tags) lies within a word, since its bytes may follow each other.
    Afterwards the description's normalizer no longer adds that prefix.
    """
    model, normalizer, added = description["model"], description["normalizer"], description["added_tokens"]
    if normalizer == {"type": "Sequence", "normalizers": [REPLACE]}:
        normalizer = REPLACE
    prepends = normalizer == {"type": "Sequence", "normalizers": [PREPEND, REPLACE]}
    if not prepends and normalizer != REPLACE:
        return None
    if model.get("type") != "BPE" or not model.get("byte_fallback") or any(map(model.get, PLAIN)):
        return None
    if description["pre_tokenizer"] not in (None, AT_SPACES):
        return None
    if any(prepends or any(map(token.get, IN_CONTEXT)) for token in added):
        return None
    # Every byte needs a token, or its character does, so that nothing is unknown; and no byte may be merged.
    unknown = [byte for byte, token in enumerate(BYTE_TOKENS) if token not in model["vocab"]]
    if any(byte >= 0x80 or chr(byte) not in model["vocab"] for byte in unknown):
        return None
    merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    if not set(BYTE_TOKENS).isdisjoint(part for merge in merges for part in merge):
        return None
    description["normalizer"], description["pre_tokenizer"] = REPLACE, None
    return _joined_bytes([*model["vocab"], *(token["content"] for token in added)]), SPACE.encode() if prepends else b""


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
