"""AUROC of a layer beyond the first, with its validity beside it.

1. The closed-world input of each token t: what enters layer l at the place of t in [BOS, t], by the real model.
2. Tᵉᵉ of layer l with these vectors in place of the embeddings, and AUROC of it as ever.
3. In a text other tokens are in sight, so that this is an approximation. How good a one is measured on the study's
   text: per head, the rank correlation of predicted and real scores (before the softmax) of every token with the one
   that was asked about (the token before it, after it, or at another offset), and of the links of pieces alone that go
   on with a word: the query of a link, or asked ahead its key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from detoklens.caches import keeps_nothing
from detoklens.errors import MissingError, UnsupportedModelError
from detoklens.model.closed_worlds import batches
from detoklens.model.first_blocks import (
    FirstBlocks,
    one_thread_each,
    open_blocks,
    refuse_layers,
    remedy_of_memory,
    what_is_loaded,
)
from detoklens.model.kept_vectors import decided_by, kept_vectors
from detoklens.model.memory import refuse_too_large
from detoklens.questions.auroc_schemas import AUROC_VALIDITY
from detoklens.questions.study import Study
from detoklens.questions.twin_words import beginning_of
from detoklens.scores.layer import Layer
from detoklens.weights.blocks import KINDS, block_notes, blocks_size, read_block
from detoklens.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detoklens.parallel import Arrays, Runner
    from detoklens.questions.auroc import Auroc
    from detoklens.questions.question import Frames
    from detoklens.scores.affinity import Affinity

LONGEST = 512  # tokens of a document that are looked at
LINKS = 20_000  # from a token to the one that was asked about
CHECKED = 16  # tokens on which the block's attention is compared with the real one
TOLERANCE = 1e-3  # of float32, relative to the largest score
COPIES = 4  # at the peak: what enters, and the embeddings as they are, as they are read once more, and divided
THEIRS = "transformers."
FACTOR_COPIES = 5  # queries and keys, as they are, divided, and for workers


def asked_beyond(question: Auroc, study: Study, runner: Runner) -> Frames:
    """The tables of a question about a layer beyond the first."""
    if not study.has("text"):
        raise MissingError("text", "Auroc beyond layer 0 needs text, on which it is measured whether it holds")
    heads, layer = study.heads(question.heads), question.layer
    _check_memory(study.layer, layer, heads)
    checkpoint = study.layer.checkpoint
    refuse_layers(checkpoint, layer + 1)
    decided = decided_by(checkpoint, layer, beginning_of(study.layer, runner.say), "float32")
    blocks = open_blocks(checkpoint, layer + 1, study.layer.n_heads)
    for note in block_notes(checkpoint, layer + 1):
        runner.say(note)
    with one_thread_each():
        inputs = kept_inputs(blocks, study.layer, layer, runner, decided)
        deeper = deeper_layer(blocks, study.layer, layer, inputs)
        texts = some_texts(study.documents, question.places_back)
        real = real_links(blocks, deeper, texts, layer, heads, runner, question.places_back)
    there = Study(deeper, study.counts, study.texts, study.seed, study.work)
    queries, keys = linked_tokens(texts, question.places_back)
    predicted = predicted_links(question.affinity(there, question.scale, question.centred, heads), queries, keys)
    going_on = keys if question.is_ahead else queries
    pieces = np.isin(going_on, study.layer.vocabulary.word_internal()) if study.has("vocabulary") else None
    tables = replace(question, layer=0).ask(there, runner)
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


def kept_inputs(blocks: FirstBlocks, layer: Layer, number: int, runner: Runner, decided: dict[str, Any]) -> np.ndarray:
    """The same as `closed_world_inputs`, computed once for all questions about this model and this block.

    `decided` is what decided them before the blocks were loaded: files may be written anew at any time.
    """
    if not keeps_nothing() and not blocks.class_name.startswith(THEIRS):
        runner.say(
            f"vectors are not kept for other questions: {blocks.class_name} is no class of transformers, so no version "
            "says what it computes"
        )
        return closed_world_inputs(blocks, layer, number, runner)
    return kept_vectors(
        decided | {"class": blocks.class_name},
        (layer.vocab_size, layer.d_model),
        lambda: closed_world_inputs(blocks, layer, number, runner),
        runner.say,
        lambda: decided_by(layer.checkpoint, number, beginning_of(layer, runner.say), blocks.dtype) == decided,
    )


def closed_world_inputs(blocks: FirstBlocks, layer: Layer, number: int, runner: Runner) -> np.ndarray:
    """What enters block `number` at the place of each token in [BOS, token]."""
    cut = batches(np.arange(layer.vocab_size)[:, None], beginning_of(layer, runner.say))

    def entering(batch: int) -> Arrays:
        return {"states": blocks.run(cut[batch], until=number).last_places(number - 1)}

    inputs, begin = np.empty((layer.vocab_size, layer.d_model), np.float32), 0
    for part in runner.under("inputs").run(entering, len(cut)):
        inputs[begin : begin + len(part["states"])] = part["states"]
        begin += len(part["states"])
    return inputs


def deeper_layer(blocks: FirstBlocks, layer: Layer, number: int, inputs: np.ndarray) -> Layer:
    """Layer `number` as if it were the first, its tokens' vectors being what enters it; refused where that is not so.

    How much tokens prefer another to themselves must be the same in the real block.
    """
    kinds = {name: blocks.config_list(name) for name in KINDS}
    found = Layer(replace(layer.checkpoint, first_layer=read_block(layer.checkpoint, number, inputs, kinds), notes=()))
    tokens = np.random.default_rng(0).integers(0, layer.vocab_size, (CHECKED, 2))
    real = blocks.scores(blocks.run(tokens, until=number), number, inputs[tokens])[0][:, :, 1]
    real = real[..., 0] - real[..., 1]
    ours = np.stack([_preferred(found, pair) for pair in tokens])
    if float(np.abs(ours - real).max()) > TOLERANCE * max(1.0, float(np.abs(real).max())):
        raise UnsupportedModelError(
            f"{layer.name}: layer {number} does not attend as layer 0 does, so its scores are not read exactly; "
            "ask for another layer"
        )
    return found


def _preferred(layer: Layer, pair: np.ndarray) -> np.ndarray:
    """By how much does the second token prefer the first to itself? A score's part that no softmax sees is left out."""
    total = layer.terms(pair).total()[:, 1] * layer.attention_scale
    cap = layer.weights.softcap
    scores = total if cap is None else np.tanh(total / cap) * cap
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
    """The places of a text's queries, and of their keys so many places before them; below 0, after them."""
    queries = np.arange(max(back, 0), len(text) + min(back, 0))
    return queries, queries - back


