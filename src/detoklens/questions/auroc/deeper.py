"""AUROC above layer 0.

1. The real model gives the closed-world input of each token t: the residual stream entering layer l at t in [BOS, t].
2. Tᵉᵉ of layer l is computed with these vectors in place of the embeddings, and its AUROC as for layer 0.
3. In text, t also attends to other tokens, so this is an approximation. Its validity is measured on the study's text:
   for each head, the rank correlation of predicted and real scores (before the softmax) over links, which are pairs of
   a token and the token at the offset. It is measured over all links, and over those of continuation tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from detoklens.errors import MissingError, UnsupportedModelError
from detoklens.measures.frequency import spearman
from detoklens.model.checks import refuse_layers, refuse_too_large, remedy_of_memory, what_is_loaded
from detoklens.model.vector_cache import batches, cached_vectors, describe_vectors
from detoklens.parallel import Arrays, Runner
from detoklens.questions.auroc.compute import AUROC_VALIDITY
from detoklens.questions.study import Study
from detoklens.questions.texts import beginning_of
from detoklens.scores.affinity import Affinity
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import softcapped
from detoklens.weights.blocks import KINDS, block_notes, blocks_size, read_block
from detoklens.wording import plural
from detoklens.writing import keeps_nothing

if TYPE_CHECKING:
    from detoklens.model.first_blocks import FirstBlocks
    from detoklens.questions.auroc.question import Auroc
    from detoklens.questions.base import Frames


LONGEST = 512  # tokens of a document
LINKS = 20_000  # pairs of tokens at the offset
CHECKED = 16  # tokens on which the block's attention is compared with the real one
TOLERANCE = 1e-3  # of float32, relative to the largest score
COPIES = 4  # at the peak: the inputs, and the embeddings raw, read again and divided by σ
TRANSFORMERS = "transformers."
FACTOR_COPIES = 5  # queries and keys: raw, divided by σ, and for workers


def deeper_tables(question: Auroc, study: Study, runner: Runner) -> Frames:
    """The tables of a layer above 0."""
    if not study.has("text"):
        raise MissingError("text", "Auroc above layer 0 needs text to measure its validity")
    heads, layer = study.heads(question.heads), question.layer
    _check_memory(study.layer, layer, heads)
    checkpoint = study.layer.checkpoint
    refuse_layers(checkpoint, layer + 1)
    beginning = beginning_of(study.layer, runner.say, question.bos)
    decided = describe_vectors(checkpoint, layer, beginning, "float32")
    from detoklens.model.first_blocks import one_thread_each, open_blocks

    blocks = open_blocks(checkpoint, layer + 1, study.layer.n_heads)
    for note in block_notes(checkpoint, layer + 1):
        runner.say(note)
    with one_thread_each():
        inputs = cached_inputs(blocks, study.layer, layer, beginning, runner, decided)
        deeper = deeper_layer(blocks, study.layer, layer, inputs)
        texts = texts_with_links(study.documents, question.places_back)
        real = real_links(blocks, deeper, texts, layer, heads, runner, question.places_back)
    deeper_study = Study(deeper, study.counts, study.texts, study.seed, study.work)
    queries, keys = linked_tokens(texts, question.places_back)
    predicted = predicted_links(question.affinity(deeper_study, question.scale, question.centred, heads), queries, keys)
    later = keys if question.looks_ahead else queries
    pieces = np.isin(later, study.layer.vocabulary.word_internal()) if study.has("vocabulary") else None
    tables = replace(question, layer=0, bos=None).ask(deeper_study, runner)
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


def cached_inputs(
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
    return cached_vectors(
        decided | {"class": blocks.class_name},
        (layer.vocab_size, layer.d_model),
        lambda: closed_world_inputs(blocks, layer, number, beginning, runner),
        runner.say,
        lambda: describe_vectors(layer.checkpoint, number, beginning, blocks.dtype) == decided,
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
    weights = read_block(layer.checkpoint, number, inputs, {name: blocks.config_list(name) for name in KINDS})
    found = Layer(replace(layer.checkpoint, first_layer=weights, notes=()), layer.all_tokens)
    found.meaningful_tokens = layer.meaningful_tokens  # shown by the embeddings, not by what enters a later block
    tokens = np.random.default_rng(0).integers(0, layer.vocab_size, (CHECKED, 2))
    real = blocks.scores(blocks.run(tokens, until=number), number, inputs[tokens])[0][:, :, 1]
    real = real[..., 0] - real[..., 1]  # the difference cancels what the softmax ignores
    scores = np.stack(
        [softcapped(found.terms(pair).total()[:, 1] * found.attention_scale, weights.softcap) for pair in tokens]
    )
    predicted = scores[..., 0] - scores[..., 1]
    if float(np.abs(predicted - real).max()) > TOLERANCE * max(1.0, float(np.abs(real).max())):
        raise UnsupportedModelError(
            f"{layer.name}: layer {number} computes attention differently from layer 0, so its scores are not exact; "
            "choose another layer"
        )
    return found


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
        return {"scores": (found - _constant_over_keys(deeper, passed.all_places(number - 1)[0][queries]))[list(heads)]}

    found = runner.under("links").run(scores, len(texts))
    real = np.concatenate([part["scores"] for part in found], axis=1)
    runner.say(f"compared predicted and real scores of layer {number} on {plural(real.shape[1], 'link')}")
    return real


def _constant_over_keys(layer: Layer, entering: np.ndarray) -> np.ndarray:
    """q · b_K by head and position: the same for all keys, except with rotary positions."""
    if layer.positions == "rotary":
        return np.zeros((layer.n_heads, len(entering)))
    places = Layer(replace(layer.checkpoint, first_layer=replace(layer.weights, token_embeddings=entering)))
    query, shared = places.token_affinity("bare").query, layer.weights.heads_per_key
    parts = zip(query, layer.folded.query_bias, np.repeat(layer.folded.key_bias, shared, axis=0), strict=True)
    return np.stack([(each + bias) @ key_bias for each, bias, key_bias in parts]) * layer.attention_scale


def texts_with_links(documents: Sequence[np.ndarray], back: int = 1) -> list[np.ndarray]:
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
    columns: dict[str, Any] = {"head": list(heads), "layer": [layer] * len(heads)}
    of_pieces = np.zeros(predicted.shape[1], bool) if pieces is None else pieces
    for prefix, which in (("", np.ones_like(of_pieces)), ("pieces_", of_pieces)):
        pairs = zip(predicted[:, which], real[:, which], strict=True)
        columns[f"{prefix}correlation"] = [spearman(*pair) for pair in pairs]
        columns[f"{prefix}links"] = [int(which.sum())] * len(heads)
    return AUROC_VALIDITY.frame(columns)
