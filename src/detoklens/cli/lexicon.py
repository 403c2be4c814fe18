"""`detoklens lexicon`: which pairs of tokens do the weights themselves join?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli import asking, options, text_input
from detoklens.cli.answering import provenance_of, show_answer, write_answer
from detoklens.cli.output import say
from detoklens.demo import NAME as DEMO

if TYPE_CHECKING:
    import polars as pl

    from detoklens.analyses.word_check import WordCheck

SHOWN_PAIRS = 20  # pairs of a head in a table for eyes


class Rows(StrEnum):
    """What a row of the printed table is."""

    pair = "pair"
    head = "head"


def lexicon(
    model: options.Model = DEMO,
    top: Annotated[int, typer.Option("--top", min=1, help="How many pairs per head.")] = 10_000,
    no_self: Annotated[bool, typer.Option("--no-self", help="Leave out pairs of a token with itself.")] = False,
    words: Annotated[
        Path | None,
        typer.Option(
            "--words",
            metavar="WORDS.txt",
            help="What counts as a word, one a line. Default: what the library wordfreq knows, where installed.",
            show_default=False,
        ),
    ] = None,
    language: Annotated[str, typer.Option("--language", help="The language that wordfreq is asked for.")] = "en",
    by: Annotated[Rows, typer.Option("--by", help="Print one row a pair, or a summary of one row a head.")] = Rows.pair,
    heads: options.Heads = None,
    counts: options.CountsFolder = None,
    centred: options.Centred = False,
    scale: asking.Scale = "mean",
    workers: text_input.Workers = None,
    engine: text_input.EngineName = "local",
    ray_address: text_input.RayAddress = None,
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Mine the pairs of tokens with the largest T^ee over the whole vocabulary, head by head, from weights alone.

    A table for eyes shows the first 20 pairs of a head, the other formats and --out all. With --out an interrupted
    run is continued by the same command. The tables are the same whatever the engine and the number of workers.

    Example: detoklens lexicon gpt2 --heads 7 --top 10000 --centred --no-self --out lexicon
    """
    from detoklens.analyses.lexicon import lexicon as mine
    from detoklens.analyses.lexicon import lexicon_by_head
    from detoklens.tables.lexicon import LEXICON, LEXICON_BY_HEAD

    is_word, source = _word_check(words, language)
    layer = asking.open_layer(model, revision)
    corpus = asking.open_counts(counts, layer)
    ranking = asking.chosen_ranking(layer, heads, scale, centred)
    asked = {"top": top, "no_self": no_self, "words": source, **ranking}
    provenance = provenance_of("lexicon", layer, asked, corpus)
    with text_input.opened_runner("lexicon", engine, workers, ray_address, out, provenance) as runner:
        pairs = mine(layer, top=top, identical=not no_self, is_word=is_word, counts=corpus, **ranking, runner=runner)
    schema = LEXICON if corpus else LEXICON.without("count")
    summary = lexicon_by_head(pairs)
    write_answer(layer, [(schema, pairs), (LEXICON_BY_HEAD, summary)], provenance, out)
    runner.finish()
    if by is Rows.head:
        show_answer(layer, LEXICON_BY_HEAD, summary, output_format)
    else:
        show_answer(layer, schema, _for_eyes(pairs) if output_format is options.Format.table else pairs, output_format)


def _word_check(words: Path | None, language: str) -> tuple[WordCheck | None, str | None]:
    """What tells a word, and its name in the tables' provenance."""
    from detoklens.analyses.word_check import in_list, known_to_wordfreq
    from detoklens.analyses.word_list import fingerprint_of, listed_words

    if words is None:
        check = known_to_wordfreq(language)
        return check, None if check is None else f"wordfreq {language}"
    listed = listed_words(asking.read_text(words, "a word list, one word a line"))
    return in_list(listed), fingerprint_of(listed)


def _for_eyes(pairs: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    shown = pairs.filter(pl.col("rank") <= SHOWN_PAIRS)
    if len(shown) < len(pairs):
        say(f"the first {SHOWN_PAIRS} pairs of each head are shown; --format csv, or --out, has all {len(pairs):,}")
    return shown