def linked_tokens(texts: Sequence[np.ndarray], back: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens at those places, text after text."""
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
    """The real scores [head, link] of every token of the texts with the one so many places before it, in one block.

    Without what a query adds to the scores of all keys alike, which no softmax sees.
    """

    def scores(place: int) -> Arrays:
        text = texts[place]
        passed = blocks.run(text[None], until=number)
        queries, keys = linked(text, back)
        found = blocks.scores(passed, number)[0][0][:, queries, keys]
        return {"scores": (found - _unseen(deeper, passed.all_places(number - 1)[0][queries]))[list(heads)]}

    found = runner.under("links").run(scores, len(texts))
    real = np.concatenate([part["scores"] for part in found], axis=1)
    runner.say(f"predicted and real scores of layer {number} were compared on {plural(real.shape[1], 'link')}")
    return real


def _unseen(layer: Layer, entering: np.ndarray) -> np.ndarray:
    """q · b_K by head and place: the same for all keys, unless keys are turned by their place."""
    if layer.positions == "rotary":
        return np.zeros((layer.n_heads, len(entering)))
    places = Layer(replace(layer.checkpoint, first_layer=replace(layer.weights, token_embeddings=entering)))
    query, shared = places.token_affinity("bare").query, layer.weights.heads_per_key
    parts = zip(query, layer.folded.query_bias, np.repeat(layer.folded.key_bias, shared, axis=0), strict=True)
    return np.stack([(each + bias) @ key_bias for each, bias, key_bias in parts]) * layer.attention_scale


def some_texts(documents: Sequence[np.ndarray], back: int = 1) -> list[np.ndarray]:
    """Documents from the first on, until they have links enough between tokens so many places apart."""
    apart = abs(back)
    cut = [document[:LONGEST] for document in documents if min(len(document), LONGEST) > apart]
    if not cut:
        raise MissingError(
            "text",
            f"no document has {apart + 1} tokens within its first {LONGEST}, so there is no link to compare scores of",
        )
    enough = int(np.searchsorted(np.cumsum([len(text) - apart for text in cut]), LINKS)) + 1
    return cut[:enough]


def validity(
    heads: Sequence[int], layer: int, predicted: np.ndarray, real: np.ndarray, pieces: np.ndarray | None
) -> pl.DataFrame:
    """Each head's rank correlations, over all links and over those of pieces that go on with a word."""
    from detoklens.measures.frequency import spearman

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
