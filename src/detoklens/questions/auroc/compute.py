"""Tables, ground truth and ROC curves of `auroc`, and AUROC above layer 0.

Above layer 0:

1. The real model gives the closed-world input of each token t: the residual stream entering layer l at t in [BOS, t].
2. Tᵉᵉ of layer l is computed with these vectors in place of the embeddings, and its AUROC as for layer 0.
3. In text, t also attends to other tokens, so this is an approximation. Its validity is measured on the study's text:
   per head, the rank correlation of predicted and real scores (before the softmax) between every token and the token
   at the offset in question, over all such links and over those of continuation tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from detoklens.errors import CountsError, DetokLensError, MissingError, TokenError, UnsupportedModelError
from detoklens.kernels.ranking import (
    AUROC,
    AVERAGE_PRECISION,
    CHANCE_AVERAGE_PRECISION,
    CHANCE_PRECISION_AT_K,
    PRECISION_AT_K,
)
from detoklens.measures.auroc import Measures, behind_best, control_samples, head_means, mean_over_seen, roc_curves
from detoklens.measures.chance import interval
from detoklens.measures.frequency import spearman
from detoklens.measures.positives import Positives, from_pairs, more_than_chance, seen_pairs
from detoklens.measures.words import fingerprint_of, given_words, split_words, token_texts, word_pairs
from detoklens.model.checks import refuse_layers, refuse_too_large, remedy_of_memory, what_is_loaded
from detoklens.model.closed_worlds import batches, decided_by, kept_vectors
from detoklens.questions.parameters import number_ranges, read_text, whole_numbers
from detoklens.questions.study import Study
from detoklens.questions.twins.compute import beginning_of
from detoklens.questions.words.question import words_file
from detoklens.scores.affinity import Affinity
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import softcapped
from detoklens.tables.rendering import sparkline
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.weights.blocks import KINDS, block_notes, blocks_size, read_block
from detoklens.wording import plural
from detoklens.writing import keeps_nothing

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts
    from detoklens.model.first_blocks import FirstBlocks
    from detoklens.parallel import Arrays, Runner
    from detoklens.questions.auroc.question import Auroc
    from detoklens.questions.base import Frames
    from detoklens.tokens import Vocabulary


def _with_interval(name: str, meaning: str) -> tuple[Column, Column, Column]:
    return (
        Column(name, "Float64", meaning),
        Column(
            f"{name}_low", "Float64", f"lower end of the 95 % interval of {name} over query tokens, for this vocabulary"
        ),
        Column(
            f"{name}_high",
            "Float64",
            f"upper end of the 95 % interval of {name} over query tokens, for this vocabulary",
        ),
    )


TOKEN_ID = Column("token_id", "Int32", "id of the query token")
TOKEN = Column("token", "String", "text of the query token")

AUROC_BY_TOKEN = Schema(
    "auroc_by_token",
    "AUROC by head and query token",
    (
        HEAD,
        TOKEN_ID,
        TOKEN,
        Column("auroc", "Float64", "weighted AUROC of the query token; null without positives or without negatives"),
        Column("positives", "Int64", "number of positive keys"),
        Column("bigrams", "Int64", "total weight of the positives: with counts, the bigrams that end in the token"),
    ),
)

AUROC_BY_HEAD = Schema(
    "auroc_by_head",
    "Mean AUROC by head",
    (
        HEAD,
        *_with_interval("seen", "mean AUROC over the query tokens that have one"),
        *_with_interval("all", "mean over all query tokens, with undefined AUROC as 0, as in the paper's code"),
        *_with_interval("weighted", "mean over the query tokens that have one, weighted by their bigrams"),
        Column("tokens", "Int64", "number of query tokens"),
        Column("tokens_seen", "Int64", "query tokens whose AUROC is defined"),
    ),
)

AUROC_CONTROLS = Schema(
    "auroc_controls",
    "AUROC by head and its controls",
    (
        HEAD,
        Column("auroc", "Float64", "mean AUROC over the query tokens that have one: `seen` of auroc_by_head"),
        Column("shuffled_queries", "Float64", "AUROC with each query's positives scored by another query's row"),
        Column("permuted_keys", "Float64", "AUROC with keys permuted among equally frequent tokens"),
        *_with_interval("within_class", "AUROC with queries exchanged within class and frequency, mean of 8 draws"),
        *_with_interval("above_within_class", "auroc minus within_class, over the query tokens that have both"),
        Column("within_class_tokens", "Int64", "query tokens with a within-class null: not those alone in their class"),
        *_with_interval("within_cluster", "AUROC with queries exchanged within clusters of similar tokens, mean of 8"),
        *_with_interval("above_within_cluster", "auroc minus within_cluster, over the query tokens that have both"),
        Column("within_cluster_tokens", "Int64", "query tokens with a within-cluster null; null if not requested"),
        Column("frequency", "Float64", "AUROC with each key's corpus count as its score, without any head"),
        Column("above_null", "Float64", "auroc minus the larger of the two nulls"),
        Column("above_frequency", "Float64", "auroc minus the frequency baseline"),
        *(
            end
            for name in ("auroc", "shuffled_queries", "permuted_keys", "frequency", "above_null", "above_frequency")
            for end in _with_interval(name, "")[1:]
        ),
        *_with_interval("matched", "AUROC with frequency-matched negatives: keys of the positive's own stratum"),
        *_with_interval("matched_null", "the larger of 0.5 and of shuffled_queries with matched negatives"),
        *_with_interval("matched_above_null", "matched minus matched_null"),
        *_with_interval("matched_frequency", "frequency with matched negatives; 0.5 if strata remove it"),
        Column("strata", "Int32", "strata of equally frequent tokens; unseen tokens are one stratum"),
        *_with_interval("behind", "smallest margin above, of the best head minus this one; tied if it contains 0"),
    ),
)

PRECISION_BY_HEAD = Schema(
    "precision_by_head",
    "Precision by head",
    (
        HEAD,
        Column("average_precision", "Float64", "mean weighted average precision over query tokens with positives"),
        Column("chance_average_precision", "Float64", "that of a constant score: the positives' share of the weight"),
        Column("k", "Int32", "number of top keys"),
        Column("precision_at_k", "Float64", "mean share of positives among the top k keys"),
        Column("chance_precision_at_k", "Float64", "that of a constant score: the positives' share of all keys"),
    ),
)

PRECISION_BY_TOKEN = Schema(
    "precision_by_token",
    "Precision by head and query token",
    (
        HEAD,
        TOKEN_ID,
        TOKEN,
        Column("average_precision", "Float64", "weighted average precision; null where the AUROC is undefined"),
        Column("k", "Int32", "number of top keys"),
        Column("precision_at_k", "Float64", "share of positives among the top k keys; ties in expectation"),
    ),
)

ROC_POINTS = Schema(
    "roc_points",
    "Points of ROC curves",
    (
        HEAD,
        TOKEN_ID,
        TOKEN,
        Column("threshold", "Float32", "keys with at least this score are found; null if none are"),
        Column("false_positive_rate", "Float64", "share of the negatives found"),
        Column("true_positive_rate", "Float64", "share of the positives' weight found"),
    ),
)

HEAD_OF_LAYER = Column("head", "Int32", "attention head of the layer, from 0")
AUROC_VALIDITY = Schema(
    "auroc_validity",
    "Agreement of predicted and real scores above layer 0",
    (
        HEAD_OF_LAYER,
        Column("layer", "Int32", "the layer, from 0"),
        Column("correlation", "Float64", "rank correlation of Tᵉᵉ from closed-world inputs with real scores"),
        Column("links", "Int64", "pairs of a token and the token at the offset, by default the one before"),
        Column("pieces_correlation", "Float64", "rank correlation over links of continuation tokens"),
        Column("pieces_links", "Int64", "links of continuation tokens"),
    ),
)
OF_HEADS = (AUROC_BY_HEAD, AUROC_CONTROLS, PRECISION_BY_HEAD)
_VERDICT = (
    "above_null",
    "above_within_class",
    "above_within_cluster",
    "matched_above_null",
    "frequency",
    "tokens_seen",
)
_NULLS = ("shuffled_queries", "permuted_keys", "within_class", "within_cluster", "matched", "matched_null")
_OTHERS = ("matched_frequency", "all", "weighted", "average_precision", "k", "precision_at_k")
_SHOWN = ("head", "seen", "seen_low", "seen_high", *_VERDICT, *_NULLS, *_OTHERS)
_COLUMNS = {column.name: column for schema in OF_HEADS for column in schema.columns}
GLANCE = Schema("auroc", "AUROC by head, with controls", tuple(_COLUMNS[name] for name in _SHOWN))


Source = Literal["counts", "merges", "words"]
Kind = Literal["count", "pmi"]
Weights = Literal["count", "one"]


@dataclass(frozen=True)
class GroundTruth:
    """The positive pairs and their weights."""

    source: Source
    kind: Kind
    pmi_above: float
    weights: Weights
    words: Path | Sequence[str] | None

    def check(self) -> None:
        """Refuse settings that contradict each other."""
        if self.words is not None and self.source != "words":
            words = words_file(self.words)
            raise DetokLensError(f"the word list {words} is not used with truth={self.source!r}; pass truth='words'")
        if not isfinite(self.pmi_above):
            raise DetokLensError(f"pmi_above={self.pmi_above} is not a finite number of bits; pass one, e.g. 0")
        if self.kind == "pmi" and self.source != "counts":
            raise DetokLensError(f"positives='pmi' is not used with truth={self.source!r}; pass truth='counts'")

    def __str__(self) -> str:
        return {
            "counts": f"corpus bigrams of a PMI above {self.pmi_above:g}" if self.kind == "pmi" else "corpus bigrams",
            "merges": "the tokenizer's merges",
            "words": "neighbouring pieces of words",
        }[self.source]

    def settings(self) -> dict[str, Any]:
        """The settings that decide the numbers."""
        named: dict[str, Any] = {"truth": self.source, "weights": self.weights}
        if self.source == "words":
            named["words"] = fingerprint_of(self.listed_words())
        if self.source == "counts":
            named["positives"] = self.kind
        if self.kind == "pmi":
            named["pmi_above"] = self.pmi_above
        return named

    def positives(self, layer: Layer, counts: Counts | None) -> Positives:
        pairs = self._pairs(layer, counts)
        return pairs.equally_weighted() if self.weights == "one" else pairs

    def _pairs(self, layer: Layer, counts: Counts | None) -> Positives:
        if self.source == "merges":
            return merged_pairs(layer.vocabulary, layer.vocab_size)
        if self.source == "words":
            return neighbouring_pieces(layer.vocabulary, self.listed_words(), layer.vocab_size)
        assert counts is not None
        if self.kind == "count":
            return seen_pairs(counts.bigrams)
        likely = more_than_chance(counts.bigrams, self.pmi_above)
        if len(likely.keys) == 0:
            raise CountsError(f"no pair of these counts has a PMI above {self.pmi_above:g} bits; lower the threshold")
        return likely

    def listed_words(self) -> list[str]:
        return given_words(self.words)


def merged_pairs(vocabulary: Vocabulary, vocab_size: int) -> Positives:
    """The pairs that the tokenizer merges into one token, each with weight 1."""
    merges = [(right, left) for left, right, _ in vocabulary.merges()]
    if not merges:
        raise TokenError("this tokenizer has no merges to use as ground truth; use counts or words instead")
    return from_pairs(merges, vocab_size).equally_weighted()


def neighbouring_pieces(vocabulary: Vocabulary, words: Iterable[str], vocab_size: int) -> Positives:
    """Adjacent pieces of words, split as after a space; the weight of a pair is the number of words with it."""
    pairs = word_pairs(split_words(vocabulary, words))
    return from_pairs(zip(pairs.queries, pairs.keys, strict=True), vocab_size)


def query_tokens(layer: Layer, named: Sequence[int] | None, pieces: bool) -> list[int]:
    """The named query tokens, or all, each once; with `pieces`, only continuation tokens."""
    chosen = set(range(layer.vocab_size)) if named is None else set(named)
    if pieces:
        chosen &= set(layer.vocabulary.word_internal())
    if chosen:
        return sorted(chosen)
    which = "of this vocabulary" if named is None else "of the named ones"
    raise TokenError(f"no query token is left: none {which} is a continuation token; use all tokens instead")


def read_tokens(texts: Iterable[str]) -> tuple[str | int, ...]:
    """Parse tokens from the command line: ids (`262` or `10-20,262`), lines of a file (`@tokens.txt`), or text."""
    return tuple(token for text in texts for token in _read_token(text))


def _read_token(text: str) -> Sequence[str | int]:
    if not _names_a_file(text):
        return _ids_or_text(text)
    lines = read_text(Path(text[1:]), "a file with one token per line").split("\n")
    found = [token for line in lines if line for token in _ids_or_text(line)]
    if not found:
        raise TokenError(f"{text[1:]} has no tokens; write one per line, as text or id")
    return found


def _ids_or_text(text: str) -> Sequence[str | int]:
    return whole_numbers("token ids")(text) if _looks_like_ids(text) else (text,)


def _names_a_file(text: str) -> bool:
    return text.startswith("@") and len(text) > 1


def _looks_like_ids(text: str) -> bool:
    return bool(text) and set(text) <= set("0123456789,-") and text[0].isdecimal()


def spelled_tokens(flag: str) -> Callable[[Sequence[str | int]], list[str]]:
    """Format tokens as command-line arguments: consecutive ids as one argument, texts as they are."""

    def spell(tokens: Sequence[str | int]) -> list[str]:
        words: list[str] = []
        for are_ids, some in groupby(tokens, lambda token: isinstance(token, int)):
            alike = list(some)
            spelled = [number_ranges(alike)] if are_ids else alike  # type: ignore[arg-type]
            words += [word for each in spelled for word in (flag, str(each))]
        return words

    return spell


def can_be_spelled(token: str | int) -> bool:
    """Whether the command line reads this token's text as itself."""
    if isinstance(token, int):
        return True
    return bool(token) and token.isprintable() and not _names_a_file(token) and not _looks_like_ids(token)


