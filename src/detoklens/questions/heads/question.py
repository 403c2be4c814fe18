"""Head cards and scorecard: the results of other questions, one row per head; unknown values are null."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import polars as pl
from jaxtyping import Float

from detoklens.errors import MissingError, RangeError, TokenError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.bilinear import bilinear_form
from detoklens.measures.heatmap import self_match_scores
from detoklens.measures.positions import trained_length
from detoklens.measures.shape import MOST
from detoklens.parallel import Runner
from detoklens.questions.anatomy.question import ANATOMY_BY_HEAD, SHARE_NAMES, Anatomy
from detoklens.questions.auroc.compute import AUROC_CONTROLS, MARGINS
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.auroc.verdict import REQUIRED, auroc_verdict, compare_heads, judge_heads, summarize_heads
from detoklens.questions.base import ByLabel, Frames, ReportEntry, Verdict, View
from detoklens.questions.frequency import CLEAR_CORRELATION, Frequency
from detoklens.questions.lookback.compute import PARTS
from detoklens.questions.lookback.question import Lookback
from detoklens.questions.lookback.verdict import LEAST, judge_lookback
from detoklens.questions.options import PairQuestion, SplitOff
from detoklens.questions.parameters import Centred, Parameter, Scale
from detoklens.questions.parameters import Heads as HeadNumbers
from detoklens.questions.shape import Shape
from detoklens.questions.study import Study
from detoklens.questions.twins.question import Twins, rest_settings
from detoklens.questions.twins.verdict import CLEARLY, fewest_pieces, twins_verdict
from detoklens.questions.words import Words, best_by_words, words_verdict
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, percent, signed

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
    HEAD,
    Column("auroc", "mean AUROC of Tᵉᵉ against corpus bigrams over query tokens; needs counts"),
    Column("query_tokens", "query tokens of the AUROC: continuation, or all if there are none", "String"),
    Column("auroc_null", "the larger plain null: queries shuffled or keys permuted"),
    Column("above_null", "auroc minus auroc_null"),
    Column("word_share", "median rank of a word's preceding piece, as a share of the vocabulary"),
    Column("word_null", "the same for another word's piece; both need a tokenizer"),
    Column("word_pairs", "adjacent pairs of pieces in both medians", "Int64"),
    Column(
        "rank_lost",
        "increase of the median rank of a word's twin, after the attention, when this head's attention to the "
        "preceding piece is ablated: see twins",
    ),
    Column("self_match", "mean over tokens of the z-score of Tᵉᵉ[i, i] in row i of all keys"),
    Column("position_class", "where position alone attends from the middle: see the table shape", "String"),
    Column("on_previous", "attention to the previous token by position alone, from the middle"),
    Column("on_first", "attention to position 0 by position alone, from the middle; learned positions"),
    *(column for column in ANATOMY_BY_HEAD.columns if column.name != "head"),
    Column("lookback", "lift of the previous token from continuation tokens minus that from whole words, in nats"),
    *(Column(f"lookback_{part}", f"{part} part of that difference") for part in PARTS),
    Column("margin", "auroc minus its strongest control"),
    Column("twin_gain", "rank ratio of the additive control in twins, the same for every head"),
    Column("frequency_spearman", "Spearman correlation of Tᵉ with the token's count; needs counts"),
    Column("frequency_slope", "slope of Tᵉ over log10(count + 1); needs counts"),
    Column("symmetric_share", "|S|² / |W_QK|² of the symmetric part S, Frobenius norms"),
    Column("antisymmetric_share", "|A|² / |W_QK|² of the antisymmetric part A"),
    Column("effective_rank", "exp of the entropy of W_QK's normalized singular values"),
    Column("participation_ratio", "(Σ s²)² / Σ s⁴ of W_QK's singular values s"),
    Column("spectral_norm", "largest singular value of W_QK", defined=True),
    *JUDGED.values(),
)
MEASURES = {
    "detokenizes": "AUROC minus its strongest control",
    "looks_back": "lift from continuation tokens minus that from whole words, in nats",
    "writes_words": "share of the layer's gain in rank that is lost without the head",
    "matches_itself": "mean z-score of Tᵉᵉ[i, i]",
    "sink": "attention to position 0 by position alone",
    "prefers_rare": "Spearman correlation of Tᵉ with frequency",
}
RULES = {
    "detokenizes": f"more than {REQUIRED} above every control, with an interval above 0",
    "looks_back": f"at least {LEAST}, beyond permuted labels and rotated queries",
    "writes_words": "the layer needs this head, and ranks the word at least "
    f"{CLEARLY:g} times better than in every control, such as the sum of its pieces",
    "matches_itself": f"above {CLEARLY_ITSELF:g}",
    "sink": f"at least {percent(MOST)}",
    "prefers_rare": f"at most −{CLEAR_CORRELATION}, beyond random query biases",
}
"""What a yes requires."""
SCORECARD = Schema(
    "scorecard",
    "Scorecard of heads",
    HEAD,
    Column("measure", "; ".join(f"{name}: {meaning}" for name, meaning in MEASURES.items()), "String"),
    Column("value", "the measure; null if it is unknown"),
    Column("verdict", "yes, no or not testable", "String"),
    Column("why", "the control or rule that decided, or what is missing", "String"),
)
YES, NO, UNTESTABLE = "yes", "no", "not testable"


@dataclass(frozen=True, repr=False)
class Heads(PairQuestion):
    """Print a scorecard of all heads, one row each.

    Each head gets yes, no or not testable for each measure. --by measure adds the reasons; --by head prints the numbers
    behind them. AUROC is over continuation tokens, or over all tokens if the vocabulary has none. AUROC, lookback and
    the correlation with frequency need counts.

    Example: detoklens heads gpt2 --counts counts --sort above_null
    """

    sort: Annotated[str, Parameter("Column to sort by, largest first.", metavar="COLUMN")] = "head"
    ascending: Annotated[bool, Parameter("Sort smallest first.")] = False
    heads: HeadNumbers = None
    centred: Centred = False
    scale: Scale = "mean"

    progress_label = "judging heads"
    report_section = "Scorecard"
    uses = frozenset({"counts", "vocabulary", "seed"})
    reads_counts = True
    parallel = True
    tables = (HEADS, SCORECARD)
    by: ClassVar[Mapping[str, str]] = {"head": "heads", "measure": "scorecard"}
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {"heads": SEEN_FIRST}
    equation = (
        "one row per head from anatomy, auroc, lookback, words, twins, shape, frequency;  self-match: mean over i of "
        "(Tᵉᵉ[i, i] − meanⱼ Tᵉᵉ[i, j]) / stdⱼ Tᵉᵉ[i, j];  W_QK = W̃_Q W̃_Kᵀ = S + A, S symmetric, A antisymmetric;  "
        "effective rank exp(−Σ p ln p), p the singular values of W_QK as shares of their sum"
    )
    figures = (
        FigureSpec(
            "head_cards",
            ("heads",),
            "Head cards",
            "One row per head: AUROC against corpus bigrams with its null, and minus its strongest control; lift of "
            "the previous token from continuation tokens minus that from whole words; rank of a word's preceding "
            "piece; rank of a word's twin lost when the head's attention to the preceding piece is ablated; strength "
            "and shares of the score's variance; self-match; correlation with frequency.",
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_heads",
            ("heads",),
            "Heads of several checkpoints",
            "AUROC margin, lookback, anatomy and head cards by checkpoint, or by training tokens for the demo's "
            "snapshots: one line per head, or points if the checkpoints have different heads.",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sort not in HEADS.names:
            raise RangeError(f"unknown column {self.sort!r} to sort by; choose one of {', '.join(HEADS.names)}")

    @classmethod
    def report_entries(cls, _study: Study) -> Sequence[ReportEntry]:
        """The scorecard; `auroc` has the verdict."""
        return [ReportEntry(cls(), compared=True, headline=False)]

    def settings(self, study: Study) -> dict[str, Any]:
        """With the rest of the block, on which rank_lost depends, if there is a vocabulary."""
        return super().settings(study) | (rest_settings(study.layer) if study.has("vocabulary") else {})

    def ask(self, study: Study, runner: Runner) -> Frames:
        heads = study.heads(self.heads)
        cards = pl.DataFrame({"head": heads, "self_match": self._self_match(study, heads)})
        cards = cards.with_columns(pl.col("head").cast(pl.Int32))
        marks = Marks(heads)
        for head, score in cards.iter_rows():
            marks.add(head, "matches_itself", score, score > CLEARLY_ITSELF, f"a z-score above {CLEARLY_ITSELF:g}")
        parts = (self._auroc, self._words, self._lookback, self._positions, self._frequency)
        twins = self._twins(study, marks, runner.say)  # first: it needs the most memory
        anatomy = study.ask(Anatomy(heads=self.heads)).tables["anatomy_by_head"]
        for part in (twins, self._forms(study, heads), anatomy, *(each(study, marks) for each in parts)):
            if part is not None:
                cards = cards.join(part, on="head", how="left", maintain_order="left")
        unknown = [pl.lit(None).alias(name) for name in HEADS.names if name not in cards.columns]
        cards = self._sorted(HEADS.conform(cards.with_columns(unknown)))
        return {"heads": cards, "scorecard": marks.table(cards["head"].to_list())}

    def _self_match(self, study: Study, heads: Sequence[int]) -> Float[np.ndarray, "head"]:
        """The mean z-score. The affinity takes memory, so no other question runs meanwhile."""
        affinity = self.affinity(study, self.scale, self.centred, heads).of_tokens(study.meaningful_tokens())
        return np.asarray(self_match_scores(affinity).mean(axis=1))

    def _shared_parameters(self) -> dict[str, Any]:
        """The parameters passed on to the other questions."""
        names = ("heads", "centred", "scale", "offset", "mean", "direction")
        return {name: getattr(self, name) for name in names}

    @property
    def _mean(self) -> SplitOff:
        """Tᵉ and Tᵖ need a mean even if none is split off Tᵉᵉ: without biases they would be zero."""
        return "vocabulary" if self.mean == "none" else self.mean

    def _forms(self, study: Study, heads: Sequence[int]) -> pl.DataFrame | None:
        """The shape of W_QK (rotary: at the offset); None if queries and keys are normed."""
        if study.layer.weights.has_query_key_norms:
            return None
        forms = [{"head": head, **vars(bilinear_form(study.layer, head, self.offset))} for head in heads]
        return pl.DataFrame(forms).with_columns(pl.col("head").cast(pl.Int32))

    def _lookback(self, study: Study, marks: Marks) -> pl.DataFrame | None:
        """The lift from continuation tokens minus that from whole words; None if the classes can't be formed."""
        try:
            judged = judge_lookback(study.ask(Lookback(heads=self.heads)).tables["lookback_by_head"])
        except (MissingError, RangeError, TokenError) as error:
            why = getattr(error, "what", str(error))
            marks.untestable("looks_back", "needs corpus counts" if study.counts is None else why)
            return None
        for each in judged:
            why = f"{each.part} part beyond permuted labels and rotated queries" if each.part else each.why_not
            marks.add(each.head, "looks_back", each.total["difference"], each.part is not None, why)
        rows = [
            {"head": each.head, "lookback": each.total["difference"]}
            | {f"lookback_{part}": row["difference"] for part, row in each.parts.items()}
            for each in judged
        ]
        return pl.DataFrame(rows).with_columns(pl.col("head").cast(pl.Int32))

    def _auroc(self, study: Study, marks: Marks) -> pl.DataFrame | None:
        """AUROC on continuation tokens, or on all tokens if no continuation token has one."""
        if study.counts is None:
            marks.untestable("detokenizes", "needs corpus counts")
            return None
        judged, which = None, "all"
        if study.has("vocabulary") and study.layer.vocabulary.word_internal():
            judged = study.ask(Auroc(**self._shared_parameters(), pieces=True)).tables["auroc_controls"]
            which = "continuation"
        if judged is None or judged["auroc"].null_count() == len(judged):
            judged, which = study.ask(Auroc(**self._shared_parameters())).tables["auroc_controls"], "all"
        margins = {}
        for each in judge_heads(judged):
            margin = margins[each.head] = min(each.margins.values(), default=None)
            if each.level == "untestable":
                marks.add(each.head, "detokenizes", margin, None, each.missing)
            else:
                why = f"strongest control: {MARGINS[each.strongest]}" if each.strongest else ""
                marks.add(each.head, "detokenizes", margin, each.level == "lexical", why)
        marks.untestable("detokenizes", "no query token has both positives and negatives")
        return judged.select(
            "head",
            "auroc",
            pl.lit(which).alias("query_tokens"),
            (pl.col("auroc") - pl.col("above_null")).alias("auroc_null"),
            "above_null",
            pl.Series("margin", [margins.get(head) for head in judged["head"]], pl.Float64),
            *JUDGED,
        )

    def _words(self, study: Study, _marks: Marks) -> pl.DataFrame | None:
        """Ranks of the pieces of the bundled words."""
        if not study.has("vocabulary"):
            return None
        ranked = study.ask(Words(**self._shared_parameters())).tables["words_by_head"]
        return ranked.select("head", word_share="median_share", word_null="null_median_share", word_pairs="pairs")

    def _twins(self, study: Study, marks: Marks, say: Callable[[str], None]) -> pl.DataFrame | None:
        """The rank that two-piece words lose when the head is ablated; None if no word has a twin.

        Measured after the attention, which every model has, so that models can be compared.
        """
        try:
            found = study.ask(Twins(heads=self.heads)).tables["twins_by_condition"]
        except (MissingError, TokenError, RangeError) as error:
            if isinstance(error, RangeError):
                say(f"rank_lost is unknown: {error}")
            marks.untestable("writes_words", getattr(error, "what", str(error)))
            return None
        conditions = fewest_pieces(found)
        verdict, gain = twins_verdict(conditions), conditions.rows.get("additive", {}).get("rank_ratio")
        for head in marks.heads:
            needed = head_name(head) in verdict.heads
            lost = conditions.rows.get(f"cut_{head_name(head)}", {}).get("share_lost")
            why = verdict.reason if needed or not verdict else "the layer writes words, but does not need this head"
            marks.add(head, "writes_words", lost, None if verdict.value == "untestable" else verdict and needed, why)
        cuts = found.filter(pl.col("condition").str.starts_with("cut_L0H"), place="attention", pieces=2)
        number = pl.col("condition").str.strip_prefix("cut_L0H").cast(pl.Int32)
        return cuts.select(number.alias("head"), "rank_lost", pl.lit(gain, pl.Float64).alias("twin_gain"))

    def _positions(self, study: Study, marks: Marks) -> pl.DataFrame | None:
        """Where position alone attends from the middle of the table, away from its unusual ends."""
        middle = trained_length(study.layer) // 2
        shapes = study.ask(Shape([middle], mean=self._mean)).tables["shape"]
        if study.layer.positions != "learned":
            marks.untestable("sink", f"with {study.layer.positions} positions, position 0 is like any other")
            return shapes.select("head", "on_previous", position_class="class")
        for head, share in shapes.select("head", "on_first").iter_rows():
            marks.add(head, "sink", share, share >= MOST, f"at least {percent(MOST)} from position {middle}")
        return shapes.select("head", "on_previous", "on_first", position_class="class")

    def _frequency(self, study: Study, marks: Marks) -> pl.DataFrame | None:
        question = Frequency(heads=self.heads, scale=self.scale, offset=self.offset, mean=self._mean)
        by_head = study.ask(question).tables["frequency_by_head"]
        for row in by_head.drop_nulls("prefers").iter_rows(named=True):
            why = f"{signed(row['null_low'])} to {signed(row['null_high'])} for 95 % of random query biases"
            marks.add(row["head"], "prefers_rare", row["spearman"], row["prefers"] == "rare", why)
        missing = "needs corpus counts" if study.counts is None else "Tᵉ and the counts must both vary"
        marks.untestable("prefers_rare", missing)
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
        best = _best_self_match(cards)
        if best is None:
            return f"{self._detokenization(cards)} Self-match is undefined."
        matches = f"{self.no_head} matches its own token."
        if best["self_match"] > CLEARLY_ITSELF:
            matches = f"{head_name(best['head'])} matches its own token most (mean z {signed(best['self_match'])})."
        return f"{self._detokenization(cards)} {matches}"

    def _detokenization(self, cards: pl.DataFrame) -> str:
        """By corpus bigrams, else by words."""
        if any(head.margins for head in judge_heads(cards)):
            return summarize_heads(cards, f"on {cards['query_tokens'].drop_nulls()[0]} tokens", no_head=self.no_head)
        best = best_by_words(_by_words(cards))
        if best is None:
            return "Untestable: this needs counts, or a tokenizer that splits words."
        null, name, verdict = best["null_median_share"], head_name(best["head"]), words_verdict(_by_words(cards))
        control = "" if null is None else f", another word's piece in the top {percent(null)}"
        ranks = f"median rank in the top {percent(best['median_share'])} of the vocabulary{control}"
        if verdict:
            return f"{name} finds a word's preceding piece: {ranks}."
        is_no = verdict.value == "no"
        no_head = f"{self.no_head} clearly finds a word's preceding piece" if is_no else f"Untestable: {verdict.reason}"
        return f"{no_head}; the closest is {name}: {ranks}."

    def summarize_comparison(self, by_label: ByLabel) -> str:
        cards = {label: tables["heads"] for label, tables in by_label.items()}
        best = {label: _best_self_match(each) for label, each in cards.items()}
        kinds = {kind for each in cards.values() for kind in each["query_tokens"].drop_nulls()}
        queries = (
            f"on {kinds.pop()} tokens" if len(kinds) == 1 else "on continuation tokens (on all where there are none)"
        )
        scores = [
            f"{signed(row['self_match'])} in {label} ({head_name(row['head'])})" for label, row in best.items() if row
        ]
        self_match = f"The highest self-match (z) is {listed(scores)}." if scores else ""
        parts = [compare_heads(cards, queries), self_match]
        return " ".join(part for part in parts if part) or super().summarize_comparison(by_label)

    def views(self, tables: Frames) -> Sequence[View]:
        """The scorecard, and the column that it is sorted by."""
        shown = scorecard_view(tables)
        if self.sort != "head":
            shown.insert_column(1, tables["heads"][self.sort])
        return [View(SCORECARD.question, shown)]

    def page_views(self, tables: Frames) -> Sequence[View]:
        """The scorecard, at the top of the page, and the reason for each verdict."""
        reasons = tables["scorecard"].with_columns(pl.col("measure").str.replace_all("_", " "))
        card = View(SCORECARD.question, scorecard_view(tables), open=True, notes=scorecard_notes(tables))
        return [card, View("What decided each verdict", reasons)]


