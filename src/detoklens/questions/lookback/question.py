"""The detokenization switch: what makes a head look back from continuation tokens, but not from whole words?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import polars as pl

from detoklens.errors import RangeError, TokenError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.chance import ALPHA, draws_for, holm, interval, resampled, tail_probability
from detoklens.measures.frequency import spearman
from detoklens.measures.positions import trained_length
from detoklens.measures.token_classes import word_evidence
from detoklens.questions.base import ReportEntry, Verdict, View
from detoklens.questions.lookback.compute import (
    CLASSES,
    FARTHEST,
    FEWEST,
    PARTS,
    RESAMPLES,
    Draws,
    HeadLift,
    Lifts,
    QueryTokens,
    TextLookback,
    random_alignments,
    text_lookback,
)
from detoklens.questions.options import SplitOff, SplitTerms
from detoklens.questions.parameters import Heads, Parameter, in_one_word, whole_numbers
from detoklens.scores.softmax import seen_keys
from detoklens.tables.schema import HEAD, TOKEN, TOKEN_ID, Column, Schema
from detoklens.wording import head_name, listed, listed_some, plural, term_symbol

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts
    from detoklens.measures.token_classes import WordEvidence
    from detoklens.parallel import Runner
    from detoklens.questions.base import ByLabel, Frames
    from detoklens.questions.study import Study
    from detoklens.scores.layer import Layer


LEAST = 0.1  # nats: a smaller difference changes the odds of attention by less than a tenth
LOOKS_BACK = 1.0  # nats of lift from whole words and from continuation tokens: a previous-token head
HALF = 0.5  # of the difference, or of the gap in attention, that a term must carry
N_PLACES = 8  # query positions by default, if they are learned
FEWEST_OCCURRENCES = 5  # of a token in the text, for its measured attention
SWEEP = {"continuation": (0.8, 0.9, 0.95), "whole_word": (0.02, 0.05, 0.1)}
NAMED = 4  # heads in a summary
LONGEST = 40  # words of a summary
PREVIOUS, SELF, NEXT, ALIKE = "previous", "self", "next", "spelled_alike"

PART = Column("part", "String", "position, class or lexical part of the lift, or total: their sum")
LOW = Column("low", "Float64", "lower end of its 95 % interval over query tokens")
HIGH = Column("high", "Float64", "upper end of that interval")
LOOKBACK_BY_HEAD = Schema(
    "lookback_by_head",
    "How much more does each head look back from continuation tokens than from whole words?",
    (
        HEAD,
        PART,
        Column(
            "contrast",
            "String",
            "previous: previous token against 2 to 15 back; self: against the query itself; next: next token against 2 "
            "to 15 ahead (bidirectional models); spelled_alike: previous, for pairs such as `in` and ` in`",
        ),
        Column("C", "Float64", "lift from continuation tokens, in nats; classes are matched in frequency"),
        Column("W", "Float64", "lift from whole words"),
        Column("F", "Float64", "lift from first pieces, which need not look back either"),
        Column("difference", "Float64", "C − W"),
        LOW,
        HIGH,
        Column("null_low", "Float64", "lower end of the middle 95 % of C − W with labels permuted in frequency bins"),
        Column("null_high", "Float64", "upper end of that interval"),
        Column("aligned_low", "Float64", "the same with queries rotated at random against keys"),
        Column("aligned_high", "Float64", "upper end of that interval"),
        Column("p_labels", "Float64", "share of permutations with a |C − W| as large, Holm-adjusted over heads"),
        Column(
            "p_alignments",
            "Float64",
            "share of random rotations in which some part is as many standard deviations above 0, times heads",
        ),
        Column("tokens", "Int64", "query tokens of C and W in the frequency bins used; pairs for spelled_alike"),
    ),
)
LOOKBACK_BY_TERM = Schema(
    "lookback_by_term",
    "Which term carries the difference between continuation tokens and whole words?",
    (HEAD, PART, Column("term", "String", "score term"), Column("difference", "Float64", "C − W, in nats"), LOW, HIGH),
)
LOOKBACK_TEXT = Schema(
    "lookback_text",
    "Attention to the previous token on text, whole and without each term",
    (
        HEAD,
        Column("removed", "String", "the removed term; none for the whole attention"),
        Column("attention_C", "Float64", "mean attention to the previous token from continuation tokens"),
        Column("attention_W", "Float64", "the same from whole words"),
        Column("attention_F", "Float64", "the same from first pieces"),
        Column("gap", "Float64", "attention_C − attention_W"),
        Column("low", "Float64", "lower end of the gap's 95 % interval over documents"),
        Column("high", "Float64", "upper end of that interval"),
        Column("places", "Int64", "query places of C and W, from position 16 on"),
        *(
            Column(f"attention_{label}_{end}", "Float64", f"{side} end of the 95 % interval of attention_{label}")
            for label in CLASSES
            for end, side in (("low", "lower"), ("high", "upper"))
        ),
    ),
)
LOOKBACK_PREDICTION = Schema(
    "lookback_prediction",
    "Does the lift of a token, from weights and counts, predict its attention to the previous token on text?",
    (
        HEAD,
        Column("spearman", "Float64", "Spearman correlation over query tokens of lift and measured attention"),
        LOW,
        HIGH,
        Column("tokens", "Int64", f"query tokens with at least {FEWEST_OCCURRENCES} measured places"),
    ),
)
LOOKBACK_BY_TOKEN = Schema(
    "lookback_by_token",
    "The lift of each query token",
    (
        HEAD,
        TOKEN_ID,
        TOKEN,
        Column("class", "String", "C: continuation, W: whole word, F: first piece"),
        Column("position", "Float64", "position part of the lift, in nats"),
        Column("class_part", "Float64", "class part; null for a token alone in its class and frequency bin"),
        Column("lexical", "Float64", "lexical part"),
        Column("measured", "Float64", "mean attention to the previous token on text; null where it is too rare"),
    ),
)
LOOKBACK_BY_THRESHOLD = Schema(
    "lookback_by_threshold",
    "Does the difference depend on the thresholds of the classes?",
    (
        HEAD,
        Column("continuation", "Float64", "least share of occurrences after a letter, for C"),
        Column("whole_word", "Float64", "largest share of occurrences before a continuation, for W"),
        Column("difference", "Float64", "C − W of the total lift, in nats"),
        Column("tokens", "Int64", "query tokens of C and W in the frequency bins used"),
    ),
)
LOOKBACK_BY_POSITION = Schema(
    "lookback_by_position",
    "Does the difference depend on the query position?",
    (
        HEAD,
        Column("query_position", "Int32", "position of the query, from 0"),
        PART,
        Column("difference", "Float64", "C − W, in nats"),
    ),
)


@dataclass(frozen=True, repr=False)
class Lookback(SplitTerms):
    """Find what makes heads look back from continuation tokens, but not from whole words.

    A query's lift is its score for the previous token minus that for tokens 2 to 15 back. It has a position part (any
    token is there), a class part (what usually precedes such queries) and a lexical part (the query's own
    predecessors), each split into score terms. The verdict is "yes" if a head's lift is larger from continuation tokens
    than from equally frequent whole words, beyond permuted labels and beyond randomly rotated queries. With text, it
    also measures attention to the previous token without each term. Softcapping is not applied to lifts.

    Example: detoklens lookback gpt2 --counts counts --text 'openwebtext/*.parquet'
    """

    heads: Heads = None
    query_positions: Annotated[
        Sequence[int] | None,
        Parameter(
            "Learned positions: query positions, from 15. Default: eight, evenly spread over the trained range.",
            metavar="60,125,200",
            read=whole_numbers("query positions"),
            spell=in_one_word("--query-positions"),
        ),
    ] = None
    continuation: Annotated[
        float,
        Parameter("Continuation token: share of occurrences after a letter must exceed this.", least=0, advanced=True),
    ] = 0.9
    whole_word: Annotated[
        float,
        Parameter("Whole word: share of occurrences before a continuation must be below this.", least=0, advanced=True),
    ] = 0.05
    first_piece: Annotated[
        float,
        Parameter("First piece: share of occurrences before a continuation must exceed this.", least=0, advanced=True),
    ] = 0.5
    fewest: Annotated[int, Parameter("Minimum corpus count of query tokens.", least=1, advanced=True)] = 20
    mean: SplitOff = field(default="frequency", kw_only=True)  # then the position part of C − W is Tᵉᵖ and nothing else

    progress_label = "looking back"
    report_section = "Looking back"
    needs = frozenset({"counts", "vocabulary"})
    uses = frozenset({"text", "seed"})
    counted = True
    parallel = True
    of_families: ClassVar[frozenset[str]] = frozenset({"mean"})
    tables = (
        LOOKBACK_BY_HEAD,
        LOOKBACK_BY_TERM,
        LOOKBACK_TEXT,
        LOOKBACK_PREDICTION,
        LOOKBACK_BY_THRESHOLD,
        LOOKBACK_BY_POSITION,
        LOOKBACK_BY_TOKEN,
    )
    compared_tables = ("lookback_by_head", "lookback_by_term", "lookback_text")
    by: ClassVar[Mapping[str, str]] = {
        "head": "lookback_by_head",
        "term": "lookback_by_term",
        "removed": "lookback_text",
        "token": "lookback_by_token",
        "threshold": "lookback_by_threshold",
        "position": "lookback_by_position",
    }
    equation = (
        "lift = A − R = (B − R) + (N − B) + (A − N) = position + class + lexical;  A = q(t)·E[k(u, 1)] over the tokens "
        "u before t, N over those before other tokens of t's class and frequency bin, B over all tokens;  "
        "R = q(t)·mean over offsets 2 to 15 of E[k(u, δ)] over all tokens"
    )
    figures = (
        FigureSpec(
            "lookback",
            "lookback:lookback",
            ("lookback_by_head", "lookback_by_term"),
            "Looking back, by class of query token",
            "Left: lift of the previous token from continuation tokens (C), whole words (W) and first pieces (F), by "
            "part. Middle: C − W of all terms and by term; the band is the middle 95 % with permuted labels. Right: "
            "attention to the previous token on text by class, with all terms and without each term; lines are 95 % "
            "intervals over documents.",
            optional=("lookback_text",),
            per_head=True,
        ),
    )

    @classmethod
    def report_entries(cls, _study: Study) -> Sequence[ReportEntry]:
        return [ReportEntry(cls(), compared=True)]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("continuation", "whole_word", "first_piece"):
            if getattr(self, name) > 1:
                raise RangeError(f"{name} {getattr(self, name):g} is not a share; pass a number from 0 to 1")
        if self.whole_word > self.first_piece:
            raise RangeError(
                f"whole_word {self.whole_word:g} is above first_piece {self.first_piece:g}, so a token could be both; "
                "lower whole_word"
            )

    def settings(self, study: Study) -> dict[str, Any]:
        """With the query positions that are used."""
        return super().settings(study) | {"query_positions": self._positions(study.layer)}

    def _positions(self, layer: Layer) -> list[int]:
        """The query positions; none unless positions are learned. Refuses a query that sees fewer than 16 tokens."""
        if layer.positions != "learned":
            if self.query_positions is not None:
                raise RangeError(
                    f"{layer.name}: with {layer.positions} positions the score depends on the offset only; leave "
                    "query_positions out"
                )
            _check_reach(layer, layer.n_positions - 1, 2 * layer.n_positions)
            return []
        n_keys = trained_length(layer)
        last = n_keys - 1 if layer.is_causal else n_keys - 1 - FARTHEST
        if self.query_positions is None:
            span = max(0, last - FARTHEST)
            evenly = FARTHEST + span * (np.arange(N_PLACES) + 0.5) / N_PLACES
            found = sorted(set(evenly.astype(int).tolist()))
        else:
            if not self.query_positions:
                raise RangeError("no query position was given; pass at least one, e.g. 60,125")
            layer.check_positions(self.query_positions)
            found, n_keys = sorted(set(self.query_positions)), layer.n_positions
        for position in found:
            _check_reach(layer, position, n_keys)
        return found

    def ask(self, study: Study, runner: Runner) -> Frames:
        layer, counts, heads = study.layer, study.counts, study.heads(self.heads)
        assert counts is not None
        positions, evidence = self._positions(layer), word_evidence(layer.vocabulary, counts)
        labels = self.classes(layer, counts, evidence)
        if layer.weights.softcap is not None:
            runner.say("lifts are taken before softcapping")
        mean, seed = self.split_off(study), study.seed
        swept = evidence.labels(
            min(*SWEEP["continuation"], self.continuation), max(SWEEP["whole_word"]), self.first_piece
        )
        also = (swept != "") & (counts.tokens >= self.fewest)
        tokens = QueryTokens.of(labels, counts.tokens, counts.bigrams, also=also)
        draws = Draws(tokens, draws_for(len(heads)), seed)
        seen = Lifts(layer, tokens, counts.tokens.astype(np.float64), positions, mean)
        lifts = seen.of_heads(heads, runner, draws)
        text = self._on_text(study, labels, heads, runner)
        over_self = {head: _against_self(lift) for head, lift in lifts.items()}
        rows = [*_rows(lifts, draws, PREVIOUS, _nulls(lifts, seed)), *_rows(over_self, draws, SELF)]
        rows += _spelled_alike(layer, lifts, tokens, seed)
        if not layer.is_causal:
            after = QueryTokens.of(labels, counts.tokens, counts.bigrams, ahead=True)
            ahead = Lifts(layer, after, counts.tokens.astype(np.float64), positions, mean, ahead=True)
            drawn = Draws(after, draws_for(len(heads)), seed)
            found = ahead.of_heads(heads, runner, drawn)
            rows += _rows(found, drawn, NEXT, _nulls(found, seed))
        tables = {
            "lookback_by_head": _conform(LOOKBACK_BY_HEAD, rows).sort("head", maintain_order=True),
            "lookback_by_term": _by_term(lifts, [str(term.name) for term in seen.terms], draws),
            "lookback_by_threshold": self._by_threshold(lifts, tokens, counts, evidence),
            "lookback_by_token": _by_token(layer, lifts, tokens, text),
        }
        if positions:
            tables["lookback_by_position"] = _by_position(lifts, positions)
        if text is None:
            return tables
        return tables | {
            "lookback_text": _text_table(text, heads, seed),
            "lookback_prediction": _prediction(tables["lookback_by_token"], heads, seed),
        }

    def classes(self, layer: Layer, counts: Counts, evidence: WordEvidence) -> np.ndarray:
        """The class of every token; refuses a vocabulary or corpus that can't fill C and W."""
        if not evidence.begins.any():
            raise TokenError(
                f"{layer.name}: no token of letters starts with a space, so whole words (W) and first pieces (F) can't "
                "be distinguished from continuations (C); lookback needs a tokenizer that marks where words begin"
            )
        if not evidence.continues.any():
            raise TokenError(
                f"{layer.name}: no token continues a word, so there are no continuation tokens (C); lookback needs a "
                "tokenizer that splits words"
            )
        labels = evidence.labels(self.continuation, self.whole_word, self.first_piece)
        labels = np.where(counts.tokens < self.fewest, "", labels)
        if not QueryTokens.of(labels, counts.tokens, counts.bigrams).weights:
            n_c, n_w = (int((labels == label).sum()) for label in "CW")
            raise RangeError(
                f"{plural(n_c, 'continuation token')} (C) and {plural(n_w, 'whole word')} (W) occur at least "
                f"{self.fewest} times, and no frequency bin has {FEWEST} of each; count more text, or lower `fewest`"
            )
        return labels

    def _on_text(self, study: Study, labels: np.ndarray, heads: list[int], runner: Runner) -> TextLookback | None:
        if not study.has("text"):
            runner.say("no text: attention to the previous token is not measured")
            return None
        found = text_lookback(study.layer, study.documents, labels, heads, self.split_off(study), runner)
        if found is None:
            runner.say("the text has no continuation token or no whole word from position 16 on; nothing is measured")
        return found

    def _by_threshold(
        self, lifts: Mapping[int, HeadLift], tokens: QueryTokens, counts: Counts, evidence: WordEvidence
    ) -> pl.DataFrame:
        """The total with other thresholds of C and W."""
        rows = []
        for continuation in SWEEP["continuation"]:
            for whole_word in SWEEP["whole_word"]:
                labels = evidence.labels(continuation, min(whole_word, self.first_piece), self.first_piece)[tokens.ids]
                chosen = QueryTokens(tokens.ids, labels, tokens.bins, tokens.neighbours)
                used = int(np.count_nonzero(chosen.contrast)) if chosen.weights else 0
                for head, lift in lifts.items():
                    total = lift.lift @ chosen.contrast if used else None
                    rows.append((head, continuation, whole_word, total, used))
        return _conform(LOOKBACK_BY_THRESHOLD, rows).sort("head", maintain_order=True)

    def verdict(self, tables: Frames) -> Verdict:
        """Whether at least one head looks back more from continuation tokens than from whole words."""
        judged = judge_lookback(tables["lookback_by_head"])
        switched = [head for head in judged if head.part is not None]
        best = max(switched or judged, key=lambda head: head.total["difference"])
        total, name = best.total, head_name(best.head)
        labels = (
            f"C − W is {total['difference']:.2f} nats in {name}, against at most {total['null_high']:.2f} with labels"
        )
        if best.part is None:
            return Verdict("no", f"{labels} permuted; {best.why_not}".replace("-", "−"))
        part = best.parts[best.part]
        reason = (
            f"{labels} permuted; its {best.part} part is {part['difference']:.2f}, against at most "
            f"{part['aligned_high']:.2f} with queries rotated at random"
        )
        return Verdict("yes", reason, tuple(head_name(head.head) for head in switched))

    def summarize(self, tables: Frames) -> str:
        judged = judge_lookback(tables["lookback_by_head"])
        switched = [head for head in judged if head.part is not None]
        alike = [head for head in judged if head.kind.startswith("previous token")]
        if not switched:
            none = "No head looks back more from continuation tokens than from whole words."
            return f"{none} {_describe_closest(max(alike or judged, key=lambda head: head.total['difference']))}"
        gaps = _gaps(tables)
        best = max(switched, key=lambda head: (gaps.get((head.head, "none"), 0.0), head.total["difference"]))
        said, more = _describe_switch(best, tables, gaps), []
        if others := [head_name(head.head) for head in switched if head is not best]:
            more.append(f"So {'does' if len(others) == 1 else 'do'} {listed_some(others, NAMED)}.")
        if names := [f"{head_name(head.head)}{head.kind.removeprefix('previous token')}" for head in alike]:
            more.append(f"{listed_some(names, NAMED)} {'looks' if len(names) == 1 else 'look'} back without a switch.")
        for sentence in more:
            said += f" {sentence}" if len(f"{said} {sentence}".split()) <= LONGEST else ""
        return said

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """The head with the largest difference in each model."""
        said = []
        for label, tables in by_label.items():
            judged = judge_lookback(tables["lookback_by_head"])
            best = max(judged, key=lambda head: (head.part is not None, head.total["difference"]))
            kind = f"{best.part} switch" if best.part else "no switch"
            said.append(
                f"{best.total['difference']:+.2f} in {label} ({head_name(best.head)}, {kind})".replace("-", "−")
            )
        return f"Largest lift from continuation tokens minus whole words, in nats: {listed(said)}."

    def views(self, tables: Frames) -> Sequence[View]:
        """One row per head: lift by class, C − W by part, and what kind of head it is."""
        judged = judge_lookback(tables["lookback_by_head"])
        gaps = _gaps(tables)
        shown = {
            "head": [head.head for head in judged],
            **{name: [head.total[name] for head in judged] for name in CLASSES},
            "C − W": [head.total["difference"] for head in judged],
            **{part: [head.parts[part]["difference"] for head in judged] for part in PARTS},
            **({"gap": [gaps.get((head.head, "none")) for head in judged]} if gaps else {}),
            "kind": [head.kind for head in judged],
        }
        frame = pl.DataFrame(shown, schema_overrides={"head": pl.Int32}).with_columns(pl.selectors.float().round(3))
        return [View("lift of the previous token in nats, by class of query token; C − W by part", frame)]


