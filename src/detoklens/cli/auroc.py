"""`detoklens auroc`: which heads rank the tokens that belong before a token above all others?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from detoklens.cli import asking, options, text_input
from detoklens.cli.answering import provenance_of, show_answer, write_answer
from detoklens.cli.auroc_asking import Asked, named_tokens, query_tokens
from detoklens.cli.auroc_options import (
    Bootstrap,
    Controls,
    FirstKeys,
    Kind,
    Negative,
    Negatives,
    Pieces,
    PmiAbove,
    Positive,
    Roc,
    Seed,
    Share,
    Tokens,
    Truth,
    TruthOption,
    Weight,
    Weights,
    Words,
)
from detoklens.cli.output import emit, say
from detoklens.demo import NAME as DEMO
from detoklens.errors import DetokLensError, TokenError

if TYPE_CHECKING:
    import polars as pl

    from detoklens.analyses.auroc import Measures, Positives
    from detoklens.analyses.block_runs import Runner
    from detoklens.corpus.counts import Counts
    from detoklens.scores.layer import Layer
    from detoklens.tables.schema import Schema


def auroc(
    model: options.Model = DEMO,
    counts: options.CountsFolder = None,
    tokens: Tokens = None,
    pieces: Pieces = False,
    heads: options.Heads = None,
    truth: TruthOption = Truth.counts,
    words: Words = None,
    positives: Positive = Kind.seen,
    pmi_above: PmiAbove = 0.0,
    weights: Weights = Weight.counted,
    negatives: Negative = Negatives.all,
    k: FirstKeys = 10,
    controls: Controls = True,
    roc: Roc = None,
    centred: options.Centred = False,
    scale: asking.Scale = "mean",
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    workers: text_input.Workers = None,
    engine: text_input.EngineName = "local",
    ray_address: text_input.RayAddress = None,
    share: Share = None,
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Judge every head: does it rank the tokens that stand before a token above all others?

    A head's AUROC is shown with its nulls (another token's scores; keys exchanged for equally frequent ones) and with
    what ranking keys by frequency alone gives: only what stands above them is detokenization. The numbers are the same
    whatever the engine and the number of workers; with --out an interrupted run is continued by the same command.

    Example: detoklens auroc gpt2 --counts counts --pieces --out results
    """
    layer = asking.open_layer(model, revision)
    corpus = asking.open_counts(counts, layer)
    ranking = asking.chosen_ranking(layer, heads, scale, centred)
    right = Asked(truth, positives, pmi_above, weights, words)
    right.check(corpus, negatives)
    pairs = right.positives(layer, corpus)
    if roc is not None:
        if negatives is Negatives.matched:
            raise DetokLensError("--roc draws the curve against all other keys; leave --negatives matched out")
        _show_curve(layer, corpus, ranking, right, pairs, roc, output_format, out)
        return
    queries = query_tokens(layer, tokens or [], pieces)
    judged = {"negatives": negatives.value, "k": k, "controls": controls, "bootstrap": bootstrap, "seed": seed}
    question = {**right.options(), **judged, **ranking, "tokens": queries if tokens else "all", "pieces": pieces}
    provenance = provenance_of("auroc", layer, question, corpus)
    with text_input.opened_runner("ranking keys", engine, workers, ray_address, out, provenance) as runner:
        measured = _measured(layer, corpus, ranking, pairs, queries, judged, runner, share)
    tables = _tables(layer, measured, ranking["heads"], pairs, judged)
    write_answer(layer, tables, provenance, out)
    runner.finish()
    _show_heads(layer, {schema.name: frame for schema, frame in tables}, output_format)


def _measured(
    layer: Layer,
    corpus: Counts | None,
    ranking: asking.Ranking,
    pairs: Positives,
    queries: list[int],
    judged: dict[str, Any],
    runner: Runner,
    share: Path | None,
) -> Measures:
    from detoklens.analyses.auroc import Judging, measure_heads

    matched = judged["negatives"] == Negatives.matched
    judging = Judging(judged["k"], matched, judged["controls"], judged["seed"])
    affinity = layer.token_affinity(ranking["scale"], ranking["centred"]).of_heads(ranking["heads"])
    token_counts = None if corpus is None else corpus.tokens
    return measure_heads(affinity, pairs, queries, token_counts, judging, runner, share)


def _tables(
    layer: Layer, measured: Measures, heads: list[int], pairs: Positives, asked: dict[str, Any]
) -> list[tuple[Schema, pl.DataFrame]]:
    from detoklens.analyses import auroc as analysis
    from detoklens.analyses.token_text import token_texts
    from detoklens.tables import auroc as columns

    texts = token_texts(layer, measured.query_tokens)
    by_head = analysis.auroc_by_head(measured, heads, pairs, asked["bootstrap"], asked["seed"])
    return [
        (columns.AUROC_BY_TOKEN, analysis.auroc_by_token(measured, heads, pairs, texts)),
        (columns.AUROC_BY_HEAD, by_head),
        (columns.AUROC_CONTROLS, analysis.controls_by_head(measured, heads)),
        (columns.PRECISION_BY_HEAD, analysis.precision_by_head(measured, heads, asked["k"])),
        (columns.PRECISION_BY_TOKEN, analysis.precision_by_token(measured, heads, asked["k"], texts)),
    ]


def _show_heads(layer: Layer, tables: dict[str, pl.DataFrame], output_format: options.Format) -> None:
    """Print a row a head, and say which one stands highest above its nulls."""
    from detoklens.analyses.auroc import heads_at_a_glance

    controls = tables["auroc_controls"]
    best = controls.drop_nulls(["auroc", "above_null"]).sort("above_null", descending=True).head(1).to_dicts()
    for head in best:
        null = head["auroc"] - head["above_null"]
        frequency = "" if head["frequency"] is None else f" and {head['frequency']:.3f} by frequency alone"
        say(f"L0H{head['head']} stands highest above its nulls: {head['auroc']:.3f} against {null:.3f}{frequency}")
    glance = heads_at_a_glance(tables["auroc_by_head"], controls, tables["precision_by_head"])
    emit(glance, output_format, title=f"{layer.name}: which heads rank the right keys first?")


def _show_curve(
    layer: Layer,
    corpus: Counts | None,
    ranking: asking.Ranking,
    right: Asked,
    pairs: Positives,
    token: str,
    output_format: options.Format,
    out: Path | None,
) -> None:
    """Print the points of one token's curve in every head."""
    from detoklens.analyses.auroc import roc_points
    from detoklens.analyses.token_text import token_texts
    from detoklens.tables.auroc import ROC_POINTS

    named = named_tokens(layer, token)
    if len(named) != 1:
        raise TokenError(f"--roc {token!r} names {len(named)} tokens; name one, as text or by its id")
    affinity = layer.token_affinity(ranking["scale"], ranking["centred"]).of_heads(ranking["heads"])
    points = roc_points(affinity, ranking["heads"], pairs, named[0], token_texts(layer, named)[0])
    question = {**right.options(), **ranking, "roc": named[0]}
    write_answer(layer, [(ROC_POINTS, points)], provenance_of("auroc", layer, question, corpus), out)
    show_answer(layer, ROC_POINTS, points, output_format)
