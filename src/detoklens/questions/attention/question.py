"""Does attention on real text agree with what position alone predicts? Every head, from some query positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import polars as pl

from detoklens.errors import RangeError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.attention import region_masses, text_attention
from detoklens.measures.positions import chosen_queries
from detoklens.questions.base import View
from detoklens.questions.options import SplitTerms
from detoklens.questions.parameters import Heads, Parameter, QueryPositions
from detoklens.questions.texts import check_reachable, too_short
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, plural

if TYPE_CHECKING:
    from detoklens.measures.attention import Measured
    from detoklens.parallel import Runner
    from detoklens.questions.base import ByLabel, Frames
    from detoklens.questions.study import Study


QUERY_POSITION = Column("query_position", "Int32", "position of the token that attends, from 0")
DOCUMENTS = Column("documents", "Int64", "documents long enough to have this query position")
REGIONS = ("first", "far", "recent", "self", "next")

ATTENTION = Schema(
    "attention",
    "How much does text attend to each position, and what did the weights alone predict?",
    (
        HEAD,
        QUERY_POSITION,
        Column(
            "key_position",
            "Int32",
            "position of the token attended to, to the query's own or, looking both ways, the last",
        ),
        Column("mean", "Float64", "attention, mean over documents"),
        Column("low", "Float64", "lower edge of the band that holds the asked share of documents"),
        Column("high", "Float64", "upper edge of that band"),
        Column("predicted", "Float64", "softmax of Tᵖ + Tᵖᵖ: the attention if positions were all there is"),
        DOCUMENTS,
    ),
)

ATTENTION_AGREEMENT = Schema(
    "attention_agreement",
    "Does attention on text agree with what position alone predicts?",
    (
        HEAD,
        QUERY_POSITION,
        Column("total_variation", "Float64", "half the sum of |mean attention − predicted|: 0 equal, 1 disjoint"),
        Column("document_total_variation", "Float64", "the same for each document's own attention, then the mean"),
        Column("measured_first", "Float64", "mean attention on position 0"),
        Column("measured_far", "Float64", "mean attention on all keys that are neither first, recent nor self"),
        Column("measured_recent", "Float64", "mean attention on the 15 keys before the query (never position 0)"),
        Column("measured_self", "Float64", "mean attention on the query's own position"),
        Column("measured_next", "Float64", "mean attention on the 15 keys after the query; only if it sees them"),
        Column("predicted_first", "Float64", "predicted attention on position 0"),
        Column("predicted_far", "Float64", "predicted attention on far keys"),
        Column("predicted_recent", "Float64", "predicted attention on recent keys"),
        Column("predicted_self", "Float64", "predicted attention on the query's own position"),
        Column("predicted_next", "Float64", "predicted attention on next keys"),
        DOCUMENTS,
    ),
)


@dataclass(frozen=True, repr=False)
class Attention(SplitTerms):
    """Show layer 0's real attention on text beside the softmax of Tᵖ + Tᵖᵖ, and how far apart they are.

    First is position 0, self the query's own, recent the 15 before it, far the rest. Unless query positions are named,
    the paper's 50, 500 and 1000 of 1024 are scaled to the model's trained positions. Where a folder is named to write
    into, an interrupted run is continued by asking again. Rotary and ALiBi positions have no Tᵖᵖ: there Tᵖ, the kernel,
    predicts. A model that looks both ways attends to the 15 next keys, too; its documents are all cut to one length, by
    default their median, and shorter ones left out.

    Example: detoklens attention gpt2 --text 'openwebtext/*.parquet' --query-positions 500 --heads 1,7
    """

    query_positions: QueryPositions = None
    heads: Heads = None
    band: Annotated[float, Parameter("The share of documents that the band holds.")] = 0.95

    topic = "What happens on text?"
    progress_label = "measuring attention on text"
    needs = frozenset({"text"})
    tables = (ATTENTION_AGREEMENT, ATTENTION)
    by: ClassVar[Mapping[str, str]] = {"query": "attention_agreement", "key": "attention"}
    parallel = True
    equation = (
        "α[h, i, :] = softmax over j ≤ i of s[h, i, j] / √d′, over all j where a model looks both ways,  s = Tᵉᵉ + "
        "Tᵖᵖ + Tᵖᵉ + Tᵉᵖ + Tᵉ + Tᵖ, as far as the model has them"
    )
    figures = (
        FigureSpec(
            "attention",
            "attention",
            ("attention",),
            "Attention on text and by position alone",
            "Mean attention over documents with the band that holds {band} of them, against the softmax of Tᵖ + Tᵖᵖ "
            "that the weights alone predict, for one query position.",
            per_head=True,
        ),
        FigureSpec(
            "attention_near",
            "attention:attention_near",
            ("attention",),
            "Attention on the nearest keys",
            "Mean attention on the last 30 keys up to the query, with the band that holds {band} of documents, against "
            "what the weights alone predict.",
            per_head=True,
        ),
        FigureSpec(
            "attention_parts",
            "attention:attention_parts",
            ("attention_agreement",),
            "Where attention goes",
            "Attention on the first position, on far keys, on the 15 keys before the query and on the query itself: "
            "measured on text (upper bar) and predicted from position alone (lower bar), mean over query positions.",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.band <= 1:
            raise RangeError(f"a band of {self.band:g} is no share of documents; give more than 0, up to 1, as 0.95")

    def settings(self, study: Study) -> dict[str, Any]:
        return super().settings(study) | {"query_positions": self._positions(study)}

    def specs(self) -> Sequence[FigureSpec]:
        return [spec.with_band(self.band) for spec in self.figures]

    def ask(self, study: Study, runner: Runner) -> Frames:
        positions, heads = self._positions(study), study.heads(self.heads)
        for line in too_short(study.documents, positions):
            runner.say(line)
        documents = study.documents if study.layer.is_causal else self._cut(study, runner)
        measured = text_attention(study.layer, documents, positions, heads, self.band, runner, self.split_off(study))
        agreement = _agreement_table(measured, heads)
        if study.layer.is_causal:
            agreement = agreement.drop("measured_next", "predicted_next")
        return {"attention_agreement": agreement, "attention": _key_table(measured, heads)}

    def _cut(self, study: Study, runner: Runner) -> list[np.ndarray]:
        """The documents of a model that looks both ways, all of one length."""
        length = self._length(study) or 0
        kept = [ids[:length] for ids in study.documents if len(ids) >= length]
        runner.say(
            f"{len(kept):,} of {len(study.documents):,} documents are measured, cut to {length} tokens each, since "
            "every key counts where a model looks both ways"
        )
        return kept

    def _length(self, study: Study) -> int | None:
        """How long documents are cut: as asked; of a model that looks both ways, else the median length."""
        if study.layer.is_causal or study.texts.length is not None:
            return study.texts.length
        lengths = sorted(len(ids) for ids in study.documents)
        return lengths[len(lengths) // 2]

    def summarize(self, tables: Frames) -> str:
        """In which head position alone predicts attention best, and in which worst."""
        agreement = tables["attention_agreement"]
        by_head = agreement.group_by("head").mean().sort("total_variation", "head")
        best, worst = by_head.row(0, named=True), by_head.row(-1, named=True)
        on = f"On {plural(max(agreement['documents']), 'document')}"
        if len(by_head) == 1:
            return (
                f"{on} the attention of {head_name(best['head'])} is {best['total_variation']:.2f} away from what "
                "position alone predicts, in total variation (0 is equal, 1 disjoint)."
            )
        return (
            f"{on} attention is nearest to what position alone "
            f"predicts in {head_name(best['head'])} (total variation {best['total_variation']:.2f}; 0 is equal, "
            f"1 disjoint) and farthest in {head_name(worst['head'])} ({worst['total_variation']:.2f})."
        )

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """How far attention is from what position alone predicts, on average."""
        said = [
            f"{_mean(tables['attention_agreement'], 'total_variation'):.2f} in {label}"
            for label, tables in by_label.items()
        ]
        return (
            "Total variation of attention on text from what position alone predicts (0 equal, 1 disjoint), mean over "
            f"heads and query positions: {listed(said)}."
        )

    def views(self, tables: Frames) -> Sequence[View]:
        """Where attention goes, with the prediction in brackets: both sources of a region in one column."""
        agreement = tables["attention_agreement"]
        shown = agreement.select(
            "head",
            agreement["query_position"].alias("query"),
            "total_variation",
            *(_beside(agreement, region) for region in REGIONS if f"measured_{region}" in agreement.columns),
            "documents",
            "document_total_variation",
        )
        return [View("where attention on text goes, and (in brackets) would go by position alone", shown)]

    def _positions(self, study: Study) -> list[int]:
        """Those asked for; else the paper's, scaled to the trained positions or to the length of the cut documents."""
        length = self._length(study)
        positions = chosen_queries(study.layer, self.query_positions, length)
        check_reachable(positions, length)
        return positions


