"""`detoklens words`: do heads look from a word's later piece to the piece before it?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detoklens.cli import asking, options
from detoklens.cli.answering import provenance_of, show_answer, write_answer
from detoklens.cli.output import say
from detoklens.cli.watching import shown_steps
from detoklens.demo import NAME as DEMO
from detoklens.errors import DetokLensError

if TYPE_CHECKING:
    import polars as pl

    from detoklens.scores.layer import Layer
    from detoklens.tables.schema import Schema

    Answer = tuple[list[tuple[Schema, pl.DataFrame]], dict[str, Any]]


class Rows(StrEnum):
    """What a row of the printed table is."""

    head = "head"
    word = "word"


def words(
    model: options.Model = DEMO,
    word_list: Annotated[
        Path | None,
        typer.Argument(metavar="[WORDS.txt]", help="Words or names, one a line. Default: the list that comes along."),
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="The 34 rows of the paper's Table 1 instead: their ranks against ours.")
    ] = False,
    by: Annotated[
        Rows, typer.Option("--by", help="Print one row a head, or one row for every pair of pieces and head.")
    ] = Rows.head,
    no_space: Annotated[
        bool, typer.Option("--no-space", help="Split words as at the start of a text, without a space in front.")
    ] = False,
    heads: options.Heads = None,
    centred: options.Centred = False,
    scale: asking.Scale = "mean",
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Rank the piece before among all key tokens, asked from the piece after, for words that the tokenizer splits.

    Rank 1 is best; chance is the middle of the vocabulary. A word of three or more pieces gives each adjacent pair.

    Example: detoklens words gpt2 --centred
    """
    if paper and word_list is not None:
        raise DetokLensError(f"--paper has its own words; leave it or {word_list} out")
    listed = _read_words(word_list)
    layer = asking.open_layer(model, revision)
    ranking = asking.chosen_ranking(layer, heads, scale, centred)
    tables, asked = _paper(layer, ranking) if paper else _words(layer, listed, not no_space, ranking)
    write_answer(layer, tables, provenance_of("words", layer, asked), out)
    show_answer(layer, *tables[-1 if by is Rows.word else 0], output_format)


def _paper(layer: Layer, ranking: asking.Ranking) -> Answer:
    """The paper's Table 1; how many of its ranks are found again is said."""
    from detoklens.analyses.paper_table import paper_ranks
    from detoklens.tables.words import PAPER_RANKS

    frame = paper_ranks(layer, **ranking)
    known = frame["difference"].drop_nulls()
    say(
        f"{len(known)} of {len(frame)} rows can be asked of this model; "
        f"{int((known == 0).sum())} have the paper's rank, {int((known.abs() <= 1).sum())} are within 1 of it"
    )
    return [(PAPER_RANKS, frame)], {"paper": True, **ranking}


def _words(layer: Layer, listed: list[str], leading_space: bool, ranking: asking.Ranking) -> Answer:
    """Ranks of every pair and their summary; how many words are one token is said."""
    from detoklens.analyses.word_list import fingerprint_of, split_words
    from detoklens.analyses.words import word_pieces, word_ranks
    from detoklens.tables.words import WORD_PIECES, WORD_RANKS, WORDS_BY_HEAD

    split = split_words(layer.vocabulary, listed, leading_space)
    with shown_steps("ranking pieces") as watch:
        ranks, by_head = word_ranks(layer, split, **ranking, watch=watch)
    pieces = word_pieces(layer, split)
    single, double = int((pieces["pieces"] == 1).sum()), int((pieces["pieces"] == 2).sum())
    say(
        f"{len(split)} words: {single} are one token and left out, {double} are two, "
        f"{len(split) - single - double} are more; {len(ranks) // len(by_head)} pairs are ranked"
    )
    asked = {"words": fingerprint_of(listed), "leading_space": leading_space, **ranking}
    return [(WORDS_BY_HEAD, by_head), (WORD_PIECES, pieces), (WORD_RANKS, ranks)], asked


def _read_words(path: Path | None) -> list[str]:
    from detoklens.analyses.word_list import listed_words, shipped_words

    if path is None:
        return shipped_words()
    return listed_words(asking.read_text(path, "a word list, one word a line"))
