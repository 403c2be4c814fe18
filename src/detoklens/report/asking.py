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
from detoklens.report.subject import Subject

Tables = Mapping[str, pl.DataFrame]

FIRST_KEYS = 10
RESAMPLES = 1000
DRAWN_TOKENS = 60
CURVES = 2
EXAMPLES = 8
SHOWN_PARTNERS = 8
LEXICON_PAIRS = 1000
PLACES = 64  # query positions of the contributions' curves, evenly spread
SHORTEST_EXAMPLE = 3

PAPER_TOKENS = ("iens", " Jackson", "yo", " Korea", " Obama", " Einstein", " chloride", " century")


@dataclass(frozen=True)
class Asked:
    """What a step is asked with: the subject, the tables of earlier steps, and who runs blocks of work."""

    subject: Subject
    tables: Tables
    runner: Runner


def example_tokens(subject: Subject, number: int) -> list[int]:
    """Query tokens to show: the paper's where the vocabulary has them, else the most frequent pieces of words."""
    vocabulary = subject.layer.vocabulary
    spelled = (vocabulary.tokenizer.token_to_id(text.replace(" ", "Ġ")) for text in PAPER_TOKENS)
    known = [token for token in spelled if token is not None and token < subject.layer.vocab_size]
    if len(known) == len(PAPER_TOKENS):
        return known[:number]
    inside = [
        token
        for token in ranking.word_internal(vocabulary)
        if token < subject.layer.vocab_size and len(vocabulary.text(token)) >= SHORTEST_EXAMPLE
    ]
    if subject.counts is not None:
        seen = subject.counts.tokens
        inside.sort(key=lambda token: (-int(seen[token]), token))
    return inside[:number]


def is_gpt2_small(subject: Subject) -> bool:
    """Whether this is the model of the paper: its sizes, and its vocabulary by the paper's own words."""
    layer = subject.layer
    sizes = (layer.n_heads, layer.d_head, layer.d_model, layer.n_positions, layer.vocab_size)
    if sizes != (12, 64, 768, 1024, 50257) or not layer.has_vocabulary:
        return False
    return layer.vocabulary.encode(" sapiens") == [31841, 10465]


def ask_auroc(asked: Asked) -> Sequence[pl.DataFrame]:
    assert asked.subject.counts is not None
    heads = list(range(asked.subject.layer.n_heads))
    pairs = ranking.seen_pairs(asked.subject.counts.bigrams)
    queries = list(range(asked.subject.layer.vocab_size))
    judging = ranking.Judging(FIRST_KEYS, False, True, asked.subject.seed)
    affinity = asked.subject.layer.token_affinity()
    measured = ranking.measure_heads(affinity, pairs, queries, asked.subject.counts.tokens, judging, asked.runner, None)
    texts = token_texts(asked.subject.layer, measured.query_tokens)
    return [
        ranking.auroc_by_token(measured, heads, pairs, texts),
        ranking.auroc_by_head(measured, heads, pairs, RESAMPLES, asked.subject.seed),
        ranking.controls_by_head(measured, heads),
        ranking.precision_by_head(measured, heads, FIRST_KEYS),
    ]


def ask_words(asked: Asked) -> Sequence[pl.DataFrame]:
    split = split_words(asked.subject.layer.vocabulary, shipped_words())
    return word_ranks(asked.subject.layer, split, watch=asked.runner.watch)


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
        for token in example_tokens(asked.subject, EXAMPLES)
        if 0 < len(pairs.of(token)[0]) < asked.subject.layer.vocab_size
    ]
    return [pl.concat(curves[:CURVES])]


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
    longest = max(len(ids) for ids in asked.subject.documents)
    places = np.unique(np.linspace(0, longest - 1, PLACES).round().astype(int))
    table = contributions(
        asked.subject.layer, asked.subject.documents, [int(place) for place in places], runner=asked.runner
    )
    return [table, contributions_by_head(table)]


def ask_paper(asked: Asked) -> Sequence[pl.DataFrame]:
    return [paper_ranks(asked.subject.layer)]


def ask_heads(asked: Asked) -> Sequence[pl.DataFrame]:
    return [head_cards(asked.subject.layer, asked.subject.counts, runner=asked.runner)]