def _mean(frame: pl.DataFrame, column: str) -> float:
    return float(frame[column].to_numpy().mean())


def _beside(agreement: pl.DataFrame, region: str) -> pl.Series:
    """`12 (30) %`: measured and predicted attention on a region."""
    both = zip(agreement[f"measured_{region}"], agreement[f"predicted_{region}"], strict=True)
    return pl.Series(region, [f"{100 * one:.0f} ({100 * other:.0f}) %" for one, other in both], pl.String)


def _key_table(measured: Sequence[Measured], heads: list[int]) -> pl.DataFrame:
    frames = [
        ATTENTION.frame(
            {
                "head": np.repeat(heads, each.mean.shape[1]),
                "query_position": np.full(each.mean.size, each.query_position),
                "key_position": np.tile(np.arange(each.mean.shape[1]), len(heads)),
                "mean": each.mean.ravel(),
                "low": each.low.ravel(),
                "high": each.high.ravel(),
                "predicted": each.predicted.ravel(),
                "documents": np.full(each.mean.size, each.documents),
            }
        )
        for each in measured
    ]
    return pl.concat(frames).sort("head", "query_position", "key_position")


def _agreement_table(measured: Sequence[Measured], heads: list[int]) -> pl.DataFrame:
    frames = [
        ATTENTION_AGREEMENT.frame(
            {
                "head": heads,
                "query_position": np.full(len(heads), each.query_position),
                "total_variation": each.distance,
                "document_total_variation": each.document_distance,
                **_masses("measured", each.mean, each.query_position),
                **_masses("predicted", each.predicted, each.query_position),
                "documents": np.full(len(heads), each.documents),
            }
        )
        for each in measured
    ]
    return pl.concat(frames).sort("head", "query_position")


def _masses(source: str, attention: np.ndarray, query: int) -> dict[str, np.ndarray]:
    return {f"{source}_{region}": mass for region, mass in region_masses(attention, query).items()}
