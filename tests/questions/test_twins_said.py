"""The rule by which a layer is said to write words, on made-up numbers."""

from __future__ import annotations

import polars as pl
import pytest

import detoklens as dl
from detoklens.questions.layers_said import layers_compared, layers_said
from detoklens.questions.twins_said import fewest_pieces, rank_said, twins_compared, twins_said

ENDS = ("_low", "high")
WHOLE = {"median_rank": 100.0, "rank_ratio": 1.0, "rank_lost": 0.0, "width": 0.0}


def table(place: str = "block", pieces: int = 2, words: int = 600, **conditions: dict[str, float]) -> pl.DataFrame:
    """Rows of `twins_by_condition`, intervals as wide as `width` says (of ranks a hundred times)."""
    rows = []
    for name, given in {"whole": WHOLE, **conditions}.items():
        ratio, width = given["rank_ratio"], given.get("width", 0.05)
        rank = given.get("median_rank", 100 * ratio)
        ends = {
            "median_rank": (rank, rank - 10, rank + 10),
            "rank_ratio": (ratio, ratio - width, ratio + width),
            "rank_lost": (rank - 100, rank - 100 - 100 * width, rank - 100 + 100 * width),
        }
        row = {"place": place, "pieces": pieces, "condition": name, "words": words, "candidates": 5000}
        for column, values in ends.items():
            row |= dict(zip((column, f"{column}_low", f"{column}_high"), values, strict=True))
        rows.append(row)
    return pl.DataFrame(rows)


def base(null: float, last: float, **more: float) -> dict[str, dict[str, float]]:
    return {"null": {"rank_ratio": null, **more}, "last_piece": {"rank_ratio": last, **more}}


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (base(2.0, 1.5), "The first layer writes words: "),
        (base(2.0, 1.1), "The first layer hardly writes words: "),  # the last piece alone does it as well
        (base(1.1, 2.0), "The first layer hardly writes words: "),
        (base(1.5, 1.5, median_rank=102), "The first layer hardly writes words: "),  # of few words only
        (base(2.0, 1.03), "The first layer writes no words beyond its null: "),
        (base(0.99, 2.0), "The first layer writes no words beyond its null: "),
        (base(1.5, 1.5, width=0.6), "The first layer writes no words beyond its null: "),
    ],
)
def test_words_are_written_where_null_and_baseline_are_both_clearly_worse(rows, verdict):
    assert twins_said(table(**rows)).startswith(verdict)


def test_heads_and_terms_are_named_by_what_they_cost():
    found = table(
        **base(2.0, 2.0),
        cut_L0H0={"rank_ratio": 1.04, "width": 0.01},
        cut_L0H3={"rank_ratio": 1.3},
        cut_L0H5={"rank_ratio": 1.6},
        cut_L0H7={"rank_ratio": 1.6, "width": 0.7},
        without_ee={"rank_ratio": 1.02},
    )
    said = twins_said(found)
    assert "; it needs L0H5 (160 with its link cut) and L0H3 (130 with its link cut), and no single term." in said
    assert [row["condition"] for row in fewest_pieces(found).needed("cut_")] == ["cut_L0H5", "cut_L0H3"]


def test_longer_words_are_said_by_their_null():
    found = pl.concat([table(**base(2.0, 2.0)), table(pieces=3, **base(1.5, 1.1)), table(pieces=4, **base(1.0, 1.3))])
    assert twins_said(found).endswith(
        "; in three pieces the first one counts (100, with another one 150) "
        "and in four pieces the first one does not count (100, with another one 100)."
    )


def test_models_are_compared_by_their_last_common_place():
    late = pl.concat([table("attention", **base(1.0, 1.0)), table("block", **base(2.0, 2.0))])
    assert "after the first block: a yes (100 against 200 " in twins_compared({"a": late, "b": late})
    assert "after the attention: a no (100 against 100 " in twins_compared({"a": late, "b": late.head(3)})


def test_of_heads_that_were_not_cut_nothing_is_said():
    unneeded = {f"cut_L0H{head}": {"rank_ratio": 1.0} for head in (0, 2)}
    two, one = table(**base(2.0, 2.0), **unneeded), table(**base(2.0, 2.0), cut_L0H0={"rank_ratio": 1.0})
    assert "; no single head is needed for it, and no single term." in twins_said(two)
    assert "; none of the 2 heads that were cut is needed for it, and" in twins_said(two, all_heads=False)
    said = dl.Twins(heads=[0]).say({"twins_by_condition": one})
    assert "; L0H0, the only head that was cut, is not needed for it, and no single term." in said
    assert "need" not in twins_compared({"a": two, "b": one})


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (29, "29 words are too few to conclude anything from"),
        (600, "without resamples of the words nothing can be concluded"),
    ],
)
def test_without_intervals_nothing_is_concluded(words, why):
    known = table(words=words, **base(2.0, 2.0))
    unknown = known.with_columns(pl.lit(None, pl.Float64).alias(name) for name in known.columns if name[-4:] in ENDS)
    assert twins_said(unknown).endswith(f" 200 for the last piece alone; {why}.")
    assert ": a can't be told (100 against 200 " in twins_compared({"a": unknown, "b": known})
    layers = unknown.with_columns(layer=pl.lit(1))
    off = pl.DataFrame({"component": ["L0H1"], "after": [1], "matters": [None]}, schema_overrides={"matters": bool})
    assert layers_said(layers, off).startswith(f"{why[0].upper()}{why[1:]}: after layer 1 the twin has ")
    assert ": a can't be told (100 against 200)." in layers_compared({"a": (layers, off)})


def test_half_a_rank_is_said_where_it_counts():
    assert [rank_said(rank) for rank in (1.0, 6.5, 7.5, 99.96, 121.4, 1505.0)] == [
        "1",
        "6.5",
        "7.5",
        "100",
        "121",
        "1,505",
    ]
