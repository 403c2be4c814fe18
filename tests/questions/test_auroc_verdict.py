"""The one rule by which a head is named, on made-up numbers and on planted heads of every kind."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from detoklens.measures.auroc import Judging, Positives, from_pairs, measure_heads
from detoklens.questions.auroc_said import judgement_said
from detoklens.questions.auroc_schemas import AUROC_CONTROLS
from detoklens.questions.auroc_tables import controls_by_head
from detoklens.questions.auroc_verdict import verdict
from detoklens.scores.affinity import Affinity

GOOD = {"auroc": 0.8, "auroc_low": 0.79, "above_null": 0.2, "above_null_low": 0.19, "frequency": 0.9}
GOOD |= {"matched": 0.7, "matched_above_null": 0.1, "matched_above_null_low": 0.09}


def heads(*rows: dict[str, float | None]) -> pl.DataFrame:
    empty = dict.fromkeys(AUROC_CONTROLS.names)
    return AUROC_CONTROLS.conform(pl.DataFrame([empty | GOOD | row | {"head": head} for head, row in enumerate(rows)]))


@pytest.mark.parametrize(
    ("changed", "against"),
    [
        ({}, ()),
        ({"auroc": 0.51, "auroc_low": 0.499}, ("not above 0.5",)),
        ({"above_null_low": -0.001}, ("not above its null",)),
        ({"above_null": 0.045, "above_null_low": 0.04}, ("above its null by less than 0.05",)),
        ({"matched_above_null_low": 0.0}, ("not above its null among equally frequent keys",)),
        ({"matched_above_null": None}, ("without equally frequent keys to compare with",)),
        ({"matched_above_null": None, "frequency": None}, ()),
        ({"auroc_low": None, "above_null_low": None, "matched_above_null_low": None}, ()),
        ({"above_null": None, "above_null_low": None}, ("without a null beside it",)),
        ({"auroc_low": 0.3, "above_null_low": -0.1}, ("not above 0.5", "not above its null")),
    ],
)
def test_every_interval_must_lie_above(changed: dict[str, float | None], against: tuple[str, ...]) -> None:
    assert verdict(heads(changed)).against == against


def test_a_named_head_comes_before_one_that_is_not_and_the_highest_above_its_null_first() -> None:
    frequent = {"above_null": 0.4, "above_null_low": 0.39, "matched_above_null_low": -0.1}
    higher = {"above_null": 0.3, "above_null_low": 0.29}
    assert verdict(heads(frequent, {}, higher)).head == 2
    assert verdict(heads(frequent, {"auroc_low": 0.49})).head == 1, "the nearest lacks least"
    assert verdict(heads({"auroc": None})) is None


SIZE, QUERIES, PAIRS = 600, 400, 6


def corpus(seed: int) -> tuple[Positives, np.ndarray]:
    """Pairs in which frequent keys are more likely, and the keys' counts over 8 octaves."""
    random = np.random.default_rng(seed)
    counts = (2 ** np.linspace(13, 4, SIZE)).astype(np.int64)
    pairs = [
        (query, key) for query in range(QUERIES) for key in random.choice(SIZE, PAIRS, False, counts / counts.sum())
    ]
    return from_pairs(pairs, SIZE), counts


def planted(kind: str, positives: Positives, counts: np.ndarray, seed: int) -> Affinity:
    """Tᵉᵉ of a head that does one thing alone, over noise: identity queries, and what each finds as keys."""
    random = np.random.default_rng(1000 + seed)
    scores = random.standard_normal((SIZE, SIZE))
    match kind:
        case "frequency":
            scores += 2 * np.log2(counts)
        case "self":
            scores += 20 * np.eye(SIZE)
        case "pairs" | "pairs and frequency":
            queries = np.repeat(np.arange(SIZE), positives.sizes)
            scores[queries, positives.keys] += 1.5
            scores += np.log2(counts) if kind.endswith("frequency") else 0
        case "against":
            scores -= 2 * np.log2(counts)
    return Affinity(np.eye(SIZE, dtype=np.float32)[None], scores.T.astype(np.float32)[None])


def judged(kind: str, seed: int = 0) -> pl.DataFrame:
    positives, counts = corpus(seed)
    affinity = planted(kind, positives, counts, seed)
    measures = measure_heads(affinity, positives, range(SIZE), counts, Judging(seed=seed))
    return controls_by_head(measures, [0], 400, seed)


BEGINNING = {
    "pairs": "L0H0 stands highest above its nulls: over all tokens its mean AUROC against pairs is 0.8",
    "pairs and frequency": "L0H0 stands highest above its nulls: over all tokens its mean AUROC against pairs is 0.9",
    "frequency": "No head stands clearly above its nulls; the nearest is L0H0: over all tokens its mean AUROC against",
    "self": "No head stands clearly above its nulls; the nearest is L0H0: over all tokens its mean AUROC against",
    "noise": "No head stands clearly above its nulls; the nearest is L0H0: over all tokens its mean AUROC against",
    "against": "No head stands clearly above its nulls; the nearest is L0H0: over all tokens its mean AUROC against",
}
SAID = {
    "pairs": "among equally frequent keys 0.8",
    "pairs and frequency": "among equally frequent keys 0.8",
    "frequency": "not above its null",
    "self": "not ",
    "noise": "not ",
    "against": ", which ranks better; among equally frequent keys",
}


@pytest.mark.parametrize("kind", list(BEGINNING))
def test_planted_heads_are_told_apart(kind: str) -> None:
    said = judgement_said(judged(kind), "over all tokens", "pairs")
    assert said.startswith(BEGINNING[kind]), said
    assert SAID[kind] in said, said


@pytest.mark.parametrize("kind", ["pairs", "frequency", "self", "noise"])
def test_other_draws_and_other_corpora_change_no_verdict(kind: str) -> None:
    assert {verdict(judged(kind, seed)).named for seed in range(20)} == {kind == "pairs"}
