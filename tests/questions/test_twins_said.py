"""The rule by which a layer is said to write words, on made-up numbers."""

from __future__ import annotations

from math import log

import polars as pl
import pytest

import detoklens as dl
from detoklens.questions.base import Verdict
from detoklens.questions.twins.verdict import CONTROLS, compare_twins, fewest_pieces, summarize_twins, twins_verdict

ENDS = ("_low", "high")
WHOLE = {"median_rank": 100.0, "rank_ratio": 1.0, "width": 0.0}
NO = "The first layer does not write words: the word ranks "
LAST = "times better than its last piece alone; we require 1.2. BOS: <s>."
MOST_WORDS = 40


def table(place: str = "block", pieces: int = 2, words: int = 600, **conditions: dict[str, float]) -> pl.DataFrame:
    """Rows of `twins_by_condition`, intervals as wide as `width` says; a share of 1 is a ratio of 2."""
    rows = []
    for name, given in {"whole": WHOLE, **conditions}.items():
        ratio, width = given["rank_ratio"], given.get("width", 0.05)
        rank = given.get("median_rank", 100 * ratio)
        null = given.get("null", 150.0)
        numbers = {
            "median_rank": (rank, rank - 10, rank + 10),
            "rank_ratio": (ratio, ratio - width, ratio + width),
            "rank_lost": (rank - 100, rank - 110, rank - 90),
            "share_lost": tuple(log(value) / log(2) for value in (ratio, ratio - width, ratio + width)),
            "null_median_rank": (null, null - 10, null + 10),
            "null_ratio": (null / 150, null / 160, null / 140),
        }
        row = {"place": place, "pieces": pieces, "condition": name, "words": words, "candidates": 5000, "bos": "<s>"}
        for column, values in numbers.items():
            row |= dict(zip((column, f"{column}_low", f"{column}_high"), values, strict=True))
        rows.append(row)
    return pl.DataFrame(rows)


def controls(null: float, last: float, first: float = 4.0, additive: float = 1.5, **more: float) -> dict[str, dict]:
    ratios = dict(zip(CONTROLS, (null, last, first, additive), strict=True))
    return {name: {"rank_ratio": ratio, **more} for name, ratio in ratios.items()}


def without_intervals(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.lit(None, pl.Float64).alias(name) for name in frame.columns if name[-4:] in ENDS)


@pytest.mark.parametrize(
    ("rows", "value", "carries", "said"),
    [
        (
            controls(2.0, 1.8),
            "yes",
            True,
            (
                "The first layer writes words: the word ranks 1.50 [1.45, 1.55] times better than the sum of its pieces; "
                "we require 1.2. No single head or term is needed. BOS: <s>."
            ),
        ),
        (
            controls(2.0, 1.5, additive=1.1),
            "no",
            True,
            (
                f"{NO}1.10 [1.05, 1.15] times better than the sum of its pieces; we require 1.2. "
                "No single head or term is needed to carry pieces. BOS: <s>."
            ),
        ),
        (
            controls(2.0, 1.5, first=0.1),
            "no",
            True,
            (
                f"{NO}no better than its first piece alone (0.10 [0.05, 0.15]); we require 1.2. "
                "No single head or term is needed to carry pieces. BOS: <s>."
            ),
        ),
        (controls(2.0, 1.1), "no", False, f"{NO}1.10 [1.05, 1.15] {LAST}"),
        (
            controls(1.1, 2.0),
            "no",
            False,
            f"{NO}1.10 [1.05, 1.15] times better than with another word's first piece; we require 1.2. BOS: <s>.",
        ),
        (  # for few words only
            controls(1.5, 1.5, additive=1.4, median_rank=100),
            "no",
            False,
            f"{NO}1.40 [1.35, 1.45] times better than the sum of its pieces; its median rank is not better. BOS: <s>.",
        ),
        (
            controls(0.99, 2.0),
            "no",
            False,
            f"{NO}no better than with another word's first piece (0.99 [0.94, 1.04]); we require 1.2. BOS: <s>.",
        ),
        (
            controls(1.6, 1.5, additive=2.0, width=0.6),
            "no",
            False,
            f"{NO}1.50 [0.90, 2.10] times better than its last piece alone; the lower end must exceed 1. BOS: <s>.",
        ),
    ],
)
def test_words_are_written_where_all_four_controls_are_clearly_worse(rows, value, carries, said):
    frame = table(**rows)
    verdict = twins_verdict(fewest_pieces(frame))
    assert verdict.value == value == dl.Twins().verdict({"twins_by_condition": frame}).value
    assert summarize_twins(frame) == said
    assert len(said.split()) <= MOST_WORDS
    assert verdict.reason.startswith("carries the first piece to the last position, but ") == (carries and not verdict)


