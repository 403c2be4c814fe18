"""Which text does a token id stand for, and which ids does a text have?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detoklens.errors import CheckpointError, TokenError
from detoklens.tokens.tokenizer_files import library_call, read_tokenizer, read_tokenizer_file, tokenizer_from_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer


PRINTABLE_BYTES = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
OTHER_BYTES = tuple(byte for byte in range(256) if byte not in PRINTABLE_BYTES)

BYTE_OF_CHARACTER = {chr(byte): byte for byte in PRINTABLE_BYTES} | {
    chr(0x100 + rank): byte for rank, byte in enumerate(OTHER_BYTES)
}


def token_bytes(raw: str) -> bytes:
    """The bytes behind a byte-level token; a token with other characters (an added one) is taken as plain text."""
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in raw)
    except KeyError:
        return raw.encode("utf-8", "surrogatepass")


def readable(raw_bytes: bytes) -> str:
    r"""Bytes as text; those that are no UTF-8 (half a character) as \xNN."""
    return raw_bytes.decode("utf-8", "backslashreplace")


class Vocabulary:
    """A tokenizer's tokens as readable text, its ids, and a fingerprint that tells two tokenizers apart."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __repr__(self) -> str:
        return (
            f"Vocabulary of {self.size:,} tokens ({'byte-level ' if self._is_byte_level else ''}{self._model['type']})"
        )

    @classmethod
    def from_folder(cls, folder: Path | str) -> Vocabulary:
        """Read tokenizer.json, or vocab.json and merges.txt; an error where neither is there."""
        vocabulary = cls.find(Path(folder))
        if vocabulary is None:
            raise CheckpointError(
                f"{folder}: no tokenizer.json (nor vocab.json with merges.txt); put the model's tokenizer there"
            )
        return vocabulary

    @classmethod
    def find(cls, folder: Path) -> Vocabulary | None:
        """Like from_folder, but None where the folder has no tokenizer."""
        tokenizer = read_tokenizer(folder)
        return None if tokenizer is None else cls(tokenizer)

    @classmethod
    def from_file(cls, path: Path) -> Vocabulary:
        """Read one tokenizer.json, whatever it is called."""
        return cls(read_tokenizer_file(path))

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """Read the text of a tokenizer.json, as `to_json` gives it."""
        return cls(tokenizer_from_json(text))

    def to_json(self) -> str:
        return self.tokenizer.to_str()

    @cached_property
    def size(self) -> int:
        """One more than the largest id: the rows that an embedding table needs."""
        return max(self._raw_tokens, default=-1) + 1

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token, as the tokenizer's file writes it."""
        return max(map(len, self._raw_tokens.values()), default=0)

    def raw(self, token_id: int) -> str:
        """The token as the tokenizer's file writes it (`Ġsap`)."""
        self.check_id(token_id)
        return self._raw_tokens.get(token_id, f"<unused {token_id}>")

    def text(self, token_id: int) -> str:
        r"""The token as text (` sap`); bytes that are no whole character as \xNN."""
        return self.join([token_id])

    def join(self, token_ids: Sequence[int]) -> str:
        """The text of several tokens in a row."""
        return readable(b"".join(self.as_bytes(token_id) for token_id in token_ids))

    def texts(self) -> list[str]:
        """The text of every id from 0 to size − 1."""
        return [self.text(token_id) for token_id in range(self.size)]

    def encode(self, text: str) -> list[int]:
        """The ids of a text; no special token is added."""
        _refuse_lone_surrogates(text)
        with library_call(
            lambda reason: TokenError(f"this tokenizer can't read {text[:40]!r} ({reason}); download it again")
        ):
            return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def id(self, text: str) -> int:
        """The id of the token that is exactly this text (or, failing that, is written so in the tokenizer's file)."""
        if text in self._id_of_text:
            return self._id_of_text[text]
        _refuse_lone_surrogates(text)
        raw_id = self.tokenizer.token_to_id(text)
        if raw_id is not None:
            return int(raw_id)
        raise TokenError(self._not_one_token(text))

    def check_id(self, token_id: int) -> None:
        if not 0 <= token_id < self.size:
            raise TokenError(f"token id {token_id} is not in the vocabulary; ids go from 0 to {self.size - 1}")

    def merges(self) -> list[tuple[int, int, int]]:
        """The tokenizer's own merges as ids (left, right, merged); empty where it is no BPE."""
        ids = self._model.get("vocab", {})
        pairs = (
            tuple(merge.split(" ")) if isinstance(merge, str) else merge for merge in self._model.get("merges", [])
        )
        return [(ids[left], ids[right], ids[left + right]) for left, right in pairs if left + right in ids]

    def word_internal(self) -> list[int]:
        """The tokens that begin with a letter and without a space, so that they go on with the word before them.

        A WordPiece tokenizer marks them itself (`##ing`); there a token without the mark begins a word.
        """
        mark = self.continuing_mark
        texts = enumerate(map(self.raw, range(self.size))) if mark else enumerate(self.texts())
        marked = ((token, text.removeprefix(mark)) for token, text in texts if text.startswith(mark))
        return [token for token, text in marked if text[:1].isalpha() and token not in self.apart]

    @property
    def continuing_mark(self) -> str:
        """What the tokenizer's file writes before a piece that goes on with a word (`##`); most write nothing."""
        return getattr(self.tokenizer.model, "continuing_subword_prefix", None) or ""

    @cached_property
    def apart(self) -> frozenset[int]:
        """The tokens that are no pieces of words: special ones, and the one for what the tokenizer does not know."""
        special = {token["id"] for token in self._description["added_tokens"] if token.get("special")}
        unknown = self._model.get("unk_token")
        numbers = (self._model.get("unk_id"), None if unknown is None else self.tokenizer.token_to_id(unknown))
        return frozenset(special | {int(number) for number in numbers if number is not None})

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of what decides the ids of a text: the model, the normalizer, the splitting, the added tokens."""
        description = json.dumps(_what_decides_ids(self._description), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(description.encode("ascii")).hexdigest()

    @cached_property
    def _description(self) -> dict[str, Any]:
        description: dict[str, Any] = json.loads(self.to_json())
        return description

    @property
    def _model(self) -> dict[str, Any]:
        model: dict[str, Any] = self._description["model"]
        return model

    @cached_property
    def _is_byte_level(self) -> bool:
        return '"ByteLevel"' in json.dumps([self._description["decoder"], self._description["pre_tokenizer"]])

    @cached_property
    def _raw_tokens(self) -> dict[int, str]:
        return {token_id: raw for raw, token_id in self.tokenizer.get_vocab(with_added_tokens=True).items()}

    @cached_property
    def _id_of_text(self) -> dict[str, int]:
        return {self.text(token_id): token_id for token_id in sorted(self._raw_tokens, reverse=True)}

    def as_bytes(self, token_id: int) -> bytes:
        """What a token stands for; half a character is no text yet."""
        raw = self.raw(token_id)
        return token_bytes(raw) if self._is_byte_level else raw.replace("▁", " ").encode("utf-8")

    def _not_one_token(self, text: str) -> str:
        pieces = self.encode(text)
        shown = ", ".join(f"{self.text(piece)!r} ({piece})" for piece in pieces)
        if len(pieces) < 2:
            return f"{text!r} is not a token of this vocabulary; its nearest reading is {shown or 'nothing'}"
        return f"{text!r} is {len(pieces)} tokens: {shown}; name one of them, as text or by its id"


def _refuse_lone_surrogates(text: str) -> None:
    """Bytes of a command line that are no UTF-8 arrive as lone surrogates, which no tokenizer takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenError(f"{text!r} is no valid text at character {error.start}; give it as UTF-8") from error


def _what_decides_ids(description: dict[str, Any]) -> dict[str, Any]:
    model = {key: value for key, value in description["model"].items() if value not in (None, False, "")}
    model["merges"] = [merge.split(" ") if isinstance(merge, str) else list(merge) for merge in model.get("merges", [])]
    return {
        "model": model,
        "normalizer": description["normalizer"],
        "pre_tokenizer": _without(description["pre_tokenizer"], "trim_offsets"),
        "added_tokens": sorted([token["id"], token["content"]] for token in description["added_tokens"]),
    }


def _without(value: Any, key: str) -> Any:
    """The same JSON value without one key at any depth: it changes offsets, never ids."""
    if isinstance(value, dict):
        return {name: _without(inner, key) for name, inner in value.items() if name != key}
    if isinstance(value, list):
        return [_without(inner, key) for inner in value]
    return value
