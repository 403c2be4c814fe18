"""Tokenize batches of texts in the fastest of three ways that give the same ids.

`gigatoken` is about 15 to 150 times as fast as `tokenizers`, the reference, but reads only some BPE tokenizers. For the
others, texts are cut into words where that is exact (`cutting`), and `tokenizers` gets only the new words. A faster way
is used only if its ids equal those of `tokenizers` on a sample of the input and on the text of every token.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gigatoken
import numpy as np
from jaxtyping import Int, UInt8, UInt32

from detoklens.errors import TokenError
from detoklens.tokens import Vocabulary
from detoklens.tokens.tokenizer_files import library_call
from detoklens.tokens.vocabulary import BYTE_OF_CHARACTER

GIGATOKEN, WORD_BY_WORD, TOKENIZERS = "gigatoken", "tokenizers word by word", "tokenizers"
LONGEST_TOKEN = 1_000
"""Characters; real tokens have up to 128. gigatoken's loading time is quadratic: 0.03 s here, 27 s at 32,000."""

CHARACTERS = (*range(0x600), *range(0x2000, 0x2100), *range(0x4E00, 0x4F00), *range(0x1F600, 0x1F650))
"""Characters of one to four bytes that are compared individually."""
TOKENS_TOGETHER = 100
"""Tokens compared as one text; all of them take 0.2 s for GPT-2's 50,257 tokens and 1.2 s for 256,000."""


class Encoded(NamedTuple):
    """Concatenated token ids of documents; document d is ids[offsets[d] : offsets[d + 1]]."""

    ids: UInt32[np.ndarray, "token_in_batch"]
    offsets: Int[np.ndarray, "document_and_end"]


class Encoder(Protocol):
    """Encodes texts to token ids, without adding special tokens."""

    def encode(self, texts: Sequence[bytes]) -> Encoded: ...


def words_at(text: UInt8[np.ndarray, "byte"], spans: Int[np.ndarray, "word 2"]) -> list[bytes]:
    """The words of a text, given where each starts and ends."""
    raw = text.tobytes()
    return [raw[begin:end] for begin, end in zip(spans[:, 0].tolist(), spans[:, 1].tolist(), strict=True)]


class GigatokenEncoder:
    def __init__(self, tokenizer_json: str, parse_special_tokens: bool) -> None:
        import awkward  # noqa: F401  (else gigatoken imports it while encoding, and swallows a Ctrl-C during the import)

        from detoklens.corpus.word_by_word import WordByWord, splittable  # numba: opening counts doesn't need it

        description = tokenizer_description(tokenizer_json, parse_special_tokens)
        self._first_placeholder = add_placeholders(description)
        # gigatoken knows a single digit as \p{N}, not as \p{N}{1,1}
        once = r"(?<=\|\\\\p\{N\})\{1(?:,1)?\}(?=\|)"
        description["pre_tokenizer"] = json.loads(re.sub(once, "", json.dumps(description["pre_tokenizer"])))
        splitting = splittable(description)
        with library_call(lambda reason: TokenError(f"gigatoken can't read this tokenizer: {reason}")):
            tokenizer = gigatoken.Tokenizer.from_json(json.dumps(description))

        def encode(texts: Sequence[bytes]) -> Encoded:
            with library_call(lambda reason: TokenError(f"gigatoken fails on a text: {reason}; leave that text out")):
                layout: Any = tokenizer.encode_batch(list(texts), parallel=False).layout
            return Encoded(np.asarray(layout.content.data), np.asarray(layout.offsets.data))

        self._encode = encode if splitting is None else WordByWord(*splitting, encode).encode
        if self._first_placeholder is not None:
            self._reference = TokenizersEncoder(tokenizer_json, parse_special_tokens)

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        ids, offsets = self._encode(texts)
        if self._first_placeholder is None:
            return Encoded(ids, offsets)
        missing = np.flatnonzero(ids >= self._first_placeholder)
        affected = np.unique(np.searchsorted(offsets, missing, side="right") - 1)
        if not affected.size:
            return Encoded(ids, offsets)
        rows = np.split(ids, offsets[1:-1])
        reference = self._reference.encode([texts[text] for text in affected])
        for text, row in zip(affected, np.split(reference.ids, reference.offsets[1:-1]), strict=True):
            rows[text] = row
        return Encoded(np.concatenate(rows), np.cumsum([0, *map(len, rows)], dtype=np.int64))


def add_placeholders(description: dict[str, Any]) -> int | None:
    """Give each missing byte an id above all others, in place; return the first such id, None if no byte is missing."""
    model = description["model"]
    if model.get("type") != "BPE" or '"ByteLevel"' not in json.dumps(description["pre_tokenizer"]):
        return None
    vocabulary: dict[str, int] = model["vocab"]
    missing = [character for character in BYTE_OF_CHARACTER if character not in vocabulary]
    if not missing:
        return None
    first = 1 + max([*vocabulary.values(), *(token["id"] for token in description["added_tokens"])], default=-1)
    vocabulary.update({character: first + rank for rank, character in enumerate(missing)})
    return first


