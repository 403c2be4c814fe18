"""Token and bigram counts of a corpus."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int64, UInt32

from detoklens import demo
from detoklens.corpus.counts_folder import (
    BIGRAM_SCHEMA,
    BIGRAMS,
    MANIFEST,
    TOKEN_SCHEMA,
    TOKENS,
    TOTALS,
    WORK,
    JsonObject,
    check_integrity,
    read_json,
)
from detoklens.errors import CountsError, TokenError, as_path, first_line


class Predecessors(NamedTuple):
    """The tokens that precede one token, by id, and their counts."""

    prefixes: UInt32[np.ndarray, "predecessor"]
    counts: Int64[np.ndarray, "predecessor"]


@dataclass(frozen=True)
class Bigrams:
    """Bigrams in compressed rows by suffix: row t of `prefixes` and `counts` is [indptr[t] : indptr[t + 1]]."""

    indptr: Int64[np.ndarray, "token_and_end"]
    prefixes: UInt32[np.ndarray, "pair"]
    counts: Int64[np.ndarray, "pair"]

    def predecessors(self, token: int) -> Predecessors:
        """The tokens that precede a token, by id, with counts."""
        row = slice(self.indptr[token], self.indptr[token + 1])
        return Predecessors(self.prefixes[row], self.counts[row])

    @property
    def suffixes(self) -> UInt32[np.ndarray, "pair"]:
        """The suffix of every pair."""
        rows = np.arange(len(self.indptr) - 1, dtype=np.uint32)
        return np.repeat(rows, np.diff(self.indptr))


class Counts:
    """Token and bigram counts of a corpus. `detoklens count` writes them to a folder; `open` reads them back.

    Bigrams of a folder are read on first use.

    Parameters
    ----------
    tokens
        The count of each token.
    texts
        The text of each token.
    manifest
        What was counted, and with which tokenizer.
    folder
        The folder of the counts; None for counts in memory.

    Examples
    --------
    >>> import detoklens as dl
    >>> counts = dl.Counts.open("demo")
    >>> counts.vocabulary_size
    4096
    >>> counts.most_frequent_predecessors(counts.token_id("ion"), top=3)["prefix"]
    [' not', 'cript', ' profess']
    """

    def __init__(
        self,
        tokens: Int64[np.ndarray, "token"],
        texts: Sequence[str],
        manifest: JsonObject,
        folder: Path | None = None,
    ) -> None:
        self.tokens = tokens
        self.texts = texts
        self.manifest = manifest
        self.folder = folder
        self.place = str(folder or "COUNTS")
        """How the counts are named on the command line."""

    @classmethod
    def open(cls, folder: Path | str, vocabulary_fingerprint: str | None = None) -> Counts:
        """Open a folder made by `detoklens count`.

        Parameters
        ----------
        folder
            The folder; ``demo`` for the bundled counts, unless a folder has that name; ``hf:USER/NAME`` (also with
            ``/FOLDER`` and ``@REVISION``) for a dataset on the hub.
        vocabulary_fingerprint
            Refuse counts of a tokenizer with another fingerprint.

        Returns
        -------
        Counts
            The counts.

        Raises
        ------
        CountsError
            The folder has no counts, they are damaged, or they were made with another tokenizer.
        """
        place = folder = as_path(folder, "a folder of counts")
        if str(folder).startswith("hf:"):
            from detoklens.hub.repository import fetch_folder

            folder = fetch_folder(str(folder), (".json", ".parquet"))
        folder = demo.COUNTS if str(folder) == demo.NAME and not folder.exists() else folder
        if not folder.exists():
            raise CountsError(f"{folder}: no such folder; make counts with `detoklens count`")
        if not (folder / MANIFEST).is_file():
            was_interrupted = (folder / WORK).is_dir()
            raise CountsError(
                f"{folder}: counting was interrupted; run the same `detoklens count` command again to finish it"
                if was_interrupted
                else f"{folder}: no manifest.json; pass a folder written by `detoklens count`"
            )
        manifest = read_json(folder / MANIFEST)
        check_integrity(folder, manifest)
        with _open(folder / TOKENS, TOKEN_SCHEMA) as file:
            table = file.read()
        if len(table) != manifest["tokenizer"]["vocabulary_size"]:
            raise CountsError(
                f"{folder / TOKENS}: {len(table)} rows, not one for each token; delete it and count again"
            )
        counts = cls(_column(table, "count"), table["text"].to_pylist(), manifest, folder)
        counts.place = str(place)
        _check_total(folder / TOKENS, "tokens", int(counts.tokens.sum()), manifest["totals"]["tokens"])
        if vocabulary_fingerprint is not None:
            counts.check(vocabulary_fingerprint)
        return counts

    @classmethod
    def from_arrays(
        cls,
        tokens: Int64[np.ndarray, "token"],
        suffixes: UInt32[np.ndarray, "pair"],
        prefixes: UInt32[np.ndarray, "pair"],
        counts: Int64[np.ndarray, "pair"],
        vocabulary_fingerprint: str = "",
        texts: Sequence[str] | None = None,
    ) -> Counts:
        """Make counts from arrays; pairs may be in any order, each at most once.

        Parameters
        ----------
        tokens
            The count of each token.
        suffixes
            The second token of each pair.
        prefixes
            The first token of each pair.
        counts
            The count of each pair.
        vocabulary_fingerprint
            The fingerprint of the tokenizer, from `Vocabulary.fingerprint`.
        texts
            The text of each token; its id by default.

        Returns
        -------
        Counts
            The counts, in memory.

        Examples
        --------
        >>> import detoklens as dl
        >>> import numpy as np
        >>> first, second = np.array([0], np.uint32), np.array([1], np.uint32)
        >>> dl.Counts.from_arrays(np.array([2, 1]), suffixes=second, prefixes=first, counts=np.array([1]))
        Counts of 3 tokens: 1 distinct bigrams, a vocabulary of 2, in memory
        """
        order = np.lexsort((prefixes, suffixes))
        made = cls(
            np.asarray(tokens, np.int64),
            texts if texts is not None else [str(token) for token in range(len(tokens))],
            {"tokenizer": {"fingerprint": vocabulary_fingerprint, "vocabulary_size": len(tokens)}},
        )
        made.bigrams = Bigrams(
            _row_starts([np.asarray(suffixes)], len(tokens)),
            np.asarray(prefixes, np.uint32)[order],
            np.asarray(counts, np.int64)[order],
        )
        return made

    def __repr__(self) -> str:
        totals = self.manifest.get("totals", {})
        pairs = totals["distinct_bigrams"] if totals else len(self.bigrams.prefixes)
        documents = f" in {totals['documents']:,} documents" if totals else ""
        where = "in memory" if self.folder is None else f"in {self.folder}"
        return (
            f"Counts of {int(self.tokens.sum()):,} tokens{documents}: {pairs:,} distinct bigrams, "
            f"a vocabulary of {self.vocabulary_size:,}, {where}"
        )

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens in the vocabulary."""
        return len(self.tokens)

    @property
    def vocabulary_fingerprint(self) -> str:
        """The fingerprint of the tokenizer."""
        return str(self.manifest["tokenizer"]["fingerprint"])

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of these counts."""
        if self.folder is not None:
            content = json.dumps([self.manifest["files"], self.vocabulary_fingerprint], sort_keys=True).encode()
            return hashlib.sha256(content).hexdigest()
        digest = hashlib.sha256(self.vocabulary_fingerprint.encode())
        for array in (self.tokens, self.bigrams.indptr, self.bigrams.prefixes, self.bigrams.counts):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def check(self, vocabulary_fingerprint: str) -> None:
        """Raise an error if the counts were made with another tokenizer.

        Parameters
        ----------
        vocabulary_fingerprint
            The fingerprint of the model's tokenizer.

        Raises
        ------
        CountsError
            The fingerprints differ.
        """
        if vocabulary_fingerprint != self.vocabulary_fingerprint:
            raise CountsError(
                f"{self.folder or 'these counts'}: made with another tokenizer (fingerprint "
                f"{self.vocabulary_fingerprint[:12]}, the model's is {vocabulary_fingerprint[:12]}); count the corpus "
                "with this model's"
            )

    @cached_property
    def bigrams(self) -> Bigrams:
        """All bigrams by suffix; 12 bytes per pair in memory."""
        path, totals = self._bigram_path, self.manifest["totals"]
        with _open(path, BIGRAM_SCHEMA) as file:
            groups = range(file.num_row_groups)
            suffixes = (_column(file.read_row_group(group, columns=["suffix"]), "suffix") for group in groups)
            starts = _row_starts(suffixes, self.vocabulary_size)
            table = file.read(columns=["prefix", "count"])
        prefixes, counts = _column(table, "prefix"), _column(table, "count")
        _check_ids(prefixes, self.vocabulary_size)
        _check_total(path, "distinct bigrams", len(counts), totals["distinct_bigrams"])
        _check_total(path, "bigrams", int(counts.sum()), totals["bigrams"])
        return Bigrams(starts, prefixes, counts)

    def predecessors(self, token: int) -> Predecessors:
        """Return the tokens that precede a token; this reads only their rows unless bigrams are loaded.

        Parameters
        ----------
        token
            The token's id.

        Returns
        -------
        Predecessors
            `prefixes`, sorted by id, and their `counts`.

        Raises
        ------
        TokenError
            The counts have no such token.
        """
        self._check_token(token)
        if "bigrams" in self.__dict__:
            return self.bigrams.predecessors(token)
        with _open(self._bigram_path, BIGRAM_SCHEMA) as file:
            statistics = [file.metadata.row_group(group).column(0).statistics for group in range(file.num_row_groups)]
            groups = [group for group, of in enumerate(statistics) if of is None or of.min <= token <= of.max]
            table = file.read_row_groups(groups)
        rows = _column(table, "suffix") == token
        return Predecessors(_column(table, "prefix")[rows], _column(table, "count")[rows])

    def most_frequent_predecessors(self, token: int, top: int) -> dict[str, Any]:
        """Return the most frequent tokens before a token; ties are ordered by id.

        Parameters
        ----------
        token
            The token's id.
        top
            The number of tokens.

        Returns
        -------
        dict
            Columns of a table: rank, prefix_id, prefix, count and share.

        Raises
        ------
        TokenError
            The counts have no such token.
        """
        prefixes, counts = self.predecessors(token)
        order = np.argsort(-counts, kind="stable")[:top]
        return {
            "rank": np.arange(1, len(order) + 1),
            "prefix_id": prefixes[order],
            "prefix": [self.texts[prefix] for prefix in prefixes[order]],
            "count": counts[order],
            "share": counts[order] / counts.sum(),
        }

    def totals(self) -> dict[str, list[Any]]:
        """Columns of a one-row table of totals."""
        totals = self.manifest["totals"]
        return {name: [totals[name]] for name in TOTALS if name != "text_bytes"} | {
            "megabytes": [None if "source" in self.manifest else totals["text_bytes"] / 1e6],
            "distinct_tokens": [int(np.count_nonzero(self.tokens))],
        }

    def token_id(self, text: str) -> int:
        """Return the id of the token with exactly this text.

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
            No token has this text.
        """
        if text not in self._id_of_text:
            raise TokenError(
                f"{text!r} is not a single token in these counts; include its leading space, or pass its id"
            )
        return self._id_of_text[text]

    def _check_token(self, token: int) -> None:
        if not 0 <= token < self.vocabulary_size:
            raise TokenError(f"token id {token} is not in these counts; ids go from 0 to {self.vocabulary_size - 1}")

    @cached_property
    def _id_of_text(self) -> dict[str, int]:
        return {text: token for token, text in reversed(list(enumerate(self.texts)))}

    @property
    def _bigram_path(self) -> Path:
        assert self.folder is not None
        return self.folder / BIGRAMS


@contextmanager
def _open(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """Open a Parquet file of counts."""
    try:
        file = pq.ParquetFile(pa.memory_map(os.fsencode(path)))
        if not file.schema_arrow.equals(schema):
            raise CountsError(
                f"{path}: columns differ from {', '.join(schema.names)}; delete its folder and count again"
            )
        yield file
    except (pa.ArrowException, OSError) as error:
        raise CountsError(f"{path}: damaged ({first_line(error)}); delete its folder and count again") from error


def _check_total(path: Path, kind: str, found: int, expected: int) -> None:
    if found != expected:
        raise CountsError(f"{path}: {found} {kind}, but the manifest says {expected}; delete its folder, count again")


def _column(table: pa.Table, name: str) -> np.ndarray:
    return np.from_dlpack(table[name].combine_chunks())  # `to_numpy` imports pandas, if installed


def _check_ids(ids: np.ndarray, vocabulary_size: int) -> None:
    if len(ids) and int(ids.max()) >= vocabulary_size:
        raise CountsError(f"bigrams of token {ids.max()}, but ids go from 0 to {vocabulary_size - 1}; count again")


def _row_starts(suffixes: Iterable[np.ndarray], vocabulary_size: int) -> Int64[np.ndarray, "token_and_end"]:
    """indptr: row t starts after the pairs of all smaller suffixes."""
    lengths = np.zeros(vocabulary_size, np.int64)
    for portion in suffixes:
        _check_ids(portion, vocabulary_size)
        lengths += np.bincount(portion, minlength=vocabulary_size)
    return np.concatenate([[0], np.cumsum(lengths)])
