"""Columns of the tables of `Twins`."""

from __future__ import annotations

from detoklens.tables.schema import Column, Schema

PLACE = Column("place", "String", "attention: the stream between attention and MLP; block: after the whole block")
PIECES = Column("pieces", "Int32", "number of tokens that the word is put together from")
BOS = Column("bos", "String", "beginning-of-text token before the word; null where there is none")
CONTROLS = (
    "null: the first piece is another word's, of the same class; last_piece, first_piece: that piece alone; "
    "additive: the sum of the mean effects of its pieces"
)
SHARE_LOST = "log rank_ratio / log of the smaller rank_ratio of null and last_piece; null where that is not above 1"


def with_interval(name: str, meaning: str) -> tuple[Column, ...]:
    """A column, and the ends of its 95 % interval over words."""
    return (
        Column(name, "Float64", meaning),
        Column(
            f"{name}_low",
            "Float64",
            f"lower end of the 95 % interval of {name}; null below 30 words or without resamples",
        ),
        Column(f"{name}_high", "Float64", f"upper end of the 95 % interval of {name}"),
    )


TWINS = Schema(
    "twins",
    "At which rank does each word's twin stand?",
    (
        Column("token_id", "Int32", "id of the twin: the token that is the whole word"),
        Column("token", "String", "its text"),
        PIECES,
        Column("split", "String", "the pieces' texts, separated by |"),
        PLACE,
        Column("rank", "Int32", "rank of the twin among the candidates by cosine, seen from the last piece; 1 is best"),
        Column("null_rank", "Int32", "the same with the first piece of another word of its class"),
        Column("last_piece_rank", "Int32", "the same for the last piece alone"),
        Column("first_piece_rank", "Int32", "the same for the first piece alone"),
        Column("additive_rank", "Int32", "the same for the sum of its pieces; null with too few words for that"),
    ),
)

TWINS_BY_CONDITION = Schema(
    "twins_by_condition",
    "How near does the word come to its twin, and what takes that away?",
    (
        PLACE,
        PIECES,
        Column(
            "condition",
            "String",
            f"whole; {CONTROLS}; cut_L0H1: that head does not attend to the pieces before; without_ee, only_ee: the "
            "scores without, or of, that term alone",
        ),
        Column("words", "Int32", "number of words"),
        Column("candidates", "Int32", "number of tokens that are ranked"),
        BOS,
        *with_interval("median_rank", "median rank of the twin"),
        *with_interval("first", "share of words whose twin is at rank 1"),
        *with_interval("first_ten", "share of words whose twin is among the first ten"),
        *with_interval("mean_reciprocal_rank", "mean of 1 / rank"),
        *with_interval("rank_lost", "median_rank less that of whole, of the same words"),
        *with_interval("rank_ratio", "geometric mean over words of rank / rank in whole; above 1 is worse"),
        *with_interval("share_lost", f"cut and without: {SHARE_LOST}"),
        *with_interval("null_median_rank", "cut and without: median rank with the same change made to the null"),
        *with_interval("null_ratio", "geometric mean over words of that rank / the null's rank with nothing changed"),
    ),
)
