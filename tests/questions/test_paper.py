"""The paper's claims: judged by their rules, not applicable with a reason, and right where the truth is planted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from detoklens.loading import load
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.paper import evidence
from detoklens.questions.paper.claims import (
    AUTHORS_AUROC,
    CLAIMS,
    _like_alibi,
    _suppressed,
    _terms_add_up,
    judged,
    of_heads,
    of_number,
)
from detoklens.questions.paper.evidence import AUTHORS_SAMPLE, PAPER_TABLE, Evidence, Finding
from detoklens.questions.paper.question import Paper
from detoklens.questions.study import Study, study
from tests.layers import as_layer, random_first_layer, random_layer
from tests.planted import planted_layer
from tests.questions.faces import check_faces, shown_columns
from tests.questions.rotary_model import write_folder
from tests.spelled import write_spelled


def claims(of: Study) -> dict[str, dict]:
    return {row["claim"]: row for row in of.ask(Paper()).tables["paper_claims"].iter_rows(named=True)}


def row(found: dict[str, dict], begin: str) -> dict:
    (only,) = (each for text, each in found.items() if text.startswith(begin))
    return only


@pytest.fixture(scope="module")
def spelled(tmp_path_factory) -> Study:
    """Eight heads and some of the paper's tokens."""
    return Study(load(write_spelled(tmp_path_factory.mktemp("papers"), vocab_size=400, n_heads=8)))


def test_the_authors_sample_is_torchs():
    torch = pytest.importorskip("torch")
    torch.manual_seed(42)
    assert torch.randint(0, 50257, (100,)).tolist() == list(AUTHORS_SAMPLE)


def test_the_papers_table_has_34_rows_and_its_misprint_is_mended():
    assert len(PAPER_TABLE) == 34
    assert PAPER_TABLE[0] == (3, "yo", "Tok", 1)
    assert PAPER_TABLE[-1] == (7, " century", " twentieth", 6)


def test_every_claim_has_a_row_of_its_own_and_a_known_question():
    texts = [each.text for each in CLAIMS]
    assert len(set(texts)) == len(texts) > 60
    assert {each.command for each in CLAIMS} <= {*QUESTIONS, "count", "verify"}


def test_numbers_that_are_not_in_the_paper_are_the_authors_files():
    by_text = {each.text: each.source for each in CLAIMS}
    files = {text for text, source in by_text.items() if source == "authors' files"}
    assert {text for text in by_text if "counted" in text} <= files
    assert {text for text in by_text if "`iens` and `" in text} <= files
    assert by_text["L0H7 has the largest mean AUROC"] == "paper"
    assert {each.where.split(",")[0] for each in CLAIMS if each.text in files} == {"notebook", "published files"}


def test_the_authors_aurocs_are_in_the_order_of_heads():
    heads = (7, 11, 6, 0, 4, 3, 10, 2, 8, 1, 9, 5)
    assert [AUTHORS_AUROC[head] for head in heads] == sorted(AUTHORS_AUROC, reverse=True)
    assert (AUTHORS_AUROC[7], AUTHORS_AUROC[11], AUTHORS_AUROC[5]) == (0.876, 0.806, 0.286)


def test_numbers_of_the_authors_files_say_so_in_the_terminal():
    one = replace(next(each for each in CLAIMS if each.where == "Table 1"), source="authors' files")
    rows = judged(Study(random_layer()), [one]).with_columns(verdict=pl.lit("agrees"))
    shown = Paper().views({"paper_claims": rows})[0].frame
    assert shown["paper"].to_list() == ["34 ranks (authors' files)"]


def test_paper_ranks_on_a_model_with_gpt2s_vocabulary(whisper_folder):
    layer = load(whisper_folder)
    found = evidence.paper_ranks(layer)
    absent = found["head"] >= layer.n_heads
    assert (found["rank"].is_null() == absent).all()
    first = found.row(0, named=True)
    scores = layer.affinity([layer.token_id("yo")])[3, 0]
    assert first["rank"] == 1 + (scores > scores[layer.token_id("Tok")]).sum()
    assert first["difference"] == first["rank"] - 1


def test_a_model_with_some_of_the_tokens_and_heads_is_not_judged_by_them(spelled, tmp_path):
    answer = spelled.ask(Paper())
    ranks = answer.tables["paper_ranks"].drop_nulls("difference")
    assert ranks.select("head", "key_token").rows()[:2] == [(4, " North"), (7, " North")]
    table = row(claims(spelled), "34 ranks")
    assert table["verdict"] == "not applicable"
    assert table["found"].startswith(f"{(ranks['difference'] == 0).sum()} of {len(ranks)} equal")
    assert shown_columns(answer.views[0].frame)[:3] == ["claim", "verdict", "found"]
    check_faces(answer, tmp_path)