@dataclass(frozen=True)
class HeadJudgement:
    """One head's rows of `lookback_by_head`, contrast previous."""

    head: int
    total: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, Any]]

    @property
    def part(self) -> str | None:
        """The largest part that exceeds its controls, if the total does as well; None without a switch."""
        return None if self.why_not else max(self._beyond, key=lambda part: self.parts[part]["difference"])

    @property
    def _beyond(self) -> list[str]:
        return [
            part
            for part, row in self.parts.items()
            if row["p_alignments"] <= ALPHA and row["difference"] >= LEAST and row["low"] > 0
        ]

    @property
    def why_not(self) -> str:
        """The condition of a switch that fails; empty if none does."""
        if self.total["difference"] <= -LEAST:
            return "it looks back more from whole words"
        if self.total["difference"] < LEAST:
            return f"we require {LEAST:g} nats"
        if self.total["low"] <= 0:
            return "its interval reaches 0"
        if self.total["p_labels"] > ALPHA:
            return f"permuted labels give as much (p = {self.total['p_labels']:.2g})"
        return "" if self._beyond else "randomly rotated queries give parts as large"

    @property
    def kind(self) -> str:
        """What kind of head this is, in a few words; a previous-token head with its largest part."""
        if self.part is not None:
            return f"{self.part} switch"
        if min(self.total["C"], self.total["W"]) < LOOKS_BACK:
            return "no switch"
        return f"previous token ({self.largest})"

    @property
    def largest(self) -> str:
        """The largest part of the lift from whole words."""
        return max(PARTS, key=lambda part: float(self.parts[part]["W"]))


