"""Which documents does a study look at? Those that were given, or a sample of files that is the same for everybody."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from detoklens import demo
from detoklens.corpus.encoding import TokenizersEncoder
from detoklens.corpus.records import ReadingOptions, Tally
from detoklens.errors import CorpusError, RangeError, TokenError
from detoklens.progress import Watching, shown_steps
from detoklens.questions.parameters import Parameter, check_settings

if TYPE_CHECKING:
    from detoklens.corpus.documents import Sample
    from detoklens.scores.layer import Layer

BEGINNINGS = ("<|endoftext|>", "<s>", "<bos>", "[CLS]")
LOOK_LIKE_FILES = (".txt", ".jsonl", ".json", ".parquet", ".gz", ".zst", ".csv")
OFTEN = 1000  # documents between two updates of how many were read
SAID_ONE_BY_ONE = 4  # query positions that some documents do not reach
OWN_TEXT = (
    "the documents that come with the demo model are sampled from it (temperature 1, from its end-of-text token), "
    "not written by people"
)
TextField = Annotated[str, Parameter("Field of a JSON line or column of a parquet file.", advanced=True)]
DocumentPerLine = Annotated[
    bool, Parameter("Each line of a .txt file is a document; otherwise the file is one.", advanced=True)
]
SkipBad = Annotated[bool, Parameter("Skip records that are broken or lack the field.", advanced=True)]


@dataclass(frozen=True)
class Texts:
    """Which documents a question runs on, and how they are truncated."""

    text: Annotated[
        Sequence[str],
        Parameter(
            "Text to run on: files, folders, globs or a hub dataset; may be repeated. The demo model has its own.",
            metavar="INPUT",
        ),
    ] = ()
    documents: Annotated[int, Parameter("Number of documents, sampled by the hash of their text.", least=1)] = 1000
    length: Annotated[
        int | None, Parameter("Truncate documents to this many tokens. Default: the model's length.", least=1)
    ] = None
    prepend_bos: Annotated[bool, Parameter("Prepend the beginning-of-text token to each document.")] = False
    text_field: TextField = "text"
    document_per_line: DocumentPerLine = False
    skip_bad: SkipBad = False
    given: tuple[str, ...] = field(default=(), kw_only=True)
    """Texts themselves, in place of files."""

    def __post_init__(self) -> None:
        check_settings(self)

    def in_a_file(self) -> Texts:
        """The same, with texts that were given themselves in a file yet to be written, one a line."""
        if not self.given:
            return self
        documents = max(self.documents, len(self.given))
        return replace(self, text=("TEXTS.txt",), documents=documents, document_per_line=True, given=())

    def exist_for(self, layer: Layer) -> bool:
        """Whether there is any text; the demo model brings its own."""
        return bool(self.text or self.given or demo.is_demo(layer.name))

    def are_own(self, layer: Layer) -> bool:
        """Whether they are the documents that come with the demo model."""
        return not self.text and not self.given and demo.is_demo(layer.name)


def read_documents(
    layer: Layer, texts: Texts, seed: int, say: Callable[[str], None], watching: Watching = shown_steps
) -> list[np.ndarray]:
    """The token ids of the documents, cut to length; what was passed over is said."""
    from detoklens.corpus.documents import Sample, sample_by_hash

    encode = _encoder(layer, _length(layer, texts.length), texts.prepend_bos)
    if texts.given:
        kept = [encode(text) for text in texts.given if text]
        sample = Sample(kept, len(texts.given), len(texts.given) - len(kept), 0)
        skipped = 0
    else:
        if texts.are_own(layer):
            say(OWN_TEXT)
        tally = Tally()
        with watching("reading documents") as watch:
            read = _counted(_read(texts, tally), watch)
            sample = sample_by_hash(read, texts.documents, encode, seed)
        skipped = tally.skipped_records
    say(_described(sample, skipped))
    return sample.documents


def _read(texts: Texts, tally: Tally) -> Iterator[str]:
    from detoklens.corpus import documents

    reading = ReadingOptions(texts.text_field, texts.document_per_line, texts.skip_bad)
    inputs = list(texts.text) or [str(demo.DOCUMENTS)]
    return (document.text for document in documents.read_documents(inputs, reading, tally=tally))


def _length(layer: Layer, length: int | None) -> int:
    if length is not None and length > layer.n_positions:
        raise RangeError(
            f"a length of {length} is more than the {layer.n_positions} positions of {layer.name}; lower it"
        )
    return length or layer.n_positions


def _encoder(layer: Layer, length: int, prepend_bos: bool) -> Callable[[str], np.ndarray]:
    """From a text to its first ids; a special token's name inside a text is text like any other, as in counting."""
    encoder = TokenizersEncoder(layer.vocabulary.to_json(), parse_special_tokens=False)
    first = [beginning_token(layer)] if prepend_bos else []

    def encode(text: str) -> np.ndarray:
        ids = encoder.encode([text.encode()]).ids[:length]
        return np.concatenate([np.asarray(first, np.int64), ids.astype(np.int64)])[:length]

    return encode


