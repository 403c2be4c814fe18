"""How much would attention on real text change if one term were missing? Each term, in every head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import polars as pl

from detoklens.figures.spec import FigureSpec
from detoklens.measures.contributions import PAPER, PUBLISHED, contributions
from detoklens.measures.positions import chosen_queries
from detoklens.questions.attention.question import DOCUMENTS, QUERY_POSITION
from detoklens.questions.options import SplitTerms
from detoklens.questions.parameters import Heads, Parameter, in_one_word, whole_numbers
from detoklens.questions.texts import check_reachable, too_short
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, listed_some, percent, plural, term_symbol

if TYPE_CHECKING:
    from detoklens.measures.contributions import Divergences, Formula
    from detoklens.parallel import Runner
    from detoklens.questions.base import ByLabel, Frames
    from detoklens.questions.study import Study


HARDLY = 0.005  # nats: would be written as 0.00
NAMED = 6  # heads of one leading term in a sentence
TERM = Column("term", "String", "the term that is left out: ee, pp, pe, ep, e or p, as far as the model has it")

CONTRIBUTIONS = Schema(
    "contributions",
    "How much would the attention on text change if a term were missing?",
    (
        HEAD,
        QUERY_POSITION,
        TERM,
        Column("kl", "Float64", "KL divergence in nats of attention without the term and whole attention, mean"),
        Column("standard_error", "Float64", "standard error of that mean over documents; null for one document"),
        Column("top_changed", "Float64", "share of documents where another token becomes the most attended one"),
        DOCUMENTS,
    ),
)

CONTRIBUTIONS_BY_HEAD = Schema(
    "contributions_by_head",
    "Which terms carry a head's attention, over all its query positions?",
    (
        HEAD,
        TERM,
        Column("kl", "Float64", "KL divergence in nats: mean over documents, then over query positions"),
        Column("share", "Float64", "this term's part of the sum of the head's KL divergences"),
        Column("top_changed", "Float64", "share of documents where the top token changes: mean over positions"),
        Column("rank", "Int32", "1 for the term whose absence changes this head's attention most"),
    ),
)


@dataclass(frozen=True, repr=False)
class Contributions(SplitTerms):
    """Take away one term at a time: by how many nats does the attention on real text move?

    Looks from every position unless told otherwise. Documents are the ones whose texts have the smallest sha256, so
    anyone gets the same. Where a folder is named to write into, an interrupted run is continued by asking again.
    Numbers are the same whatever the number of workers. Learned positions make six terms, rotary ones four (ee, e, ep
    and the kernel p), ALiBi three.

    Example: detoklens contributions gpt2 --text 'openwebtext/*.parquet' --prepend-bos --documents 5000 --out results
    """

    query_positions: Annotated[
        Sequence[int] | None,
        Parameter(
            "Look from these positions, from 0. Default: all.",
            metavar="50,500",
            read=whole_numbers("query positions"),
            spell=in_one_word("--query-positions"),
        ),
    ] = None
    heads: Heads = None
    formula: Annotated[
        Literal["paper", "published"],
        Parameter("The paper's: D(without‖whole), scaled, sum. Its code's: D(whole‖without), unscaled, mean."),
    ] = "paper"
    direction: Annotated[
        Literal["without", "whole"] | None,
        Parameter("D(without‖whole) or D(whole‖without), whatever the formula says."),
    ] = None
    scaling: Annotated[
        Literal["scaled", "unscaled"] | None, Parameter("Softmax of s / sqrt(d'), or of s as it is.")
    ] = None
    reduction: Annotated[Literal["sum", "mean"] | None, Parameter("Sum or mean over the keys that are seen.")] = None

    topic = "What happens on text?"
    progress_label = "taking each term away"
    needs = frozenset({"text"})
    tables = (CONTRIBUTIONS_BY_HEAD, CONTRIBUTIONS)
    compared_tables = ("contributions_by_head",)
    by: ClassVar[Mapping[str, str]] = {"head": "contributions_by_head", "position": "contributions"}
    parallel = True
    equation = "c = D_KL(P ‖ Q),  P = softmax((s − T) / √d′),  Q = softmax(s / √d′), averaged over documents"
    figures = (
        FigureSpec(
            "contributions",
            "contributions",
            ("contributions",),
            "What each term contributes",
            "How much attention on text changes when one term is left out: KL divergence by query position, mean "
            "over documents.",
            per_head=True,
        ),
        FigureSpec(
            "contribution_shares",
            "contributions:contribution_shares",
            ("contributions_by_head",),
            "Shares of the terms by head",
            "Each term's part of the sum of a head's KL divergences.",
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_contributions",
            "contributions:compare_contributions",
            ("contributions_by_head",),
            "Terms of several checkpoints",
            "Each term's share of the heads' KL divergences, mean over heads.",
        ),
    )

    def settings(self, study: Study) -> dict[str, Any]:
        return {
            "heads": study.heads(self.heads),
            "query_positions": self._positions(study),
            "formula": vars(self._formula()),
        } | self.of_family(study)

    def ask(self, study: Study, runner: Runner) -> Frames:
        positions, heads = self._positions(study), study.heads(self.heads)
        for line in too_short(study.documents, positions or []):
            runner.say(line)
        mean = self.split_off(study)
        measured = contributions(study.layer, study.documents, positions, heads, self._formula(), runner, mean)
        table = contribution_table(measured, heads)
        return {"contributions_by_head": contributions_by_head(table), "contributions": table}

    def summarize(self, tables: Frames) -> str:
        """Each head's leading term: the one without which its attention moves most. A mean over heads hides most."""
        leading = tables["contributions_by_head"].filter(rank=1).sort("kl", "head", descending=[True, False])
        moved = leading.filter(pl.col("kl") >= HARDLY)
        if moved.is_empty():
            most = leading.row(0, named=True)
            return (
                f"Taking a term away hardly moves attention in any head: the most is {most['kl']:.1g} nats of KL "
                f"divergence, in {head_name(most['head'])} without {term_symbol(most['term'])}."
            )
        led = [_led_by(term[0], heads) for term, heads in moved.group_by("term", maintain_order=True)]
        rest = len(leading) - len(moved)
        hardly = f"; in {plural(rest, 'head')} none moves it" if rest else ""
        return (
            f"The term without which a head's attention moves most, with the nats of KL divergence, is {listed(led)}"
            f"{hardly}."
        )

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """What share tokens that compare themselves with tokens have in each model."""
        said = [
            f"{_share_of_token_pairs(tables['contributions_by_head'])} in {label}" for label, tables in by_label.items()
        ]
        return f"Tᵉᵉ's share of the terms' KL divergences, mean over heads: {listed(said)}."

    def _positions(self, study: Study) -> list[int] | None:
        if self.query_positions is None:
            return None
        positions = chosen_queries(study.layer, self.query_positions)
        check_reachable(positions, study.texts.length)
        return positions

    def _formula(self) -> Formula:
        """The named formula with the parts that were asked for otherwise."""
        parts = {"direction": self.direction, "scaling": self.scaling, "reduction": self.reduction}
        given: dict[str, Any] = {part: choice for part, choice in parts.items() if choice is not None}
        return replace(PAPER if self.formula == "paper" else PUBLISHED, **given)


