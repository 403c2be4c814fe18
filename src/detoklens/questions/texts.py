"""The documents of a study: given texts, or a reproducible sample of files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from detoklens import demo
from detoklens.corpus.encoding import TokenizersEncoder
from detoklens.errors import CorpusError, DetokLensError, RangeError, TokenError, shown
from detoklens.progress import shown_steps
from detoklens.questions.parameters import Checked, Parameter
from detoklens.scores.token_ids import id_lists
from detoklens.wording import token_shown

if TYPE_CHECKING:
    from detoklens.scores.layer import Layer

BEGINNINGS = ("<|endoftext|>", "<s>", "<bos>", "[CLS]")
LOOK_LIKE_FILES = (".txt", ".jsonl", ".json", ".parquet", ".gz", ".zst", ".csv")
UPDATE_EVERY = 1000  # documents between two progress updates
LISTED_POSITIONS = 4  # query positions with too short documents that get a line each
OWN_TEXT = (
    "the demo model's bundled documents were sampled from the model (temperature 1, after its end-of-text token), not "
    "written by people"
)
TextField = Annotated[str, Parameter("Field of a JSON line or column of a parquet file.", advanced=True)]
DocumentPerLine = Annotated[
    bool, Parameter("Treat each line of a .txt file as a document, not the whole file.", advanced=True)
]
SkipBad = Annotated[bool, Parameter("Skip records that are broken or lack the field.", advanced=True)]

NO_BOS = "none"
Bos = Annotated[
    str | int | None,
    Parameter(
        "Beginning-of-text token, by text or id, or none. Default: the checkpoint's own.",
        metavar="TOKEN|none",
        advanced=True,
        read=str,
    ),
]


@dataclass(frozen=True)
class Texts(Checked):
    """Which documents a question runs on, and how they are truncated."""

    text: Annotated[
        Sequence[str],
        Parameter(
            "Text to run on: files, folders, globs or a hub dataset; repeatable. Optional for the demo model.",
            metavar="INPUT",
        ),
    ] = ()
    documents: Annotated[int, Parameter("Number of documents, sampled by the hash of their text.", least=1)] = 1000
    length: Annotated[
        int | None,
        Parameter("Truncate documents to this many tokens. Default: the model's length.", least=1, advanced=True),
    ] = None
    prepend_bos: Annotated[bool, Parameter("Prepend the beginning-of-text token to each document.")] = False
    text_field: TextField = "text"
    document_per_line: DocumentPerLine = False
    skip_bad: SkipBad = False
    given: tuple[str | np.ndarray, ...] = field(default=(), kw_only=True)
    """Texts instead of files, or their token ids."""

    def in_a_file(self) -> Texts:
        """The same with given texts replaced by a file, one text per line, for the command line."""
        if not self.given:
            return self
        documents = max(self.documents, len(self.given))
        return replace(self, text=("TEXTS.txt",), documents=documents, document_per_line=True, given=())


def read_documents(layer: Layer, texts: Texts, seed: int, say: Callable[[str], None]) -> list[np.ndarray]:
    """The token ids of the documents, truncated and without a beginning-of-text token; notes what was left out."""
    from detoklens.corpus import documents as corpus  # most questions need no text
    from detoklens.corpus import reading

    if texts.length is not None and texts.length > layer.n_positions:
        raise RangeError(
            f"a length of {texts.length} exceeds the {layer.n_positions} positions of {layer.name}; lower it"
        )
    length = texts.length or layer.n_positions
    needs_tokenizer = not texts.given or any(isinstance(text, str) for text in texts.given)
    encoder = TokenizersEncoder(layer.vocabulary.to_json(), parse_special_tokens=False) if needs_tokenizer else None

    def encode(text: str | np.ndarray) -> np.ndarray:
        """The first ids of a text; special tokens in a text are read as text, as in counting."""
        ids = encoder.encode([text.encode()]).ids if encoder is not None and isinstance(text, str) else text
        return np.array(ids[:length], np.int64)

    tally = reading.Tally()
    if texts.given:
        documents = [encode(text) for text in texts.given if len(text)]
        for ids in documents:
            layer.check_text(ids)
        sample = corpus.Sample(documents, len(texts.given), len(texts.given) - len(documents), 0)
    else:
        if not texts.text:
            say(OWN_TEXT)
        options = reading.ReadingOptions(texts.text_field, texts.document_per_line, texts.skip_bad)
        found = corpus.read_documents(list(texts.text) or [str(demo.DOCUMENTS)], options, tally=tally)
        with shown_steps("reading documents") as watch:

            def counted() -> Iterator[str]:
                for number, text in enumerate(found, 1):
                    if number % UPDATE_EVERY == 0:
                        watch(number, number + UPDATE_EVERY)  # the total is not known in advance
                    yield text

            sample = corpus.sample_by_hash(counted(), texts.documents, encode, seed)
    if not sample.documents:
        empty = f"all {sample.read} documents are empty" if sample.read else "the input has no documents"
        raise CorpusError(f"no text: {empty}; pass documents with text")
    lengths = [len(ids) for ids in sample.documents]
    left_out = {"empty": sample.empty, "repeated": sample.repeated, "bad": tally.skipped_records}
    others = "".join(f", {number:,} {what}" for what, number in left_out.items() if number)
    shortest, longest = f"{min(lengths):,}", f"{max(lengths):,}"
    extent = longest if shortest == longest else f"{shortest} to {longest}"
    say(f"{len(lengths):,} documents of {extent} tokens ({sample.read:,} read{others})")
    return sample.documents


@dataclass(frozen=True)
class Beginning:
    """The beginning-of-text token and its source."""

    token_id: int
    source: str

    @property
    def notes(self) -> list[str]:
        """A note for texts that begin with it, if it is a fallback."""
        is_fallback = self.source.startswith("a fallback")
        return [f"texts begin with token {self.token_id}, {self.source}"] if is_fallback else []


def find_beginning(layer: Layer) -> Beginning:
    """The model's beginning-of-text token.

    The first of these that has an embedding: the bos_token_id of a GGUF file or a config.json; as a fallback, the
    eos_token_id, then a token named <|endoftext|>, <s>, <bos> or [CLS].
    """
    config = layer.checkpoint.config
    named = [layer.vocabulary.tokenizer.token_to_id(name) for name in BEGINNINGS] if layer.has_vocabulary else []
    found = [
        (config.get("bos_token_id"), "the checkpoint's bos_token_id"),
        (config.get("eos_token_id"), "a fallback, its eos_token_id, because the checkpoint has no bos_token_id"),
        *(
            (token_id, "a fallback, chosen by its name, because the checkpoint has no bos_token_id")
            for token_id in named
        ),
    ]
    for token_id, source in found:
        if isinstance(token_id, int) and 0 <= token_id < layer.vocab_size:
            return Beginning(token_id, source)
    raise TokenError(
        f"no beginning-of-text token: {layer.name} has neither a bos_token_id or eos_token_id with an embedding, nor a "
        f"token named {', '.join(BEGINNINGS)}; leave the token out"
    )


def beginning_of(
    layer: Layer, say: Callable[[str], None] = lambda _note: None, bos: str | int | None = None
) -> tuple[int, ...]:
    """The requested BOS token, or the model's own; empty without one. A note names it."""
    if bos == NO_BOS:
        say("no beginning-of-text token, as requested: words are at the very start of the text")
        return ()
    try:
        if bos is None:
            found = find_beginning(layer)
        else:  # a whole number is an id; anything else is the text of one token
            found = Beginning(layer.token_id(int(bos) if str(bos).isdecimal() else bos), "as asked")
            layer.check_text([found.token_id])
    except DetokLensError as error:
        if bos is not None:
            raise TokenError(f"BOS token {bos!r}: {error}") from error
        if not isinstance(error, TokenError):
            raise
        say(f"{layer.name} has no beginning-of-text token: words are at the very start of the text")
        return ()
    say(f"beginning-of-text token: {bos_name(layer, (found.token_id,))} (id {found.token_id}), {found.source}")
    return (found.token_id,)


