"""reproducing-the-paper.md has every figure and claim as the demo and the real GPT-2's positions show it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from detoklens.questions.auroc.question import Auroc
from detoklens.questions.paper import claims
from detoklens.questions.paper.claims import CLAIMS, judged
from detoklens.questions.paper.evidence import Evidence, is_gpt2_small
from detoklens.questions.shape import Shape
from detoklens.questions.study import Study, study
from detoklens.questions.texts import Texts
from detoklens.questions.variance import Variance
from detoklens.scores.layer import Layer
from detoklens.tokens.vocabulary import Vocabulary
from tests.gpt2_stand_in import VOCABULARY, gpt2_positions
from tests.spelled import counts_of

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def gpt2(gpt2_positions_folder: Path) -> Study:
    """One study for all tests, which keeps its answers."""
    return Study(gpt2_positions(gpt2_positions_folder, VOCABULARY))


@pytest.fixture(scope="module")
def shape(gpt2: Study) -> pl.DataFrame:
    return gpt2.ask(Shape()).tables["shape"].sort("head")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return (ROOT / "docs" / "reproducing-the-paper.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("shared_answers")
def test_every_figures_number_is_what_comes_out(page: str) -> None:
    from make_paper import figures_table

    assert figures_table(study("demo")) in page


@pytest.mark.usefixtures("shared_answers")
def test_every_claims_row_is_what_comes_out(gpt2: Study, page: str) -> None:
    from make_paper import claims_table

    assert claims_table(study("demo"), gpt2) in page


def test_gpt2s_sink_by_head_and_query_is_what_comes_out(gpt2: Study, page: str) -> None:
    from make_paper import sink_table

    table = sink_table(gpt2)
    assert table in page
    for cell in ("0.903 (0.398)", "0.107 (0.006)", "0.055 (0.001)", "0.199 (0.936)"):
        assert cell in table


def test_variances_of_gpt2s_positions_and_norms(gpt2: Study, gpt2_positions_folder: Path) -> None:
    variance = gpt2.ask(Variance()).tables["position_variance"]["variance"].to_numpy()
    assert variance[[0, 1, 2, 500, 1022, 1023]] == pytest.approx(
        [0.1270, 0.0351, 0.0274, 0.0149, 0.0194, 0.0000181], rel=0.005
    )
    assert np.load(gpt2_positions_folder / "token_norms.npy").astype(float).var() == pytest.approx(0.188, abs=5e-4)


def test_gpt2s_switch_and_last_position(gpt2: Study) -> None:
    tables = gpt2.ask(Variance()).tables
    first, last = tables["switch"].sort("head")["first_without_norm"], tables["undertrained"]
    assert [head for head, value in enumerate(first) if value > 0] == [5]
    times = last["usual_size"] / last["size"]
    assert (round(times.min()), round(times.max())) == (60, 365)
    ratio = tables["switch"]["value_norm_ratio"].to_numpy()
    assert [ratio.min(), ratio.max(), np.median(ratio)] == pytest.approx([0.57, 1.22, 0.68], abs=0.01)


def test_gpt2s_lines(shape: pl.DataFrame) -> None:
    lines = shape.filter(query_position=500)
    others = lines.filter(pl.col("head") != 5)["r_squared"].to_numpy()
    assert [others.min(), others.max()] == pytest.approx([0.96, 1.00], abs=0.005)
    assert lines["monotone"][5] == pytest.approx(-0.97, abs=0.005)
    assert lines["r_squared"][5] == pytest.approx(0.87, abs=0.005)


def test_three_of_gpt2s_heads_are_local_from_500(shape: pl.DataFrame) -> None:
    near = shape.filter(query_position=500)["last_15"]
    assert [head for head, mass in enumerate(near) if mass > 0.5] == [3, 4, 7]
    assert [near[head] for head in (3, 7, 4, 1)] == pytest.approx([0.99, 0.97, 0.94, 0.21], abs=0.005)


def test_gpt2s_waves_are_not_suppressed(shape: pl.DataFrame) -> None:
    effect = shape.filter(query_position=1000)["wave_effect"]
    assert [effect.min(), effect.max()] == pytest.approx([0.09, 0.37], abs=0.005)
    assert [effect[7], effect[1]] == pytest.approx([0.30, 0.11], abs=0.005)
    assert shape.filter(query_position=500)["wave_effect"].null_count() == 12


def test_gpt2s_weights_match_random_tokens(gpt2: Study) -> None:
    match = Evidence(gpt2).sampled["self_match"]
    assert match[[1, 5, 10, 7]] == pytest.approx([5.8, 7.2, 7.1, -2.1], abs=0.05)


@pytest.mark.slow
def test_every_claim_about_gpt2s_tokens_is_judged(
    gpt2: Study, whisper_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real layer with GPT-2's tokenizer, counts and text: its random embeddings agree with little."""
    checkpoint = replace(gpt2.layer.checkpoint, vocabulary=Vocabulary.from_folder(whisper_folder))
    layer = Layer(checkpoint)
    layer.__dict__["scales"] = gpt2.layer.scales
    lines = [" sapiens Aliens sapiens Michael Jackson and the others were there", " Peter Jackson saw the Sapiens"] * 2
    texts = Texts(given=(" ".join(lines * 50), " ".join(lines[::-1] * 50)))
    few = [layer.token_id(text) for text in ("iens", " Jackson", " the", " others")]
    monkeypatch.setattr(claims, "Auroc", partial(Auroc, tokens=few, controls=False))
    counts = counts_of(layer, lines)
    assert is_gpt2_small(layer)
    asked = [claim for claim in CLAIMS if claim.only.startswith("gpt2") and claim.tokens == "directions"]
    found = judged(Study(layer, counts, texts), asked)
    unjudged = found.filter(verdict="not applicable")
    assert unjudged["where"].to_list() == ["published files, OpenWebText"] * 3
    assert unjudged["why"].unique().to_list() == ["the counts don't record it"]
    assert found.filter(verdict="agrees")["claim"].to_list() == [
        "L0H1 has a clear diagonal and L0H7 has none",
        "bigram count of ` Al` and `iens`, within 1 %",
        "in L0H1, Tᵖᵖ has a narrower range than Tᵉᵉ",
    ]
    by_text = {row["claim"]: row for row in found.iter_rows(named=True)}
    assert by_text["bigram count of ` sap` and `iens`, within 1 %"]["found"] == "4"
    assert len(by_text["mean AUROC of heads 0 to 11: largest difference at most 0.03"]["found"].split()) == 12