def judge_lookback(by_head: pl.DataFrame) -> list[HeadJudgement]:
    """The judgement of every head, in order."""
    rows = by_head.filter(contrast=PREVIOUS).partition_by("head", as_dict=True, maintain_order=True)
    found = {head: {row["part"]: row for row in some.iter_rows(named=True)} for (head,), some in rows.items()}
    return [
        HeadJudgement(head, {**some}.pop("total"), {part: some[part] for part in PARTS}) for head, some in found.items()
    ]


def largest_term(by_term: pl.DataFrame, head: int) -> tuple[str, float, bool]:
    """The largest term of a head's C − W, its size, and whether it carries at least half of the difference."""
    rows = by_term.filter(head=head, part="total").sort("difference", descending=True)
    name, size = rows.select("term", "difference").row(0)
    return name, size, size >= HALF * float(rows["difference"].to_numpy().sum())


def _gaps(tables: Frames) -> dict[tuple[int, str], float]:
    """The gap in attention by head and removed term; empty without text."""
    if "lookback_text" not in tables:
        return {}
    rows = tables["lookback_text"].select("head", "removed", "gap").iter_rows()
    return {(head, removed): gap for head, removed, gap in rows}


def _describe_switch(best: HeadJudgement, tables: Frames, gaps: Mapping[tuple[int, str], float]) -> str:
    assert best.part is not None
    term, size, carries = largest_term(tables["lookback_by_term"], best.head)
    total, low, high = (best.total[name] for name in ("difference", "low", "high"))
    part = f"{_PART_WORDS[best.part]} ({best.parts[best.part]['difference']:.2f} nats)"
    said = (
        f"{head_name(best.head)} looks back {total:.2f} nats more [{low:.2f}, {high:.2f}] from continuation tokens "
        f"than from whole words; the difference is {part} and "
    )
    said += f"carried by {term_symbol(term)}" if carries else f"its largest term is {term_symbol(term)} ({size:.2f})"
    if (best.head, "none") not in gaps:
        return f"{said}."
    whole, left = gaps[best.head, "none"], gaps[best.head, term]
    verb = "closes" if abs(left) <= (1 - HALF) * whole else "reverses" if left < 0 else "changes"
    shown = f"{whole:.3f} to {left:.3f}".replace("-", "−")
    return f"{said}; without {term_symbol(term)} the gap in attention {verb} from {shown}."


