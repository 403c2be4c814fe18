"""How does a report ask each analysis? One function a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from detoklens.analyses import auroc as ranking
from detoklens.analyses import frequency as against_frequency
from detoklens.analyses.attention import text_attention
from detoklens.analyses.block_runs import Runner
from detoklens.analyses.contributions import contributions, contributions_by_head
from detoklens.analyses.heads import head_cards
from detoklens.analyses.heatmap import heatmap
from detoklens.analyses.lexicon import lexicon, lexicon_by_head
from detoklens.analyses.paper_table import paper_ranks
from detoklens.analyses.partners import partners
from detoklens.analyses.positions import positions
from detoklens.analyses.shape import shape
from detoklens.analyses.token_text import token_texts
from detoklens.analyses.variance import variance
from detoklens.analyses.word_check import known_to_wordfreq
from detoklens.analyses.word_list import shipped_words, split_words
from detoklens.analyses.words import word_ranks
from detoklens.errors import TokenError
from detoklens.report.choosing import example_tokens
from detoklens.report.subject import Subject
from detoklens.tables import auroc as columns
from detoklens.tables.schema import Schema
from detoklens.tables.words import WORD_RANKS, WORDS_BY_HEAD

Tables = Mapping[str, pl.DataFrame]

FIRST_KEYS = 10
RESAMPLES = 1000
DRAWN_TOKENS = 60
CURVES = 2
EXAMPLES = 8
SHOWN_PARTNERS = 8
LEXICON_PAIRS = 1000
PLACES = 32  # query positions of the contributions' curves, evenly spread


@dataclass(frozen=True)
class Asked:
    """What a step is asked with: the subject, the tables of earlier steps, and who runs blocks of work."""

    subject: Subject
    tables: Tables
    runner: Runner


def is_gpt2_small(subject: Subject) -> bool:
    """Whether this is the model of the paper: its sizes, and its vocabulary by the paper's own words."""
    layer = subject.layer
    sizes = (layer.n_heads, layer.d_head, layer.d_model, layer.n_positions, layer.vocab_size)
    if sizes != (12, 64, 768, 1024, 50257) or not layer.has_vocabulary:
        return False
    return layer.vocabulary.encode(" sapiens") == [31841, 10465]


def ask_auroc(asked: Asked) -> Sequence[pl.DataFrame]:
    return _judged(asked, list(range(asked.subject.layer.vocab_size)))


def ask_auroc_of_pieces(asked: Asked) -> Sequence[pl.DataFrame]:
    """The same for query tokens that go on with a word: what detokenization is about."""
    size = asked.subject.layer.vocab_size
    pieces = [token for token in ranking.word_internal(asked.subject.layer.vocabulary) if token < size]
    if not pieces:
        return [empty(columns.AUROC_BY_HEAD), empty(columns.AUROC_CONTROLS)]
    _, by_head, controls, _ = _judged(asked, pieces)
    return [by_head, controls]


def _judged(asked: Asked, queries: list[int]) -> Sequence[pl.DataFrame]:
    counts = asked.subject.counts
    assert counts is not None
    heads, pairs = list(range(asked.subject.layer.n_heads)), ranking.seen_pairs(counts.bigrams)
    judging = ranking.Judging(FIRST_KEYS, False, True, asked.subject.seed)
    affinity = asked.subject.layer.token_affinity()
    measured = ranking.measure_heads(affinity, pairs, queries, counts.tokens, judging, asked.runner, None)
    texts = token_texts(asked.subject.layer, measured.query_tokens)
    return [
        ranking.auroc_by_token(measured, heads, pairs, texts),
        ranking.auroc_by_head(measured, heads, pairs, RESAMPLES, asked.subject.seed),
        ranking.controls_by_head(measured, heads),
        ranking.precision_by_head(measured, heads, FIRST_KEYS),
    ]


def empty(schema: Schema) -> pl.DataFrame:
    """A table without rows: the question has no answer here."""
    return pl.DataFrame(schema={column.name: column.dtype for column in schema.columns})


def ask_words(asked: Asked) -> Sequence[pl.DataFrame]:
    split = split_words(asked.subject.layer.vocabulary, shipped_words())
    try:
        return word_ranks(asked.subject.layer, split, watch=asked.runner.watch)
    except TokenError:  # this tokenizer splits none of the words
        return [empty(WORD_RANKS), empty(WORDS_BY_HEAD)]


