"""Tᵉ and Var(e) against frequency, checked with the definitions and with scipy's Spearman."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import linregress, spearmanr

from detoklens.corpus.counts import Counts
from detoklens.errors import RangeError
from detoklens.loading import load
from detoklens.measures.chance import ALPHA
from detoklens.measures.frequency import self_assertion
from detoklens.questions.base import Verdict
from detoklens.questions.frequency import UNTRAINED, Frequency, _preference
from detoklens.questions.study import Study
from tests.layers import as_layer, random_first_layer, random_layer
from tests.questions.faces import check_faces, shown_columns
from tests.spelled import counts_of, spelled_layer, write_counts, write_spelled


def some_counts(layer, seed=0, seen=0.7):
    """Counts with many ties and some tokens never seen."""
    random = np.random.default_rng(seed)
    tokens = random.integers(1, 9, layer.vocab_size) * (random.random(layer.vocab_size) < seen)
    nothing = np.empty(0, np.uint32)
    return Counts.from_arrays(tokens, nothing, nothing, np.empty(0, np.int64))


def tables_of(layer, counts=None, **options):
    return Study(layer, counts).ask(Frequency(**options)).tables


@pytest.mark.parametrize("unseen", ["published", "include", "exclude"])
def test_correlations_are_scipys(unseen):
    layer = random_layer(vocab_size=300)
    counts = some_counts(layer)
    seen = counts.tokens > 0
    with_unseen = np.ones(300, bool)
    asserting, varying = {
        "published": (with_unseen, seen),
        "include": (with_unseen, with_unseen),
        "exclude": (seen, seen),
    }[unseen]
    tables = tables_of(layer, counts, unseen=unseen)
    for row in tables["frequency_by_head"].iter_rows(named=True):
        scores = self_assertion(layer)[row["head"]]
        assert row["tokens"] == asserting.sum()
        assert row["spearman"] == pytest.approx(spearmanr(scores[asserting], counts.tokens[asserting]).statistic)
        line = linregress(np.log10(counts.tokens[asserting] + 1), scores[asserting])
        assert row["slope"] == pytest.approx(line.slope)
        assert (row["minimum"], row["maximum"]) == pytest.approx((scores.min(), scores.max()))
        assert row["standard_deviation"] == pytest.approx(scores.std())
    model = tables["embedding_variance"].row(0, named=True)
    variance = layer.weights.token_embeddings.var(axis=1)
    assert model["spearman_tokens"] == varying.sum()
    assert model["spearman"] == pytest.approx(spearmanr(variance[varying], counts.tokens[varying]).statistic)
    assert model["seen_tokens"] == seen.sum() < 300


def test_norms_and_covariance_are_those_of_the_definition():
    layer = random_layer(vocab_size=50, epsilon=0.2)
    found = tables_of(layer)
    row = found["embedding_variance"].row(0, named=True)
    tokens, positions = layer.weights.token_embeddings, layer.weights.position_embeddings
    norms, scales = np.linalg.norm(tokens, axis=1), np.sqrt(tokens.var(axis=1) + 0.2)
    covariance = [[np.cov(e, p, bias=True)[0, 1] for p in positions] for e in tokens]
    assert row["norm_variance"] == pytest.approx(norms.var())
    assert row["divided_norm_variance"] == pytest.approx((norms / scales).var())
    assert row["mean_variance"] == pytest.approx(tokens.var(axis=1).mean())
    assert row["mean_absolute_covariance"] == pytest.approx(np.abs(covariance).mean())
    assert row["variance_to_covariance"] == pytest.approx(tokens.var(axis=1).mean() / np.abs(covariance).mean())
    by_token = found["frequency_by_token"]
    assert by_token["norm"].to_list() == pytest.approx(norms.tolist())
    assert by_token["divided_norm"].to_list() == pytest.approx((norms / scales).tolist())
    assert by_token["variance"].to_list() == pytest.approx(tokens.var(axis=1).tolist())


def test_without_counts_correlations_and_counts_are_null_and_that_is_told():
    layer = random_layer()
    answer = Study(layer).ask(Frequency())
    assert answer.tables["frequency_by_head"]["spearman"].null_count() == layer.n_heads
    assert answer.tables["frequency_by_head"]["slope"].null_count() == layer.n_heads
    assert answer.tables["embedding_variance"]["spearman"].null_count() == 1
    assert answer.tables["frequency_by_token"]["count"].null_count() == layer.vocab_size
    assert answer.notes == ("without counts, the correlations are empty",)
    assert (
        answer.tables["frequency_by_head"].select("null_low", "null_high", "p", "prefers").null_count().row(0)
        == (layer.n_heads,) * 4
    )
    assert answer.verdict == Verdict("untestable", "this needs corpus counts")
    assert answer.sentence == "Whether heads prefer rare tokens can't be tested: this needs corpus counts."
    assert Frequency().summarize_comparison({"one": answer.tables}) == f"one: {answer.sentence}"
    assert shown_columns(answer.views[0].frame)[:2] == ["head", "tokens"]


def test_a_bias_that_points_at_frequency_is_named_and_a_random_one_is_not():
    """Every head's keys carry frequency: only the head whose bias reads it prefers rare tokens."""
    first = random_first_layer(n_heads=4, d_head=8, vocab_size=400, n_positions=4, seed=3)
    first.norm_bias[:] = 0
    counts = some_counts(as_layer(first))
    rarity = -np.log1p(counts.tokens)
    first.token_embeddings[:, :] += np.outer(rarity - rarity.mean(), np.random.default_rng(1).normal(size=32))
    layer = as_layer(first)
    first.query_bias[2] = (rarity - rarity.mean()) @ layer.token_affinity("mean").key_of(2)
    answer = Study(as_layer(first), counts).ask(Frequency())
    row = answer.tables["frequency_by_head"].row(2, named=True)
    assert row["spearman"] < row["null_low"] < 0 < row["null_high"]
    assert row["prefers"] == "rare"
    assert row["p"] < 1e-9 < ALPHA
    assert "L0H2" in answer.verdict.heads
    others = answer.tables["frequency_by_head"].filter(pl.col("head") != 2)
    assert others["spearman"].abs().max() > 0.3, "a random bias correlates, too"
    assert others["prefers"].to_list() == ["neither"] * 3


