"""The detokenization switch: what makes a head look back from continuation tokens, but not from whole words?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import polars as pl

from detoklens.corpus.counts import Counts
from detoklens.errors import RangeError, TokenError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.chance import Interval, draws_for, holm, interval, resampled, tail_probability
from detoklens.measures.positions import trained_length
from detoklens.measures.token_classes import WordEvidence, word_evidence
from detoklens.parallel import Runner
from detoklens.questions.base import ByLabel, Frames, Verdict, View
from detoklens.questions.lookback.compute import (
    CLASSES,
    FARTHEST,
    FEWEST,
    PARTS,
    RESAMPLES,
    Draws,
    Lifts,
    QueryTokens,
    TextLookback,
    correlation_with_interval,
    lifts_of,
    random_alignments,
    text_lookback,
)
from detoklens.questions.lookback.verdict import PREVIOUS, describe_closest, describe_switch, judge_lookback, text_gaps
from detoklens.questions.options import SplitOff, TermQuestion
from detoklens.questions.parameters import Heads, Parameter, comma_separated, whole_numbers
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import seen_keys
from detoklens.tables.schema import HEAD, TOKEN, TOKEN_ID, Column, Schema
from detoklens.wording import head_name, listed, listed_some, plural

N_PLACES = 8  # query positions by default, if they are learned
FEWEST_OCCURRENCES = 5  # of a token in the text, for its measured attention
SWEPT_CONTINUATION, SWEPT_WHOLE_WORD = (0.8, 0.9, 0.95), (0.02, 0.05, 0.1)
NAMED = 4  # heads in a summary
LONGEST = 40  # words of a summary
SELF, NEXT, ALIKE = "self", "next", "spelled_alike"
COLUMNS = (*PARTS, "total")


def numbers(**meanings: str) -> tuple[Column, ...]:
    return tuple(Column(name, meaning) for name, meaning in meanings.items())


PART = Column("part", "position, class or lexical part of the lift, or total: their sum", "String")
INTERVAL = {"low": "lower end of its 95 % interval over query tokens", "high": "upper end of that interval"}
LOOKBACK_BY_HEAD = Schema(
    "lookback_by_head",
    "How much more does each head look back from continuation tokens than from whole words?",
    HEAD,
    PART,
    Column(
        "contrast",
        "previous: previous token against 2 to 15 back; self: against the query itself; next: next token against 2 "
        "to 15 ahead (bidirectional models); spelled_alike: previous, for pairs such as `in` and ` in`",
        "String",
    ),
    *numbers(
        C="lift from continuation tokens, in nats; classes are matched in frequency",
        W="lift from whole words",
        F="lift from first pieces, which need not look back either",
        difference="C − W",
        **INTERVAL,
        null_low="lower end of the middle 95 % of C − W with labels permuted in frequency bins",
        null_high="upper end of that interval",
        aligned_low="the same with queries rotated at random against keys",
        aligned_high="upper end of that interval",
        p_labels="share of permutations with a |C − W| as large, Holm-adjusted over heads",
        p_alignments="share of random rotations in which some part is at least as many standard deviations above 0, "
        "multiplied by the number of heads",
    ),
    Column("tokens", "query tokens of C and W in the frequency bins used; pairs for spelled_alike", "Int64"),
)
LOOKBACK_BY_TERM = Schema(
    "lookback_by_term",
    "Which term carries the difference between continuation tokens and whole words?",
    HEAD,
    PART,
    Column("term", "score term", "String"),
    *numbers(difference="C − W, in nats", **INTERVAL),
)
LOOKBACK_TEXT = Schema(
    "lookback_text",
    "Attention to the previous token on text, with all terms and without each",
    HEAD,
    Column("removed", "the removed term; none for the full attention", "String"),
    *numbers(
        attention_C="mean attention to the previous token from continuation tokens",
        attention_W="the same from whole words",
        attention_F="the same from first pieces",
        gap="attention_C − attention_W",
        low="lower end of the gap's 95 % interval over documents",
        high="upper end of that interval",
    ),
    Column("places", "measured query positions of C and W, from position 16", "Int64"),
    *numbers(
        **{
            f"attention_{label}_{end}": f"{side} end of the 95 % interval of attention_{label}"
            for label in CLASSES
            for end, side in (("low", "lower"), ("high", "upper"))
        }
    ),
)
LOOKBACK_PREDICTION = Schema(
    "lookback_prediction",
    "Does the lift of a token, from weights and counts, predict its attention to the previous token on text?",
    HEAD,
    *numbers(spearman="Spearman correlation over query tokens of lift and measured attention", **INTERVAL),
    Column("tokens", f"query tokens with at least {FEWEST_OCCURRENCES} measured positions", "Int64"),
)
LOOKBACK_BY_TOKEN = Schema(
    "lookback_by_token",
    "The lift of each query token",
    HEAD,
    TOKEN_ID,
    TOKEN,
    Column("class", "C: continuation, W: whole word, F: first piece", "String"),
    *numbers(
        position="position part of the lift, in nats",
        class_part="class part; null for a token alone in its class and frequency bin",
        lexical="lexical part",
        measured="mean attention to the previous token on text; null if the token is too rare there",
    ),
)
LOOKBACK_BY_THRESHOLD = Schema(
    "lookback_by_threshold",
    "Does the difference depend on the thresholds of the classes?",
    HEAD,
    *numbers(
        continuation="minimum share of occurrences after a letter, for C",
        whole_word="maximum share of occurrences before a continuation, for W",
        difference="C − W of the total lift, in nats",
    ),
    Column("tokens", "query tokens of C and W in the frequency bins used", "Int64"),
)
LOOKBACK_BY_POSITION = Schema(
    "lookback_by_position",
    "Does the difference depend on the query position?",
    HEAD,
    Column("query_position", "position of the query, from 0", "Int32"),
    PART,
    *numbers(difference="C − W, in nats"),
)


@dataclass(frozen=True, repr=False)
class Lookback(TermQuestion):
    """Find what makes heads look back from continuation tokens, but not from whole words.

    A query's lift is its score for the previous token minus that for tokens 2 to 15 back. It has a position part
    (whichever token is there), a class part (what usually precedes such queries) and a lexical part (the query's own
    predecessors), each split into score terms. The verdict is "yes" if a head's lift is larger from continuation tokens
    than from equally frequent whole words, and the difference exceeds those with permuted labels and with randomly
    rotated queries. With text, attention to the previous token is also measured without each term. Softcapping is not
    applied to lifts.

    Example: detoklens lookback gpt2 --counts counts --text 'openwebtext/*.parquet'
    """

    heads: Heads = None
    query_positions: Annotated[
        Sequence[int] | None,
        Parameter(
            "Learned positions: query positions, from 15. Default: eight, evenly spread over the trained range.",
            metavar="60,125,200",
            read=whole_numbers("query positions"),
            spell=comma_separated("--query-positions"),
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
    reported: ClassVar[Mapping[str, Any]] = {"compared": True}
    needs = frozenset({"counts", "vocabulary"})
    uses = frozenset({"text", "seed"})
    reads_counts = True
    parallel = True
    family_options: ClassVar[frozenset[str]] = frozenset({"mean"})
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
            ("lookback_by_head", "lookback_by_term"),
            "Looking back, by class of query token",
            "First: lift of the previous token from continuation tokens (C), whole words (W) and first pieces (F), by "
            "part. Second: C − W of all terms and by term; the band is the middle 95 % with permuted labels. Third, if "
            "there is text: attention to the previous token by class, with all terms and without each term; lines are "
            "95 % intervals over documents.",
            optional=("lookback_text",),
            per_head=True,
        ),
    )

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
            layer.check(positions=self.query_positions)
            found, n_keys = sorted(set(self.query_positions)), layer.n_positions
        for position in found:
            _check_reach(layer, position, n_keys)
        return found

    def ask(self, study: Study, runner: Runner) -> Frames:
        layer, counts, heads, seed = study.layer, study.counts, study.heads(self.heads), study.seed
        assert counts is not None
        positions, evidence = self._positions(layer), word_evidence(layer.vocabulary, counts)
        labels = self.classes(layer, counts, evidence)
        if layer.weights.softcap is not None:
            runner.say("lifts are taken before softcapping")
        mean, n_draws = self.split_off(study), draws_for(len(heads))

        def measured(tokens: QueryTokens, ahead: bool) -> tuple[Lifts, Draws]:
            draws, frequencies = Draws(tokens, n_draws, seed), counts.tokens.astype(np.float64)
            lifts = lifts_of(
                layer, tokens, frequencies, heads, runner, positions=positions, mean=mean, draws=draws, ahead=ahead
            )
            return lifts, draws

        loosest = min(*SWEPT_CONTINUATION, self.continuation), max(SWEPT_WHOLE_WORD), self.first_piece
        swept = (evidence.labels(*loosest) != "") & (counts.tokens >= self.fewest)
        tokens = QueryTokens.of(labels, counts.tokens, counts.bigrams, also=swept)
        lifts, draws = measured(tokens, ahead=False)
        text = self._on_text(study, labels, heads, runner)
        by_head = [
            _contrast(PREVIOUS, heads, COLUMNS, lifts.by_token, draws, _nulls(lifts, seed)),
            _contrast(SELF, heads, ("position", "total"), lifts.against_self, draws),
            _spelled_alike(layer, heads, lifts, tokens, seed),
        ]
        if not layer.is_causal:
            after = QueryTokens.of(labels, counts.tokens, counts.bigrams, ahead=True)
            found, drawn = measured(after, ahead=True)
            by_head.append(_contrast(NEXT, heads, COLUMNS, found.by_token, drawn, _nulls(found, seed)))
        parts = np.nan_to_num(lifts.parts)
        by_term = draws.estimate(np.concatenate([parts, parts.sum(axis=1, keepdims=True)], axis=1))
        terms = [str(term.name) for term in lifts.terms]
        tables = {
            "lookback_by_head": pl.concat(by_head).sort("head", maintain_order=True),
            "lookback_by_term": LOOKBACK_BY_TERM.grid(
                {"head": heads, "part": COLUMNS, "term": terms},
                with_ends("difference", by_term),
            ),
            "lookback_by_threshold": self._by_threshold(heads, lifts, tokens, evidence),
            "lookback_by_token": _by_token(layer, heads, lifts, tokens, text),
        }
        if positions:
            by_place = np.concatenate([lifts.by_place, lifts.by_place.sum(axis=2, keepdims=True)], axis=2)
            axes = {"head": heads, "query_position": positions, "part": COLUMNS}
            tables["lookback_by_position"] = LOOKBACK_BY_POSITION.grid(axes, {"difference": by_place})
        if text is not None:
            tables["lookback_text"] = _text_table(text, heads, seed)
            tables["lookback_prediction"] = _prediction(tables["lookback_by_token"], heads, seed)
        return tables

    def classes(self, layer: Layer, counts: Counts, evidence: WordEvidence) -> np.ndarray:
        """The class of every token; refuses a vocabulary or corpus that can't fill C and W."""
        if not evidence.begins.any():
            raise TokenError(
                f"{layer.name}: no token of letters starts with a space, so whole words (W) and first pieces (F) can't "
                "be distinguished from continuations (C); lookback needs a tokenizer that marks where words begin"
            )
        if not evidence.continues.any():
            raise TokenError(
                f"{layer.name}: no token continues a word, so class C (continuation) is empty; lookback needs a "
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
        self, heads: Sequence[int], lifts: Lifts, tokens: QueryTokens, evidence: WordEvidence
    ) -> pl.DataFrame:
        """The total with other thresholds of C and W."""
        shape = len(SWEPT_CONTINUATION), len(SWEPT_WHOLE_WORD)
        used, totals = np.zeros(shape, np.int64), np.full((len(heads), *shape), np.nan)
        for row, column in np.ndindex(shape):
            whole_word = min(SWEPT_WHOLE_WORD[column], self.first_piece)
            labels = evidence.labels(SWEPT_CONTINUATION[row], whole_word, self.first_piece)[tokens.ids]
            chosen = QueryTokens(tokens.ids, labels, tokens.bins, tokens.neighbours)
            if chosen.weights:
                used[row, column] = np.count_nonzero(chosen.contrast)
                totals[:, row, column] = lifts.total @ chosen.contrast
        axes = {"head": heads, "continuation": SWEPT_CONTINUATION, "whole_word": SWEPT_WHOLE_WORD}
        return LOOKBACK_BY_THRESHOLD.grid(axes, {"difference": totals, "tokens": used})

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
            none = f"{self.no_head} looks back more from continuation tokens than from whole words."
            return f"{none} {describe_closest(max(alike or judged, key=lambda head: head.total['difference']))}"
        gaps = text_gaps(tables)
        best = max(switched, key=lambda head: (gaps.get((head.head, "none"), 0.0), head.total["difference"]))
        summary, more = describe_switch(best, tables, gaps), []
        if others := [head_name(head.head) for head in switched if head is not best]:
            more.append(f"{listed_some(others, NAMED)} also {'looks' if len(others) == 1 else 'look'} back more.")
        if names := [f"{head_name(head.head)}{head.kind.removeprefix('previous token')}" for head in alike]:
            more.append(f"{listed_some(names, NAMED)} {'looks' if len(names) == 1 else 'look'} back from both.")
        for sentence in more:
            summary += f" {sentence}" if len(f"{summary} {sentence}".split()) <= LONGEST else ""
        return summary

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """The head with the largest difference in each model."""
        clauses = []
        for label, tables in by_label.items():
            judged = judge_lookback(tables["lookback_by_head"])
            best = max(judged, key=lambda head: (head.part is not None, head.total["difference"]))
            kind = f"{best.part} switch" if best.part else "no switch"
            clauses.append(
                f"{best.total['difference']:+.2f} in {label} ({head_name(best.head)}, {kind})".replace("-", "−")
            )
        return f"Largest lift from continuation tokens minus that from whole words, in nats: {listed(clauses)}."

    def views(self, tables: Frames) -> Sequence[View]:
        """One row per head: lift by class, C − W by part, and what kind of head it is."""
        judged = judge_lookback(tables["lookback_by_head"])
        gaps = text_gaps(tables)
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


