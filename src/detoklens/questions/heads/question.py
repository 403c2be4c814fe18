"""What is each head like? One row a head, put together from what other questions say; what is not known is null."""

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
CLEARLY_ITSELF = 2.0  # standard deviations: the token itself then stands above 98 % of all keys

JUDGED = {
    column.name: column
    for column in AUROC_CONTROLS.columns
    if column.name.startswith(("auroc_", "above_null_", "within_", "above_within_", "matched"))
    or column.name == "frequency"
}
HEADS = Schema(
    "heads",
    "What is each head like?",
    (
        HEAD,
        Column("auroc", "Float64", "mean AUROC of Tᵉᵉ against corpus bigrams over seen query tokens; needs counts"),
        Column("query_tokens", "String", "which query tokens: continuation, or all where there are none of these"),
        Column("auroc_null", "Float64", "the larger of its two plain nulls: queries shuffled, keys permuted"),
        Column("above_null", "Float64", "auroc minus auroc_null: what the head knows about the query"),
        Column("word_share", "Float64", "median rank, as a share of the vocabulary, of a word's piece before"),
        Column("word_null", "Float64", "the same for a piece of another word; both need a tokenizer"),
        Column("word_pairs", "Int64", "pairs of neighbouring pieces that both are medians over"),
        Column(
            "rank_lost",
            "Float64",
            "median rank of a word's twin, after the attention, with this head's link to the piece before cut, less "
            "that as it is: see twins",
        ),
        Column("self_match", "Float64", "mean over tokens of the z-score of Tᵉᵉ[i, i] in row i of all keys"),
        Column("position_class", "String", "where position alone looks from the middle: see the table shape"),
        Column("on_previous", "Float64", "attention of position alone, from the middle, on the token before"),
        Column("frequency_spearman", "Float64", "Spearman correlation of Tᵉ with the token's count; needs counts"),
        Column("frequency_slope", "Float64", "slope of Tᵉ over log10(count + 1); needs counts"),
        Column("symmetric_share", "Float64", "|S|² / |W_QK|² of the symmetric part S, Frobenius norms"),
        Column("antisymmetric_share", "Float64", "|A|² / |W_QK|² of the antisymmetric part A"),
        Column("effective_rank", "Float64", "exp of the entropy of W_QK's singular values, taken as shares"),
        Column("participation_ratio", "Float64", "(Σ s²)² / Σ s⁴ of W_QK's singular values s"),
        Column("spectral_norm", "Float64", "largest singular value of W_QK"),
        *JUDGED.values(),
    ),
)