def test_the_summary_counts_what_can_be_judged():
    answer = Study(random_layer()).ask(Paper())
    verdicts = answer.tables["paper_claims"]["verdict"]
    agree, differ = int((verdicts == "agrees").sum()), int((verdicts == "differs").sum())
    assert answer.sentence == (
        f"Of {len(CLAIMS) - 15} claims of the paper and 15 numbers of its authors' files, {agree + differ} can be judged "
        f"on this model: {agree} agree and {differ} differ."
    )
    assert agree
    assert differ
    compared = Paper().summarize_comparison({"one": answer.tables})
    assert compared.endswith(f"{agree} of {agree + differ} in one.")


def test_what_can_not_be_judged_says_why():
    found = claims(Study(random_layer()))
    assert all(each["why"] for each in found.values() if each["verdict"] == "not applicable")
    assert row(found, "several heads' Tᵉ")["why"] == "it needs corpus counts: pass --counts"
    assert row(found, "ee, p and pp contribute")["why"] == "it needs text: pass --text"
    assert row(found, "Spearman of Tᵉ with frequency in L0H7")["why"] == evidence.ABOUT_GPT2
    assert row(found, "variance of the token norms")["found"], "a number of GPT-2 small is still shown"


def test_rotary_models_have_no_position_table_and_a_key_bias_that_counts(tmp_path):
    found = claims(Study(load(write_folder(tmp_path))))
    assert "rotary positions" in row(found, "Tᵖ is a line")["why"]
    assert row(found, "by position alone, most heads")["verdict"] != "not applicable"
    assert row(found, "the key bias")["verdict"] in ("differs", "not applicable")


def test_the_terms_of_any_layer_add_up():
    for seed in range(3):
        found = row(claims(Study(random_layer(seed=seed, n_positions=40))), "the terms add up")
        assert found["verdict"] == "agrees"
        assert found["number"] < 1e-9


def test_the_folded_layers_output_is_the_textbooks():
    found = claims(Study(random_layer(n_positions=40)))
    assert row(found, "folding LayerNorm")["verdict"] == "agrees"
    assert row(found, "folding LayerNorm")["number"] < 1e-9
    assert row(found, "the key bias")["found"] == "below 1e-12"


def test_terms_that_do_not_add_up_differ(monkeypatch):
    layer = random_layer(n_positions=20)
    monkeypatch.setattr(type(layer.terms([1, 2])), "attention", lambda self: self.attention_without("ee"))
    assert _terms_add_up(Evidence(Study(layer))).agrees is False


def test_planted_lines_waves_and_ends_are_found():
    found = claims(Study(planted_layer(period=80.0, last_times=0.01)))
    assert row(found, "Tᵖᵖ without LayerNorm is flat")["verdict"] == "agrees"
    assert row(found, "the last position has")["verdict"] == "agrees"
    assert row(claims(Study(planted_layer(period=80.0))), "Tᵖᵖ without LayerNorm is flat")["verdict"] == "differs"


def test_a_layer_without_biases_has_no_tp_to_judge():
    first = random_first_layer(n_positions=30)
    first.query_bias[:], first.norm_bias[:] = 0, 0
    found = claims(Study(as_layer(first)))
    for begin in ("Tᵖ at position 0", "σ raises", "Tᵖ rises"):
        assert row(found, begin)["verdict"] == "not applicable"


@pytest.mark.parametrize(
    ("which", "share", "agrees", "why"),
    [
        ([True] * 4 + [False], 0.8, True, "not in L0H4"),
        ([True] * 3 + [False] * 2, 0.8, False, "not in L0H3 and L0H4"),
        ([True, False], 0.5, False, "not in L0H1"),
        ([True, True], 1.0, True, ""),
        ([False, False], 0.5, False, ""),
    ],
)
def test_shares_of_heads(which, share, agrees, why):
    found = of_heads(which, share)
    assert (found.agrees, found.why) == (agrees, why)
    assert found.number == sum(which)


def test_numbers_agree_within_their_tolerance():
    assert of_number(0.194, 0.19, 0.005).agrees
    assert not of_number(0.196, 0.19, 0.005).agrees
    with pytest.raises(evidence.Inapplicable):
        of_number(np.nan, 0.19, 0.005)