def test_the_summary_names_the_place_and_the_beginning_of_the_text():
    frame = table("attention", **controls(2.0, 1.1)).with_columns(bos=pl.lit(None, pl.String))
    said = summarize_twins(frame)
    assert said.startswith("The first layer's attention does not write words: ")
    assert said.endswith(" No BOS.")


def test_the_reason_names_the_controls_that_decided():
    assert twins_verdict(fewest_pieces(table(**controls(2.0, 1.8)))).reason == (
        "all four controls are clearly worse; the closest is additive 1.50 [1.45, 1.55]"
    )
    assert twins_verdict(fewest_pieces(table(**controls(2.0, 1.1, additive=1.0)))).reason == (
        "not clearly worse (a ratio of at least 1.2, with a lower end above 1): last_piece 1.10 [1.05, 1.15] and "
        "additive 1.00 [0.95, 1.05]"
    )


def test_heads_and_terms_are_needed_by_the_lower_end_of_their_share():
    found = table(
        **controls(2.0, 2.0),
        cut_L0H0={"rank_ratio": 1.04, "width": 0.01},
        cut_L0H3={"rank_ratio": 1.3},
        cut_L0H4={"rank_ratio": 1.25},  # a share of 0.32, whose lower end is 0.26
        cut_L0H5={"rank_ratio": 1.6},
        cut_L0H6={"rank_ratio": 1.22},  # a share of 0.29, whose lower end is 0.23
        cut_L0H7={"rank_ratio": 1.6, "width": 0.5},
        without_ee={"rank_ratio": 1.02},
    )
    assert fewest_pieces(found).needed("cut_") == ["L0H5", "L0H3", "L0H4"]
    assert summarize_twins(found).endswith(" Needed: L0H5, L0H3 and 1 more. BOS: <s>.")
    assert twins_verdict(fewest_pieces(found)).heads == ("L0H5", "L0H3", "L0H4")


def test_a_head_that_is_not_clearly_behind_the_strongest_is_named_too():
    found = table(
        **controls(2.0, 2.0), cut_L0H0={"rank_ratio": 1.3}, cut_L0H1={"rank_ratio": 1.22}, cut_L0H2={"rank_ratio": 1.1}
    )
    low = pl.col("condition").replace_strict({"cut_L0H0": 0.0, "cut_L0H1": -0.01, "cut_L0H2": 0.1}, default=None)
    tied = found.with_columns(share_behind_low=low)
    assert summarize_twins(tied).endswith(" Needed: L0H0; not clearly less: L0H1. BOS: <s>.")
    assert twins_verdict(fewest_pieces(tied)).heads == ("L0H0",)


def test_an_ablation_that_sends_the_null_to_chance_explains_nothing():
    destroying = table(**controls(2.0, 2.0), without_pp={"rank_ratio": 9.0, "null": 2600.0})
    assert fewest_pieces(destroying).needed("without_") == []
    harmless = table(**controls(2.0, 2.0), without_pp={"rank_ratio": 9.0, "null": 1900.0})
    assert len(fewest_pieces(harmless).needed("without_")) == 1


def test_models_are_compared_by_their_last_common_place():
    late = pl.concat([table("attention", **controls(1.0, 1.0)), table("block", **controls(2.0, 2.0))])
    assert "after the first block? a yes (null 2.00 [1.95, 2.05] and additive 1.50 " in compare_twins({"a": late})
    both = compare_twins({"a": late, "b": late.head(5)})
    assert "after the attention? a no (null 1.00 [0.95, 1.05] and additive " in both
    copier = table(**controls(2.0, 2.0, additive=1.0), cut_L0H1={"rank_ratio": 1.6})
    assert "a no (carries the first piece, null 2.00 [1.95, 2.05] and additive 1.00 [0.95, 1.05], needs L0H1)" in (
        compare_twins({"a": copier})
    )