CURVE_WIDTH = 32  # characters of a sparkline
WITH_INTERVALS = (
    "auroc",
    "shuffled_queries",
    "permuted_keys",
    "frequency",
    "above_null",
    "above_frequency",
)
MARGINS = {
    "above_null": "plain null",
    "above_within_class": "within-class null",
    "above_within_cluster": "within-cluster null",
    "matched_above_null": "frequency-matched null",
}
"""The margins that a lexical head needs, and the names of their controls."""
MATCHED_COLUMNS = {
    "matched": "auroc",
    "matched_null": "null",
    "matched_above_null": "above_null",
    "matched_frequency": "frequency",
}


def auroc_tables(
    layer: Layer, measured: Measures, heads: Sequence[int], positives: Positives, k: int, resamples: int, seed: int
) -> dict[str, pl.DataFrame]:
    """All tables of the answer, the overview first."""
    texts = token_texts(layer, measured.query_tokens)
    by_head = auroc_by_head(measured, heads, positives, resamples, seed)
    controls, precision = controls_by_head(measured, heads, resamples, seed), precision_by_head(measured, heads, k)
    return {
        "auroc": heads_at_a_glance(by_head, controls, precision),
        "auroc_by_token": auroc_by_token(measured, heads, positives, texts),
        "auroc_by_head": by_head,
        "auroc_controls": controls,
        "precision_by_head": precision,
        "precision_by_token": precision_by_token(measured, heads, k, texts),
    }


