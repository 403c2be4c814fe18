"""Heads drawn large are those that do something, each with its reason."""

from __future__ import annotations

import polars as pl
import pytest

from detoklens.questions.auroc.compute import AUROC_CONTROLS
from detoklens.report.drawing import LargeHead, heads_drawn_large, why_these

Tables = dict[str, pl.DataFrame]


def cards(n_heads: int = 6, **columns: list) -> Tables:
    """Head cards of heads that do nothing special but what is said."""
    plain = {
        "self_match": [0.5 - 0.1 * head for head in range(n_heads)],
        "position_class": ["broad"] * n_heads,
        "on_previous": [0.1] * n_heads,
    }
    numbers = dict.fromkeys(("self_match", "on_previous"), pl.Float64)
    return {"heads": pl.DataFrame({"head": list(range(n_heads))} | plain | columns, schema_overrides=numbers)}


def controls(*above: float | None) -> pl.DataFrame:
    """Heads of AUROC 0.8 with these margins above their nulls."""
    unknown = {name: [None] * len(above) for name in AUROC_CONTROLS.names}
    same = {"auroc": 0.8, "above_within_class": 0.5, "within_class_tokens": 99, "matched_above_null": 0.5}
    known = {name: [value] * len(above) for name, value in same.items()}
    return AUROC_CONTROLS.frame(unknown | known | {"head": range(len(above)), "above_null": above})


def words(*shares: tuple[float, float]) -> pl.DataFrame:
    share, null = zip(*shares, strict=True)
    return pl.DataFrame(
        {"head": range(len(shares)), "median_share": share, "null_median_share": null, "pairs": [1000] * len(shares)}
    )


HIGHEST = "detokenizes: its AUROC exceeds every null"
ITSELF = cards(self_match=[0.1, 2.5, 9.0, 0.1, 0.1, None])
NEAR = cards(position_class=["broad", "local", "previous token", "first", "broad", "broad"], on_previous=[0.9] * 6)
FREQUENCY = {
    "frequency_by_head": pl.DataFrame(
        {
            "head": range(6),
            "spearman": [0.1, -0.2, 0.35, -0.6, 0.9, None],
            "prefers": ["neither", "neither", "frequent", "rare", "neither", None],
        }
    )
}
RARE = cards() | FREQUENCY
SAME = cards() | {
    "heatmap_by_head": pl.DataFrame(
        {"head": [0, 0, 4, 4], "layer_norm": [True, False] * 2, "same_keys": [0.2, 0.9, 0.7, 0.1]}
    )
}


@pytest.mark.parametrize(
    ("tables", "first"),
    [
        (
            cards() | {"auroc_controls": controls(0.1, 0.2, 0.3)},
            LargeHead(2, "detokenizes: its AUROC exceeds every null"),
        ),
        (
            cards() | {"auroc_controls": controls(0.1, 0.2), "auroc_pieces_controls": controls(0.9, None)},
            LargeHead(0, HIGHEST),
        ),
        (
            cards() | {"words_by_head": words((0.2, 0.2), (0.1, 0.4))},
            LargeHead(1, "ranks a word's preceding piece best"),
        ),
        (ITSELF, LargeHead(2, "matches its own token most: z 9.0")),
        (NEAR, LargeHead(1, "attends nearby by position alone: 90 % to the previous token")),
        (RARE, LargeHead(3, "prefers rare tokens most: ρ −0.600")),
        (SAME, LargeHead(4, "prefers the same keys for all queries: 70 % of the variance")),
    ],
)
def test_a_head_is_chosen_for_what_it_does(tables: Tables, first: LargeHead) -> None:
    assert heads_drawn_large(tables)[0] == first


def test_where_heads_do_little_the_nearest_are_drawn_and_said_to_be_no_more() -> None:
    below = cards() | {"auroc_controls": controls(-0.1, 0.01, -0.3), "words_by_head": words((0.3, 0.9), (0.1, 0.9))}
    assert heads_drawn_large(below) == [
        LargeHead(1, "closest to exceeding its nulls"),
        LargeHead(0, "closest to matching its own token: z 0.5"),
    ], "a corpus knows better than words"
    assert [each.head for each in heads_drawn_large(cards(1))] == [0]
    assert [each.head for each in heads_drawn_large(cards(3, self_match=[None] * 3))] == [0, 1]


def test_at_most_three_each_once() -> None:
    everything = ITSELF["heads"].with_columns(NEAR["heads"]["position_class"])
    found = heads_drawn_large({"heads": everything, "auroc_controls": controls(0.1, 0.2, 0.3)} | FREQUENCY)
    assert [each.head for each in found] == [2, 1, 3]


def test_the_page_says_why() -> None:
    said = why_these([LargeHead(2, "does this"), LargeHead(0, "does that")], 12)
    assert said.startswith("of 12 heads, these are drawn large: L0H2 (does this) and L0H0 (does that)")
