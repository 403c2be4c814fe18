"""What is each head like? One row a head, put together from what the other analyses say; what is not known is null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from detoklens.analyses.auroc import Judging, controls_by_head, measure_heads, seen_pairs
from detoklens.analyses.bilinear import bilinear_form
from detoklens.analyses.block_runs import Runner
from detoklens.analyses.frequency import frequency_by_head
from detoklens.analyses.self_match import self_match_scores
from detoklens.analyses.shape import shape
from detoklens.analyses.word_list import shipped_words, split_words
from detoklens.analyses.words import word_ranks
from detoklens.errors import TokenError
from detoklens.scores.affinity import Affinity
from detoklens.scores.layer import Layer, TokenScale
from detoklens.tables.heads import HEADS

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts


def head_cards(
    layer: Layer,
    counts: Counts | None = None,
    *,
    heads: Sequence[int] | None = None,
    scale: TokenScale = "mean",
    centred: bool = False,
    runner: Runner | None = None,
    controls: pl.DataFrame | None = None,
    words: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """One row a head: AUROC and T^e against frequency where there are counts, words where there is a tokenizer.

    `controls` and `words` are the tables auroc_controls and words_by_head where they were computed before.
    """
    heads = list(range(layer.n_heads)) if heads is None else list(heads)
    layer.check_heads(heads)
    affinity = layer.token_affinity(scale, centred).of_heads(heads)
    parts = [
        _auroc(affinity, heads, counts, runner) if controls is None else _auroc_columns(controls),
        _words(layer, heads, scale, centred) if words is None else _word_columns(words),
        _positions(layer),
        _frequency(layer, heads, counts, scale),
        _forms(layer, heads),
    ]
    cards = pl.DataFrame({"head": heads, "self_match": self_match_scores(affinity).mean(axis=1)}).cast(
        {"head": pl.Int32}
    )
    for part in parts:
        cards = cards.join(part, on="head", how="left", maintain_order="left")
    return HEADS.conform(cards)


def sorted_cards(cards: pl.DataFrame, column: str, ascending: bool = False) -> pl.DataFrame:
    """The same rows, the largest (or smallest) of a column first, unknown ones last."""
    return cards.sort(column, descending=not ascending, nulls_last=True, maintain_order=True)


def _auroc(affinity: Affinity, heads: Sequence[int], counts: Counts | None, runner: Runner | None) -> pl.DataFrame:
    if counts is None:
        return _unknown(heads, "auroc", "auroc_null", "above_null")
    queries = range(affinity.vocab_size)
    measured = measure_heads(affinity, seen_pairs(counts.bigrams), queries, counts.tokens, Judging(), runner)
    return _auroc_columns(controls_by_head(measured, heads))


def _auroc_columns(controls: pl.DataFrame) -> pl.DataFrame:
    null = (pl.col("auroc") - pl.col("above_null")).alias("auroc_null")
    return controls.select("head", "auroc", null, "above_null")


def _words(layer: Layer, heads: Sequence[int], scale: TokenScale, centred: bool) -> pl.DataFrame:
    if not layer.has_vocabulary:
        return _unknown(heads, "word_share", "word_null")
    split = split_words(layer.vocabulary, shipped_words())
    try:
        _, by_head = word_ranks(layer, split, heads=heads, scale=scale, centred=centred)
    except TokenError:  # this tokenizer splits none of the words
        return _unknown(heads, "word_share", "word_null")
    return _word_columns(by_head)


def _word_columns(by_head: pl.DataFrame) -> pl.DataFrame:
    return by_head.select("head", word_share="median_share", word_null="null_median_share")


def _positions(layer: Layer) -> pl.DataFrame:
    """Where position alone looks from the middle of the table, far from its exceptional ends."""
    shapes, _ = shape(layer, [layer.n_positions // 2])
    return shapes.select("head", "on_previous", position_class="class")


def _frequency(layer: Layer, heads: Sequence[int], counts: Counts | None, scale: TokenScale) -> pl.DataFrame:
    by_head = frequency_by_head(layer, counts, heads=heads, scale=scale)
    return by_head.select("head", frequency_spearman="spearman", frequency_slope="slope")


def _forms(layer: Layer, heads: Sequence[int]) -> pl.DataFrame:
    forms = [{"head": head} | vars(bilinear_form(layer.folded, head)) for head in heads]
    return pl.DataFrame(forms).cast({"head": pl.Int32})


def _unknown(heads: Sequence[int], *columns: str) -> pl.DataFrame:
    return pl.DataFrame({"head": heads} | {column: [None] * len(heads) for column in columns}).cast({"head": pl.Int32})
