"""Vocabularies: the text of each token, and the token ids of a text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from detoklens.errors import CheckpointError, TokenError
from detoklens.tokens.tokenizer_files import checked_tokenizer, library_call, read_tokenizer

CLOSE = 0.8  # similarity of a token to suggest, by difflib's ratio
PRINTABLE_BYTES = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
OTHER_BYTES = tuple(byte for byte in range(256) if byte not in PRINTABLE_BYTES)

BYTE_OF_CHARACTER = {chr(byte): byte for byte in PRINTABLE_BYTES} | {
    chr(0x100 + rank): byte for rank, byte in enumerate(OTHER_BYTES)
}


def token_bytes(raw: str) -> bytes:
    """The bytes of a byte-level token; a token with other characters (an added one) is plain text."""
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in raw)
    except KeyError:
        return raw.encode("utf-8", "surrogatepass")


def readable(raw_bytes: bytes) -> str:
    r"""Bytes as text; invalid UTF-8, such as part of a character, is shown as \xNN."""
    return raw_bytes.decode("utf-8", "backslashreplace")


class Vocabulary:
    """A tokenizer's tokens as readable text, its ids, and its fingerprint.

    Parameters
    ----------
    tokenizer
        A `tokenizers.Tokenizer`.

    Examples
    --------
    >>> import detoklens as dl
    >>> vocabulary = dl.load_vocabulary("demo")
    >>> vocabulary
    Vocabulary of 4,096 tokens (byte-level BPE)
    >>> [vocabulary.text(token) for token in vocabulary.encode("the priest")]
    ['the', ' pri', 'est']
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __repr__(self) -> str:
        return (
            f"Vocabulary of {self.size:,} tokens ({'byte-level ' if self._is_byte_level else ''}{self._model['type']})"
        )

    @classmethod
    def from_folder(cls, folder: Path | str) -> Vocabulary:
        """Read tokenizer.json, or vocab.json and merges.txt.

        Parameters
        ----------
        folder
            The model's folder.

        Returns
        -------
        Vocabulary
            The vocabulary.

        Raises
        ------
        CheckpointError
            The folder has no tokenizer.
        TokenError
            The tokenizer can't be read.
        """
        tokenizer = read_tokenizer(Path(folder))
        if tokenizer is None:
            raise CheckpointError(
                f"{folder}: no tokenizer.json (nor vocab.json with merges.txt); put the model's tokenizer there"
            )
        return cls(tokenizer)

    @classmethod
    def of_tokenizer(cls, tokenizer: Any) -> Vocabulary:
        """Copy the vocabulary of a tokenizer in memory.

        Parameters
        ----------
        tokenizer
            A fast transformers tokenizer or a `tokenizers.Tokenizer`.

        Returns
        -------
        Vocabulary
            The vocabulary.

        Raises
        ------
        TokenError
            It is not a fast tokenizer, or it can't be copied.
        """
        fast = getattr(tokenizer, "backend_tokenizer", tokenizer)
        name = f"the given {type(tokenizer).__name__}"
        if not isinstance(fast, Tokenizer):
            raise TokenError(
                f"{name} is not a fast tokenizer; pass a fast one of transformers, a tokenizers.Tokenizer, or the path "
                "of a tokenizer.json"
            )
        with library_call(lambda reason: TokenError(f"{name} can't be copied ({reason}); pass a tokenizer.json")):
            return cls(checked_tokenizer(Tokenizer.from_str(fast.to_str()), name))

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """Read the text of a tokenizer.json, as returned by `to_json`.

        Parameters
        ----------
        text
            The JSON text.

        Returns
        -------
        Vocabulary
            The vocabulary.
        """
        return cls(Tokenizer.from_str(text))

    def to_json(self) -> str:
        """The tokenizer as the text of a tokenizer.json."""
        return self.tokenizer.to_str()

    @cached_property
    def size(self) -> int:
        """The largest id plus one: the number of rows that an embedding table needs."""
        return max(self._raw_tokens, default=-1) + 1

    @cached_property
    def longest_token(self) -> int:
        """Length of the longest token in characters, as written in the tokenizer file."""
        return max(map(len, self._raw_tokens.values()), default=0)

    def raw(self, token_id: int) -> str:
        """Return a token as written in the tokenizer file (`Ġsap`).

        Parameters
        ----------
        token_id
            The token's id.

        Returns
        -------
        str
            The token; `<unused 7>` for an id without one.

        Raises
        ------
        TokenError
            The id is outside the vocabulary.
        """
        if not 0 <= token_id < self.size:
            raise TokenError(f"token id {token_id} is not in the vocabulary; ids go from 0 to {self.size - 1}")
        return self._raw_tokens.get(token_id, f"<unused {token_id}>")

    def text(self, token_id: int) -> str:
        r"""Return a token as text (` sap`).

        Parameters
        ----------
        token_id
            The token's id.

        Returns
        -------
        str
            The text; bytes that form no whole character are shown as \xNN.

        Raises
        ------
        TokenError
            The id is outside the vocabulary.
        """
        return self.join([token_id])

    def join(self, token_ids: Sequence[int]) -> str:
        """Return the text of consecutive tokens.

        `dwell` and `##ing` are joined to `dwelling`; two WordPiece words stay separate.

        Parameters
        ----------
        token_ids
            The tokens' ids.

        Returns
        -------
        str
            The text.
        """
        pieces, mark = [self.as_bytes(token_id) for token_id in token_ids], self.continuing_mark
        for place, token_id in enumerate(token_ids[1:] if mark else (), start=1):
            continues = self.raw(token_id).startswith(mark)
            pieces[place] = pieces[place].removeprefix(mark.encode()) if continues else b" " + pieces[place]
        return readable(b"".join(pieces))

    def texts(self) -> list[str]:
        """The text of every id from 0 to size − 1."""
        return [self.text(token_id) for token_id in range(self.size)]

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """Tokenize a text.

        Parameters
        ----------
        text
            The text.
        special_tokens
            Whether to add the tokenizer's special tokens, e.g. [CLS] and [SEP].

        Returns
        -------
        list of int
            The token ids.

        Raises
        ------
        TokenError
            The text is not valid Unicode, or the tokenizer fails.
        """
        _refuse_lone_surrogates(text)
        with library_call(
            lambda reason: TokenError(f"this tokenizer can't read {text[:40]!r} ({reason}); download it again")
        ):
            return list(self.tokenizer.encode(text, add_special_tokens=special_tokens).ids)

    def find_id(self, text: str) -> int | None:
        """Return the id of a token like `id`, but None if there is no such token.

        Parameters
        ----------
        text
            The text, with its leading space if it has one.

        Returns
        -------
        int or None
            The id.
        """
        found = self._id_of_text.get(text)
        return self.tokenizer.token_to_id(text) if found is None else found

    def id(self, text: str) -> int:
        """Return the id of the token with exactly this text or, failing that, written like this in the tokenizer file.

        Parameters
        ----------
        text
            The text, with its leading space if it has one.

        Returns
        -------
        int
            The id.

        Raises
        ------
        TokenError
            No single token has this text; the message shows its pieces.
        """
        _refuse_lone_surrogates(text)
        found = self.find_id(text)
        if found is not None:
            return found
        pieces = self.encode(text)
        shown = ", ".join(f"{self.text(piece)!r} ({piece})" for piece in pieces)
        if len(pieces) < 2:
            raise TokenError(f"{text!r} is not a token of this vocabulary; its nearest reading is {shown or 'nothing'}")
        similar = [known for known in self._id_of_text if abs(len(known) - len(text)) < 3]
        close = get_close_matches(text, similar, n=1, cutoff=CLOSE)
        meant = f"did you mean {close[0]!r}? Or " if close else ""
        raise TokenError(f"{text!r} is {len(pieces)} tokens: {shown}; {meant}name one of them, as text or by its id")

    def merges(self) -> list[tuple[int, int, int]]:
        """The tokenizer's merges as ids (left, right, merged); empty if it is not a BPE tokenizer."""
        ids = self._model.get("vocab", {})
        pairs = (
            tuple(merge.split(" ")) if isinstance(merge, str) else merge for merge in self._model.get("merges", [])
        )
        return [(ids[left], ids[right], ids[left + right]) for left, right in pairs if left + right in ids]

    def word_internal(self) -> list[int]:
        """Word-continuation tokens: those that start with a letter and no space.

        A WordPiece tokenizer marks them (`##ing`); its tokens without the mark start a word.
        """
        mark = self.continuing_mark
        texts = enumerate(map(self.raw, range(self.size))) if mark else enumerate(self.texts())
        marked = ((token, text.removeprefix(mark)) for token, text in texts if text.startswith(mark))
        return [token for token, text in marked if text[:1].isalpha() and token not in self.apart]

    @property
    def continuing_mark(self) -> str:
        """The tokenizer's prefix of continuation tokens (`##`); empty for most tokenizers."""
        return getattr(self.tokenizer.model, "continuing_subword_prefix", None) or ""

    @cached_property
    def apart(self) -> frozenset[int]:
        """Special tokens and the unknown token, which are not parts of words."""
        special = {token["id"] for token in self._description["added_tokens"] if token.get("special")}
        unknown = self._model.get("unk_token")
        numbers = (self._model.get("unk_id"), None if unknown is None else self.tokenizer.token_to_id(unknown))
        return frozenset(special | {int(number) for number in numbers if number is not None})

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of what determines the ids of a text: model, normalizer, pre-tokenizer and added tokens."""
        description = self._description
        model = {key: value for key, value in self._model.items() if value not in (None, False, "")}
        merges = model.get("merges", [])
        model["merges"] = [merge.split(" ") if isinstance(merge, str) else list(merge) for merge in merges]
        deciding = {
            "model": model,
            "normalizer": description["normalizer"],
            "pre_tokenizer": _without(description["pre_tokenizer"], "trim_offsets"),
            "added_tokens": sorted([token["id"], token["content"]] for token in description["added_tokens"]),
        }
        text = json.dumps(deciding, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    @cached_property
    def _description(self) -> dict[str, Any]:
        return json.loads(self.to_json())

    @property
    def _model(self) -> dict[str, Any]:
        return self._description["model"]

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
        """Return the bytes of a token, which may be only part of a character.

        Parameters
        ----------
        token_id
            The token's id.

        Returns
        -------
        bytes
            The bytes.
        """
        raw = self.raw(token_id)
        return token_bytes(raw) if self._is_byte_level else raw.replace("▁", " ").encode("utf-8")


def _refuse_lone_surrogates(text: str) -> None:
    """Refuse text that is not valid UTF-8: bytes of a command line arrive as lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenError(f"{text!r} is not valid text at character {error.start}; pass it as UTF-8") from error


def _without(value: Any, key: str) -> Any:
    """A JSON value without one key at any depth: one that changes offsets, never ids."""
    if isinstance(value, dict):
        return {name: _without(inner, key) for name, inner in value.items() if name != key}
    if isinstance(value, list):
        return [_without(inner, key) for inner in value]
    return value
