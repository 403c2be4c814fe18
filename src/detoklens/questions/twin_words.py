"""Which words are taken apart? Settled before any vector, for questions that look for a word's twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from detoklens.errors import RangeError, TokenError
from detoklens.questions.parameters import Parameter, in_one_word, whole_numbers
from detoklens.questions.texts import beginning_token
from detoklens.questions.words import by_file
from detoklens.wording import plural

if TYPE_CHECKING:
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
Triples = Annotated[int, Parameter("At most so many words for each number of pieces, drawn by the seed.", least=2)]


def check_pieces(pieces: Sequence[int]) -> None:
    """Refuse what is no word in pieces."""
    wrong = [number for number in pieces if number < 2]
    if wrong or not pieces:
        raise RangeError(f"a word has at least 2 pieces, not {wrong[0] if wrong else 'none'}; give for example 2,3,4")


def beginning_of(layer: Layer, say: Callable[[str], None]) -> tuple[int, ...]:
    """The model's beginning-of-text token; nothing, and a note, where it has none."""
    try:
        return (beginning_token(layer),)
    except TokenError:
        say(f"{layer.name} has no beginning-of-text token: words stand at the very start of the text")
        return ()


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
