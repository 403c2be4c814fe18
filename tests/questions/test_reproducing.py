"""reproducing-the-paper.md has every claim as the demo and the real GPT-2's positions show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from detoklens.questions.shape.question import Shape
from detoklens.questions.study import Study
from detoklens.questions.variance.question import Variance
from detoklens.scores.layer import Layer
from tests.gpt2_stand_in import VOCABULARY, gpt2_positions

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def gpt2(gpt2_positions_folder: Path) -> Layer:
    return gpt2_positions(gpt2_positions_folder, VOCABULARY)


@pytest.fixture(scope="module")
def reach(gpt2: Layer) -> pl.DataFrame:
    return Study(gpt2).ask(Shape([500, 1000])).tables["reach"]


@pytest.mark.usefixtures("shared_answers")
def test_every_claims_row_is_what_comes_out(gpt2: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from make_paper import PAGE, claims_table, demo_claims, gpt2_claims

    assert claims_table(demo_claims(), gpt2_claims(gpt2)) in PAGE.read_text(encoding="utf-8")


def test_variances_of_gpt2s_positions_and_norms(gpt2: Layer, gpt2_positions_folder: Path) -> None:
    variance = Study(gpt2).ask(Variance()).tables["position_variance"]["variance"].to_numpy()
    assert variance[[0, 1, 2, 500, 1022, 1023]] == pytest.approx(
        [0.1270, 0.0351, 0.0274, 0.0149, 0.0194, 0.0000181], rel=0.005
    )
    assert np.load(gpt2_positions_folder / "token_norms.npy").astype(float).var() == pytest.approx(0.188, abs=5e-4)


def test_gpt2s_switch_and_last_position(gpt2: Layer) -> None:
    tables = Study(gpt2).ask(Variance()).tables
    first, last = tables["switch"].sort("head")["first_without_norm"], tables["undertrained"]
    assert [head for head, value in enumerate(first) if value > 0] == [5]
    times = last["usual_size"] / last["size"]
    assert (round(times.min()), round(times.max())) == (60, 365)
    ratio = tables["switch"]["value_norm_ratio"].to_numpy()
    assert [ratio.min(), ratio.max(), np.median(ratio)] == pytest.approx([0.57, 1.22, 0.68], abs=0.01)


@pytest.mark.parametrize(
    ("head", "query", "own", "usual"),
    [(7, 1, 0.90, 0.40), (7, 10, 0.11, 0.006), (7, 50, 0.055, 0.001), (7, 200, 0.0, 0.0), (5, 500, 0.20, 0.94)],
)
def test_gpt2s_sink(reach: pl.DataFrame, head: int, query: int, own: float, usual: float) -> None:
    row = reach.filter(head=head, query_position=query).row(0, named=True)
    assert row["on_first"] == pytest.approx(own, abs=0.005)
    assert row["on_first_usual_scale"] == pytest.approx(usual, abs=0.005)


def test_three_of_gpt2s_heads_are_local_from_500(reach: pl.DataFrame) -> None:
    near = reach.filter(query_position=500).sort("head")["last_15"]
    assert [head for head, mass in enumerate(near) if mass > 0.5] == [3, 4, 7]
    assert near[1] == pytest.approx(0.21, abs=0.01)
