"""Where does position alone pull attention? Tᵖ, Tᵖᵖ, their sum and its softmax along the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from detoklens.errors import MissingError, RangeError
from detoklens.figures.spec import FigureSpec
from detoklens.questions.family_options import SplitTerms
from detoklens.questions.parameters import Heads, Parameter, QueryPositions
from detoklens.questions.question import Question, View
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, percent

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from detoklens.measures.block_runs import Runner
    from detoklens.measures.positions import Curve, OffsetCurve
    from detoklens.questions.question import ByLabel, Frames, Need
    from detoklens.questions.study import Study

DRAWN_PLACES = 22  # characters of a curve in a terminal: the whole row then fits 80, also with six-digit positions
SHOWN_DIGITS = 3

POSITIONS = Schema(
    "positions",
    "Where does position alone pull attention?",
    (
        HEAD,
        Column(
            "quantity",
            "String",
            "p, pp, their sum (p+pp), or attention: softmax of the sum over the keys in view",
        ),
        Column("query_position", "Int32", "position of the query, from 0; null where the query has no part"),
        Column("key_position", "Int32", "position of the key, up to the query's own unless the model looks both ways"),
        Column("layer_norm", "Boolean", "whether the division by σ is in"),
        Column("mean", "Float64", "value with σ averaged over the vocabulary, as the option `average` says"),
        Column(
            "low",
            "Float64",
            "lower end of the band that holds most tokens (pp, p+pp: pairs of tokens); attention: null",
        ),
        Column("high", "Float64", "upper end of that band"),
        Column("at_smallest_scale", "Float64", "value with the vocabulary's smallest σ at the query and at the key"),
        Column("at_largest_scale", "Float64", "value with the vocabulary's largest σ at the query and at the key"),
    ),
)


POSITIONS_BY_OFFSET = Schema(
    "positions_by_offset",
    "Where does distance alone pull attention?",
    (
        HEAD,
        Column("quantity", "String", "p: the position kernel, or attention: its softmax over the keys in view"),
        Column("query_position", "Int32", "position of the query, from 0; null for the kernel, which has none"),
        Column("offset", "Int32", "how many places before its query a key stands; below 0 after it"),
        Column("value", "Float64", "the kernel, not yet multiplied by the attention scale, or the attention"),
    ),
)


@dataclass(frozen=True, repr=False)
class OverVocabulary(Question):
    """A question about positions: σ depends on the token, so each of its numbers stands for the whole vocabulary.

    Counts decide its numbers where they weight the vocabulary, and only there.
    """

    average: Annotated[
        Literal["ratio-of-mean", "mean-of-ratio"],
        Parameter("The mean over the vocabulary: score / mean σ, or mean of score / σ."),
    ] = field(default="ratio-of-mean", kw_only=True)
    weights: Annotated[
        Literal["even", "frequency"],
        Parameter("Tokens count evenly, or by their frequency in corpus counts, which have no other part here."),
    ] = field(default="even", kw_only=True)

    topic = "Where does position pull?"
    doing = "σ of every token at every position"
    uses = frozenset({"counts"})

    def depends_on(self, need: Need) -> bool:
        return super().depends_on(need) and (need != "counts" or self.weights == "frequency")

    def token_weights(self, study: Study) -> np.ndarray | None:
        """How much each token counts; None where all count alike."""
        if self.weights == "even":
            return None
        if study.counts is None:
            raise MissingError("counts", "weights by frequency need corpus counts")
        return study.counts.tokens.astype("float64")


@dataclass(frozen=True, repr=False)
class OfPositions(OverVocabulary, SplitTerms):
    """The same of every family: the kernel of rotary and ALiBi positions depends on no σ, but on a mean."""

    def depends_on(self, need: Need) -> bool:
        return "frequency" in (self.weights, self.mean) if need == "counts" else super().depends_on(need)

    def settings(self, study: Study) -> dict[str, Any]:
        """Without the mean over σ where there is none."""
        given = super().settings(study)
        if study.layer.positions == "learned":
            return given
        if (self.average, self.weights) != ("ratio-of-mean", "even"):
            raise RangeError(
                f"{study.layer.name}: the kernel of {study.layer.positions} positions depends on no σ; leave its "
                "average and weights out"
            )
        return {name: given[name] for name in given if name not in ("average", "weights")}


@dataclass(frozen=True, repr=False)
class Positions(OfPositions):
    """Show Tᵖ, Tᵖᵖ, their sum and its softmax along the keys, with their spread over the vocabulary.

    The table for eyes draws each curve in one line; csv, json and parquet have every key position, with and without
    LayerNorm, the mean, the band, and the values at the vocabulary's smallest and largest σ. Of rotary and ALiBi
    positions it shows the kernel, a function of the distance, and its softmax.

    Example: detoklens positions gpt2 --query-positions 50,500,1000 --heads 1,7
    """

    query_positions: QueryPositions = None
    band: Annotated[float, Parameter("Share of the vocabulary within the band.")] = 0.95
    heads: Heads = None

    tables = (POSITIONS, POSITIONS_BY_OFFSET)
    equation = (
        "Tᵖ[h, j] = b̃_Q·(pⱼ W̃_K) / σⱼ,  Tᵖᵖ[h, i, j] = (pᵢ W̃_Q)·(pⱼ W̃_K) / (σᵢ σⱼ),  α = softmax((Tᵖ + Tᵖᵖ) / √d′);  "
        "rotary positions: Tᵖ[h, i, j] = a R_δ b, δ = i − j, a and b what all queries and all keys have in common;  "
        "ALiBi: Tᵖ = −slope · δ · √d′"
    )
    figures = (
        FigureSpec(
            "position_alone",
            "positions:position_alone",
            ("positions",),
            "Position alone (Tᵖ)",
            "How strongly each key position asserts itself, whoever asks: mean σ over the vocabulary, the band that "
            "holds {band} of the tokens, and beside it the same without LayerNorm's division.",
            per_head=True,
        ),
        FigureSpec(
            "position_comparison",
            "positions:position_comparison",
            ("positions",),
            "Position and position (Tᵖᵖ)",
            "What each query position looks for among key positions, with the band that holds {band} of the pairs of "
            "tokens.",
            per_head=True,
        ),
        FigureSpec(
            "position_scales",
            "positions:position_scales",
            ("positions",),
            "Position and position (Tᵖᵖ) with extreme σ",
            "What one query position looks for: with the vocabulary's mean, largest and smallest σ at the query and at "
            "the keys, and the band that holds {band} of the pairs of tokens.",
            per_head=True,
        ),
        FigureSpec(
            "position_sum",
            "positions:position_sum",
            ("positions",),
            "Both position terms together (Tᵖ + Tᵖᵖ)",
            "Sum of the two terms that depend on positions alone, for each query position, with the band that holds "
            "{band} of the pairs of tokens.",
            per_head=True,
        ),
        FigureSpec(
            "position_attention",
            "positions:position_attention",
            ("positions",),
            "Attention by position alone",
            "Softmax of Tᵖ + Tᵖᵖ over the keys that the query sees: the attention if positions were all there is.",
            per_head=True,
        ),
        FigureSpec(
            "kernel",
            "positions:kernel",
            ("positions_by_offset",),
            "The position kernel (Tᵖ)",
            "What the distance from query to key adds to the score, whatever the tokens: not yet multiplied by the "
            "attention scale.",
            per_head=True,
        ),
        FigureSpec(
            "kernel_attention",
            "positions:kernel_attention",
            ("positions_by_offset",),
            "Attention by distance alone",
            "Softmax of the kernel over the keys that the query sees: the attention if distance were all there is.",
            per_head=True,
        ),
    )
    compared_figures = tuple(
        FigureSpec(
            f"compare_positions_{quantity}",
            "positions:compare_positions",
            ("positions",),
            f"Position's pull in several checkpoints: {words}",
            f"{meaning} in each head, one line a checkpoint.",
            per_head=True,
            options=(("quantity", quantity),),
        )
        for quantity, words, meaning in (
            ("p", "position alone (Tᵖ)", "How strongly each key position asserts itself"),
            ("attention", "attention by position alone", "Softmax of Tᵖ + Tᵖᵖ from a query position that all have"),
        )
    )

    def settings(self, study: Study) -> dict[str, Any]:
        return super().settings(study) | {"query_positions": self._queries(study)}

    def specs(self) -> Sequence[FigureSpec]:
        return [spec.with_band(self.band) for spec in self.figures]

    def ask(self, study: Study, runner: Runner) -> Frames:
        import polars as pl

        from detoklens.measures.positions import offset_curves, position_curves

        asked = pl.col("head").is_in(study.heads(self.heads))
        if study.layer.positions != "learned":
            by_offset = offset_curves(study.layer, self._queries(study), self.split_off(study))
            return {"positions_by_offset": pl.concat([_offset_table(curve) for curve in by_offset]).filter(asked)}
        curves = position_curves(
            study.layer, self._queries(study), self.average, self.token_weights(study), self.band, runner.watch
        )
        frame = pl.concat([_curve_table(curve) for curve in curves])
        return {"positions": frame.filter(asked)}

    def say(self, tables: Frames) -> str:
        """How sharply the heads look from the middle one of the query positions."""
        peaks, middle = _peaks(tables)
        sharpest, broadest = (_peak_shown(peaks.row(place, named=True)) for place in (0, -1))
        of_all = f"sharpest in {sharpest} and broadest in {broadest}" if len(peaks) > 1 else f"highest in {sharpest}"
        return f"By position alone, attention from position {middle} is {of_all}."

    def say_compared(self, by_label: ByLabel) -> str:
        """How sharply each model's sharpest head looks."""
        sharpest = {label: _peaks(tables)[0].row(0, named=True) for label, tables in by_label.items()}
        said = [f"{_share(row['mean'])} in {label} ({head_name(row['head'])})" for label, row in sharpest.items()]
        return f"By position alone the sharpest head puts on a single key: {listed(said)}."

    def views(self, tables: Frames) -> Sequence[View]:
        """One line per curve with LayerNorm: its ends, its peak, its course from the first key to the last."""
        import polars as pl

        if "positions" not in tables:
            return [_offset_view(tables["positions_by_offset"])]
        shown = tables["positions"].filter(pl.col("layer_norm") & (pl.col("quantity") != "p+pp"))
        by_curve = shown.sort("head", maintain_order=True).group_by(
            "head", "quantity", "query_position", maintain_order=True
        )
        lines = by_curve.agg(
            pl.col("mean").min().round_sig_figs(SHOWN_DIGITS).alias("lowest"),
            pl.col("mean").max().round_sig_figs(SHOWN_DIGITS).alias("highest"),
            pl.col("key_position").get(pl.col("mean").arg_max()).alias("at key"),
            pl.col("mean").alias("along the keys"),
        )
        drawn = [_drawn(curve) for curve in lines["along the keys"]]
        return [
            View(
                POSITIONS.question,
                lines.rename({"query_position": "query"}).with_columns(pl.Series("along the keys", drawn, pl.String)),
            )
        ]

    def _queries(self, study: Study) -> list[int]:
        from detoklens.measures.positions import chosen_queries

        return chosen_queries(study.layer, self.query_positions)


