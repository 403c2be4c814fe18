"""Tokenize batches of texts, with one of two libraries that give the same ids.

`gigatoken` is about 15 to 150 times faster than `tokenizers`, but supports BPE only. It is used if it gives the same
ids as `tokenizers`, the reference, on a sample of the input and on the text of every token.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gigatoken
import numpy as np
from jaxtyping import Int, UInt32

from detoklens.errors import TokenError
from detoklens.tokens import Vocabulary
from detoklens.tokens.tokenizer_files import library_call
from detoklens.tokens.vocabulary import BYTE_OF_CHARACTER


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


def texts_with(
    first: int, ids: UInt32[np.ndarray, "token_in_batch"], offsets: Int[np.ndarray, "document_and_end"]
) -> Int[np.ndarray, "document"]:
    """The indices of the texts that contain an id of at least `first`."""
    places = np.flatnonzero(ids >= first)
    return np.unique(np.searchsorted(offsets, places, side="right") - 1)


def replaced(
    ids: UInt32[np.ndarray, "token_in_batch"],
    offsets: Int[np.ndarray, "document_and_end"],
    texts: Int[np.ndarray, "document"],
    rows: list[UInt32[np.ndarray, "_"]],
) -> tuple[UInt32[np.ndarray, "_"], Int[np.ndarray, "document_and_end"]]:
    """The ids with those of some texts replaced by `rows`, and the new offsets."""
    parts, lengths, done = [], np.diff(offsets), 0
    for text, row in zip(texts, rows, strict=True):
        parts += [ids[done : offsets[text]], row]
        done, lengths[text] = int(offsets[text + 1]), len(row)
    return np.concatenate([*parts, ids[done:]]), np.concatenate([[0], np.cumsum(lengths)])


GIGATOKEN, TOKENIZERS = "gigatoken", "tokenizers"
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


class _WholeTexts:
    """gigatoken itself."""

    def __init__(self, tokenizer_json: str) -> None:
        import awkward  # noqa: F401  (else gigatoken imports it while encoding, and swallows a Ctrl-C during the import)

        with library_call(lambda reason: TokenError(f"gigatoken can't read this tokenizer: {reason}")):
            self._tokenizer = gigatoken.Tokenizer.from_json(tokenizer_json)

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        with library_call(lambda reason: TokenError(f"gigatoken fails on a text: {reason}; leave that text out")):
            layout: Any = self._tokenizer.encode_batch(list(texts), parallel=False).layout
        return Encoded(np.asarray(layout.content.data), np.asarray(layout.offsets.data))


class GigatokenEncoder:
    def __init__(self, tokenizer_json: str, parse_special_tokens: bool) -> None:
        from detoklens.corpus.word_by_word import WordByWord, splittable  # numba: opening counts doesn't need it

        description = json.loads(tokenizer_json)
        self._first_placeholder = add_placeholders(description)
        if not parse_special_tokens:
            _forget_special_tokens(description)
        splitting = splittable(description)
        whole = _WholeTexts(json.dumps(description))
        self._encode = whole.encode if splitting is None else WordByWord(*splitting, whole.encode).encode
        if self._first_placeholder is not None:
            self._truth = TokenizersEncoder(tokenizer_json, parse_special_tokens)

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        found = Encoded(*self._encode(texts))
        if self._first_placeholder is None:
            return found
        return self._without_placeholders(self._first_placeholder, texts, found)

    def _without_placeholders(self, first: int, texts: Sequence[bytes], found: Encoded) -> Encoded:
        """Encode texts with bytes that the tokenizer lacks by `tokenizers`."""
        concerned = texts_with(first, found.ids, found.offsets)
        if not concerned.size:
            return found
        ids, offsets = self._truth.encode([texts[text] for text in concerned])
        return Encoded(*replaced(found.ids, found.offsets, concerned, np.split(ids, offsets[1:-1])))


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


def _refusal(what: str, reason: str) -> TokenError:
    return TokenError(f"{what}: {reason}; download it again")


def _forget_special_tokens(description: dict[str, Any]) -> None:
    """Make a tokenizer treat `<|endoftext|>` as ordinary text."""
    description["added_tokens"] = [token for token in description["added_tokens"] if not token["special"]]


def open_encoder(library: str, tokenizer_path: Path, parse_special_tokens: bool) -> Encoder:
    """The encoder of a worker process, loaded again if the file has changed since."""
    now = tokenizer_path.stat()
    return _read_encoder(library, tokenizer_path, (now.st_ino, now.st_mtime_ns, now.st_size), parse_special_tokens)


@lru_cache(maxsize=2)
def _read_encoder(library: str, path: Path, _state: tuple[int, ...], parse_special_tokens: bool) -> Encoder:
    """Read each state of the file once: it has some MB, and a worker opens it for every shard."""
    return _load_encoder(library, path.read_text(encoding="utf-8"), parse_special_tokens)


@lru_cache(maxsize=2)
def _load_encoder(library: str, tokenizer_json: str, parse_special_tokens: bool) -> Encoder:
    """Load once per process: loading takes as long as encoding about 20 MB of text."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a worker is one core
    encoder = GigatokenEncoder if library == GIGATOKEN else TokenizersEncoder
    return encoder(tokenizer_json, parse_special_tokens)