def auroc_by_token(
    measures: Measures, heads: Sequence[int], positives: Positives, texts: Sequence[str | None]
) -> pl.DataFrame:
    queries = measures.query_tokens
    return AUROC_BY_TOKEN.frame(
        {
            **_head_and_token(measures, heads, texts),
            "auroc": measures.heads[..., AUROC].ravel(),
            "positives": np.tile(positives.sizes[queries], len(heads)),
            "bigrams": np.tile(positives.totals[queries], len(heads)),
        }
    )


def precision_by_token(measures: Measures, heads: Sequence[int], k: int, texts: Sequence[str | None]) -> pl.DataFrame:
    return PRECISION_BY_TOKEN.frame(
        {
            **_head_and_token(measures, heads, texts),
            "average_precision": measures.heads[..., AVERAGE_PRECISION].ravel(),
            "k": np.full(len(heads) * len(measures.query_tokens), k),
            "precision_at_k": measures.heads[..., PRECISION_AT_K].ravel(),
        }
    )


def auroc_by_head(
    measures: Measures, heads: Sequence[int], positives: Positives, resamples: int, seed: int
) -> pl.DataFrame:
    """The three means of each head with their intervals."""
    auroc = measures.heads[..., AUROC]
    means = head_means(auroc, positives.totals[measures.query_tokens], resamples, seed)
    columns = means.seen.columns("seen") | means.all.columns("all") | means.weighted.columns("weighted")
    tokens = {
        "tokens": np.full(len(heads), auroc.shape[1]),
        "tokens_seen": np.count_nonzero(~np.isnan(auroc), axis=1),
    }
    return AUROC_BY_HEAD.frame({"head": list(heads), **columns, **tokens})