NULLS = ("null_low", "null_high", "aligned_low", "aligned_high", "p_labels", "p_alignments")


def with_ends(name: str, found: Interval) -> dict[str, np.ndarray]:
    return {name: found.value, "low": found.low, "high": found.high}


def _contrast(
    contrast: str,
    heads: Sequence[int],
    columns: Sequence[str],
    values: np.ndarray,
    draws: Draws,
    nulls: Mapping[str, np.ndarray | None] = dict.fromkeys(NULLS),
) -> pl.DataFrame:
    """Rows of `lookback_by_head` from the lift of every [head, column, token]."""
    weights = {label: draws.tokens.matched(label) for label in CLASSES}
    means = {label: values @ each if each.any() else None for label, each in weights.items()}
    used = int(np.count_nonzero(draws.tokens.contrast))
    data = with_ends("difference", draws.estimate(values)) | means | dict(nulls)
    return LOOKBACK_BY_HEAD.grid({"head": heads, "part": columns}, data | {"contrast": contrast, "tokens": used})


def _nulls(lifts: Lifts, seed: int) -> dict[str, np.ndarray]:
    """Both nulls of each head and column: the ends of permuted labels and of rotated queries, and the two p-values."""
    labels, observed = lifts.label_null, np.trace(lifts.matrices, axis1=2, axis2=3)
    rotated = random_alignments(lifts.matrices, labels.shape[-1], seed)
    spread = np.maximum(rotated.std(axis=2), np.finfo(float).tiny)
    largest = (rotated[:, :-1] / spread[:, :-1, None]).max(axis=1, keepdims=True)  # over parts, by head and draw
    tails = np.vectorize(tail_probability, signature="(),(draw)->()")
    p_alignments = np.minimum(1.0, len(observed) * tails(observed / spread, largest))
    p_alignments[:, -1] = np.nan  # the total has none
    p_labels = tails(np.abs(observed), np.abs(labels))
    ends = np.quantile([labels, rotated], [0.025, 0.975], axis=-1)
    p_values = np.apply_along_axis(holm, 0, p_labels), p_alignments
    return dict(zip(NULLS, (ends[0, 0], ends[1, 0], ends[0, 1], ends[1, 1], *p_values), strict=True))


