"""Made-up tables of the declared schemas, for any number of heads: what the figures' tests draw."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

import detoklens as dl
from detoklens.measures.contributions import GROUPS
from detoklens.questions.anatomy.question import ANATOMY_BY_HEAD
from detoklens.questions.attention import ATTENTION, ATTENTION_AGREEMENT
from detoklens.questions.auroc.compute import (
    AUROC_BY_HEAD,
    AUROC_BY_TOKEN,
    AUROC_CONTROLS,
    PRECISION_BY_HEAD,
    ROC_POINTS,
)
from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.contributions import CONTRIBUTIONS, CONTRIBUTIONS_BY_HEAD, GROUP_CONTRIBUTIONS
from detoklens.questions.frequency import (
    EMBEDDING_VARIANCE,
    FREQUENCY_BY_HEAD,
    FREQUENCY_BY_TOKEN,
    SELF_ASSERTION,
)
from detoklens.questions.heads.question import HEADS
from detoklens.questions.heatmap import HEATMAP, HEATMAP_TOKENS
from detoklens.questions.layers.compute import TWINS_BY_COMPONENT, TWINS_BY_LAYER
from detoklens.questions.lexicon import LEXICON
from detoklens.questions.lookback.question import LOOKBACK_BY_HEAD, LOOKBACK_BY_TERM, LOOKBACK_TEXT
from detoklens.questions.partners import PARTNERS
from detoklens.questions.positions.question import POSITIONS, POSITIONS_BY_OFFSET
from detoklens.questions.shape import REACH, SHAPE
from detoklens.questions.twins.compute import TWINS_BY_CONDITION
from detoklens.questions.twins.verdict import CONTROLS
from detoklens.questions.variance import LAST_QUERIES, POSITION_VARIANCE, SWITCH, UNDERTRAINED
from detoklens.questions.words import WORDS_BY_HEAD
from detoklens.tables.schema import Schema
from tests.spelled import LINES, counts_of, spelled_layer

HOSTILE = ["$x^2$", " Korea", "</script>", "\u202eabc", "\x00\n", "漢字", "&<>\"'", "a" * 60, "\\", "$", "é\u0301", ""]
LOOKBACK_PARTS = ["position", "class", "lexical", "total"]
TERMS = ["ee", "pp", "pe", "ep", "e", "p"]


def tables(n_heads: int = 3, positions: int = 64, vocabulary: int = 200, seed: int = 0) -> dict[str, pl.DataFrame]:
    """Every table by its schema's name.

    A question with figures and no table here answers for itself; other tables have one row per head.
    """
    rng = np.random.default_rng(seed)
    heads = range(n_heads)
    queries = sorted({positions // 20, positions // 2, positions - 1})
    made = [
        *_auroc_tables(rng, heads),
        _by_head(HEADS, rng, heads, position_class=lambda head: ["self", "previous token", "broad", None][head % 4]),
        _by_head(WORDS_BY_HEAD, rng, heads),
        _by_head(ANATOMY_BY_HEAD, rng, heads),
        _by_head_and(LOOKBACK_BY_HEAD, rng, heads, "part", LOOKBACK_PARTS, "contrast", ["previous"]),
        _by_head_and(LOOKBACK_BY_TERM, rng, heads, "part", LOOKBACK_PARTS, "term", TERMS),
        _by_head_and(LOOKBACK_TEXT, rng, heads, "removed", ["none", *TERMS]),
        *_heatmap_tables(rng, heads),
        _partners(rng, heads),
        _lexicon(rng, heads),
        _positions(rng, heads, positions, queries),
        _positions_by_offset(rng, heads, positions, queries),
        _by_head_and(SHAPE, rng, heads, "query_position", queries),
        _by_head_and(REACH, rng, heads, "query_position", range(positions)),
        *_attention_tables(rng, heads, queries),
        _by_head_and(CONTRIBUTIONS, rng, heads, "query_position", range(0, positions, 3), "term", TERMS),
        _by_head_and(GROUP_CONTRIBUTIONS, rng, heads, "query_position", range(0, positions, 3), "group", GROUPS),
        _shares(rng, heads),
        *_frequency_tables(rng, heads, vocabulary),
        *_variance_tables(rng, heads, positions),
        _twins(rng, heads),
        *_layers(rng, heads),
    ]
    frames = {schema.name: frame for schema, frame in made}
    for question in QUESTIONS.values():
        others = {schema.name: _by_head(schema, rng, heads)[1] for schema in question.tables}
        if question.figures and not others.keys() & frames.keys():
            others |= _answered(question, n_heads)
        frames = others | frames
    return frames


def _answered(question: type[Question], n_heads: int) -> dict[str, pl.DataFrame]:
    """The tables of a small random model with everything that a question can need; none if the question refuses."""
    with TemporaryDirectory() as folder:
        layer = spelled_layer(Path(folder), n_heads=n_heads)
    try:
        return dict(dl.study(layer, counts=counts_of(layer), text=LINES, workers=1).ask(question.examples()[0]).tables)
    except dl.DetokLensError:
        return {}


Named = tuple[Schema, pl.DataFrame]


def _filled(schema: Schema, keys: pl.DataFrame, rng: np.random.Generator, **given: object) -> Named:
    """The key columns, the given ones, and random numbers in all others."""
    columns = {}
    for column in schema.columns:
        if column.name in given:
            value = given[column.name]
            columns[column.name] = [value(head) for head in keys["head"]] if callable(value) else value
        elif column.name in keys.columns:
            columns[column.name] = keys[column.name]
        elif column.dtype == "String":
            columns[column.name] = ["local"] * keys.height
        elif column.dtype == "Boolean":
            columns[column.name] = rng.random(keys.height) < 0.3
        elif column.dtype in ("Int32", "Int64"):
            columns[column.name] = rng.integers(1, 50, keys.height)
        else:
            columns[column.name] = rng.random(keys.height)
    frame = pl.DataFrame(columns, strict=False)
    return schema, schema.conform(frame)


def _by_head(schema: Schema, rng: np.random.Generator, heads: range, **given: object) -> Named:
    return _filled(schema, pl.DataFrame({"head": list(heads)}), rng, **given)


def _by_head_and(schema: Schema, rng: np.random.Generator, heads: range, *columns: object) -> Named:
    keys = pl.DataFrame({"head": list(heads)})
    for name, values in zip(columns[::2], columns[1::2], strict=True):
        keys = keys.join(pl.DataFrame({name: list(values)}), how="cross")
    return _filled(schema, keys, rng)


def _auroc_tables(rng: np.random.Generator, heads: range) -> list[Named]:
    seen = 0.5 + 0.45 * rng.random(len(heads))
    spread = {"seen": seen, "seen_low": seen - 0.02, "seen_high": seen + 0.02}
    tokens = pl.DataFrame({"token_id": [5, 9, 11], "token": ["$iens$", " Jackson", "漢字"]})
    keys = pl.DataFrame({"head": list(heads)}).join(tokens, how="cross")
    rate = np.linspace(0, 1, 40)
    curves = keys.with_columns(power=pl.Series(0.2 + rng.random(keys.height)))
    curves = curves.join(pl.DataFrame({"false_positive_rate": rate}), how="cross")
    curves = curves.with_columns(true_positive_rate=pl.col("false_positive_rate").pow(pl.col("power")), threshold=0.0)
    return [
        _by_head(AUROC_BY_HEAD, rng, heads, **spread),
        _by_head(AUROC_CONTROLS, rng, heads, frequency=0.81),
        _by_head(PRECISION_BY_HEAD, rng, heads, k=10),
        _filled(AUROC_BY_TOKEN, keys, rng),
        (ROC_POINTS, ROC_POINTS.conform(curves)),
    ]


def _heatmap_tables(rng: np.random.Generator, heads: range, drawn: int = len(HOSTILE)) -> list[Named]:
    places = pl.DataFrame({"query_place": range(drawn)}).join(pl.DataFrame({"key_place": range(drawn)}), how="cross")
    keys = pl.DataFrame({"head": list(heads)}).join(pl.DataFrame({"layer_norm": [True, False]}), how="cross")
    keys = keys.join(places, how="cross").with_columns(
        score=pl.Series(rng.normal(0, 10, keys.height * places.height))
        + 60.0 * (pl.col("query_place") == pl.col("key_place")).cast(pl.Float64) * (pl.col("head") % 2),
        query_token_id="query_place",
        key_token_id="key_place",
    )
    tokens = pl.DataFrame({"place": range(drawn), "token_id": range(drawn), "token": HOSTILE[:drawn]})
    return [(HEATMAP, HEATMAP.conform(keys)), (HEATMAP_TOKENS, HEATMAP_TOKENS.conform(tokens))]


def _partners(rng: np.random.Generator, heads: range, top: int = 8) -> Named:
    keys = pl.DataFrame({"head": list(heads)})
    keys = keys.join(pl.DataFrame({"query_token_id": [1, 2], "query_token": [" Korea", "$yo"]}), how="cross")
    keys = keys.join(pl.DataFrame({"rank": range(1, top + 1), "key_token": HOSTILE[:top]}), how="cross")
    return _filled(PARTNERS, keys, rng)


def _lexicon(rng: np.random.Generator, heads: range, pairs: int = 100) -> Named:
    keys = pl.DataFrame({"head": list(heads)}).join(pl.DataFrame({"rank": range(1, pairs + 1)}), how="cross")
    score = 100.0 / (1 + keys["rank"].to_numpy()) ** 0.2 * (1 + 0.1 * keys["head"].to_numpy())
    return _filled(LEXICON, keys, rng, score=score, count=rng.integers(0, 3, keys.height))


def _positions(rng: np.random.Generator, heads: range, positions: int, queries: list[int]) -> Named:
    frames = []
    for head in heads:
        alone = rng.normal(0.05, 0.05) * np.arange(positions) + rng.normal(0, 0.3, positions)
        alone[0] += 20
        frames += [_curve(head, "p", None, alone * (1 if norm else 0.15), norm) for norm in (True, False)]
        for query in queries:
            wave = 8 * np.cos((np.arange(query + 1) - query) / positions * rng.uniform(10, 40))
            total = wave + alone[: query + 1]
            attention = np.exp(total - total.max())
            frames += [_curve(head, "pp", query, wave), _curve(head, "p+pp", query, total)]
            frames.append(_curve(head, "attention", query, attention / attention.sum()))
    return POSITIONS, pl.concat(frames)


def _curve(head: int, quantity: str, query: int | None, values: np.ndarray, norm: bool = True) -> pl.DataFrame:
    bare = quantity == "attention"
    columns = {"head": head, "quantity": quantity, "query_position": query, "key_position": range(len(values))}
    columns |= {"layer_norm": norm, "mean": values}
    for name, factor in {"low": 0.9, "high": 1.1, "at_smallest_scale": 1.6, "at_largest_scale": 0.6}.items():
        columns[name] = None if bare else values * factor
    return POSITIONS.conform(pl.DataFrame(columns))


def _positions_by_offset(rng: np.random.Generator, heads: range, positions: int, queries: list[int]) -> Named:
    quantities = {"quantity": ["p", *["attention"] * len(queries)], "query_position": [None, *queries]}
    keys = pl.DataFrame({"head": list(heads)}).join(pl.DataFrame(quantities), how="cross")
    return _filled(POSITIONS_BY_OFFSET, keys.join(pl.DataFrame({"offset": range(positions)}), how="cross"), rng)


def _attention_tables(rng: np.random.Generator, heads: range, queries: list[int]) -> list[Named]:
    frames = []
    for head in heads:
        for query in queries:
            raw = np.exp(-0.1 * np.arange(query + 1)[::-1]) + 0.01 * rng.random(query + 1)
            mean = raw / raw.sum()
            columns = {"head": head, "query_position": query, "key_position": range(query + 1), "mean": mean}
            columns |= {"low": mean * 0.5, "high": mean * 1.6, "predicted": mean[::-1], "documents": 5}
            frames.append(ATTENTION.conform(pl.DataFrame(columns)))
    agreement = _by_head_and(ATTENTION_AGREEMENT, rng, heads, "query_position", queries)[1]
    for source in ("measured", "predicted"):
        parts = [f"{source}_{part}" for part in ("first", "far", "recent", "self", "next")]
        agreement = agreement.with_columns(pl.col(parts) / pl.sum_horizontal(parts))
    return [(ATTENTION, pl.concat(frames)), (ATTENTION_AGREEMENT, agreement)]


def _shares(rng: np.random.Generator, heads: range) -> Named:
    schema, frame = _by_head_and(CONTRIBUTIONS_BY_HEAD, rng, heads, "term", TERMS)
    return schema, frame.with_columns(share=pl.col("kl") / pl.col("kl").sum().over("head"))


def _frequency_tables(rng: np.random.Generator, heads: range, vocabulary: int) -> list[Named]:
    count = (10 ** rng.uniform(-0.5, 6, vocabulary)).astype(int)
    tokens = pl.DataFrame({"token_id": range(vocabulary), "count": count})
    keys = pl.DataFrame({"head": list(heads)}).join(tokens, how="cross")
    score = rng.normal(0, 1, keys.height) - np.log10(keys["count"].to_numpy() + 1) * keys["head"].to_numpy() / 3
    variance = 0.02 - 0.001 * np.log10(count + 1) + rng.normal(0, 0.001, vocabulary)
    return [
        _filled(SELF_ASSERTION, keys, rng, score=score),
        _by_head(FREQUENCY_BY_HEAD, rng, heads, spearman=-0.68),
        _filled(FREQUENCY_BY_TOKEN, tokens, rng, variance=variance),
        _filled(EMBEDDING_VARIANCE, pl.DataFrame({"tokens": [vocabulary]}), rng, spearman=-0.63, spearman_tokens=150),
    ]


def _variance_tables(rng: np.random.Generator, heads: range, positions: int) -> list[Named]:
    variance = 0.01 + rng.normal(0, 0.0003, positions)
    variance[0], variance[-1] = 0.09, 0.0005
    outlier = [place in (0, positions - 1) for place in range(positions)]
    keys = pl.DataFrame({"position": range(positions)})
    frames = [
        pl.DataFrame({"head": head, "query_position": query, "key_position": range(query + 1)})
        for head in heads
        for query in range(max(0, positions - 5), positions)
    ]
    last = pl.concat(frames).with_columns(
        comparison=pl.when(pl.col("query_position") == positions - 1)
        .then(0.02)
        .otherwise((pl.col("key_position") / 9 + pl.col("head")).cos() + pl.col("query_position") / 500)
    )
    return [
        _filled(POSITION_VARIANCE, keys, rng, variance=variance, outlier=outlier),
        (LAST_QUERIES, LAST_QUERIES.conform(last)),
        _by_head(UNDERTRAINED, rng, heads),
        _by_head(SWITCH, rng, heads),
    ]


def _twins(rng: np.random.Generator, heads: range) -> Named:
    cuts = [f"cut_L0H{head}" for head in heads]
    by_term = [f"{kind}_{term}" for kind in ("without", "only") for term in TERMS]
    keys = pl.DataFrame({"place": ["attention", "block"]}).join(pl.DataFrame({"pieces": [2, 3, 4]}), how="cross")
    conditions = pl.DataFrame({"condition": ["whole", *CONTROLS, *cuts, *by_term]})
    return _filled(TWINS_BY_CONDITION, keys.join(conditions, how="cross"), rng)


def _layers(rng: np.random.Generator, heads: range) -> list[Named]:
    layers = pl.DataFrame({"layer": range(4)})
    conditions = pl.DataFrame({"condition": ["whole", *CONTROLS]})
    off = layers.join(pl.DataFrame({"head": [*heads, None]}), how="cross")
    matters = rng.random(off.height) > 0.8
    return [
        _filled(TWINS_BY_LAYER, layers.join(conditions, how="cross"), rng),
        _filled(TWINS_BY_COMPONENT, off, rng, after=3, matters=matters),
    ]