@dataclass(frozen=True)
class Beginning:
    """The token in front of every text, and where it comes from."""

    token_id: int
    source: str


def beginning_token(layer: Layer) -> int:
    """The id of the model's beginning-of-text token: see `find_beginning`."""
    return find_beginning(layer).token_id


def find_beginning(layer: Layer) -> Beginning:
    """The model's beginning-of-text token.

    The first of these that has an embedding: the bos_token_id of a GGUF file or a config.json; as a fallback, the
    eos_token_id, then a token named <|endoftext|>, <s>, <bos> or [CLS].
    """
    config = layer.checkpoint.config
    named = [layer.vocabulary.tokenizer.token_to_id(name) for name in BEGINNINGS] if layer.has_vocabulary else []
    found = [
        (config.get("bos_token_id"), "the checkpoint's bos_token_id"),
        (config.get("eos_token_id"), "a fallback: the checkpoint has no bos_token_id, this is its eos_token_id"),
        *((token_id, "a fallback by its name: the checkpoint has no bos_token_id") for token_id in named),
    ]
    for token_id, source in found:
        if isinstance(token_id, int) and 0 <= token_id < layer.vocab_size:
            return Beginning(token_id, source)
    raise TokenError(
        f"no beginning-of-text token: {layer.name} has neither a bos_token_id or eos_token_id with an embedding, nor a "
        f"token named {', '.join(BEGINNINGS)}; do without it"
    )


def _counted(texts: Iterable[str], watch: Callable[[int, int], None] | None) -> Iterator[str]:
    """The same texts; the watcher is told how many were read, as far as anybody knows how many there are."""
    for number, text in enumerate(texts, 1):
        if watch is not None and number % OFTEN == 0:
            watch(number, number + OFTEN)
        yield text


def _described(sample: Sample[np.ndarray], skipped: int) -> str:
    if not sample.documents:
        found = f"all {sample.read} documents are empty" if sample.read else "there is no document"
        raise CorpusError(f"no text to look at: {found}; give documents with text")
    lengths = [len(ids) for ids in sample.documents]
    left_out = {"empty": sample.empty, "repeated": sample.repeated, "bad": skipped}
    others = "".join(f", {number:,} {what}" for what, number in left_out.items() if number)
    return f"{len(lengths):,} documents of {min(lengths):,} to {max(lengths):,} tokens, of {sample.read:,} read{others}"


def too_short(documents: Sequence[np.ndarray], query_positions: Sequence[int]) -> list[str]:
    """How many documents end before a query position? A line for each, or one for many."""
    lengths = [len(ids) for ids in documents]
    found = {position: sum(length <= position for length in lengths) for position in query_positions}
    short = {position: number for position, number in found.items() if number}
    all_of_them = f"of {len(documents):,} documents are too short for query position"
    if len(short) > SAID_ONE_BY_ONE:
        fewest, most = min(short.values()), max(short.values())
        return [f"{fewest:,} to {most:,} {all_of_them}s {min(short)} to {max(short)}"]
    return [f"{number:,} {all_of_them} {position}" for position, number in short.items()]


def check_reachable(query_positions: Sequence[int], length: int | None) -> None:
    """Refuse a query position that no document of this length can have."""
    if length is not None and max(query_positions) >= length:
        raise RangeError(
            f"query position {max(query_positions)} lies beyond documents cut to {length} tokens; "
            "cut them later, or ask for less"
        )


def texts_or_files(text: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A string or a path names files; a list of strings holds texts, a list of paths names files."""
    if isinstance(text, str | Path):
        return (str(text),), ()
    if text is None:
        return (), ()
    if not isinstance(text, Iterable):
        raise CorpusError("text is one string that names files, a list of texts, or a list of pathlib.Path")
    entries = tuple(text)
    if all(isinstance(entry, Path) for entry in entries):
        return tuple(map(str, entries)), ()
    if not all(isinstance(entry, str) for entry in entries):
        raise CorpusError("text is one string that names files, a list of texts, or a list of pathlib.Path; not a mix")
    files = [str(entry) for entry in entries if _looks_like_a_file(str(entry))]
    if files:
        raise CorpusError(
            f"text is a list, so {files[0]!r} would be a text of its own, but it looks like a file; name files by one "
            "string (a glob), or by pathlib.Path"
        )
    return (), tuple(map(str, entries))


def _looks_like_a_file(text: str) -> bool:
    plain = bool(text.strip()) and not any(character.isspace() for character in text.strip())
    with contextlib.suppress(OSError, ValueError):
        return plain and (text.lower().endswith(LOOK_LIKE_FILES) or "*" in text or Path(text).exists())
    return False
