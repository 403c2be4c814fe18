"""Which positions stand out? Variances of position embeddings, the switch at position 0, the last position."""

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
NAMED = 6  # outliers that a sentence names
SHOWN_DIGITS = 3

POSITION_VARIANCE = Schema(
    "position_variance",
    "Which position embeddings have an exceptional variance?",
    (
        Column("position", "Int32", "row of the position table, from 0"),
        Column("variance", "Float64", "population variance of the embedding over its features"),
        Column("scale", "Float64", "mean over the vocabulary of σ(e + p), what LayerNorm divides by there"),
        Column(
            "deviation", "Float64", "modified z-score of log variance against its neighbours; null if most are equal"
        ),
        Column("outlier", "Boolean", "deviation beyond ±5 and variance more than a quarter from its neighbours'"),
    ),
)

SWITCH = Schema(
    "switch",
    "How much of position 0's jump in Tᵖ is LayerNorm's?",
    (
        HEAD,
        Column("first_without_norm", "Float64", "Tᵖ at position 0 without the division by σ"),
        Column("next_without_norm", "Float64", "the same, mean of the next ten positions"),
        Column("first", "Float64", "Tᵖ at position 0"),
        Column("next", "Float64", "Tᵖ, mean of the next ten positions"),
        Column("jump_without_norm", "Float64", "first − next, both without the division by σ"),
        Column("jump", "Float64", "first − next"),
        Column("by_scale", "Float64", "the part of the jump that comes from σ's difference"),
        Column("by_score", "Float64", "the part that comes from the difference of the undivided scores"),
        Column("scale_share", "Float64", "by_scale / jump; null where there is no jump"),
    ),
)

UNDERTRAINED = Schema(
    "undertrained",
    "Does the last query position depart from those before it?",
    (
        HEAD,
        Column("size", "Float64", "root mean square of Tᵖᵖ without LayerNorm at the last query position"),
        Column("usual_size", "Float64", "the same of the mean of the four queries before it"),
        Column("departure", "Float64", "‖last − mean of the four before‖ / ‖that mean‖, over keys that all five see"),
        Column(
            "usual_departure", "Float64", "the largest departure of one of the four from the mean of the other three"
        ),
        Column(
            "undertrained",
            "Boolean",
            "usual at most 0.5, departure at least 0.5 and three times the usual; null if all are",
        ),
    ),
)

TRAINED_RANGE = Schema(
    "trained_range",
    "Which positions were trained?",
    (
        Column("positions", "Int32", "rows of the position table"),
        Column("trained", "Int32", "rows from 0 on that were trained; the rest is as it was drawn"),
        Column("trained_variance", "Float64", "median variance of the trained rows"),
        Column("untrained_variance", "Float64", "median variance of the rest; null where there is none"),
        Column("initial_variance", "Float64", "what rows are drawn with by config.json; null where it does not say"),
        Column("trained_correlation", "Float64", "median correlation of neighbours among the trained rows"),
        Column("untrained_correlation", "Float64", "the same in the rest: about 0, since each was drawn alone"),
    ),
)

LAST_QUERIES = Schema(
    "last_queries",
    "What do the last query positions look for, LayerNorm left out?",
    (
        HEAD,
        Column("query_position", "Int32", "one of the last five positions"),
        Column("key_position", "Int32", "position of the key, from 0 to the query's own"),
        Column("comparison", "Float64", "Tᵖᵖ without the division by σ"),
    ),
)


