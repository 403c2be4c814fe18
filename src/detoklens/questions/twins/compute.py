"""Tables, words and candidates of `Twins` and `Layers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from detoklens.errors import TokenError
from detoklens.measures.chance import FEWEST_WORDS
from detoklens.measures.token_classes import exchange_classes
from detoklens.measures.twins import (
    PARTNERS,
    Chains,
    chains,
    exchanged_first,
    listed_tokens,
    merge_splits,
    partner_words,
    text_splits,
    word_tokens,
)
from detoklens.measures.words import given_words
from detoklens.questions.parameters import Parameter
from detoklens.questions.words import by_file
from detoklens.scores.layer import Layer
from detoklens.tables.schema import Column, Schema
from detoklens.wording import plural

if TYPE_CHECKING:
    from detoklens.questions.study import Study


PLACE = Column("place", "attention: residual stream between attention and MLP; block: after the whole block", "String")
PIECES = Column("pieces", "number of tokens the word is split into", "Int32")
BOS = Column("bos", "beginning-of-text token before the word; null if there is none", "String")
CONTROL_MEANINGS = (
    "null: another word's first piece, of the same class; last_piece, first_piece: that piece alone; "
    "additive: sum of the mean effects of its pieces"
)
SHARE_LOST = "log rank_ratio / log of the smaller rank_ratio of null and last_piece; null if that is not above 1"


def with_interval(name: str, meaning: str) -> tuple[Column, ...]:
    """A column and the ends of its 95 % interval over words."""
    low = f"lower end of the 95 % interval of {name}; null with fewer than 30 words or without resamples"
    return (
        Column(name, meaning),
        Column(f"{name}_low", low),
        Column(f"{name}_high", f"upper end of the 95 % interval of {name}"),
    )


RANK_MEASURES = (
    *with_interval("median_rank", "median rank of the twin"),
    *with_interval("first", "share of words whose twin has rank 1"),
    *with_interval("first_ten", "share of words whose twin has rank 10 or better"),
    *with_interval("mean_reciprocal_rank", "mean of 1 / rank"),
    *with_interval("rank_lost", "median_rank minus that of whole, for the same words"),
    *with_interval("rank_ratio", "geometric mean over words of rank / rank in whole; above 1 is worse"),
)

TWINS = Schema(
    "twins",
    "Rank of each word's twin",
    Column("token_id", "id of the twin: the token that is the whole word", "Int32"),
    Column("token", "its text", "String"),
    PIECES,
    Column("split", "texts of the pieces, separated by |", "String"),
    PLACE,
    Column("rank", "rank of the twin among the candidates by cosine with the last piece; 1 is best", "Int32"),
    Column("null_rank", "the same with the first piece of another word of its class", "Int32"),
    Column("last_piece_rank", "the same for the last piece alone", "Int32"),
    Column("first_piece_rank", "the same for the first piece alone", "Int32"),
    Column("additive_rank", "the same for the sum of its pieces; null with too few words", "Int32"),
)

TWINS_BY_CONDITION = Schema(
    "twins_by_condition",
    "Rank of the twin by condition",
    PLACE,
    PIECES,
    Column(
        "condition",
        f"whole; {CONTROL_MEANINGS}; cut_L0H1: that head does not attend to earlier pieces; without_ee, only_ee: "
        "attention scores without that term, or of that term alone",
        "String",
    ),
    Column("words", "number of words", "Int32"),
    Column("candidates", "number of ranked tokens", "Int32"),
    BOS,
    *RANK_MEASURES,
    *with_interval("share_lost", f"cut and without: {SHARE_LOST}"),
    *with_interval("null_median_rank", "cut and without: median rank of the null under the same ablation"),
    *with_interval("null_ratio", "geometric mean over words of the null's rank with / without the ablation"),
    *with_interval("share_behind", "cut: share_lost of the strongest cut minus this one's, for the same words"),
)


FEWEST = 2  # words needed to standardise at all

TwinWords = Annotated[
    Path | Sequence[str] | None,
    Parameter(
        "File of words, one per line; words that are not single tokens are skipped. Default: all tokens of letters.",
        metavar="FILE",
        read=Path,
        spell=by_file("--words"),
    ),
]
Triples = Annotated[int, Parameter("Maximum number of words per number of pieces.", least=2, advanced=True)]


def unreadable(layer: Layer) -> list[int]:
    """The padding token, which has no position, if there is one."""
    padding = layer.weights.padding_token_id
    return [] if padding is None else [padding]


def candidate_tokens(study: Study, size: int | None, wholes: Iterable[np.ndarray]) -> np.ndarray:
    """The tokens to rank, in order of id: those that are neither special nor untrained, or a sample plus the twins."""
    everything = np.setdiff1d(study.meaningful_tokens(), unreadable(study.layer))
    if size is None or size >= len(everything):
        return everything
    sample = np.random.default_rng(study.seed).choice(everything, size, replace=False)
    return np.unique(np.concatenate([sample, *wholes]))


@dataclass(frozen=True)
class Words:
    """Words in pieces with the ingredients of their controls; without partners there is no additive control."""

    chains: Chains
    null: np.ndarray
    partners: np.ndarray | None


def twin_words(
    layer: Layer,
    words: Path | Sequence[str] | None,
    pieces: Sequence[int],
    most: int,
    seed: int,
    say: Callable[[str], None],
) -> dict[int, Words]:
    """The words by number of pieces, where there are at least two."""
    vocabulary = layer.vocabulary
    splits = merge_splits(vocabulary)
    if not splits:
        splits = text_splits(vocabulary)
        if not splits:
            raise TokenError(
                f"no word of {layer.name} has a twin: its tokenizer has no merges and no token that is two others "
                "joined, as with letters or amino acids; choose a model with subword tokens"
            )
        say("the tokenizer has no merges: words are split into their longest first piece and the rest")
    wholes = word_tokens(vocabulary, splits) if words is None else listed_tokens(vocabulary, given_words(words))
    readable = np.setdiff1d(layer.meaningful_tokens, unreadable(layer))
    found = {}
    for number in sorted(set(pieces)):
        some = chains(splits, wholes, number)
        is_readable = np.isin(np.column_stack([some.pieces, some.whole]), readable).all(axis=1)
        found[number] = some.only(np.flatnonzero(is_readable)).sample(most, seed)
    if all(len(some) < FEWEST for some in found.values()):
        raise TokenError(
            f"fewer than two words of {layer.name} split into this many pieces; ask for fewer pieces"
            if words is None
            else f"fewer than two words of the list are tokens of {layer.name} that split into smaller ones; list "
            "words that its tokenizer keeps whole"
        )
    for number, some in found.items():
        if len(some) < FEWEST_WORDS:
            say(f"{plural(len(some), 'word')} in {number} pieces: too few for intervals")
    return {
        number: Words(
            some,
            exchanged_first(some.pieces, seed, exchange_classes(vocabulary, some.pieces[:, 0])),
            _partners(some, seed, say),
        )
        for number, some in found.items()
        if len(some) >= FEWEST
    }


def _partners(words: Chains, seed: int, say: Callable[[str], None]) -> np.ndarray | None:
    partners = partner_words(words.pieces, seed)
    if partners is None:
        say(
            f"{plural(len(words), 'word')} in {words.pieces.shape[1]} pieces: too few for the additive control, in "
            f"which each word needs {PARTNERS} partners with another first piece and another rest"
        )
    return partners