def bos_name(layer: Layer, beginning: tuple[int, ...]) -> str | None:
    """The BOS token as tables show it."""
    return token_shown(layer.token(beginning[0])) if beginning else None


def too_short(documents: Sequence[np.ndarray], query_positions: Sequence[int]) -> list[str]:
    """Notes about documents that end before a query position: one line each, or one for many."""
    lengths = [len(ids) for ids in documents]
    found = {position: sum(length <= position for length in lengths) for position in query_positions}
    short = {position: number for position, number in found.items() if number}
    all_of_them = f"of {len(documents):,} documents are too short for query position"
    if len(short) > LISTED_POSITIONS:
        fewest, most = min(short.values()), max(short.values())
        return [f"{fewest:,} to {most:,} {all_of_them}s {min(short)} to {max(short)}"]
    return [f"{number:,} {all_of_them} {position}" for position, number in short.items()]


def check_reachable(query_positions: Sequence[int], length: int | None) -> None:
    """Refuse a query position beyond the length of documents."""
    if length is not None and max(query_positions) >= length:
        raise RangeError(
            f"query position {max(query_positions)} is beyond documents truncated to {length} tokens; increase the "
            "length or choose a smaller position"
        )


def texts_or_files(text: Any) -> tuple[tuple[str, ...], tuple[str | np.ndarray, ...]]:
    """A string or a path names files; a list holds texts, token ids of texts, or paths, which name files."""
    accepted = "text is one string that names files, a list of texts or of pathlib.Path, or token ids"
    if isinstance(text, str) and _looks_like_a_text(text):
        raise CorpusError(f'{shown(text)}: no such file or folder; to pass it as a text, put it in a list: text=["…"]')
    if isinstance(text, str | Path):
        return (str(text),), ()
    if text is None:
        return (), ()
    if isinstance(text, bytes) or not (isinstance(text, Iterable) or hasattr(text, "ids")):
        raise CorpusError(accepted)
    if isinstance(text, Mapping) or hasattr(text, "ids") or hasattr(text, "shape"):
        return (), tuple(id_lists(text))
    entries = tuple(text)
    if all(isinstance(entry, Path) for entry in entries):
        return tuple(map(str, entries)), ()
    if not any(isinstance(entry, str | Path) for entry in entries):
        if all(isinstance(entry, Integral) for entry in entries):
            return (), tuple(id_lists(list(entries)))
        return (), tuple(ids for entry in entries for ids in id_lists(entry))
    if not all(isinstance(entry, str) for entry in entries):
        raise CorpusError(f"{accepted}; not a mix")
    for entry in entries:
        if _looks_like_a_file(entry):
            raise CorpusError(
                f"text is a list, so {entry!r} would be read as a text, but it looks like a file; name files with one "
                "string (a glob) or with pathlib.Path"
            )
    return (), entries


def _looks_like_a_text(text: str) -> bool:
    """Whether a string of several words names no file."""
    with contextlib.suppress(OSError, ValueError):
        return len(text.split()) > 1 and "*" not in text and not Path(text).exists()
    return True  # too long for a name


def _looks_like_a_file(text: str) -> bool:
    if not text.strip() or any(character.isspace() for character in text.strip()):
        return False
    with contextlib.suppress(OSError, ValueError):
        return text.lower().endswith(LOOK_LIKE_FILES) or "*" in text or Path(text).exists()
    return False
