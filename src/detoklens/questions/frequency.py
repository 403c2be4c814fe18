"""Correlate Tᵉ and the variance of token embeddings with frequency (the paper's Figures 5 and 6 left, section 6.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import polars as pl

from detoklens.figures import labels, theme
from detoklens.figures.labels import number
from detoklens.figures.marks import cloud, logarithmic_x
from detoklens.figures.panels import PAIRS_PER_INCH, chosen_heads, titled_panels
from detoklens.figures.spec import FigureSpec
from detoklens.measures.chance import ALPHA
from detoklens.measures.frequency import (
    compare_with_random_biases,
    divided_norms,
    embedding_norms,
    self_assertion,
    slope,
    spearman,
)
from detoklens.measures.words import token_texts
from detoklens.parallel import Runner
from detoklens.questions.base import ByLabel, Frames, Verdict, View
from detoklens.questions.options import SplitOff, TokenQuestion
from detoklens.questions.parameters import Heads, Parameter, Scale
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer
from detoklens.tables.schema import HEAD, TOKEN, TOKEN_ID, Column, Schema
from detoklens.wording import head_name, listed, p_value, plural, signed, term_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLEAR_CORRELATION = 0.1  # below it, a head has no preference
COUNT = Column("count", "occurrences of the token in the corpus; null without counts", "Int64")

FREQUENCY_BY_HEAD = Schema(
    "frequency_by_head",
    "Preference of each head for rare or frequent tokens, for every query",
    HEAD,
    Column("tokens", "number of tokens in the correlation", "Int32"),
    Column("spearman", "Spearman correlation of Tᵉ (σ averaged over positions) with the count"),
    Column("spearman_without_norm", "the same for Tᵉ without the division by σ"),
    Column("null_low", "lower end of the central 95 % of that correlation over random query biases"),
    Column("null_high", "upper end of that interval"),
    Column("p", "probability of a slope as steep with a random query bias, Holm-adjusted over heads"),
    Column(
        "prefers",
        "rare or frequent if p is at most 0.02, and spearman is outside null_low to null_high and at least 0.1 in "
        "size; else neither; null if undefined",
        "String",
    ),
    Column("slope", "slope of Tᵉ over log10(count + 1): its change per tenfold frequency"),
    Column("minimum", "smallest Tᵉ over tokens", defined=True),
    Column("maximum", "largest Tᵉ over tokens", defined=True),
    Column("standard_deviation", "standard deviation of Tᵉ over tokens", defined=True),
)

EMBEDDING_VARIANCE = Schema(
    "embedding_variance",
    "Variance of token embeddings, frequency and LayerNorm",
    Column("tokens", "vocabulary size", "Int32"),
    Column("seen_tokens", "tokens that occur in the corpus", "Int32"),
    Column("spearman_tokens", "number of tokens in the correlation", "Int32"),
    Column("spearman", "Spearman correlation of Var(e) with the count"),
    Column("mean_variance", "mean Var(e)", defined=True),
    Column("norm_variance", "variance over tokens of |e|", defined=True),
    Column("divided_norm_variance", "variance over tokens of |e / σ(e)|, LayerNorm applied to the token alone"),
    Column("mean_absolute_covariance", "mean |Cov(e, p)| over tokens and positions; null without a position table"),
    Column("variance_to_covariance", "mean Var(e) divided by mean |Cov(e, p)|"),
)

FREQUENCY_BY_TOKEN = Schema(
    "frequency_by_token",
    "Frequency and embedding of each token",
    TOKEN_ID,
    TOKEN,
    COUNT,
    Column("variance", "Var(e) over the features; with RMSNorm their mean square", defined=True),
    Column("norm", "|e|", defined=True),
    Column("divided_norm", "|e / σ(e)|, LayerNorm applied to the token alone"),
    Column("mean_scale", "σ(e + p) averaged over positions", defined=True),
)

UNTRAINED = Schema(
    "untrained",
    "Tokens that training barely changed, recognised by their embeddings, or that no text contains",
    TOKEN_ID,
    TOKEN,
    COUNT,
    Column("norm", "|e|", defined=True),
    Column("trained", "whether training changed it, though no text contains it", "Boolean", defined=True),
)

SELF_ASSERTION = Schema(
    "self_assertion",
    "Tᵉ of each token in each head",
    HEAD,
    TOKEN_ID,
    COUNT,
    Column("score", "Tᵉ of the token, σ averaged over positions", "Float32", defined=True),
    Column("score_without_norm", "Tᵉ without the division by σ", "Float32", defined=True),
)

Unseen = Literal["published", "include", "exclude"]
"""Whether tokens with count 0 enter the correlations. Published: with Tᵉ yes, with Var(e) no."""


@dataclass(frozen=True, repr=False)
class Frequency(TokenQuestion):
    """Correlate Tᵉ and embedding variance with token frequency.

    A head prefers rare or frequent tokens only if it exceeds random query biases with the same keys: its slope over log
    frequency is steeper than theirs, corrected for the number of heads, and its correlation is outside their central
    95 %. The verdict is "yes" if at least one head does. Other tables have the variance of the embedding norms before
    and after division by σ, mean |Cov(e, p)| next to mean Var(e), and every token.

    Example: detoklens frequency gpt2 --counts counts --by model
    """

    unseen: Annotated[
        Unseen,
        Parameter(
            "Tokens with count 0: included, excluded, or as published (with Tᵉ but not with Var(e)).", advanced=True
        ),
    ] = "published"
    heads: Heads = None
    scale: Scale = "mean"
    mean: SplitOff = field(default="vocabulary", kw_only=True)

    progress_label = "correlating"
    report_section = "Token frequency"
    caveat = "Does not show that the preference was learned because of frequency."
    uses = frozenset({"counts", "vocabulary", "seed"})
    reads_counts = True
    tables = (FREQUENCY_BY_HEAD, EMBEDDING_VARIANCE, FREQUENCY_BY_TOKEN, SELF_ASSERTION, UNTRAINED)
    by: ClassVar[Mapping[str, str]] = {
        "head": "frequency_by_head",
        "model": "embedding_variance",
        "token": "frequency_by_token",
        "untrained": "untrained",
    }
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "frequency_by_head": ("head", "spearman", "null_low", "null_high", "p", "prefers"),
        "embedding_variance": ("spearman", "norm_variance", "divided_norm_variance", "variance_to_covariance"),
        "frequency_by_token": ("token_id", "count", "variance", "norm", "token"),
    }
    equation = (
        "Tᵉ[h, j] = b̃_Q·(eⱼ W̃_K) / σⱼ, with rotary positions a R_δ (eⱼ W̃_K)ᵀ / σⱼ, a common to all queries;  "
        "Spearman's ρ with the token's count, compared with random directions in place of b̃_Q;  slope over log10(count "
        "+ 1) = b̃_Q·g, p of cos²(b̃_Q, g) by Beta(1/2, (d − 1)/2);  Var(e) of every token"
    )
    figures = (
        FigureSpec(
            "token_alone",
            ("self_assertion",),
            "Token alone (Tᵉ) against frequency",
            "Tᵉ of each token against its corpus count plus one, with and without LayerNorm's division by σ; ρ is "
            "Spearman's correlation over all tokens, unless unseen ones are excluded. The paper's Figure 5 and "
            "appendix.",
            optional=("frequency_by_head",),
            per_head=True,
            needs="corpus counts",
        ),
        FigureSpec(
            "token_variance",
            ("frequency_by_token",),
            "Variance of token embeddings against frequency",
            "Variance of each token's embedding against its corpus count plus one. The paper's Figure 6, left.",
            optional=("embedding_variance",),
            needs="corpus counts",
        ),
    )

    def ask(self, study: Study, runner: Runner) -> Frames:
        layer, heads = study.layer, study.heads(self.heads)
        if study.counts is None:
            runner.say("without counts, the correlations are empty")
        counts = None if study.counts is None else study.counts.tokens
        scores = self_assertion(layer, None, self.scale, offset=self.offset, mean=self.split_off(study))
        undivided = scores * layer.token_scale(self.scale)
        asked = pl.DataFrame({"head": heads}, schema={"head": pl.Int32})
        tokens = range(layer.vocab_size)
        by_token = FREQUENCY_BY_TOKEN.grid(
            {"token_id": tokens},
            {
                "token": token_texts(layer, tokens),
                "count": counts,
                "variance": layer.scales.token_variance,
                "norm": embedding_norms(layer),
                "divided_norm": divided_norms(layer),
                "mean_scale": layer.token_scale("mean"),
            },
        )
        return {
            "frequency_by_head": asked.join(self._by_head(study, scores, undivided), on="head", maintain_order="left"),
            "embedding_variance": self._embedding_variance(layer, counts),
            "frequency_by_token": by_token,
            "self_assertion": SELF_ASSERTION.grid(
                {"head": heads, "token_id": tokens},
                {"count": counts, "score": scores[heads], "score_without_norm": undivided[heads]},
            ),
            "untrained": UNTRAINED.conform(
                by_token.with_columns(trained=~layer.untrained).filter(
                    layer.untrained | (layer.impossible & ~layer.special)
                )
            ),
        }

    def _by_head(self, study: Study, asserted: np.ndarray, undivided: np.ndarray) -> pl.DataFrame:
        scores, counts = asserted.astype(np.float64), None if study.counts is None else study.counts.tokens
        tokens = _correlated(scores.shape[1], counts, include_unseen=self.unseen != "exclude")
        frequency = None if counts is None else counts[tokens]
        correlations = [spearman(row[tokens], frequency) for row in scores]
        null = compare_with_random_biases(
            study.layer,
            scores,
            frequency,
            tokens,
            self.scale,
            offset=self.offset,
            mean=self.split_off(study),
            seed=study.seed,
        )
        prefers = map(_preference, correlations, null.low, null.high, null.p)
        return FREQUENCY_BY_HEAD.grid(
            {"head": range(len(scores))},
            {
                "tokens": len(tokens),
                "spearman": correlations,
                "spearman_without_norm": [spearman(row[tokens].astype(np.float64), frequency) for row in undivided],
                "null_low": null.low,
                "null_high": null.high,
                "p": null.p,
                "prefers": list(prefers),
                "slope": [slope(row[tokens], frequency) for row in scores],
                "minimum": scores.min(axis=1),
                "maximum": scores.max(axis=1),
                "standard_deviation": scores.std(axis=1),
            },
        )

    def _embedding_variance(self, layer: Layer, counts: np.ndarray | None) -> pl.DataFrame:
        variance = layer.scales.token_variance.astype(np.float64)
        tokens = _correlated(layer.vocab_size, counts, include_unseen=self.unseen == "include")
        covariance = layer.scales.mean_absolute_covariance() if layer.positions == "learned" else None
        row = {
            "tokens": layer.vocab_size,
            "seen_tokens": None if counts is None else np.count_nonzero(counts),
            "spearman_tokens": len(tokens),
            "spearman": spearman(variance[tokens], None if counts is None else counts[tokens]),
            "mean_variance": variance.mean(),
            "norm_variance": embedding_norms(layer).var(),
            "divided_norm_variance": divided_norms(layer).var(),
            "mean_absolute_covariance": covariance,
            "variance_to_covariance": variance.mean() / covariance if covariance else None,
        }
        return EMBEDDING_VARIANCE.frame({name: [value] for name, value in row.items()})

    def view(self, tables: Frames, name: str) -> View:
        """The untrained tokens with their number as a title."""
        found = super().view(tables, name)
        if name != UNTRAINED.name:
            return found
        untrained = found.frame.filter(~pl.col("trained"))
        said = f"{plural(len(untrained), 'token')} that training barely changed"
        others = len(found.frame) - len(untrained)
        return replace(found, title=f"{said}, and {others:,} that no text contains" if others else said)

    def verdict(self, tables: Frames) -> Verdict:
        """Whether at least one head prefers rare or frequent tokens more than random query biases do."""
        known = tables["frequency_by_head"].drop_nulls("spearman")
        if known.is_empty():
            if not tables["frequency_by_token"]["count"].count():
                return Verdict("untestable", "this needs corpus counts")
            return Verdict("untestable", "Tᵉ and the counts must both vary")
        prefer = known.filter(known["prefers"] != "neither")
        names = tuple(map(head_name, prefer["head"]))
        strongest = _strongest(prefer if names else known)
        rho, name = strongest["spearman"], head_name(strongest["head"])
        size = f" and |ρ| ≥ {CLEAR_CORRELATION}" if abs(rho) < CLEAR_CORRELATION else ""
        reason = (
            f"ρ is {signed(rho)} in {name}, against ±{strongest['null_high']:.3f} for 95 % of random query biases; the "
            f"slope has {p_value(strongest['p'])}; we require {ALPHA}{size}"
        )
        return Verdict("yes" if names else "no", reason, names)

    def summarize(self, tables: Frames) -> str:
        by_head, found = tables["frequency_by_head"], self.verdict(tables)
        if found.value == "untestable":
            return f"Whether heads prefer rare tokens can't be tested{self.options_note}: {found.reason}."
        if not found:
            by = f"by Tᵉ{self.options_note}"
            return f"{self.no_head} prefers rare or frequent tokens {by} beyond chance: {found.reason}."
        rare, frequent = (int((by_head["prefers"] == kind).sum()) for kind in ("rare", "frequent"))
        return (
            f"{rare} of {plural(len(by_head), 'head')} prefer{'s' * (rare == 1)} rare tokens by Tᵉ{self.options_note}, "
            f"{frequent or 'none'} frequent ones: {found.reason}."
        )

    def summarize_comparison(self, by_label: ByLabel) -> str:
        known = {label: tables["frequency_by_head"].drop_nulls("spearman") for label, tables in by_label.items()}
        best = {label: _strongest(by_head) for label, by_head in known.items() if len(by_head)}
        if not best:
            return super().summarize_comparison(by_label)
        clauses = [
            f"{signed(row['spearman'])} in {label} ({head_name(row['head'])}, "
            f"{'within' if row['prefers'] == 'neither' else 'beyond'} chance)"
            for label, row in best.items()
        ]
        return f"Strongest Spearman's ρ of Tᵉ{self.options_note} with frequency: {listed(clauses)}."


def _preference(correlation: float | None, low: float, high: float, p: float) -> str | None:
    if correlation is None:
        return None
    if abs(correlation) < CLEAR_CORRELATION or low <= correlation <= high or p > ALPHA:
        return "neither"
    return "rare" if correlation < 0 else "frequent"


def _strongest(known: pl.DataFrame) -> dict[str, Any]:
    """The head with the largest |ρ|."""
    return known.sort(pl.col("spearman").abs(), descending=True, maintain_order=True).row(0, named=True)


def _correlated(vocab_size: int, counts: np.ndarray | None, include_unseen: bool) -> np.ndarray:
    """The tokens that enter a correlation."""
    return np.arange(vocab_size) if counts is None or include_unseen else np.flatnonzero(counts)


def token_alone(
    self_assertion: pl.DataFrame,
    frequency_by_head: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Tᵉ of each token against its frequency, with and, where the heads leave space, without LayerNorm."""
    asked = chosen_heads(self_assertion, heads)
    variants = {"score": ("spearman", ""), "score_without_norm": ("spearman_without_norm", ", no LN")}
    if len(asked) > PAIRS_PER_INCH * theme.inches(width):
        del variants["score_without_norm"]
    pairs = [(head, column) for head in asked for column in variants]
    titles = [_head_title(head, *variants[column], frequency_by_head) for head, column in pairs]
    figure, panels = titled_panels(titles, width, x_label=labels.COUNT, y_label=term_name("e"), columns=len(variants))
    for (head, column), axes in zip(pairs, panels, strict=True):
        rows = self_assertion.filter(head=head)
        cloud(axes, rows["count"] + 1, rows[column])
        logarithmic_x(axes)
    return figure


def _head_title(head: int, correlation: str, variant: str, by_head: pl.DataFrame | None) -> str:
    found = by_head.filter(head=head)[correlation].to_list() if by_head is not None else []
    return head_name(head) + variant + (f": ρ {number(found[0])}" if found else "")


def token_variance(
    frequency_by_token: pl.DataFrame, embedding_variance: pl.DataFrame | None = None, *, width: theme.Width = "page"
) -> Figure:
    """Variance of each token embedding against its frequency."""
    figure, (axes,) = titled_panels(
        [_title(embedding_variance)], width, x_label=labels.COUNT, y_label="variance of the embedding"
    )
    cloud(axes, frequency_by_token["count"] + 1, frequency_by_token["variance"])
    logarithmic_x(axes)
    return figure


def _title(embedding_variance: pl.DataFrame | None) -> str:
    if embedding_variance is None or embedding_variance.is_empty():
        return "token embeddings"
    row = embedding_variance.row(0, named=True)
    return f"token embeddings: ρ = {number(row['spearman'])} over {row['spearman_tokens']} tokens"