class Marks:
    """Verdict marks of the scorecard, by head and measure; the first one given counts."""

    def __init__(self, heads: Sequence[int]) -> None:
        self.heads = heads
        self._found: dict[tuple[int, str], tuple[float | None, str, str]] = {}

    def add(self, head: int, measure: str, value: float | None, verdict: bool | Verdict | None, why: str) -> None:
        """One mark; a verdict of None is not testable."""
        mark = UNTESTABLE if verdict is None else YES if verdict else NO
        self._found.setdefault((head, measure), (value, mark, why))

    def untestable(self, measure: str, why: str) -> None:
        """Mark a measure as not testable for all heads that have no mark."""
        for head in self.heads:
            self.add(head, measure, None, None, why)

    def table(self, heads: Sequence[int]) -> pl.DataFrame:
        rows = [(head, measure, *self._found[head, measure]) for head in heads for measure in MEASURES]
        return SCORECARD.conform(pl.DataFrame(rows, SCORECARD.names, orient="row", infer_schema_length=None))


def scorecard_view(tables: Frames) -> pl.DataFrame:
    """The scorecard with one row per head, in nine columns: strength, largest shares, six marks with their numbers."""
    marks = {(row[0], row[1]): row[2:] for row in tables["scorecard"].iter_rows()}
    rows = []
    for card in tables["heads"].iter_rows(named=True):
        head = card["head"]
        shares = sorted(((card[name] or 0.0, label) for name, label in SHARE_NAMES.items()), reverse=True)[:2]
        found = {measure: marks[head, measure] for measure in MEASURES}
        rows.append(
            {
                "head": head_name(head),
                "strength (nats)": None if card["sd"] is None else f"{card['sd']:.2f}",
                "score varies with": ", ".join(f"{label} {percent(share)}" for share, label in shares if share) or None,
                **{measure.replace("_", " "): _cell(measure, *found[measure][:2]) for measure in MEASURES},
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def scorecard_notes(tables: Frames) -> list[str]:
    """What the scorecard's numbers are, what each yes requires, and each reason for a missing verdict once."""
    rules = dict(RULES)
    for gain in tables["heads"]["twin_gain"].drop_nulls()[:1]:  # the same for every head
        rules["writes_words"] += f" (here {gain:.2f} times)"
    notes = [
        "strength: standard deviation of the score",
        "score varies with: largest shares of its variance (offset: distance to the key; query × key: token pair)",
    ]
    notes += [f"{name.replace('_', ' ')}: {what}; yes: {rules[name]}" for name, what in MEASURES.items()]
    unknown = tables["scorecard"].filter(pl.col("verdict") == UNTESTABLE)
    reasons = unknown.group_by("why", maintain_order=True).agg(pl.col("measure").unique(maintain_order=True))
    missing = [f"{listed([name.replace('_', ' ') for name in names])} ({why})" for why, names in reasons.iter_rows()]
    return [*notes, f"not testable: {'; '.join(missing)}"] if missing else notes


def _cell(measure: str, value: float | None, mark: str) -> str:
    """`yes (+0.21)`."""
    if value is None or (measure == "writes_words" and mark != YES):  # there is no written word to lose
        return mark
    z, rounded = round(value, 1) + 0.0, round(value, 2) + 0.0  # no −0.00
    units = {
        "writes_words": f"{percent(rounded)} lost without it",
        "sink": percent(rounded),
        "matches_itself": f"z {z:+.1f}",
    }
    return f"{mark} ({units.get(measure, f'{rounded:+.2f}')})".replace("-", "−")


def _best_self_match(cards: pl.DataFrame) -> dict[str, Any] | None:
    known = cards.drop_nulls("self_match").sort("self_match", descending=True, maintain_order=True)
    return None if known.is_empty() else known.row(0, named=True)


def _by_words(cards: pl.DataFrame) -> pl.DataFrame:
    """The columns from `words`, under their original names."""
    by_words = {"word_share": "median_share", "word_null": "null_median_share", "word_pairs": "pairs"}
    return cards.drop_nulls("word_share").rename(by_words)