def _spelled_alike(layer: Layer, heads: Sequence[int], lifts: Lifts, tokens: QueryTokens, seed: int) -> pl.DataFrame:
    """The total for pairs of a continuation token and a whole word that are spelled alike, with paired intervals."""
    mark = layer.vocabulary.continuing_mark
    words: dict[str, dict[str, int]] = {}
    for place, (token, label) in enumerate(zip(tokens.ids, tokens.labels, strict=True)):  # label may be empty
        words.setdefault(layer.token(int(token)).removeprefix(mark).strip(), {})[label] = place
    pairs = np.array([(each["C"], each["W"]) for each in words.values() if {"C", "W"} <= set(each)])
    if len(pairs) < FEWEST:
        return LOOKBACK_BY_HEAD.of_rows([])
    both = lifts.total[:, pairs]  # head, pair, class
    gaps, times = both[..., 0] - both[..., 1], np.concatenate(list(resampled(len(pairs), RESAMPLES, seed)))
    found, means = interval(gaps.mean(axis=1), times @ gaps.T / len(pairs)), both.mean(axis=1)
    data = {"part": "total", "contrast": ALIKE, "C": means[:, 0], "W": means[:, 1], "F": None, "tokens": len(pairs)}
    return LOOKBACK_BY_HEAD.grid({"head": heads}, data | with_ends("difference", found) | dict.fromkeys(NULLS))