def controls_by_head(measures: Measures, heads: Sequence[int], resamples: int, seed: int) -> pl.DataFrame:
    """Each head's mean AUROC with its nulls and the frequency baseline, against all keys and matched ones."""
    found = control_samples(measures, resamples, seed)
    within = [f"{above}{name}" for name in measures.within for above in ("", "above_")]
    columns = {name: found[name] for name in (*WITH_INTERVALS, *within)}
    if measures.matched is not None:
        matched = control_samples(measures.matched, resamples, seed)
        columns |= {column: matched[name] for column, name in MATCHED_COLUMNS.items()}
    columns["behind"] = behind_best([columns[name] for name in MARGINS if name in columns])
    ends: dict[str, np.ndarray] = {}
    for name, samples in columns.items():
        ends |= interval(samples[0], samples[1:], skip_undefined=True).columns(name)
    unknown = {name: [None] * len(heads) for name in AUROC_CONTROLS.names}
    known: dict[str, object] = {"head": list(heads), "strata": [measures.n_strata] * len(heads)}
    for name, null in measures.within.items():
        known[f"{name}_tokens"] = np.count_nonzero(~np.isnan(null), axis=1)
    return AUROC_CONTROLS.frame(unknown | known | ends)


def precision_by_head(measures: Measures, heads: Sequence[int], k: int) -> pl.DataFrame:
    """Each head's mean average precision and precision at k, with those of a constant score."""
    means = {
        "average_precision": AVERAGE_PRECISION,
        "chance_average_precision": CHANCE_AVERAGE_PRECISION,
        "precision_at_k": PRECISION_AT_K,
        "chance_precision_at_k": CHANCE_PRECISION_AT_K,
    }
    columns = {name: mean_over_seen(measures.heads[..., measure]) for name, measure in means.items()}
    return PRECISION_BY_HEAD.frame({"head": list(heads), "k": np.full(len(heads), k), **columns})