def test_nothing_is_said_about_heads_that_were_not_cut():
    unneeded = {f"cut_L0H{head}": {"rank_ratio": 1.0} for head in (0, 2)}
    two, one = table(**controls(2.0, 2.0), **unneeded), table(**controls(2.0, 2.0), cut_L0H0={"rank_ratio": 1.0})
    assert summarize_twins(two).endswith(" No single head or term is needed. BOS: <s>.")
    assert "need" not in summarize_twins(two, all_heads=False)
    assert "need" not in dl.Twins(heads=[0]).summarize({"twins_by_condition": one})
    assert "need" not in compare_twins({"a": two, "b": one})


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (
            without_intervals(table(words=29, **controls(2.0, 2.0))),
            "29 words are too few for intervals; at least 30 are needed",
        ),
        (without_intervals(table(**controls(2.0, 2.0))), "intervals need bootstrap resamples"),
        (
            table(words=40, **controls(2.0, 2.0)).filter(pl.col("condition") != "additive"),
            "40 words are too few for the additive control: each needs 16 partners with other pieces",
        ),
    ],
)
def test_what_can_not_be_tested_has_no_verdict(frame, why):
    assert summarize_twins(frame) == f"Whether the first layer writes words can't be tested: {why}. BOS: <s>."
    verdict = twins_verdict(fewest_pieces(frame))
    assert (verdict.value, verdict.reason) == ("untestable", why)
    assert "? a untestable (null 2.00" in compare_twins({"a": frame})
    layers = frame.with_columns(layer=pl.lit(1))
    off = pl.DataFrame({"component": ["L0H1"], "head": [1], "after": [1], "matters": [None]}).cast({"matters": bool})
    assert said_of_layers(layers, off) == f"Whether the model writes words can't be tested: {why}. BOS: <s>."
    assert judged_layers(layers, off).value == "untestable"
    assert "? a untestable (null 2.00" in dl.Layers().summarize_comparison({"a": tables_of_layers(layers, off)})


def test_layers_ask_more_of_the_lower_ends():
    """1.23 [1.18, 1.28] is enough for one layer, but not for the best of several."""
    close = table(**controls(2.0, 2.0, additive=1.23))
    off = pl.DataFrame({"component": ["L0H1"], "head": [1], "after": [0], "matters": [False]})
    assert twins_verdict(fewest_pieces(close)).value == "yes"
    verdict = judged_layers(close.with_columns(layer=pl.lit(0)), off)
    assert verdict.value == "no"
    assert "with a lower end above 1.2): additive 1.23 [1.18, 1.28]" in verdict.reason
    clear = table(**controls(2.0, 2.0, additive=1.3)).with_columns(layer=pl.lit(0))
    assert judged_layers(clear, off).value == "yes"


def tables_of_layers(by_layer: pl.DataFrame, by_component: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {"twins_by_layer": by_layer, "twins_by_component": by_component}


def said_of_layers(by_layer: pl.DataFrame, by_component: pl.DataFrame) -> str:
    return dl.Layers().summarize(tables_of_layers(by_layer, by_component))


def judged_layers(by_layer: pl.DataFrame, by_component: pl.DataFrame) -> Verdict:
    return dl.Layers().verdict(tables_of_layers(by_layer, by_component))


def layered(*additive: float) -> pl.DataFrame:
    """Rows of `twins_by_layer`: one layer for each ratio of the additive control."""
    return pl.concat(
        table(**controls(2.0, 2.0, additive=ratio)).with_columns(layer=pl.lit(layer))
        for layer, ratio in enumerate(additive)
    )


def ablated(after: int, *needed: str) -> pl.DataFrame:
    names = [*needed, "L0H3"]
    matters = [name in needed for name in names]
    return pl.DataFrame(
        {"component": names, "head": [1] * len(names), "after": [after] * len(names), "matters": matters}
    )


def test_layers_say_the_bound_and_the_layer_that_decides():
    many = ablated(1, "L0H1", "L0H2", "MLP0", "MLP1")
    ends = "times better than the sum of its pieces; the lower end must exceed 1.2."
    assert said_of_layers(layered(1.1, 1.23), many) == (
        f"Layers 0–1 write no words: after layer 1 the word ranks 1.23 [1.18, 1.28] {ends} "
        "Needed to carry pieces: L0H1, L0H2 and 2 more. BOS: <s>."
    )
    assert said_of_layers(layered(1.1, 1.5, 1.4), ablated(1, "L0H1")) == (
        f"The model writes words after layers 1 and 2: after layer 1 the word ranks 1.50 [1.45, 1.55] {ends} "
        "Needed: L0H1. BOS: <s>."
    )
    said = said_of_layers(layered(1.1, 1.5), ablated(0, "L0H1"))
    assert said == (
        f"The model writes words after layer 1: after layer 1 the word ranks 1.50 [1.45, 1.55] {ends} "
        "Ablations were measured after layer 0, which writes none. BOS: <s>."
    )
    assert judged_layers(layered(1.1, 1.5), ablated(0, "L0H1")).heads == ()
    longest = said_of_layers(layered(1.1, 1.5, 1.0, 1.5), ablated(3, "L0H1", "L0H2", "MLP0", "MLP1"))
    assert len(longest.split()) <= MOST_WORDS
    assert len(said_of_layers(layered(1.1, 1.23), many).split()) <= MOST_WORDS
