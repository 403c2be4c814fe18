"""Head cards: one row per head with the results of other questions; unknown values are null."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl

from detoklens.errors import MissingError, RangeError, TokenError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.bilinear import bilinear_form
from detoklens.measures.heatmap import self_match_scores
from detoklens.measures.positions import trained_length
from detoklens.questions.auroc.compute import AUROC_CONTROLS
from detoklens.questions.auroc.question import Auroc, auroc_verdict, compare_heads, judge_heads, summarize_heads
from detoklens.questions.base import View
from detoklens.questions.frequency.question import Frequency
from detoklens.questions.options import Joining, SplitOff
from detoklens.questions.parameters import Centred, Parameter, Scale
from detoklens.questions.parameters import Heads as Chosen
from detoklens.questions.shape.question import Shape
from detoklens.questions.twins.question import Twins, rest_settings
from detoklens.questions.words.question import Words, best_by_words, words_verdict
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, percent, signed

if TYPE_CHECKING:
    from detoklens.parallel import Runner
    from detoklens.questions.base import ByLabel, Frames, Verdict
    from detoklens.questions.study import Study


SEEN_FIRST = ("head", "auroc", "above_null", "word_share", "rank_lost", "self_match", "position_class", "on_previous")
CLEARLY_ITSELF = 2.0  # standard deviations: the token itself scores above 98 % of all keys

JUDGED = {
    column.name: column
    for column in AUROC_CONTROLS.columns
    if column.name.startswith(("auroc_", "above_null_", "within_", "above_within_", "matched"))
    or column.name == "frequency"
}
HEADS = Schema(
    "heads",
    "Head cards",
    (
        HEAD,
        Column("auroc", "Float64", "mean AUROC of Tᵉᵉ against corpus bigrams over query tokens; needs counts"),
        Column("query_tokens", "String", "query tokens of the AUROC: continuation, or all if there are none"),
        Column("auroc_null", "Float64", "the larger plain null: queries shuffled or keys permuted"),
        Column("above_null", "Float64", "auroc minus auroc_null"),
        Column("word_share", "Float64", "median rank of a word's preceding piece, as a share of the vocabulary"),
        Column("word_null", "Float64", "the same for another word's piece; both need a tokenizer"),
        Column("word_pairs", "Int64", "adjacent pairs of pieces in both medians"),
        Column(
            "rank_lost",
            "Float64",
            "increase of the median rank of a word's twin, after the attention, when this head's attention to the "
            "preceding piece is ablated: see twins",
        ),
        Column("self_match", "Float64", "mean over tokens of the z-score of Tᵉᵉ[i, i] in row i of all keys"),
        Column("position_class", "String", "where position alone attends from the middle: see the table shape"),
        Column("on_previous", "Float64", "attention to the previous token by position alone, from the middle"),
        Column("frequency_spearman", "Float64", "Spearman correlation of Tᵉ with the token's count; needs counts"),
        Column("frequency_slope", "Float64", "slope of Tᵉ over log10(count + 1); needs counts"),
        Column("symmetric_share", "Float64", "|S|² / |W_QK|² of the symmetric part S, Frobenius norms"),
        Column("antisymmetric_share", "Float64", "|A|² / |W_QK|² of the antisymmetric part A"),
        Column("effective_rank", "Float64", "exp of the entropy of W_QK's normalized singular values"),
        Column("participation_ratio", "Float64", "(Σ s²)² / Σ s⁴ of W_QK's singular values s"),
        Column("spectral_norm", "Float64", "largest singular value of W_QK"),
        *JUDGED.values(),
    ),
)


@dataclass(frozen=True, repr=False)
class Heads(Joining):
    """Summarize every head in one row.

    AUROC is over continuation tokens, or over all tokens if the vocabulary has none. AUROC and the correlation with
    frequency need counts; without them those columns are empty.

    Example: detoklens heads gpt2 --counts counts --sort above_null
    """

    sort: Annotated[str, Parameter("Column to sort by, largest first.", metavar="COLUMN")] = "head"
    ascending: Annotated[bool, Parameter("Sort smallest first.")] = False
    heads: Chosen = None
    centred: Centred = False
    scale: Scale = "mean"

    topic = "Which heads detokenize?"
    progress_label = "judging heads"
    uses = frozenset({"counts", "vocabulary", "seed"})
    counted = True
    parallel = True
    tables = (HEADS,)
    equation = (
        "one row per head from auroc, words, twins, shape and frequency;  self-match: mean over i of "
        "(Tᵉᵉ[i, i] − meanⱼ Tᵉᵉ[i, j]) / stdⱼ Tᵉᵉ[i, j];  W_QK = W̃_Q W̃_Kᵀ = S + A, S symmetric, A antisymmetric;  "
        "effective rank exp(−Σ p ln p), p the singular values of W_QK as shares of their sum"
    )
    figures = (
        FigureSpec(
            "head_cards",
            "heads:head_cards",
            ("heads",),
            "Head cards",
            "One row per head: AUROC against corpus bigrams, over all keys and among equally frequent ones, each with "
            "its null; rank of a word's preceding piece; rank of a word's twin lost when the head's attention to the "
            "preceding piece is ablated; self-match; correlation with frequency; shape of the query-key product.",
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_heads",
            "heads:compare_heads",
            ("heads",),
            "Heads of several checkpoints",
            "Each column of the head cards by checkpoint: one line per head, or points if the checkpoints have "
            "different heads.",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sort not in HEADS.names:
            raise RangeError(f"there is no column {self.sort!r} to sort by; choose one of {', '.join(HEADS.names)}")

    def settings(self, study: Study) -> dict[str, Any]:
        """With the rest of the block, on which rank_lost depends, if there is a vocabulary."""
        return super().settings(study) | (rest_settings(study.layer) if study.has("vocabulary") else {})

    def ask(self, study: Study, runner: Runner) -> Frames:
        heads = study.heads(self.heads)
        affinity = self.affinity(study, self.scale, self.centred, heads)
        cards = pl.DataFrame({"head": heads, "self_match": self_match_scores(affinity).mean(axis=1)})
        cards = cards.with_columns(pl.col("head").cast(pl.Int32))
        twins = partial(self._twins, say=runner.say)
        parts = (self._forms, self._auroc, self._words, twins, self._positions, self._frequency)
        for part in (each(study) for each in parts):
            if part is not None:
                cards = cards.join(part, on="head", how="left", maintain_order="left")
        unknown = [pl.lit(None).alias(name) for name in HEADS.names if name not in cards.columns]
        return {"heads": self._sorted(HEADS.conform(cards.with_columns(unknown)))}

    def _same(self) -> dict[str, Any]:
        """The parameters passed on to the other questions."""
        names = ("heads", "centred", "scale", "offset", "mean", "direction")
        return {name: getattr(self, name) for name in names}

    @property
    def _split_off(self) -> SplitOff:
        """Tᵉ and Tᵖ need a mean even if none is split off Tᵉᵉ: without biases they would be zero."""
        return "vocabulary" if self.mean == "none" else self.mean

    def _forms(self, study: Study) -> pl.DataFrame | None:
        """The shape of W_QK (rotary: at the offset); None if queries and keys are normed."""
        if study.layer.weights.has_query_key_norms:
            return None
        heads = study.heads(self.heads)
        forms = [{"head": head, **vars(bilinear_form(study.layer, head, self.offset))} for head in heads]
        return pl.DataFrame(forms).with_columns(pl.col("head").cast(pl.Int32))

    def _auroc(self, study: Study) -> pl.DataFrame | None:
        """AUROC on continuation tokens, or on all tokens if no continuation token has one."""
        if study.counts is None:
            return None
        judged, which = None, "all"
        if study.has("vocabulary") and study.layer.vocabulary.word_internal():
            judged = study.ask(Auroc(**self._same(), pieces=True)).tables["auroc_controls"]
            which = "continuation"
        if judged is None or judged["auroc"].null_count() == len(judged):
            judged, which = study.ask(Auroc(**self._same())).tables["auroc_controls"], "all"
        null = (pl.col("auroc") - pl.col("above_null")).alias("auroc_null")
        asked = pl.lit(which).alias("query_tokens")
        return judged.select("head", "auroc", asked, null, "above_null", *JUDGED)

    def _words(self, study: Study) -> pl.DataFrame | None:
        """Ranks of the pieces of the bundled words."""
        if not study.has("vocabulary"):
            return None
        ranked = study.ask(Words(**self._same())).tables["words_by_head"]
        return ranked.select("head", word_share="median_share", word_null="null_median_share", word_pairs="pairs")

    def _twins(self, study: Study, say: Callable[[str], None]) -> pl.DataFrame | None:
        """The rank that two-piece words lose when the head is ablated; None if no word has a twin.

        Measured after the attention, which every model has, so that models can be compared.
        """
        try:
            found = study.ask(Twins(heads=self.heads)).tables["twins_by_condition"]
        except (MissingError, TokenError):
            return None
        except RangeError as error:
            say(f"rank_lost is unknown: {error}")
            return None
        cuts = found.filter(pl.col("condition").str.starts_with("cut_L0H"), place="attention", pieces=2)
        head = pl.col("condition").str.strip_prefix("cut_L0H").cast(pl.Int32)
        return cuts.select(head.alias("head"), "rank_lost")

    def _positions(self, study: Study) -> pl.DataFrame | None:
        """Where position alone attends from the middle of the table, away from its unusual ends."""
        middle = trained_length(study.layer) // 2
        shapes = study.ask(Shape([middle], mean=self._split_off)).tables["shape"]
        return shapes.select("head", "on_previous", position_class="class")

    def _frequency(self, study: Study) -> pl.DataFrame | None:
        asserting = Frequency(heads=self.heads, scale=self.scale, offset=self.offset, mean=self._split_off)
        by_head = study.ask(asserting).tables["frequency_by_head"]
        return by_head.select("head", frequency_spearman="spearman", frequency_slope="slope")

    def _sorted(self, cards: pl.DataFrame) -> pl.DataFrame:
        """Sorted by a column with nulls last; by head always from 0."""
        ascending = self.ascending or self.sort == "head"
        return cards.sort(self.sort, descending=not ascending, nulls_last=True, maintain_order=True)

    def verdict(self, tables: Frames) -> Verdict:
        """The verdict of `auroc` with counts, else that of `words`."""
        cards = tables["heads"]
        if cards["above_null"].null_count() < len(cards):
            return auroc_verdict(cards)
        return words_verdict(_by_words(cards))

    def summarize(self, tables: Frames) -> str:
        """The head that detokenizes, if any, and the one with the highest self-match."""
        cards = tables["heads"]
        return f"{_summarize_detokenization(cards)} {_summarize_self_match(cards)}"

    def summarize_comparison(self, by_label: ByLabel) -> str:
        cards = {label: tables["heads"] for label, tables in by_label.items()}
        best = {label: _best(each, "self_match") for label, each in cards.items()}
        asked = {which for each in cards.values() for which in each["query_tokens"].drop_nulls()}
        whom = _whom(asked.pop()) if len(asked) == 1 else "on continuation tokens (on all where there are none)"
        found = [compare_heads(cards, whom), _compare_self_match(best)]
        return " ".join(said for said in found if said) or super().summarize_comparison(by_label)

    def views(self, tables: Frames) -> Sequence[View]:
        """The sorted column first, then the most important ones; empty columns last."""
        cards = tables["heads"]
        order = dict.fromkeys(["head", self.sort, *SEEN_FIRST, *cards.columns])
        known = [name for name in order if cards[name].null_count() < len(cards)]
        return [View(HEADS.question, cards.select(list(dict.fromkeys([*known, *order]))))]

    def page_views(self, tables: Frames) -> Sequence[View]:
        """All columns, sortable."""
        return [View("Head cards; click a column heading to sort", tables["heads"], open=True)]


def _best(cards: pl.DataFrame, column: str) -> dict[str, Any] | None:
    known = cards.drop_nulls(column).sort(column, descending=True, maintain_order=True)
    return None if known.is_empty() else known.row(0, named=True) | {"best": known[column][0]}


def _whom(query_tokens: str) -> str:
    return f"on {query_tokens} tokens"


def _by_words(cards: pl.DataFrame) -> pl.DataFrame:
    """The columns from `words`, under their original names."""
    by_words = {"word_share": "median_share", "word_null": "null_median_share", "word_pairs": "pairs"}
    return cards.drop_nulls("word_share").rename(by_words)


def _summarize_detokenization(cards: pl.DataFrame) -> str:
    """By corpus bigrams, else by words."""
    if any(judged.margins for judged in judge_heads(cards)):
        return summarize_heads(cards, _whom(cards["query_tokens"].drop_nulls()[0]))
    best = best_by_words(_by_words(cards))
    if best is None:
        return "Untestable: this needs counts, or a tokenizer that splits words."
    null, name, found = best["null_median_share"], head_name(best["head"]), words_verdict(_by_words(cards))
    judged = f"median rank in the top {percent(best['median_share'])} of the vocabulary"
    control = "" if null is None else f", another word's piece in the top {percent(null)}"
    if found:
        return f"{name} finds a word's preceding piece: {judged}{control}."
    no_head = "No head clearly finds a word's preceding piece" if found.value == "no" else f"Untestable: {found.reason}"
    return f"{no_head}; the closest is {name}: {judged}{control}."


def _summarize_self_match(cards: pl.DataFrame) -> str:
    best = _best(cards, "self_match")
    if best is None:
        return "Self-match is undefined."
    name, judged = head_name(best["head"]), f"mean z {signed(best['self_match'])}"
    if best["self_match"] > CLEARLY_ITSELF:
        return f"{name} matches its own token most ({judged})."
    return f"No head matches its own token (closest: {name}, {judged})."


def _compare_self_match(best: Mapping[str, dict[str, Any] | None]) -> str:
    said = [f"{signed(row['best'])} in {label} ({head_name(row['head'])})" for label, row in best.items() if row]
    return f"The highest self-match (z) is {listed(said)}." if said else ""