def _by_token(
    layer: Layer, heads: Sequence[int], lifts: Lifts, tokens: QueryTokens, text: TextLookback | None
) -> pl.DataFrame:
    classed = np.flatnonzero(tokens.labels != "")
    ids, measured = tokens.ids[classed], np.full((len(heads), len(classed)), np.nan)
    if text is not None:
        often = text.token_places[ids] >= FEWEST_OCCURRENCES
        measured[:, often] = text.token_sums[:, ids[often]] / text.token_places[ids[often]]
    parts = lifts.parts.sum(axis=2)[:, :, classed]
    data = {
        "token": [layer.token(int(token)) for token in ids] * len(heads),
        "class": tokens.labels[classed].tolist() * len(heads),
        **dict(zip(("position", "class_part", "lexical"), parts.transpose(1, 0, 2), strict=True)),
        "measured": measured,
    }
    return LOOKBACK_BY_TOKEN.grid({"head": heads, "token_id": ids}, data)


def _text_table(text: TextLookback, heads: Sequence[int], seed: int) -> pl.DataFrame:
    means, gap = text.estimates(seed)
    data: dict[str, Any] = with_ends("gap", gap) | {"places": int(text.places[:, :2].sum())}
    for place, label in enumerate(CLASSES):
        data |= Interval(*(each[..., place] for each in means)).columns(f"attention_{label}")
    return LOOKBACK_TEXT.grid({"head": heads, "removed": text.removed}, data)


def _prediction(by_token: pl.DataFrame, heads: Sequence[int], seed: int) -> pl.DataFrame:
    lift = pl.col("position") + pl.col("class_part") + pl.col("lexical")
    pairs = [by_token.filter(head=head).select(lift, "measured").drop_nulls().to_numpy() for head in heads]
    found = [correlation_with_interval(each, RESAMPLES, seed) for each in pairs]
    data = with_ends("spearman", Interval(*np.array(found).T)) | {"tokens": np.array([len(each) for each in pairs])}
    return LOOKBACK_PREDICTION.grid({"head": heads}, data)