_PART_WORDS = {"position": "positional", "class": "one of class", "lexical": "lexical"}


def _describe_closest(best: HeadJudgement) -> str:
    """A previous-token head, or else the head with the largest difference."""
    total, name = best.total, head_name(best.head)
    if best.kind.startswith("previous token"):
        return (
            f"{name} is a previous-token head without a switch: lift {total['C']:.1f} nats from continuation tokens, "
            f"{total['W']:.1f} from whole words, mostly {_PART_WORDS[best.largest]}."
        )
    return f"The closest is {name}, with {total['difference']:.2f} nats: {best.why_not}.".replace("-", "−")


def _check_reach(layer: Layer, position: int, n_keys: int) -> None:
    """Refuse a query that does not see 15 tokens back, and ahead if it looks both ways."""
    seen = seen_keys(position, n_keys, layer.is_causal, layer.weights.window)
    back, ahead = position - seen.start + 1, seen.stop - position
    fewest = min(back, back if layer.is_causal else ahead, n_keys)
    if fewest <= FARTHEST:
        where = f" from position {position}" if layer.positions == "learned" and fewest < n_keys else ""
        raise RangeError(
            f"{layer.name}: a query sees at most {plural(fewest, 'token')}{where}; lookback compares offset 1 "
            f"with offsets 2 to {FARTHEST}, so it needs {FARTHEST + 1} visible tokens"
        )