def _curve_table(curve: Curve) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    n_heads, n_keys = curve.mean.shape
    rows = n_heads * n_keys
    return POSITIONS.frame(
        {
            "head": np.repeat(np.arange(n_heads), n_keys),
            "quantity": [curve.quantity] * rows,
            "query_position": pl.Series([curve.query_position] * rows, dtype=pl.Int32),
            "key_position": np.tile(np.arange(n_keys) + curve.first_key, n_heads),
            "layer_norm": [curve.layer_norm] * rows,
            **{
                name: getattr(curve, name).ravel()
                for name in ("mean", "low", "high", "at_smallest_scale", "at_largest_scale")
            },
        }
    )


def _offset_table(curve: OffsetCurve) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    n_heads, n_offsets = curve.values.shape
    return POSITIONS_BY_OFFSET.frame(
        {
            "head": np.repeat(np.arange(n_heads), n_offsets),
            "quantity": [curve.quantity] * curve.values.size,
            "query_position": pl.Series([curve.query_position] * curve.values.size, dtype=pl.Int32),
            "offset": np.tile(np.arange(n_offsets) + curve.first_offset, n_heads),
            "value": curve.values.ravel(),
        }
    )


def _offset_view(by_offset: pl.DataFrame) -> View:
    """One line per curve: its ends, its peak, its course from the query back."""
    import polars as pl

    curves = by_offset.sort("head", maintain_order=True).group_by(
        "head", "quantity", "query_position", maintain_order=True
    )
    lines = curves.agg(
        pl.col("value").min().round_sig_figs(SHOWN_DIGITS).alias("lowest"),
        pl.col("value").max().round_sig_figs(SHOWN_DIGITS).alias("highest"),
        pl.col("offset").get(pl.col("value").arg_max()).alias("at offset"),
        pl.col("value").alias("along the offsets"),
    )
    drawn = pl.Series("along the offsets", [_drawn(curve) for curve in lines["along the offsets"]], pl.String)
    return View(POSITIONS_BY_OFFSET.question, lines.rename({"query_position": "query"}).with_columns(drawn))