def test_a_steep_slope_with_a_usual_correlation_is_no_preference():
    """Both controls must be exceeded."""
    assert [_preference(-0.4, -0.3, 0.3, p) for p in (0.01, 0.03)] == ["rare", "neither"]
    assert [_preference(rho, -0.3, 0.3, 1e-9) for rho in (-0.29, 0.29, 0.31)] == ["neither", "neither", "frequent"]
    assert _preference(0.09, -0.05, 0.05, 1e-9) == "neither", "too small to matter"


def test_some_heads_have_the_numbers_that_all_have():
    layer = random_layer(vocab_size=200)
    counts = some_counts(layer)
    some, every = (tables_of(layer, counts, heads=heads)["frequency_by_head"] for heads in ([2, 0], None))
    assert some.rows() == [every.row(2), every.row(0)]


def test_the_long_table_has_every_head_and_token():
    layer = random_layer()
    counts = some_counts(layer)
    found = tables_of(layer, counts, heads=[2, 0])["self_assertion"]
    scores = self_assertion(layer)
    for row in found.sample(20, seed=0).iter_rows(named=True):
        assert row["score"] == pytest.approx(scores[row["head"], row["token_id"]], rel=1e-6)
        assert row["count"] == counts.tokens[row["token_id"]]
    assert found["head"].unique(maintain_order=True).to_list() == [2, 0]


def test_what_is_wrong_is_one_line():
    with pytest.raises(RangeError, match="head 4 does not exist"):
        tables_of(random_layer(), heads=[4])
    with pytest.raises(RangeError, match="position 11 does not exist"):
        tables_of(random_layer(), scale=11)
    with pytest.raises(RangeError, match="unseen is one of 'published', 'include', 'exclude'"):
        Frequency(unseen="some")


def test_provenance_holds_counts_tokenizer_and_seed(tmp_path):
    layer = spelled_layer(tmp_path)
    plain, counted = (
        Study(layer).provenance(Frequency()),
        Study(layer, counts_of(layer), seed=1).provenance(Frequency()),
    )
    assert plain.counts_fingerprint is None
    assert counted.counts_fingerprint == counts_of(layer).fingerprint
    asked = {"unseen": "published", "heads": [0, 1, 2], "scale": "mean"}
    assert (plain.options, counted.options) == (asked | {"seed": 0}, asked | {"seed": 1})