def heads_at_a_glance(by_head: pl.DataFrame, controls: pl.DataFrame, precision: pl.DataFrame) -> pl.DataFrame:
    """The most important columns of the tables by head."""
    together = by_head.join(controls, on="head", maintain_order="left").join(
        precision, on="head", maintain_order="left"
    )
    return GLANCE.conform(together)


def _head_and_token(
    measures: Measures, heads: Sequence[int], texts: Sequence[str | None]
) -> dict[str, np.ndarray | pl.Series]:
    queries = measures.query_tokens
    return {
        "head": np.repeat(np.asarray(heads, np.int64), len(queries)),
        "token_id": np.tile(queries, len(heads)),
        "token": pl.concat([pl.Series(texts, dtype=pl.String)] * len(heads)),
    }


def roc_points(
    layer: Layer, affinity: Affinity, heads: Sequence[int], positives: Positives, tokens: Sequence[int]
) -> pl.DataFrame:
    """The ROC curves of some query tokens in every head."""
    texts = token_texts(layer, tokens)
    curves = [_token_points(affinity, heads, positives, *named) for named in zip(tokens, texts, strict=True)]
    return pl.concat(curves)


def _token_points(
    affinity: Affinity, heads: Sequence[int], positives: Positives, token: int, text: str | None
) -> pl.DataFrame:
    size = int(positives.sizes[token])
    if not 0 < size < positives.vocab_size:
        raise TokenError(
            f"token {token} ({text!r}) has {size} positives among {positives.vocab_size} keys, so no ROC curve; "
            "choose a token with both positives and negatives"
        )
    curves = roc_curves(affinity, positives, token)
    columns = {name: np.concatenate([curve[name] for curve in curves]) for name in curves[0]}
    sizes = [len(curve["threshold"]) for curve in curves]
    named = {"head": np.repeat(np.asarray(heads), sizes), "token_id": np.full(sum(sizes), token)}
    return ROC_POINTS.frame({**named, "token": pl.Series([text] * sum(sizes), dtype=pl.String), **columns})