def _along_keys(by_offset: pl.DataFrame) -> pl.DataFrame:
    """Attention by distance as attention by key position."""
    import polars as pl

    key = (pl.col("query_position") - pl.col("offset")).alias("key_position")
    return by_offset.with_columns(key).rename({"value": "mean"})


def _peaks(tables: Frames) -> tuple[pl.DataFrame, int]:
    """From the middle query position: each head's largest attention and its key, the sharpest head first."""
    positions = tables["positions"] if len(tables.get("positions", ())) else _along_keys(tables["positions_by_offset"])
    attention = positions.filter(quantity="attention")
    queries = attention["query_position"].unique().sort()
    middle = queries[len(queries) // 2]
    there = attention.filter(query_position=middle).sort("mean", "key_position", descending=[True, True])
    peaks = there.unique("head", keep="first", maintain_order=True)
    return peaks.sort("mean", "head", descending=[True, False]), middle


def _peak_shown(peak: dict[str, Any]) -> str:
    return f"{head_name(peak['head'])} ({_share(peak['mean'])} on key {peak['key_position']})"


def _share(share: float) -> str:
    """In percent; a share below one percent keeps a digit, since even attention is that small on many keys."""
    return percent(share) if share >= 0.01 else f"{100 * share:.1g} %"


def _drawn(curve: pl.Series) -> str:
    from detoklens.tables.rendering import sparkline

    return sparkline(curve.drop_nulls().to_list(), DRAWN_PLACES)