def gpt2_judges(monkeypatch, begin: str, found: dict) -> Finding:
    """A claim about token embeddings on what would be GPT-2, with this row of `embedding_variance`."""
    monkeypatch.setattr(Evidence, "is_gpt2", True)
    answer = SimpleNamespace(tables={"embedding_variance": pl.DataFrame([found])})
    monkeypatch.setattr(Evidence, "frequency", lambda _e: answer)
    monkeypatch.setattr(Evidence, "ask", lambda _e, _question: answer.tables)
    (only,) = (each for each in CLAIMS if each.text.startswith(begin))
    return Evidence(Study(random_layer())).judge(only)


@pytest.mark.parametrize(("value", "agrees"), [(-0.64, True), (-0.59, False), (-0.35, False)])
def test_gpt2s_variance_by_frequency_must_be_the_papers(monkeypatch, value, agrees):
    assert gpt2_judges(monkeypatch, "rare tokens", {"spearman": value}).agrees is agrees


@pytest.mark.parametrize(("value", "agrees"), [(45.4, True), (48.0, False), (11.0, False)])
def test_gpt2s_covariance_must_be_the_papers(monkeypatch, value, agrees):
    assert gpt2_judges(monkeypatch, "Var(e) is at least", {"variance_to_covariance": value}).agrees is agrees


def test_an_undefined_number_is_inapplicable(monkeypatch):
    assert gpt2_judges(monkeypatch, "rare tokens", {"spearman": None}).why == "it is undefined here"


def test_a_line_like_alibis_is_told_from_a_steep_one(monkeypatch):
    slopes = pl.DataFrame({"alibi_slope": [0.01, 0.5, -0.01], "monotone": [1.0, 1.0, -1.0]})
    monkeypatch.setattr(Evidence, "shape_from", lambda _e, _place: slopes)
    found = _like_alibi(Evidence(Study(random_layer())))
    assert (found.found, found.agrees) == ("1 of 3 heads", False)


def test_the_wave_is_judged_from_the_last_position_that_sees_it(monkeypatch):
    shape = pl.DataFrame({"query_position": [12, 125, 125, 250], "wave_effect": [0.5, 0.02, 0.08, None]})
    monkeypatch.setattr(Evidence, "ask", lambda _e, _question: {"shape": shape})
    found = _suppressed(Evidence(Study(random_layer(n_heads=2))))
    assert (found.found, found.agrees, found.why) == ("0.02 to 0.08", True, "from position 125, 2 of 2 heads")


def test_gpt2_is_known_by_its_sizes_and_words(spelled):
    assert not evidence.is_gpt2_small(spelled.layer)
    assert not evidence.is_gpt2_small(load("demo"))


@pytest.mark.usefixtures("shared_answers")
def test_the_demo_is_judged_with_counts_and_text(tmp_path):
    demo = study("demo", documents=20, length=64)
    found = claims(demo)
    assert row(found, "some head ranks frequent bigrams")["found"] == "L0H1"
    assert row(found, "rare tokens have a high variance")["verdict"] == "agrees"
    assert row(found, "ee, p and pp contribute")["verdict"] in ("agrees", "differs")
    table = demo.ask(Paper()).tables["paper_claims"]
    assert table.filter(pl.col("verdict") != "not applicable")["found"].null_count() == 0


PANELS = {
    "partners": "Figure 2A",
    "heatmap": "Figure 2B and appendix",
    "roc": "Figure 2C",
    "auroc": "Figure 2D",
    "position_alone": "Figure 3A and appendix",
    "position_comparison": "Figure 3B and appendix",
    "position_sum": "Figure 3C",
    "position_attention": "Figure 3D and appendix",
    "attention": "Figure 3E",
    "contributions": "Figure 4 and appendix",
    "token_alone": "Figure 5 and appendix",
    "token_variance": "Figure 6, left",
    "position_variance": "Figure 6, right",
    "last_positions": "Figure 7",
}


def test_captions_name_the_papers_figure_or_say_that_it_has_none():
    of_paper = ("partners", "heatmap", "positions", "shape", "attention", "contributions", "frequency", "variance")
    captions = {spec.name: spec.caption for name in (*of_paper, "auroc") for spec in QUESTIONS[name].figures}
    assert [name for name, panel in PANELS.items() if panel not in captions[name]] == []
    figures = [spec for name in of_paper for spec in QUESTIONS[name].figures]
    assert [spec.name for spec in figures if "the paper" not in spec.caption.lower()] == []


def test_a_finding_has_its_defaults():
    assert Finding("x") == ("x", None, "", None)