def ask_heatmap(asked: Asked) -> Sequence[pl.DataFrame]:
    size = min(DRAWN_TOKENS, asked.subject.layer.vocab_size)
    drawn = heatmap(asked.subject.layer, size=size, seed=asked.subject.seed, watch=asked.runner.watch)
    return [drawn.tokens, drawn.scores, drawn.by_head]


def ask_roc(asked: Asked) -> Sequence[pl.DataFrame]:
    assert asked.subject.counts is not None
    pairs = ranking.seen_pairs(asked.subject.counts.bigrams)
    heads, affinity = list(range(asked.subject.layer.n_heads)), asked.subject.layer.token_affinity()
    curves = [
        ranking.roc_points(affinity, heads, pairs, token, asked.subject.layer.token(token))
        for token in curve_tokens(asked.subject)
    ]
    return [pl.concat(curves) if curves else empty(columns.ROC_POINTS)]


def curve_tokens(subject: Subject) -> list[int]:
    """Example tokens whose curve is defined: the corpus has some of its pairs, but not all."""
    assert subject.counts is not None
    sizes = ranking.seen_pairs(subject.counts.bigrams).sizes
    defined = (token for token in example_tokens(subject, EXAMPLES) if 0 < sizes[token] < subject.layer.vocab_size)
    return list(defined)[:CURVES]


def ask_partners(asked: Asked) -> Sequence[pl.DataFrame]:
    top = min(SHOWN_PARTNERS, asked.subject.layer.vocab_size)
    return [
        partners(asked.subject.layer, example_tokens(asked.subject, EXAMPLES), top=top, counts=asked.subject.counts)
    ]


def ask_lexicon(asked: Asked) -> Sequence[pl.DataFrame]:
    pairs = lexicon(
        asked.subject.layer,
        top=LEXICON_PAIRS,
        identical=False,
        is_word=known_to_wordfreq(),
        counts=asked.subject.counts,
        runner=asked.runner,
    )
    return [pairs, lexicon_by_head(pairs)]


def ask_frequency(asked: Asked) -> Sequence[pl.DataFrame]:
    layer, counts = asked.subject.layer, asked.subject.counts
    return [
        against_frequency.frequency_by_head(layer, counts),
        against_frequency.embedding_variance(layer, counts),
        against_frequency.frequency_by_token(layer, counts),
        against_frequency.self_assertion_by_token(layer, counts),
    ]


def ask_positions(asked: Asked) -> Sequence[pl.DataFrame]:
    return [positions(asked.subject.layer, watch=asked.runner.watch)]


def ask_shape(asked: Asked) -> Sequence[pl.DataFrame]:
    return shape(asked.subject.layer, watch=asked.runner.watch)


def ask_variance(asked: Asked) -> Sequence[pl.DataFrame]:
    found = variance(asked.subject.layer, watch=asked.runner.watch)
    return [found.position_variance, found.switch, found.last_queries, found.undertrained]


def ask_attention(asked: Asked) -> Sequence[pl.DataFrame]:
    return text_attention(asked.subject.layer, asked.subject.documents, runner=asked.runner)


def ask_contributions(asked: Asked) -> Sequence[pl.DataFrame]:
    places = places_looked_from(asked.subject)
    table = contributions(asked.subject.layer, asked.subject.documents, places, runner=asked.runner)
    return [table, contributions_by_head(table)]


def places_looked_from(subject: Subject) -> list[int]:
    """Query positions spread evenly over the longest document."""
    longest = max(len(ids) for ids in subject.documents)
    return [int(place) for place in np.unique(np.linspace(0, longest - 1, PLACES).round())]


def ask_paper(asked: Asked) -> Sequence[pl.DataFrame]:
    return [paper_ranks(asked.subject.layer)]


def ask_heads(asked: Asked) -> Sequence[pl.DataFrame]:
    known = asked.tables
    return [
        head_cards(
            asked.subject.layer,
            asked.subject.counts,
            runner=asked.runner,
            controls=known.get("auroc_controls"),
            words=known.get("words_by_head"),
        )
    ]