@dataclass(frozen=True, repr=False)
class Heads(Joining):
    """Show one row per head: whether it detokenizes, matches its own token, where it looks, and the form of W_QK.

    AUROC is over continuation tokens, or over all tokens where the vocabulary has none. AUROC and the correlation with
    frequency need counts; without them those columns are empty.

    Example: detoklens heads gpt2 --counts counts --sort above_null
    """

    sort: Annotated[str, Parameter("The largest of this column first.", metavar="COLUMN")] = "head"
    ascending: Annotated[bool, Parameter("The smallest first.")] = False
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
        "one row a head from auroc, words, twins, shape and frequency;  self-match: mean over i of "
        "(Tᵉᵉ[i, i] − meanⱼ Tᵉᵉ[i, j]) / stdⱼ Tᵉᵉ[i, j];  W_QK = W̃_Q W̃_Kᵀ = S + A, S symmetric, A antisymmetric;  "
        "effective rank exp(−Σ p ln p), p the singular values of W_QK as shares of their sum"
    )
    figures = (
        FigureSpec(
            "head_cards",
            "heads:head_cards",
            ("heads",),
            "Head cards",
            "Each head in one row, with what its inputs let it be asked: AUROC against corpus bigrams, and among "
            "equally frequent keys, each with its null; rank of a word's piece before, rank of a word's twin after "
            "the attention lost when the head's look back is cut, how much a token matches itself, preference for "
            "rare tokens, and the shape of the query-key product.",
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_heads",
            "heads:compare_heads",
            ("heads",),
            "Heads of several checkpoints",
            "Each number of the head cards over the checkpoints: one line a head where all have as many heads, else "
            "one point.",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sort not in HEADS.names:
            raise RangeError(f"there is no column {self.sort!r} to sort by; the columns are {', '.join(HEADS.names)}")

    def settings(self, study: Study) -> dict[str, Any]:
        """With the rest of the block, which what a cut costs depends on, where there are words to ask about."""
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
        """What the questions that cards are put together from are asked alike."""
        names = ("heads", "centred", "scale", "offset", "mean", "direction")
        return {name: getattr(self, name) for name in names}

    @property
    def _split_off(self) -> SplitOff:
        """For Tᵉ and Tᵖ a mean also where nothing is split off of Tᵉᵉ: without biases there would be none of them."""
        return "vocabulary" if self.mean == "none" else self.mean

    def _forms(self, study: Study) -> pl.DataFrame | None:
        """W_QK as one form, with rotary positions that at the offset; none where queries and keys are normed."""
        if study.layer.weights.has_query_key_norms:
            return None
        heads = study.heads(self.heads)
        forms = [{"head": head, **vars(bilinear_form(study.layer, head, self.offset))} for head in heads]
        return pl.DataFrame(forms).with_columns(pl.col("head").cast(pl.Int32))

    def _auroc(self, study: Study) -> pl.DataFrame | None:
        """Against all corpus bigrams, on continuation tokens, or on all tokens where none of these has an AUROC."""
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
        """The pieces of the words that come along."""
        if not study.has("vocabulary"):
            return None
        ranked = study.ask(Words(**self._same())).tables["words_by_head"]
        return ranked.select("head", word_share="median_share", word_null="null_median_share", word_pairs="pairs")

    def _twins(self, study: Study, say: Callable[[str], None]) -> pl.DataFrame | None:
        """What words of two pieces lose when the head does not look back; nothing where no word has a twin.

        After the attention, the place that every model knows, so that cards of several models can be compared.
        """
        try:
            found = study.ask(Twins(heads=self.heads)).tables["twins_by_condition"]
        except (MissingError, TokenError):
            return None
        except RangeError as error:
            say(f"rank_lost is not known: {error}")
            return None
        cuts = found.filter(pl.col("condition").str.starts_with("cut_L0H"), place="attention", pieces=2)
        head = pl.col("condition").str.strip_prefix("cut_L0H").cast(pl.Int32)
        return cuts.select(head.alias("head"), "rank_lost")

    def _positions(self, study: Study) -> pl.DataFrame | None:
        """Where position alone looks from the middle of the table, far from its exceptional ends."""
        middle = trained_length(study.layer) // 2
        shapes = study.ask(Shape([middle], mean=self._split_off)).tables["shape"]
        return shapes.select("head", "on_previous", position_class="class")

    def _frequency(self, study: Study) -> pl.DataFrame | None:
        """Tᵉ of the mean query."""
        asserting = Frequency(heads=self.heads, scale=self.scale, offset=self.offset, mean=self._split_off)
        by_head = study.ask(asserting).tables["frequency_by_head"]
        return by_head.select("head", frequency_spearman="spearman", frequency_slope="slope")

    def _sorted(self, cards: pl.DataFrame) -> pl.DataFrame:
        """The largest (or smallest) of a column first, unknown ones last; heads always from 0."""
        ascending = self.ascending or self.sort == "head"
        return cards.sort(self.sort, descending=not ascending, nulls_last=True, maintain_order=True)

    def verdict(self, tables: Frames) -> Verdict:
        """That of `auroc` where there are counts, else that of `words`."""
        cards = tables["heads"]
        if cards["above_null"].null_count() < len(cards):
            return auroc_verdict(cards)
        return words_verdict(_by_words(cards))

    def summarize(self, tables: Frames) -> str:
        """The head that detokenizes and the one that matches its own token most, if any does."""
        cards = tables["heads"]
        return f"{_joining_said(cards)} {_self_match_said(cards)}"

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """The heads that detokenize in each model, and the highest self-match."""
        cards = {label: tables["heads"] for label, tables in by_label.items()}
        best = {label: _best(each, "self_match") for label, each in cards.items()}
        asked = {which for each in cards.values() for which in each["query_tokens"].drop_nulls()}
        whom = _whom(asked.pop()) if len(asked) == 1 else "on continuation tokens (on all where there are none)"
        found = [compare_heads(cards, whom), _self_match_compared(best)]
        return " ".join(said for said in found if said) or super().summarize_comparison(by_label)

    def views(self, tables: Frames) -> Sequence[View]:
        """What matters first: the column that was sorted by, and before the others those that are known."""
        cards = tables["heads"]
        order = dict.fromkeys(["head", self.sort, *SEEN_FIRST, *cards.columns])
        known = [name for name in order if cards[name].null_count() < len(cards)]
        return [View(HEADS.question, cards.select(list(dict.fromkeys([*known, *order]))))]

    def page_views(self, tables: Frames) -> Sequence[View]:
        """All cards with all columns, to sort."""
        return [View("Head cards; press a heading to sort by it", tables["heads"], open=True)]


def _best(cards: pl.DataFrame, column: str) -> dict[str, Any] | None:
    known = cards.drop_nulls(column).sort(column, descending=True, maintain_order=True)
    return None if known.is_empty() else known.row(0, named=True) | {"best": known[column][0]}


def _whom(query_tokens: str) -> str:
    return f"on {query_tokens} tokens"


def _by_words(cards: pl.DataFrame) -> pl.DataFrame:
    """The columns of the cards that come from `words`, under their names there."""
    by_words = {"word_share": "median_share", "word_null": "null_median_share", "word_pairs": "pairs"}
    return cards.drop_nulls("word_share").rename(by_words)


def _joining_said(cards: pl.DataFrame) -> str:
    """By corpus bigrams, else by words."""
    if any(judged.margins for judged in judge_heads(cards)):
        return summarize_heads(cards, _whom(cards["query_tokens"].drop_nulls()[0]))
    best = best_by_words(_by_words(cards))
    if best is None:
        return "Untestable: without counts, and without words that the tokenizer splits, no head can be judged."
    null, name, found = best["null_median_share"], head_name(best["head"]), words_verdict(_by_words(cards))
    judged = f"median rank in the top {percent(best['median_share'])} of the vocabulary"
    beside = "" if null is None else f", another word's piece in the top {percent(null)}"
    if found:
        return f"{name} finds a word's preceding piece: {judged}{beside}."
    no_head = "No head clearly finds a word's preceding piece" if found.value == "no" else f"Untestable: {found.reason}"
    return f"{no_head}; the closest is {name}: {judged}{beside}."


def _self_match_said(cards: pl.DataFrame) -> str:
    best = _best(cards, "self_match")
    if best is None:
        return "Self-match is undefined."
    name, judged = head_name(best["head"]), f"mean z {signed(best['self_match'])}"
    if best["self_match"] > CLEARLY_ITSELF:
        return f"{name} matches its own token most ({judged})."
    return f"No head matches its own token (closest: {name}, {judged})."


def _self_match_compared(best: Mapping[str, dict[str, Any] | None]) -> str:
    said = [f"{signed(row['best'])} in {label} ({head_name(row['head'])})" for label, row in best.items() if row]
    return f"The highest self-match (z) is {listed(said)}." if said else ""