def _led_by(term: Any, heads: pl.DataFrame) -> str:
    """`Tᵉᵉ in L0H1 (0.40) and L0H3 (0.12)`, the most moved head first."""
    named = [f"{head_name(head)} ({kl:.2f})" for head, kl in heads.select("head", "kl").iter_rows()]
    return f"{term_symbol(term)} in {listed_some(named, NAMED)}"


def _share_of_token_pairs(by_head: pl.DataFrame) -> str:
    shares = by_head.filter(term="ee")["share"].drop_nulls()
    return percent(float(shares.to_numpy().mean())) if len(shares) else "unknown"


def contribution_table(measured: Divergences, heads: Sequence[int]) -> pl.DataFrame:
    """One row for each head, query position and term, as CONTRIBUTIONS."""
    shape = measured.mean.shape
    return CONTRIBUTIONS.frame(
        {
            "head": np.broadcast_to(np.asarray(heads)[:, None, None], shape).ravel(),
            "query_position": np.broadcast_to(measured.query_positions[None, :, None], shape).ravel(),
            "term": np.broadcast_to(np.asarray(measured.terms), shape).ravel(),
            "kl": measured.mean.ravel(),
            "standard_error": measured.standard_error.ravel(),
            "top_changed": measured.top_changed.ravel(),
            "documents": np.broadcast_to(measured.documents[None, :, None], shape).ravel(),
        }
    )


def contributions_by_head(table: pl.DataFrame) -> pl.DataFrame:
    """Which terms carry a head's attention? The means over query positions, as CONTRIBUTIONS_BY_HEAD."""
    means = table.group_by("head", "term", maintain_order=True).agg(pl.col("kl", "top_changed").mean())
    ranked = means.with_columns(
        share=pl.col("kl") / pl.col("kl").sum().over("head"),
        rank=pl.col("kl").rank("ordinal", descending=True).over("head"),
    )
    return CONTRIBUTIONS_BY_HEAD.conform(ranked.sort("head", "rank"))