COST = "some 15 to 150 times as long as gigatoken takes for a tokenizer that it reads"
"""The cost of `tokenizers`, as measured by `benchmarks/counting.py`; Mistral's ratio is the smallest."""


class Choice(NamedTuple):
    """The chosen library, why it is not gigatoken (None if it is), and its bytes per second on a sample."""

    library: str
    reason: str | None
    speed: float | None = None

    @property
    def version(self) -> str:
        return version(self.library)


def choose_library(vocabulary: Vocabulary, sample: Sequence[bytes], parse_special_tokens: bool) -> Choice:
    """Choose gigatoken if its ids equal those of tokenizers on the sample and on all of the vocabulary."""
    reason = _why_not_gigatoken(vocabulary, sample, parse_special_tokens)
    if reason is None:
        return Choice(GIGATOKEN, None)
    return Choice(TOKENIZERS, reason, _speed(vocabulary, sample, parse_special_tokens))


def _speed(vocabulary: Vocabulary, sample: Sequence[bytes], parse_special_tokens: bool) -> float | None:
    """Bytes of the sample per second of CPU time with `tokenizers`; None if it fails."""
    if not sample:
        return None
    encoder = _load_encoder(TOKENIZERS, vocabulary.to_json(), parse_special_tokens)
    begun = time.process_time()
    try:
        encoder.encode(sample)
    except TokenError:
        return None
    return sum(map(len, sample)) / max(time.process_time() - begun, 1e-9)


def _why_not_gigatoken(vocabulary: Vocabulary, sample: Sequence[bytes], parse_special_tokens: bool) -> str | None:
    if vocabulary.longest_token > LONGEST_TOKEN:
        return f"a token of {vocabulary.longest_token:,} characters is too long for gigatoken"
    tokenizer_json = vocabulary.to_json()
    try:
        fast = _load_encoder(GIGATOKEN, tokenizer_json, parse_special_tokens)
    except TokenError as error:
        return str(error)
    texts = [*sample, *_special_texts(tokenizer_json), *_texts_of_all_tokens(vocabulary), *_characters()]
    expected = _load_encoder(TOKENIZERS, tokenizer_json, parse_special_tokens).encode(texts)
    try:
        found = fast.encode(texts)
    except TokenError:
        return "gigatoken fails on a sample of the input"
    if np.array_equal(expected.ids, found.ids) and np.array_equal(expected.offsets, found.offsets):
        return None
    return "gigatoken's ids differ from those of tokenizers on a sample of the input"


def _special_texts(tokenizer_json: str) -> list[bytes]:
    added = json.loads(tokenizer_json)["added_tokens"]
    return [f"a {token['content']}b".encode() for token in added] + [b"Hello world"]


def _texts_of_all_tokens(vocabulary: Vocabulary) -> list[bytes]:
    tokens = range(vocabulary.size)
    starts = range(0, vocabulary.size, TOKENS_TOGETHER)
    return [vocabulary.join(tokens[start : start + TOKENS_TOGETHER]).encode() for start in starts]


def _characters() -> list[bytes]:
    return [chr(character).encode() for character in CHARACTERS]