def by_head(*spearman: float, prefers: tuple[str, ...]) -> pl.DataFrame:
    null = {"null_low": -0.16, "null_high": 0.16, "p": 0.012}
    return pl.DataFrame({"head": range(len(spearman)), "spearman": spearman, "prefers": prefers, **null}, strict=False)


def said(table: pl.DataFrame) -> str:
    return Frequency().summarize({"frequency_by_head": table})


def test_the_sentence_counts_heads_beyond_chance_and_names_the_control():
    some = by_head(0.2, -0.605, 0.5, prefers=("neither", "rare", "frequent"))
    assert said(some) == (
        "1 of 3 heads prefers rare tokens by Tᵉ, 1 frequent ones: ρ is −0.605 in L0H1, against ±0.160 for 95 % of "
        "random query biases; the slope has p = 0.012; we require 0.02."
    )
    weak = by_head(0.09, prefers=("neither",)).with_columns(null_high=0.08)
    assert said(weak).endswith("; the slope has p = 0.012; we require 0.02 and |ρ| ≥ 0.1.")
    found = Frequency().verdict({"frequency_by_head": some})
    assert (found.value, found.heads) == ("yes", ("L0H1", "L0H2"))
    none = by_head(0.2, -0.6, prefers=("neither", "neither"))
    assert said(none).startswith("No head prefers rare or frequent tokens by Tᵉ beyond chance: ρ is −0.600 in L0H1, ")
    assert Frequency().verdict({"frequency_by_head": none}).value == "no"
    assert max(len(said(table).split()) for table in (some, none)) <= 40
    compared = {"start": {"frequency_by_head": none}, "end": {"frequency_by_head": some}}
    assert Frequency().summarize_comparison(compared) == (
        "Strongest Spearman's ρ of Tᵉ with frequency: "
        "−0.600 in start (L0H1, within chance) and −0.605 in end (L0H1, beyond chance)."
    )


@pytest.mark.parametrize("question", [{}, {"unseen": "exclude", "heads": [2, 1]}])
def test_python_command_line_folder_and_notebook_say_the_same(tmp_path, question):
    folder = write_spelled(tmp_path / "model")
    counts = Counts.open(write_counts(tmp_path / "corpus", folder))
    check_faces(Study(load(folder), counts).ask(Frequency(**question)), tmp_path)


def test_a_narrow_terminal_shows_the_correlations_and_every_tokens_numbers(tmp_path):
    layer = spelled_layer(tmp_path)
    answer = Study(layer, counts_of(layer)).ask(Frequency())
    assert shown_columns(answer.views[0].frame)[:4] == ["head", "spearman", "null_low", "null_high"]
    frames = {name: answer.question.view(answer.tables, name).frame for name in answer.tables}
    assert shown_columns(frames["embedding_variance"])[:4] == [
        "spearman",
        "norm_variance",
        "divided_norm_variance",
        "variance_to_covariance",
    ]
    assert "token" in shown_columns(frames["frequency_by_token"])
    long = frames["frequency_by_token"].with_columns(token=pl.lit("-" * 100))
    assert shown_columns(long) == ["token_id", "count", "variance", "norm"]


def test_without_layernorm_it_is_the_bias_times_the_key():
    layer = random_layer()
    counts = some_counts(layer)
    found = tables_of(layer, counts)
    for head in range(layer.n_heads):
        plain = layer.token_factors(head).key @ layer.folded.query_bias[head]
        rows = found["self_assertion"].filter(head=head)
        np.testing.assert_allclose(rows["score_without_norm"], plain, rtol=1e-4, atol=1e-5)
        expected = spearmanr(plain, counts.tokens).statistic
        assert found["frequency_by_head"]["spearman_without_norm"][head] == pytest.approx(expected, abs=1e-3)


def test_the_untrained_tokens_are_counted_in_their_title() -> None:
    found = pl.DataFrame({"token_id": [3, 5, 8], "token": ["a", "b", "c"], "trained": [False, False, True]})
    untrained = UNTRAINED.conform(found.with_columns(norm=1.0, count=pl.lit(None, pl.Int64)))
    title = Frequency().view({"untrained": untrained}, "untrained").title
    assert title == "2 tokens that training barely changed, and 1 that no text contains"
    title = Frequency().view({"untrained": untrained.head(1)}, "untrained").title
    assert title == "1 token that training barely changed"
