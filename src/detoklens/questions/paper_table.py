"""Are the ranks of the paper's Table 1 found again? Ours against theirs, row by row; they are ranks in GPT-2 small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from detoklens.errors import TokenError
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.tables.tokens import JOINED, KEY_TOKEN, QUERY_TOKEN, RANK, SCORE

if TYPE_CHECKING:
    import polars as pl

    from detoklens.scores.layer import Layer, TokenScale

PAPER_RANKS = Schema(
    "paper_ranks",
    "Are the ranks of the paper's Table 1 found again?",
    (
        HEAD,
        QUERY_TOKEN,
        KEY_TOKEN,
        JOINED,
        Column("paper_rank", "Int32", "rank that the paper prints"),
        RANK,
        Column("difference", "Int32", "rank less paper_rank; null where the model has no such token or head"),
        SCORE,
    ),
)


class PaperRow(NamedTuple):
    """One row of the table: in this head, asked from the query token, the key token has this rank."""

    head: int
    query: str
    key: str
    rank: int


# The printed resulting sequence of the last row, " nineteenth century", is a misprint: its key is " twentieth".
PAPER_TABLE = (
    PaperRow(3, "yo", "Tok", 1),
    PaperRow(3, "yo", " Tok", 2),
    PaperRow(4, "yo", "Tok", 6),
    PaperRow(7, "yo", "Tok", 1),
    PaperRow(4, " Korea", " North", 1),
    PaperRow(7, " Korea", " North", 1),
    PaperRow(7, " Korea", "North", 2),
    PaperRow(7, " Korea", " South", 3),
    PaperRow(7, " Korea", "South", 4),
    PaperRow(1, " Obama", " Barack", 3),
    PaperRow(1, " Obama", "President", 8),
    PaperRow(4, " Obama", " Barack", 3),
    PaperRow(5, " Obama", " Barack", 5),
    PaperRow(7, " Obama", " President", 2),
    PaperRow(7, " Obama", " Michelle", 3),
    PaperRow(7, " Einstein", " Albert", 1),
    PaperRow(7, " Einstein", "Albert", 2),
    PaperRow(7, " Jackson", " Michael", 1),
    PaperRow(7, " Jackson", " Peter", 2),
    PaperRow(7, " Jackson", "Michael", 3),
    PaperRow(7, " Jackson", " Jesse", 4),
    PaperRow(7, " Jackson", "Peter", 5),
    PaperRow(7, " Jackson", " Janet", 6),
    PaperRow(7, " chloride", " aluminum", 1),
    PaperRow(7, " chloride", " copper", 3),
    PaperRow(7, " chloride", " vinyl", 6),
    PaperRow(7, " chloride", " sodium", 7),
    PaperRow(7, " chloride", " platinum", 8),
    PaperRow(10, " chloride", " potassium", 2),
    PaperRow(10, " chloride", " sodium", 3),
    PaperRow(3, " century", " 19", 1),
    PaperRow(3, " century", " nineteenth", 7),
    PaperRow(7, " century", " 21", 1),
    PaperRow(7, " century", " twentieth", 6),
)


def paper_ranks(layer: Layer, heads: Sequence[int], scale: TokenScale, centred: bool) -> pl.DataFrame:
    """The paper's rank and ours for every row; null where this model lacks one of the tokens or the head is not asked.

    The paper's rows stay, whichever heads are asked.
    """
    import numpy as np

    from detoklens.measures.ranking import pair_ranks

    rows = PAPER_TABLE
    ids = [(_token_id(layer, row.query), _token_id(layer, row.key)) for row in rows]
    known = [place for place, pair in enumerate(ids) if None not in pair and rows[place].head in heads]
    if not known:
        raise TokenError(f"{layer.name} has none of the heads and tokens of the paper's Table 1; it is about gpt2")
    ranks: list[int | None] = [None] * len(rows)
    scores: list[float | None] = [None] * len(rows)
    queries, keys = np.array([ids[place] for place in known], dtype=np.int64).T
    found_ranks, found_scores = pair_ranks(layer.token_affinity(scale, centred), queries, keys[None])
    for column, place in enumerate(known):
        ranks[place] = int(found_ranks[0, rows[place].head, column])
        scores[place] = float(found_scores[0, rows[place].head, column])
    return PAPER_RANKS.frame(
        {
            "head": [row.head for row in rows],
            "query_token": [row.query for row in rows],
            "key_token": [row.key for row in rows],
            "joined": [row.key + row.query for row in rows],
            "paper_rank": [row.rank for row in rows],
            "rank": ranks,
            "difference": [None if rank is None else rank - row.rank for rank, row in zip(ranks, rows, strict=True)],
            "score": scores,
        }
    )


def _token_id(layer: Layer, text: str) -> int | None:
    try:
        return layer.token_id(text)
    except TokenError:
        return None