class TokenizersEncoder:
    def __init__(self, tokenizer_json: str, parse_special_tokens: bool) -> None:
        with library_call(partial(_refusal, "this tokenizer contradicts itself")):
            self._tokenizer = Vocabulary.from_json(tokenizer_json).tokenizer
        self._tokenizer.encode_special_tokens = not parse_special_tokens

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        decoded = [text.decode() for text in texts]
        with library_call(partial(_refusal, "this tokenizer can't read the text")):
            rows = [row.ids for row in self._tokenizer.encode_batch_fast(decoded, add_special_tokens=False)]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return Encoded(np.concatenate([np.asarray(row, np.uint32) for row in rows]), offsets)

    def encode_words(self, text: UInt8[np.ndarray, "byte"], spans: Int[np.ndarray, "word 2"]) -> Encoded:
        """The ids of the words of a text, twice as fast as of texts."""
        decoded = [word.decode() for word in words_at(text, spans)]
        with library_call(partial(_refusal, "this tokenizer can't read the text")):
            encoding = self._tokenizer.encode(decoded, is_pretokenized=True, add_special_tokens=False)
        word_of_id = np.asarray(encoding.word_ids, np.int64)
        lengths = np.bincount(word_of_id, minlength=len(spans))
        return Encoded(np.asarray(encoding.ids, np.uint32), np.concatenate([[0], np.cumsum(lengths)]))


def _refusal(what: str, reason: str) -> TokenError:
    return TokenError(f"{what}: {reason}; download it again")


def tokenizer_description(tokenizer_json: str, parse_special_tokens: bool) -> dict[str, Any]:
    """A tokenizer as data; `<|endoftext|>` is ordinary text to it, unless special tokens are parsed."""
    description: dict[str, Any] = json.loads(tokenizer_json)
    if not parse_special_tokens:
        description["added_tokens"] = [token for token in description["added_tokens"] if not token["special"]]
    return description


def open_encoder(library: str, tokenizer_path: Path, parse_special_tokens: bool) -> Encoder:
    """The encoder of a worker process, loaded again if the file has changed since."""
    now = tokenizer_path.stat()
    return _read_encoder(library, tokenizer_path, (now.st_ino, now.st_mtime_ns, now.st_size), parse_special_tokens)


@lru_cache(maxsize=2)
def _read_encoder(library: str, path: Path, _state: tuple[int, ...], parse_special_tokens: bool) -> Encoder:
    """Read each state of the file once: it has some MB, and a worker opens it for every shard."""
    return _load_encoder(library, path.read_text(encoding="utf-8"), parse_special_tokens)


@lru_cache(maxsize=3)
def _load_encoder(library: str, tokenizer_json: str, parse_special_tokens: bool) -> Encoder:
    """Load once per process: loading takes as long as encoding about 20 MB of text."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a worker is one core
    if library == GIGATOKEN:
        return GigatokenEncoder(tokenizer_json, parse_special_tokens)
    if library == WORD_BY_WORD:
        from detoklens.corpus.word_by_word import word_by_word_encoder

        return word_by_word_encoder(tokenizer_json, parse_special_tokens)
    return TokenizersEncoder(tokenizer_json, parse_special_tokens)


COST = "some 15 to 150 times as long as gigatoken takes for a tokenizer that it reads"
"""The cost of `tokenizers`, as measured by `benchmarks/counting.py`; Mistral's ratio is the smallest."""


class Choice(NamedTuple):
    """The chosen way, why it is not gigatoken (None if it is), and the bytes per second of the slow way."""

    library: str
    reason: str | None
    speed: float | None = None


def choose_library(vocabulary: Vocabulary, sample: Sequence[bytes], parse_special_tokens: bool) -> Choice:
    """Choose the fastest way whose ids equal those of tokenizers on the sample and on all of the vocabulary."""
    tokenizer_json = vocabulary.to_json()

    def load(library: str) -> Encoder:
        return _load_encoder(library, tokenizer_json, parse_special_tokens)

    @cache  # tokenizers may fail here, which matters only if there is something to compare
    def reference() -> tuple[list[bytes], Encoded]:
        texts = [*sample, *(text.encode() for text in _texts_of_all_tokens(vocabulary, tokenizer_json))]
        return texts, load(TOKENIZERS).encode(texts)

    def find_fault(library: str) -> str | None:
        """Why a way can't be used, or None."""
        try:
            encoder = load(library)
        except TokenError as error:
            return str(error)
        texts, expected = reference()
        try:
            encoded = encoder.encode(texts)
        except TokenError:
            return f"{library} fails on a sample of the input"
        if all(map(np.array_equal, expected, encoded)):
            return None
        return f"{library}'s ids differ from those of tokenizers on a sample of the input"

    reason: str | None = f"a token of {vocabulary.longest_token:,} characters is too long for gigatoken"
    if vocabulary.longest_token <= LONGEST_TOKEN:
        reason = find_fault(GIGATOKEN)
    if reason is None:
        return Choice(GIGATOKEN, None)
    if find_fault(WORD_BY_WORD) is None:
        return Choice(WORD_BY_WORD, reason)
    if not sample:
        return Choice(TOKENIZERS, reason)
    slow, start = load(TOKENIZERS), time.process_time()
    try:
        slow.encode(sample)
    except TokenError:
        return Choice(TOKENIZERS, reason)
    return Choice(TOKENIZERS, reason, sum(map(len, sample)) / max(time.process_time() - start, 1e-9))


def _texts_of_all_tokens(vocabulary: Vocabulary, tokenizer_json: str) -> list[str]:
    """Texts with each token and many characters, for comparing tokenizer libraries."""
    added = (token["content"] for token in json.loads(tokenizer_json)["added_tokens"])
    tokens = range(vocabulary.size)
    return [
        *(f"a {content}b" for content in added),
        "Hello world",
        *(vocabulary.join(tokens[start : start + TOKENS_TOGETHER]) for start in tokens[::TOKENS_TOGETHER]),
        *map(chr, CHARACTERS),
    ]