def areas_under(points: pl.DataFrame) -> pl.DataFrame:
    """The area under each curve: its query token's AUROC."""
    found, wrong = pl.col("true_positive_rate"), pl.col("false_positive_rate")
    area = ((found + found.shift()) / 2 * wrong.diff()).sum()
    return points.group_by("head", "token_id", "token", maintain_order=True).agg(area=area)


def curves_at_a_glance(points: pl.DataFrame) -> pl.DataFrame:
    """One row per curve: its area and a sparkline."""
    curves = points.group_by("head", "token_id", maintain_order=True).agg("false_positive_rate", "true_positive_rate")
    drawn = [_drawn(wrong, found) for wrong, found in curves.select(pl.nth(2, 3)).iter_rows()]
    shown = areas_under(points).with_columns(curve=pl.Series(drawn, dtype=pl.String))
    return shown.drop("token" if points["token"].has_nulls() else "token_id")


def _drawn(false_positive_rate: Sequence[float], true_positive_rate: Sequence[float]) -> str:
    places = np.linspace(0, 1, CURVE_WIDTH)
    return sparkline(np.interp(places, false_positive_rate, true_positive_rate).tolist(), CURVE_WIDTH)


LONGEST = 512  # tokens of a document
LINKS = 20_000  # pairs of tokens at the offset
CHECKED = 16  # tokens on which the block's attention is compared with the real one
TOLERANCE = 1e-3  # of float32, relative to the largest score
COPIES = 4  # at the peak: the inputs, and the embeddings raw, read again and divided by σ
TRANSFORMERS = "transformers."
FACTOR_COPIES = 5  # queries and keys: raw, divided by σ, and for workers


def asked_beyond(question: Auroc, study: Study, runner: Runner) -> Frames:
    """The tables of a layer above 0."""
    if not study.has("text"):
        raise MissingError("text", "Auroc above layer 0 needs text to measure its validity")
    heads, layer = study.heads(question.heads), question.layer
    _check_memory(study.layer, layer, heads)
    checkpoint = study.layer.checkpoint
    refuse_layers(checkpoint, layer + 1)
    beginning = beginning_of(study.layer, runner.say, question.bos)
    decided = decided_by(checkpoint, layer, beginning, "float32")
    from detoklens.model.first_blocks import one_thread_each, open_blocks

    blocks = open_blocks(checkpoint, layer + 1, study.layer.n_heads)
    for note in block_notes(checkpoint, layer + 1):
        runner.say(note)
    with one_thread_each():
        inputs = kept_inputs(blocks, study.layer, layer, beginning, runner, decided)
        deeper = deeper_layer(blocks, study.layer, layer, inputs)
        texts = some_texts(study.documents, question.places_back)
        real = real_links(blocks, deeper, texts, layer, heads, runner, question.places_back)
    there = Study(deeper, study.counts, study.texts, study.seed, study.work)
    queries, keys = linked_tokens(texts, question.places_back)
    predicted = predicted_links(question.affinity(there, question.scale, question.centred, heads), queries, keys)
    later = keys if question.is_ahead else queries
    pieces = np.isin(later, study.layer.vocabulary.word_internal()) if study.has("vocabulary") else None
    tables = replace(question, layer=0, bos=None).ask(there, runner)
    return {**tables, "auroc_validity": validity(heads, layer, predicted, real, pieces)}


