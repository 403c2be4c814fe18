"""Which token ids does a batch of texts have? Two tokenizing libraries, one answer.

`gigatoken` is about a hundred times faster than `tokenizers`, and reads only BPE. It is used where it gives the
same ids as `tokenizers` on a sample of the very input; `tokenizers` is the truth.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Int, UInt32

from detoklens.errors import TokenError, first_line
from detoklens.tokens import Vocabulary

GIGATOKEN, TOKENIZERS = "gigatoken", "tokenizers"


class Encoded(NamedTuple):
    """Token ids of several documents in a row; document d is ids[offsets[d] : offsets[d + 1]]."""

    ids: UInt32[np.ndarray, "token_in_batch"]
    offsets: Int[np.ndarray, "document_and_end"]


class Encoder(Protocol):
    """Texts in, token ids out; no special token is added."""

    def encode(self, texts: Sequence[bytes]) -> Encoded: ...


class GigatokenEncoder:
    def __init__(self, tokenizer_json: str, parse_special_tokens: bool) -> None:
        import gigatoken

        description = tokenizer_json if parse_special_tokens else _without_special_tokens(tokenizer_json)
        self._tokenizer = gigatoken.Tokenizer.from_json(description)

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        layout: Any = self._tokenizer.encode_batch(list(texts), parallel=False).layout
        return Encoded(np.asarray(layout.content.data), np.asarray(layout.offsets.data))


class TokenizersEncoder:
    def __init__(self, tokenizer_json: str, parse_special_tokens: bool) -> None:
        try:
            self._tokenizer = Vocabulary.from_json(tokenizer_json).tokenizer
        except Exception as error:
            raise TokenError(f"this tokenizer contradicts itself: {first_line(error)}; download it again") from error
        self._tokenizer.encode_special_tokens = not parse_special_tokens

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        decoded = [text.decode() for text in texts]
        try:
            rows = [row.ids for row in self._tokenizer.encode_batch_fast(decoded, add_special_tokens=False)]
        except Exception as error:  # the library raises bare exceptions
            raise TokenError(f"this tokenizer can't read the text: {first_line(error)}; download it again") from error
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return Encoded(np.concatenate([np.asarray(row, np.uint32) for row in rows]), offsets)


def _without_special_tokens(tokenizer_json: str) -> str:
    """A tokenizer to which the text `<|endoftext|>` is text like any other."""
    description = json.loads(tokenizer_json)
    description["added_tokens"] = [token for token in description["added_tokens"] if not token["special"]]
    return json.dumps(description)


def open_encoder(library: str, tokenizer_path: Path, parse_special_tokens: bool) -> Encoder:
    """The encoder of a worker process, by what the file holds now: another run may have had another one there."""
    now = tokenizer_path.stat()
    return _read_encoder(library, tokenizer_path, (now.st_ino, now.st_mtime_ns, now.st_size), parse_special_tokens)


@lru_cache(maxsize=2)
def _read_encoder(library: str, path: Path, _state: tuple[int, ...], parse_special_tokens: bool) -> Encoder:
    """The file is read once for each state of it: some MB, and a worker asks at every shard."""
    return _load_encoder(library, path.read_text(encoding="utf-8"), parse_special_tokens)


@lru_cache(maxsize=2)
def _load_encoder(library: str, tokenizer_json: str, parse_special_tokens: bool) -> Encoder:
    """Loaded once in a process, to compare and to count: it takes as long as some 20 MB of text."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a worker is one core
    encoder = GigatokenEncoder if library == GIGATOKEN else TokenizersEncoder
    return encoder(tokenizer_json, parse_special_tokens)


class Choice(NamedTuple):
    """The library that tokenizes, and why it is not gigatoken (None where it is)."""

    library: str
    reason: str | None

    @property
    def version(self) -> str:
        return version(self.library)


def choose_library(vocabulary: Vocabulary, sample: Sequence[bytes], parse_special_tokens: bool) -> Choice:
    """gigatoken where its ids equal those of tokenizers on the sample and on each special token's text."""
    tokenizer_json = vocabulary.to_json()
    try:
        fast = _load_encoder(GIGATOKEN, tokenizer_json, parse_special_tokens)
    except Exception as error:  # the library raises bare exceptions for whatever it can't read
        return Choice(TOKENIZERS, f"gigatoken can't read this tokenizer: {first_line(error)}")
    texts = [*sample, *_special_texts(tokenizer_json)]
    expected = _load_encoder(TOKENIZERS, tokenizer_json, parse_special_tokens).encode(texts)
    found = fast.encode(texts)
    if np.array_equal(expected.ids, found.ids) and np.array_equal(expected.offsets, found.offsets):
        return Choice(GIGATOKEN, None)
    return Choice(TOKENIZERS, "gigatoken's ids differ from those of tokenizers on a sample of the input")


def _special_texts(tokenizer_json: str) -> list[bytes]:
    added = json.loads(tokenizer_json)["added_tokens"]
    return [f"a {token['content']}b".encode() for token in added] + [b"Hello world"]
