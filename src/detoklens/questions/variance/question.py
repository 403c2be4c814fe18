"""Show the variance of position embeddings, the switch at position 0, and the last position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import polars.selectors as cs

from detoklens.figures.spec import FigureSpec
from detoklens.measures.positions import PositionScores, summarise_scales, trained_range
from detoklens.measures.variance import departure_of_last, deviations, last_rows, outliers, switch
from detoklens.questions.base import View
from detoklens.questions.positions.question import OverVocabulary
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import listed, listed_some

if TYPE_CHECKING:
    from detoklens.measures.positions import ScaleSummary
    from detoklens.parallel import Runner
    from detoklens.questions.base import ByLabel, Frames
    from detoklens.questions.study import Study
    from detoklens.scores.layer import Layer


ENDS = 10  # positions shown from either end
NAMED = 6  # outliers in a summary
SHOWN_DIGITS = 3

POSITION_VARIANCE = Schema(
    "position_variance",
    "Variance of position embeddings",
    (
        Column("position", "Int32", "row of the position table, from 0"),
        Column("variance", "Float64", "population variance of the embedding over its features"),
        Column("scale", "Float64", "mean over the vocabulary of σ(e + p), LayerNorm's divisor"),
        Column(
            "deviation",
            "Float64",
            "modified z-score of log variance relative to its neighbours; null if most are equal",
        ),
        Column("outlier", "Boolean", "deviation beyond ±5 and variance more than a quarter from its neighbours'"),
    ),
)

SWITCH = Schema(
    "switch",
    "LayerNorm's part of position 0's jump in Tᵖ",
    (
        HEAD,
        Column("first_without_norm", "Float64", "Tᵖ at position 0 without the division by σ"),
        Column("next_without_norm", "Float64", "the same, mean of the next ten positions"),
        Column("first", "Float64", "Tᵖ at position 0"),
        Column("next", "Float64", "Tᵖ, mean of the next ten positions"),
        Column("jump_without_norm", "Float64", "first − next, both without the division by σ"),
        Column("jump", "Float64", "first − next"),
        Column("by_scale", "Float64", "part of the jump due to the difference in σ"),
        Column("by_score", "Float64", "part due to the difference in undivided scores"),
        Column("scale_share", "Float64", "by_scale / jump; null without a jump"),
    ),
)

UNDERTRAINED = Schema(
    "undertrained",
    "Deviation of the last query position",
    (
        HEAD,
        Column("size", "Float64", "root mean square of Tᵖᵖ without LayerNorm at the last query position"),
        Column("usual_size", "Float64", "the same for the mean of the four queries before it"),
        Column("departure", "Float64", "‖last − mean of the four before‖ / ‖that mean‖, over keys visible to all five"),
        Column(
            "usual_departure", "Float64", "the largest departure of one of the four from the mean of the other three"
        ),
        Column(
            "undertrained",
            "Boolean",
            "usual_departure at most 0.5, departure at least 0.5 and three times that; null if untestable",
        ),
    ),
)

TRAINED_RANGE = Schema(
    "trained_range",
    "Trained positions",
    (
        Column("positions", "Int32", "rows of the position table"),
        Column("trained", "Int32", "number of trained rows, from 0; the rest still has its initial values"),
        Column("trained_variance", "Float64", "median variance of the trained rows"),
        Column("untrained_variance", "Float64", "median variance of the rest; null if there is none"),
        Column("initial_variance", "Float64", "initial variance of rows by config.json; null if not given"),
        Column("trained_correlation", "Float64", "median correlation of neighbouring trained rows"),
        Column(
            "untrained_correlation", "Float64", "the same for the rest: about 0, since rows are drawn independently"
        ),
    ),
)

LAST_QUERIES = Schema(
    "last_queries",
    "Tᵖᵖ of the last query positions without LayerNorm",
    (
        HEAD,
        Column("query_position", "Int32", "one of the last five positions"),
        Column("key_position", "Int32", "position of the key, from 0 to the query's own"),
        Column("comparison", "Float64", "Tᵖᵖ without the division by σ"),
    ),
)


@dataclass(frozen=True, repr=False)
class Variance(OverVocabulary):
    """Show the variance of position embeddings and its anomalies.

    The text table shows the first ten positions, the last ten, and the outliers; csv, json and parquet contain all.

    Example: detoklens variance gpt2
    """

    needs = frozenset({"position_table"})
    tables = (POSITION_VARIANCE, SWITCH, UNDERTRAINED, TRAINED_RANGE, LAST_QUERIES)
    compared_tables = ("position_variance",)
    equation = "Var(pⱼ) over the features;  σ(x) = √(Var(x) + ε)"
    figures = (
        FigureSpec(
            "position_variance",
            "variance:position_variance",
            ("position_variance",),
            "Variance of position embeddings",
            "Variance of all, the first ten and the last ten position embeddings; squares mark outliers.",
        ),
        FigureSpec(
            "first_position",
            "variance:first_position",
            ("switch",),
            "The switch at position 0",
            "Tᵖ at position 0 and its mean over the next ten positions, without and with LayerNorm's division.",
        ),
        FigureSpec(
            "last_positions",
            "variance:last_positions",
            ("last_queries",),
            "The last query positions",
            "Tᵖᵖ without LayerNorm for the last five query positions. Odd: the last one deviates as if undertrained; "
            "untestable if the others are untrained too, or too few.",
            optional=("undertrained",),
            per_head=True,
        ),
    )

    def ask(self, study: Study, runner: Runner) -> Frames:
        trained = trained_range(study.layer)
        summary = summarise_scales(study.layer.scales, self.token_weights(study), watch=runner.watch)
        scores = PositionScores.of(study.layer)
        switched, rows = switch(scores, summary.inverse(self.average)), last_rows(scores)
        return {
            "position_variance": _position_variance(study.layer, summary, trained.trained),
            "switch": SWITCH.frame({"head": range(study.layer.n_heads)} | asdict(switched)),
            "undertrained": _undertrained(rows, trained.is_whole),
            "trained_range": TRAINED_RANGE.frame({name: [value] for name, value in asdict(trained).items()}),
            "last_queries": pl.concat([_query_table(query, values) for query, values in rows.items()]),
        }

    def summarize(self, tables: Frames) -> str:
        trained = tables["trained_range"].row(0, named=True)
        return _untrained_part(trained) + _outlier_part(tables["position_variance"].head(trained["trained"]))

    def summarize_comparison(self, by_label: ByLabel) -> str:
        found = {label: tables["position_variance"]["outlier"] for label, tables in by_label.items()}
        said = [f"{int(outlier.sum())} of {len(outlier)} in {label}" for label, outlier in found.items()]
        return f"Variance outliers among position embeddings: {listed(said)}."

    def views(self, tables: Frames) -> Sequence[View]:
        switch = tables["switch"].select(
            "head", "first", "next", "jump", "by_scale", "scale_share", **{"first, no LN": "first_without_norm"}
        )
        return [
            View("outliers and both ends of the position table", _exceptional(tables["position_variance"])),
            View(
                SWITCH.question,
                switch.with_columns(cs.float().round_sig_figs(SHOWN_DIGITS)),
            ),
            View("deviation of the last query position in Tᵖᵖ without LayerNorm", tables["undertrained"]),
        ]


def _position_variance(layer: Layer, summary: ScaleSummary, trained: int) -> pl.DataFrame:
    """Trained rows are compared with trained ones, the rest with the rest."""
    variances = layer.scales.position_variance.astype(np.float64)
    parts = [part for part in (variances[:trained], variances[trained:]) if len(part)]
    return POSITION_VARIANCE.frame(
        {
            "position": np.arange(len(variances)),
            "variance": variances,
            "scale": summary.mean,
            "deviation": np.concatenate([deviations(part) for part in parts]),
            "outlier": np.concatenate([outliers(part) for part in parts]),
        }
    )


def _undertrained(rows: dict[int, np.ndarray], is_trained: bool) -> pl.DataFrame:
    """The deviation of the last row; no verdict if the rows before it are untrained, too."""
    departure = departure_of_last(rows)
    found = departure.undertrained()
    verdicts = pl.Series(found if is_trained else [None] * len(found), dtype=pl.Boolean)
    return UNDERTRAINED.frame({"head": range(len(verdicts)), **asdict(departure), "undertrained": verdicts})


def _query_table(query: int, values: np.ndarray) -> pl.DataFrame:
    n_heads, n_keys = values.shape
    return LAST_QUERIES.frame(
        {
            "head": np.repeat(np.arange(n_heads), n_keys),
            "query_position": np.full(values.size, query),
            "key_position": np.tile(np.arange(n_keys), n_heads),
            "comparison": values.ravel(),
        }
    )


def _untrained_part(found: Mapping[str, Any]) -> str:
    """Where training ended and the evidence; empty if all positions are trained."""
    if found["trained"] == found["positions"]:
        return ""
    initial = found["initial_variance"]
    drawn = "" if initial is None else f", initializer {initial:.2g}"
    variance, before = found["untrained_variance"], found["trained_variance"]
    alike, alike_before = found["untrained_correlation"], found["trained_correlation"]
    return (
        f"Only the first {found['trained']} of {found['positions']} positions are trained: later ones have variance "
        f"{variance:.2g} (trained {before:.2g}{drawn}) and neighbour correlation {alike:.2f} (trained "
        f"{alike_before:.2f}). "
    )


def _outlier_part(variance: pl.DataFrame) -> str:
    median, first = float(variance["variance"].median() or 0.0), variance["variance"][0]  # type: ignore[arg-type]
    ratio = f"; position 0 has {first / median:.1f} times the median variance" if median else ""
    outliers = list(map(str, variance.filter(outlier=True)["position"]))
    if not outliers:
        return f"No position embedding is a variance outlier{ratio}."
    number = (
        "One position embedding is a variance outlier"
        if len(outliers) == 1
        else (f"{len(outliers)} position embeddings are variance outliers")
    )
    return f"{number} ({listed_some(outliers, NAMED)}){ratio}."


def _exceptional(positions: pl.DataFrame) -> pl.DataFrame:
    place = pl.col("position")
    return positions.filter((place < ENDS) | (place >= len(positions) - ENDS) | pl.col("outlier"))