def _check_memory(layer: Layer, number: int, heads: Sequence[int]) -> None:
    real = blocks_size(layer.checkpoint, number + 1)
    vectors = COPIES * layer.vocab_size * layer.d_model
    factors = FACTOR_COPIES * layer.vocab_size * layer.d_head * len(heads)
    refuse_too_large(
        4 * (real + vectors + factors),
        f"{layer.name}: {what_is_loaded(layer.checkpoint, number + 1)} in float32, {layer.vocab_size:,} vectors of "
        f"width {layer.d_model:,} and the factors of {plural(len(heads), 'head')}",
        remedy_of_memory(layer.checkpoint, "fewer heads" if len(heads) > 1 else ""),
    )


def kept_inputs(
    blocks: FirstBlocks,
    layer: Layer,
    number: int,
    beginning: tuple[int, ...],
    runner: Runner,
    decided: dict[str, Any],
) -> np.ndarray:
    """`closed_world_inputs` from the cache, computed once per model and block.

    `decided` is the state of the checkpoint before the blocks were loaded; files may change at any time.
    """
    if not keeps_nothing() and not blocks.class_name.startswith(TRANSFORMERS):
        runner.say(
            f"vectors are not kept for other questions: {blocks.class_name} is not a transformers class, so no version "
            "identifies it"
        )
        return closed_world_inputs(blocks, layer, number, beginning, runner)
    return kept_vectors(
        decided | {"class": blocks.class_name},
        (layer.vocab_size, layer.d_model),
        lambda: closed_world_inputs(blocks, layer, number, beginning, runner),
        runner.say,
        lambda: decided_by(layer.checkpoint, number, beginning, blocks.dtype) == decided,
    )


def closed_world_inputs(
    blocks: FirstBlocks, layer: Layer, number: int, beginning: tuple[int, ...], runner: Runner
) -> np.ndarray:
    """The residual stream entering block `number` at each token in [BOS, token]."""
    cut = batches(np.arange(layer.vocab_size)[:, None], beginning)

    def entering(batch: int) -> Arrays:
        return {"states": blocks.run(cut[batch], until=number).last_places(number - 1)}

    inputs, begin = np.empty((layer.vocab_size, layer.d_model), np.float32), 0
    for part in runner.under("inputs").run(entering, len(cut)):
        inputs[begin : begin + len(part["states"])] = part["states"]
        begin += len(part["states"])
    return inputs


def deeper_layer(blocks: FirstBlocks, layer: Layer, number: int, inputs: np.ndarray) -> Layer:
    """Layer `number` as a first layer, with its inputs as embeddings.

    Refused if the scores of some random pairs differ from those of the real block.
    """
    kinds = {name: blocks.config_list(name) for name in KINDS}
    weights = read_block(layer.checkpoint, number, inputs, kinds)
    found = Layer(replace(layer.checkpoint, first_layer=weights, notes=()), layer.all_tokens)
    found.meaningful_tokens = layer.meaningful_tokens  # shown by the embeddings, not by what enters a later block
    tokens = np.random.default_rng(0).integers(0, layer.vocab_size, (CHECKED, 2))
    real = blocks.scores(blocks.run(tokens, until=number), number, inputs[tokens])[0][:, :, 1]
    real = real[..., 0] - real[..., 1]
    ours = np.stack([_preferred(found, pair) for pair in tokens])
    if float(np.abs(ours - real).max()) > TOLERANCE * max(1.0, float(np.abs(real).max())):
        raise UnsupportedModelError(
            f"{layer.name}: layer {number} computes attention differently from layer 0, so its scores are not exact; "
            "choose another layer"
        )
    return found


def _preferred(layer: Layer, pair: np.ndarray) -> np.ndarray:
    """The second token's score for the first minus that for itself, which cancels what the softmax ignores."""
    total = layer.terms(pair).total()[:, 1] * layer.attention_scale
    scores = softcapped(total, layer.weights.softcap)
    return np.asarray(scores[:, 0] - scores[:, 1])


