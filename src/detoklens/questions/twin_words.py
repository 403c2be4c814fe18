"""The words whose twin is looked for, and the beginning-of-text token in front of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from detoklens.errors import DetokLensError, RangeError, TokenError
from detoklens.questions.parameters import Parameter, in_one_word, whole_numbers
from detoklens.questions.texts import Beginning, find_beginning
from detoklens.questions.words import by_file
from detoklens.wording import plural, token_shown

if TYPE_CHECKING:
    import numpy as np

    from detoklens.measures.twin_chains import Chains, Splits
    from detoklens.scores.layer import Layer

FEWEST = 2
"""Words that can be standardised at all: one word has no spread."""

TwinWords = Annotated[
    Path | Sequence[str] | None,
    Parameter(
        "Only these words, one a line, as far as they are tokens. Default: all tokens of letters.",
        metavar="FILE",
        read=Path,
        spell=by_file("--words"),
    ),
]
Pieces = Annotated[
    Sequence[int],
    Parameter(
        "In how many pieces.", metavar="2,3,4", read=whole_numbers("numbers of pieces"), spell=in_one_word("--pieces")
    ),
]
Triples = Annotated[int, Parameter("At most this many words per number of pieces, drawn by the seed.", least=2)]
NO_BOS = "none"
Bos = Annotated[
    str | int | None,
    Parameter(
        "Beginning-of-text token: its text or its id, or none. Default: the checkpoint's own.",
        metavar="TOKEN|none",
        read=str,
    ),
]


def check_pieces(pieces: Sequence[int]) -> None:
    """Refuse what is no word in pieces."""
    wrong = [number for number in pieces if number < 2]
    if wrong or not pieces:
        raise RangeError(f"a word has at least 2 pieces, not {wrong[0] if wrong else 'none'}; give for example 2,3,4")


def beginning_of(
    layer: Layer, say: Callable[[str], None] = lambda _note: None, bos: str | int | None = None
) -> tuple[int, ...]:
    """The beginning-of-text token that was asked for, or else the model's own; empty without one. A note says which."""
    if bos == NO_BOS:
        say("no beginning-of-text token, as asked: words are at the very start of the text")
        return ()
    try:
        found = find_beginning(layer) if bos is None else Beginning(_asked_token(layer, bos), "as asked")
    except TokenError:
        if bos is not None:
            raise
        say(f"{layer.name} has no beginning-of-text token: words are at the very start of the text")
        return ()
    say(f"beginning-of-text token: {bos_name(layer, (found.token_id,))} (id {found.token_id}), {found.source}")
    return (found.token_id,)


def bos_name(layer: Layer, beginning: tuple[int, ...]) -> str | None:
    """The beginning-of-text token as tables and summaries show it."""
    return token_shown(layer.token(beginning[0])) if beginning else None


def _asked_token(layer: Layer, bos: str | int) -> int:
    """A whole number is an id, anything else the text of one token."""
    try:
        token_id = layer.token_id(int(bos) if str(bos).isdecimal() else bos)
        layer.check_text([token_id])
    except DetokLensError as error:
        raise TokenError(f"--bos {bos}: {error}") from error
    return token_id


def exchanged(layer: Layer, words: Chains, seed: int) -> np.ndarray:
    """The null's pieces: each word with another's first piece, of the same orthographic class and frequency bin."""
    from detoklens.measures.twin_chains import exchange_classes
    from detoklens.measures.twins import exchanged_first

    return exchanged_first(words.pieces, seed, exchange_classes(layer.vocabulary, words.pieces[:, 0]))


def partners_of(words: Chains, seed: int, say: Callable[[str], None]) -> np.ndarray | None:
    """Each word's partners in the additive control; None, and a note, where there are too few words."""
    from detoklens.measures.twins import PARTNERS, partner_words

    partners = partner_words(words.pieces, seed)
    if partners is None:
        say(
            f"{plural(len(words), 'word')} in {words.pieces.shape[1]} pieces: too few for the additive control, in "
            f"which each word needs {PARTNERS} partners with another first piece and another rest"
        )
    return partners


def twin_words(
    layer: Layer,
    words: Path | Sequence[str] | None,
    pieces: Sequence[int],
    most: int,
    seed: int,
    say: Callable[[str], None],
) -> dict[int, Chains]:
    """The words for each number of pieces, as far as there are two of them; an error where there are none at all."""
    from detoklens.measures.twin_chains import chains, merge_splits, text_splits
    from detoklens.measures.twins import FEWEST as FEWEST_FOR_INTERVALS

    splits: Splits = merge_splits(layer.vocabulary)
    if not splits:
        splits = text_splits(layer.vocabulary)
        if splits:
            say("the tokenizer has no merges: a word's pieces are its longest first piece and the rest")
    wholes = _wholes(layer, splits, words)
    found = {number: _readable(layer, chains(splits, wholes, number)).sample(most, seed) for number in set(pieces)}
    kept = {number: found[number] for number in sorted(found) if len(found[number]) >= FEWEST}
    if not kept:
        raise TokenError(_nothing_splits(layer, words, bool(splits)))
    for number in sorted(found):
        if len(found[number]) < FEWEST_FOR_INTERVALS:
            say(f"{plural(len(found[number]), 'word')} in {number} pieces: too few for intervals")
    return kept


def _wholes(layer: Layer, splits: Splits, words: Path | Sequence[str] | None) -> list[int]:
    from detoklens.measures.twin_chains import listed_tokens, word_tokens
    from detoklens.measures.word_list import given_words

    if words is None:
        return word_tokens(layer.vocabulary, splits)
    return listed_tokens(layer.vocabulary, given_words(words))


def _readable(layer: Layer, words: Chains) -> Chains:
    """Those of whose tokens the model has an embedding and a place."""
    import numpy as np

    unread = -1 if layer.weights.padding_token_id is None else layer.weights.padding_token_id
    tokens = np.concatenate([words.pieces, words.whole[:, None]], axis=1)
    return words.only(np.flatnonzero(((tokens < layer.vocab_size) & (tokens != unread)).all(axis=1)))


def _nothing_splits(layer: Layer, words: Path | Sequence[str] | None, has_splits: bool) -> str:
    if not has_splits:
        return (
            f"no word of {layer.name} has a twin: its tokenizer has no merges, and none of its tokens is two others "
            "joined, as in a vocabulary of letters or amino acids; ask a model whose tokenizer has words in pieces"
        )
    if words is not None:
        return (
            f"no two words of the list are tokens of {layer.name} that can be taken apart into smaller ones; "
            "give words that its tokenizer keeps whole"
        )
    return f"no two words of {layer.name} are tokens that can be taken apart into so many pieces; ask for fewer"
