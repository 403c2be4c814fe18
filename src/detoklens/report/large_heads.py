"""Which heads does a report draw large, and why these? Those that do something, by the rules that sentences follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from detoklens.questions.auroc_verdict import HeadJudgement, judge_heads
from detoklens.questions.heads import CLEARLY_ITSELF
from detoklens.questions.heatmap import MOST
from detoklens.questions.words import best_by_words, is_clearly_better
from detoklens.wording import head_name, listed, plural, signed

if TYPE_CHECKING:
    import polars as pl

    Tables = Mapping[str, pl.DataFrame]

FEWEST, LARGEST = 2, 3  # heads that are drawn large
CLEARLY_BY_FREQUENCY = 0.3  # Spearman's ρ
NEAR = ("previous token", "local", "self")  # classes of the table shape that are near the query


@dataclass(frozen=True)
class LargeHead:
    """A head that is drawn large, and what it does that others do less."""

    head: int
    why: str


def heads_drawn_large(tables: Tables) -> list[LargeHead]:
    """At most three heads that do something, each for another reason; at least two, where the model has so many."""
    chosen: dict[int, LargeHead] = {}
    for found in _that_do_something(tables):
        if len(chosen) < LARGEST:
            chosen.setdefault(found.head, found)
    for found in _nearest(tables):
        if len(chosen) < FEWEST:
            chosen.setdefault(found.head, found)
    return list(chosen.values())


def _that_do_something(tables: Tables) -> Iterator[LargeHead]:
    joins = _joining(tables)
    if joins is not None:
        yield joins
    cards = tables["heads"]
    yield from _most(cards, "self_match", CLEARLY_ITSELF, "looks most for the token itself: z {:.1f}")
    near = cards.filter(cards["position_class"].is_in(NEAR))
    yield from _most(near, "on_previous", 0.0, "looks near by position alone: {:.0%} on the token before")
    yield from _by_frequency(cards)
    if "heatmap_by_head" in tables:
        divided = tables["heatmap_by_head"].filter(layer_norm=True)
        yield from _most(divided, "same_keys", MOST, "prefers the same keys for all queries: {:.0%} of the variance")


def _by_frequency(cards: pl.DataFrame) -> Iterator[LargeHead]:
    ranked = cards.with_columns(strength=cards["frequency_spearman"].abs()).drop_nulls("strength")
    clearly = ranked.filter(ranked["strength"] >= CLEARLY_BY_FREQUENCY)
    for head, rho in _first(clearly, "strength", "frequency_spearman"):
        yield LargeHead(head, f"prefers {'rare' if rho < 0 else 'frequent'} tokens most: ρ {signed(rho)}")


def _joining(tables: Tables) -> LargeHead | None:
    """The lexical head for continuation tokens, else for all tokens; without a corpus, by words."""
    judged = _judged(tables)
    if judged:
        lexical = next((found for found in judged if found.level == "lexical"), None)
        return None if lexical is None else LargeHead(lexical.head, "detokenizes: its AUROC exceeds every null")
    best = best_by_words(tables["words_by_head"]) if "words_by_head" in tables else None
    if best is None or not is_clearly_better(best):
        return None
    return LargeHead(best["head"], "finds a word's piece before best")


def _judged(tables: Tables) -> list[HeadJudgement]:
    names = ("auroc_pieces_controls", "auroc_controls")
    return [found for name in names if name in tables for found in judge_heads(tables[name])[:1]]


def _nearest(tables: Tables) -> Iterator[LargeHead]:
    """What to draw where heads do little: the nearest to joining tokens, to looking for itself, then from the first."""
    for found in _judged(tables):
        yield LargeHead(found.head, "closest to exceeding its nulls, but not clearly above them")
    cards = tables["heads"]
    for head, _ in _first(cards.drop_nulls("self_match"), "self_match", "self_match"):
        yield LargeHead(head, "nearest to looking for the token itself, though not clearly")
    for head in cards["head"].sort():
        yield LargeHead(head, "the first of those that do none of this")


def _first(rows: pl.DataFrame, by: str, shown: str) -> Iterator[tuple[int, float]]:
    yield from rows.sort(by, descending=True, maintain_order=True).select("head", shown).head(1).iter_rows()


def _most(rows: pl.DataFrame, column: str, least: float, why: str) -> Iterator[LargeHead]:
    """The head with the largest value, where that is large enough."""
    known = rows.drop_nulls(column)
    for head, value in _first(known.filter(known[column] >= least), column, column):
        yield LargeHead(head, why.format(value).replace("%", " %"))


def why_these(large: Sequence[LargeHead], n_heads: int) -> str:
    """A note for the page."""
    named = listed([f"{head_name(each.head)} ({each.why})" for each in large])
    return f"of {plural(n_heads, 'head')} these are drawn large: {named}; all are below each figure, and in the tables"