def predicted_links(affinity: Affinity, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Tᵉᵉ [head, link] of each query with its key."""
    return np.stack(
        [
            np.einsum("ld,ld->l", query[queries], affinity.key_of(head)[keys], dtype=np.float64)
            for head, query in enumerate(affinity.query)
        ]
    )


def linked(text: np.ndarray, back: int) -> tuple[np.ndarray, np.ndarray]:
    """The positions of a text's queries, and those of their keys, `back` positions before."""
    queries = np.arange(max(back, 0), len(text) + min(back, 0))
    return queries, queries - back


def linked_tokens(texts: Sequence[np.ndarray], back: int) -> tuple[np.ndarray, np.ndarray]:
    """The query and key tokens at those positions of all texts."""
    pairs = [(text[queries], text[keys]) for text in texts for queries, keys in [linked(text, back)]]
    queries, keys = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return queries, keys


def real_links(
    blocks: FirstBlocks,
    deeper: Layer,
    texts: Sequence[np.ndarray],
    number: int,
    heads: Sequence[int],
    runner: Runner,
    back: int = 1,
) -> np.ndarray:
    """The real scores [head, link] of every token with the token `back` positions before it, in one block.

    A query's contribution to all keys alike, which the softmax ignores, is subtracted.
    """

    def scores(place: int) -> Arrays:
        text = texts[place]
        passed = blocks.run(text[None], until=number)
        queries, keys = linked(text, back)
        found = blocks.scores(passed, number)[0][0][:, queries, keys]
        return {"scores": (found - _shared_by_keys(deeper, passed.all_places(number - 1)[0][queries]))[list(heads)]}

    found = runner.under("links").run(scores, len(texts))
    real = np.concatenate([part["scores"] for part in found], axis=1)
    runner.say(f"compared predicted and real scores of layer {number} on {plural(real.shape[1], 'link')}")
    return real


def _shared_by_keys(layer: Layer, entering: np.ndarray) -> np.ndarray:
    """q · b_K by head and position: the same for all keys, except with rotary positions."""
    if layer.positions == "rotary":
        return np.zeros((layer.n_heads, len(entering)))
    places = Layer(replace(layer.checkpoint, first_layer=replace(layer.weights, token_embeddings=entering)))
    query, shared = places.token_affinity("bare").query, layer.weights.heads_per_key
    parts = zip(query, layer.folded.query_bias, np.repeat(layer.folded.key_bias, shared, axis=0), strict=True)
    return np.stack([(each + bias) @ key_bias for each, bias, key_bias in parts]) * layer.attention_scale


def some_texts(documents: Sequence[np.ndarray], back: int = 1) -> list[np.ndarray]:
    """The first documents that together have enough links at this offset."""
    apart = abs(back)
    cut = [document[:LONGEST] for document in documents if min(len(document), LONGEST) > apart]
    if not cut:
        raise MissingError(
            "text",
            f"no document has {apart + 1} tokens within its first {LONGEST}, so there are no scores to compare",
        )
    enough = int(np.searchsorted(np.cumsum([len(text) - apart for text in cut]), LINKS)) + 1
    return cut[:enough]


def validity(
    heads: Sequence[int], layer: int, predicted: np.ndarray, real: np.ndarray, pieces: np.ndarray | None
) -> pl.DataFrame:
    """Each head's rank correlations, over all links and over those of continuation tokens."""
    of_pieces = np.zeros(predicted.shape[1], bool) if pieces is None else pieces
    return AUROC_VALIDITY.frame(
        {
            "head": list(heads),
            "layer": [layer] * len(heads),
            "correlation": [spearman(*each) for each in zip(predicted, real, strict=True)],
            "links": [predicted.shape[1]] * len(heads),
            "pieces_correlation": [
                spearman(one[of_pieces], other[of_pieces]) for one, other in zip(predicted, real, strict=True)
            ],
            "pieces_links": [int(of_pieces.sum())] * len(heads),
        }
    )