@dataclass(frozen=True, repr=False)
class Variance(OverVocabulary):
    """Show the variance of position embeddings, the switch at position 0, and how far the last position departs.

    The table for eyes has the first ten positions, the last ten, and the outliers; csv, json and parquet have all.

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
            "Variance of all, of the first ten and of the last ten position embeddings; squares mark outliers.",
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
            "Tᵖᵖ without LayerNorm for the last five query positions; odd: the last line departs from the others, "
            "as if hardly trained, which can't be told where they are untrained too, or too few.",
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
            "last_queries": _last_queries(rows),
        }

    def summarize(self, tables: Frames) -> str:
        """Which positions were trained, if not all, how many stand out by their variance, and that of position 0."""
        trained = tables["trained_range"].row(0, named=True)
        return _say_untrained(trained) + self._say_outliers(tables["position_variance"].head(trained["trained"]))

    def _say_outliers(self, variance: pl.DataFrame) -> str:
        ratio = _first_against_the_median(variance)
        outliers = variance.filter(outlier=True)["position"].to_list()
        if not outliers:
            return f"No position embedding departs from its neighbours by its variance{ratio}."
        one = len(outliers) == 1
        number = "One position embedding departs" if one else f"{len(outliers)} position embeddings depart"
        which = f"position{'' if one else 's'} {listed_some([str(place) for place in outliers], NAMED)}"
        return f"{number} from {'its' if one else 'their'} neighbours by variance ({which}){ratio}."

    def summarize_comparison(self, by_label: ByLabel) -> str:
        found = {label: tables["position_variance"]["outlier"] for label, tables in by_label.items()}
        said = [f"{int(outlier.sum())} of {len(outlier)} in {label}" for label, outlier in found.items()]
        return f"Position embeddings that depart from their neighbours by variance: {listed(said)}."

    def views(self, tables: Frames) -> Sequence[View]:
        """The positions at both ends and the outliers, the switch without what it is made of, the last position."""
        switch = tables["switch"].select(
            "head", "first", "next", "jump", "by_scale", "scale_share", **{"first, no LN": "first_without_norm"}
        )
        return [
            View("which positions stand out?", _exceptional(tables["position_variance"])),
            View(
                "how much of position 0's jump in Tᵖ is LayerNorm's?",
                switch.with_columns(cs.float().round_sig_figs(SHOWN_DIGITS)),
            ),
            View("does the last query position depart in Tᵖᵖ without LayerNorm?", tables["undertrained"]),
        ]


def _position_variance(layer: Layer, summary: ScaleSummary, trained: int) -> pl.DataFrame:
    """Which position embeddings have an exceptional variance, and what does LayerNorm divide by there?

    Trained rows are compared with trained ones, the rest with the rest.
    """
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
    """How far the last row departs; no verdict where those before it are untrained, too."""
    departure = departure_of_last(rows)
    found = departure.undertrained()
    verdicts = pl.Series(found if is_trained else [None] * len(found), dtype=pl.Boolean)
    return UNDERTRAINED.frame({"head": range(len(verdicts)), **asdict(departure), "undertrained": verdicts})


def _last_queries(rows: dict[int, np.ndarray]) -> pl.DataFrame:
    return pl.concat([_query_table(query, values) for query, values in rows.items()])


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


def _say_untrained(found: Mapping[str, Any]) -> str:
    """Where training ended, and what shows it; nothing where it reached all positions."""
    if found["trained"] == found["positions"]:
        return ""
    initial = found["initial_variance"]
    drawn = "" if initial is None else f", that of the config's initializer {initial:.2g}"
    variance, before = found["untrained_variance"], found["trained_variance"]
    alike, alike_before = found["untrained_correlation"], found["trained_correlation"]
    return (
        f"Only the first {found['trained']} of {found['positions']} positions are trained: from position "
        f"{found['trained']} on the variance is {variance:.2g} (before {before:.2g}{drawn}) and neighbours correlate "
        f"by {alike:.2f} (before {alike_before:.2f}). "
    )


def _first_against_the_median(variance: pl.DataFrame) -> str:
    median = float(variance["variance"].median() or 0.0)  # type: ignore[arg-type]
    first = variance.row(0, named=True)
    return f"; position 0's variance is {first['variance'] / median:.1f} times the median" if median else ""


def _exceptional(positions: pl.DataFrame) -> pl.DataFrame:
    """The first ten positions, the last ten, and the outliers."""
    place = pl.col("position")
    return positions.filter((place < ENDS) | (place >= len(positions) - ENDS) | pl.col("outlier"))