def _conform(schema: Schema, rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    return schema.conform(pl.DataFrame(rows, schema=schema.names, orient="row", infer_schema_length=None))


def _rows(
    lifts: Mapping[int, HeadLift], draws: Draws, contrast: str, nulls: Mapping[tuple[int, str], Sequence[Any]] = {}
) -> list[tuple[Any, ...]]:
    """Rows of `lookback_by_head`; against the query itself, class and lexical part are those of the previous token."""
    used = int(np.count_nonzero(draws.tokens.contrast))
    weights = [draws.tokens.matched(label) for label in CLASSES]
    rows = []
    for head, lift in lifts.items():
        values = np.nan_to_num(lift.by_token)
        found = draws.estimate(values)
        for row, part in enumerate((*PARTS, "total")):
            if contrast == SELF and part in ("class", "lexical"):
                continue
            means = [values[row] @ each if each.any() else None for each in weights]
            null = nulls.get((head, part), [None] * 6)
            rows.append((head, part, contrast, *means, *(each[row] for each in found), *null, used))
    return rows


def _nulls(lifts: Mapping[int, HeadLift], seed: int) -> dict[tuple[int, str], list[float | None]]:
    """Both nulls of each head and part: the ends of permuted labels and of rotated queries, and the two p-values."""
    matrices = np.stack([lift.matrices for lift in lifts.values()])
    labels = np.stack([lift.label_null for lift in lifts.values() if lift.label_null is not None])
    observed, rotated = np.trace(matrices, axis1=2, axis2=3), random_alignments(matrices, labels.shape[-1], seed)
    spread = np.maximum(rotated.std(axis=2), np.finfo(float).tiny)
    largest = (rotated[:, :-1] / spread[:, :-1, None]).max(axis=1)  # over parts, for each head and draw
    found: dict[tuple[int, str], list[float | None]] = {}
    for column, part in enumerate((*PARTS, "total")):
        pairs = zip(observed[:, column], labels[:, column], strict=True)
        p_labels = holm(np.array([tail_probability(abs(value), np.abs(null)) for value, null in pairs]))
        for row, head in enumerate(lifts):
            ends = [*np.quantile([labels[row, column], rotated[row, column]], [0.025, 0.975], axis=1).T.ravel()]
            p = tail_probability(observed[row, column] / spread[row, column], largest[row])
            p_alignments = None if part == "total" else min(1.0, len(lifts) * p)
            found[head, part] = [*ends, p_labels[row], p_alignments]
    return found


def _against_self(lift: HeadLift) -> HeadLift:
    """The same lift with the query's own key in place of the earlier ones: only the position part changes."""
    parts = np.concatenate([lift.over_self[None], lift.parts[1:]])
    total = lift.lift + (lift.over_self - lift.parts[0]).sum(axis=0)
    return replace(lift, parts=parts, lift=total)


def _spelled_alike(
    layer: Layer, lifts: Mapping[int, HeadLift], tokens: QueryTokens, seed: int
) -> list[tuple[Any, ...]]:
    """The total for pairs of a continuation token and a whole word that are spelled alike, with paired intervals."""
    mark = layer.vocabulary.continuing_mark
    words: dict[str, dict[str, int]] = {}
    for place, (token, label) in enumerate(zip(tokens.ids, tokens.labels, strict=True)):  # label may be empty
        words.setdefault(layer.token(int(token)).removeprefix(mark).strip(), {})[label] = place
    pairs = np.array([(each["C"], each["W"]) for each in words.values() if {"C", "W"} <= set(each)])
    if len(pairs) < FEWEST:
        return []
    both = np.stack([lift.lift[pairs] for lift in lifts.values()])  # head, pair, class
    gaps, times = both[..., 0] - both[..., 1], np.concatenate(list(resampled(len(pairs), RESAMPLES, seed)))
    found = interval(gaps.mean(axis=1), times @ gaps.T / len(pairs))
    means = both.mean(axis=1)
    return [
        (head, "total", ALIKE, *means[row], None, *(each[row] for each in found), *[None] * 6, len(pairs))
        for row, head in enumerate(lifts)
    ]


def _by_term(lifts: Mapping[int, HeadLift], terms: Sequence[str], draws: Draws) -> pl.DataFrame:
    rows = []
    for head, lift in lifts.items():
        parts = np.nan_to_num(lift.parts)
        found = draws.estimate(np.concatenate([parts, parts.sum(axis=0, keepdims=True)]))
        for row, part in enumerate((*PARTS, "total")):
            rows += [(head, part, term, *(each[row, column] for each in found)) for column, term in enumerate(terms)]
    return _conform(LOOKBACK_BY_TERM, rows)


def _by_position(lifts: Mapping[int, HeadLift], positions: Sequence[int]) -> pl.DataFrame:
    rows = [
        (head, position, part, value)
        for head, lift in lifts.items()
        for position, values in zip(positions, lift.by_place, strict=True)
        for part, value in zip((*PARTS, "total"), [*values, values.sum()], strict=True)
    ]
    return _conform(LOOKBACK_BY_POSITION, rows)


def _by_token(
    layer: Layer, lifts: Mapping[int, HeadLift], tokens: QueryTokens, text: TextLookback | None
) -> pl.DataFrame:
    classed = np.flatnonzero(tokens.labels != "")
    ids, labels, n = tokens.ids[classed], tokens.labels[classed], len(classed)
    measured = np.full((len(lifts), n), np.nan)
    if text is not None:
        often = text.token_places[ids] >= FEWEST_OCCURRENCES
        measured[:, often] = text.token_sums[:, ids[often]] / text.token_places[ids[often]]
    values = np.concatenate([lift.parts.sum(axis=1)[:, classed] for lift in lifts.values()], axis=1)
    return LOOKBACK_BY_TOKEN.frame(
        {
            "head": np.repeat(np.array(list(lifts)), n),
            "token_id": np.tile(ids, len(lifts)),
            "token": [layer.token(int(token)) for token in ids] * len(lifts),
            "class": labels.tolist() * len(lifts),
            **dict(zip(("position", "class_part", "lexical"), values, strict=True)),
            "measured": measured.ravel(),
        }
    )


def _text_table(text: TextLookback, heads: Sequence[int], seed: int) -> pl.DataFrame:
    means, gap = text.estimates(seed)
    places, ends = int(text.places[:, :2].sum()), np.stack([means.low, means.high], axis=-1)
    rows = [
        (
            head,
            removed,
            *means.value[row, column],
            *(each[row, column] for each in gap),
            places,
            *ends[row, column].ravel(),
        )
        for row, head in enumerate(heads)
        for column, removed in enumerate(text.removed)
    ]
    return _conform(LOOKBACK_TEXT, rows)


def _prediction(by_token: pl.DataFrame, heads: Sequence[int], seed: int) -> pl.DataFrame:
    rows = []
    lift = pl.col("position") + pl.col("class_part") + pl.col("lexical")
    for head in heads:
        pair = by_token.filter(head=head).select(lift, "measured").drop_nulls().to_numpy()
        n = len(pair)
        value, ends = spearman(*pair.T) if n else None, (None, None)
        if value is not None and n >= FEWEST:
            drawn = (row.astype(int) for times in resampled(n, RESAMPLES, seed) for row in times)
            samples = [spearman(*np.repeat(pair, times, axis=0).T) for times in drawn]
            found = interval(np.array([value]), np.array(samples, np.float64)[:, None], skip_undefined=True)
            ends = found.low[0], found.high[0]
        rows.append((head, value, *ends, n))
    return _conform(LOOKBACK_PREDICTION, rows)
