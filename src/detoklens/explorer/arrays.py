"""The files of an explorer bundle: arrays of the layer, tokens, corpus counts, and the sample shown first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import frexp
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float16, UInt32

from detoklens.corpus.counts import Counts
from detoklens.progress import Watcher, unwatched
from detoklens.scores.factors import Side, for_each_head, key_side, project, query_side, rotated_by_offset
from detoklens.scores.layer import Layer
from detoklens.weights.scale import ScaleTable

FOLDER = "arrays"
TOP = 15  # stored numbers stay below 2¹⁵; half precision overflows at 2¹⁶
ROWS = 8192  # processed together


@dataclass
class Arrays:
    """Writes the arrays of a bundle and collects their descriptions for bundle.json."""

    folder: Path
    described: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(
        self, name: str, values: np.ndarray, dtype: str = "float32", multiplier: float = 1.0, error: float = 0.0
    ) -> None:
        """Write an array in this type; the page multiplies what it reads by `multiplier`."""
        stored = np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<"))
        file = self.folder / FOLDER / f"{name}.bin"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(stored.data.cast("B") if stored.size else b"")
        self.described[name] = {
            "file": f"{FOLDER}/{name}.bin",
            "dtype": stored.dtype.name,
            "shape": list(stored.shape),
            "multiplier": multiplier,
            "error": error,
        }

    def add_half(self, name: str, values: Float[np.ndarray, "row column"], error: float | None = None) -> None:
        """Write an array in half precision; `error` replaces the measured |stored row − row| / |row|, the largest."""
        stored, multiplier = halved(values)
        if error is None:
            error = 0.0
            for begin in range(0, len(values), ROWS):
                exact = values[begin : begin + ROWS].astype(np.float64)
                length = np.linalg.norm(exact, axis=1)
                off = np.linalg.norm(stored[begin : begin + ROWS].astype(np.float64) * multiplier - exact, axis=1)
                relative = np.divide(off, length, out=np.zeros_like(off), where=length > 0)
                error = max(error, float(relative.max(initial=0.0)))
        self.add(name, stored, "float16", multiplier, error)


def halved(values: np.ndarray) -> tuple[Float16[np.ndarray, "..."], float]:
    """The values in half precision, divided by a power of two that keeps them in range, and that power."""
    largest = float(np.abs(values).max(initial=0.0))
    multiplier = 2.0 ** (frexp(largest)[1] - TOP) if largest else 1.0
    return (values / values.dtype.type(multiplier)).astype("<f2"), multiplier


TOLERANCE = 1e-4  # relative error of σ: changes a score of 40 by less than 0.01


@dataclass(frozen=True)
class ThinCovariance:
    """Cov(e, p) as position · tokenᵀ, and the largest relative error of σ with `token` in half precision."""

    token: Float[np.ndarray, "token rank"]
    position: Float[np.ndarray, "position rank"]
    error: float


def thin_covariance(scales: ScaleTable, length: int) -> ThinCovariance:
    """Factor the covariances of all tokens with the first positions, at the smallest rank within the tolerance."""
    covariance = scales.covariance(slice(0, length))
    variance = np.maximum(scales.of_positions(slice(0, length)) ** 2, np.finfo(covariance.dtype).tiny)
    wide = covariance.astype(np.float64)
    _, vectors = np.linalg.eigh(wide @ wide.T)  # the left singular vectors, the strongest last
    positions = np.ascontiguousarray(vectors[:, ::-1], np.float32)
    tokens = (covariance.T @ positions).astype(np.float32)

    def scale_error(tokens: Float[np.ndarray, "token rank"]) -> float:
        """The largest relative error of σ: |error of Cov| / σ²."""
        error = positions[:, : tokens.shape[1]] @ tokens.T
        error -= covariance
        error /= variance
        return float(max(error.max(), -error.min()))

    ranks = range(positions.shape[1])
    rank = bisect_left(ranks, True, key=lambda rank: scale_error(tokens[:, :rank]) < TOLERANCE)
    token = tokens[:, :rank]
    stored, multiplier = halved(token)
    error = scale_error(stored.astype(np.float32) * np.float32(multiplier))
    return ThinCovariance(token, positions[:, :rank], error)


def write_layer(layer: Layer, arrays: Arrays, text_limit: int, watch: Watcher = unwatched) -> None:
    """Write all arrays of a layer."""
    scale = np.ones(layer.vocab_size, np.float32) if layer.weights.has_query_key_norms else layer.token_scale("mean")
    arrays.add("token_scale", scale)
    _write_factors(layer, arrays, scale, watch)
    common = layer.common_part(None)
    arrays.add("bias_query", common.query)
    arrays.add("bias_key", common.key)
    if layer.positions != "learned":
        mean = layer.common_part("vocabulary")
        arrays.add("mean_query", mean.query)
        arrays.add("mean_key", mean.key)
        return
    for name, weight in (("query", layer.folded.query_weight), ("key", layer.folded.key_weight)):
        for head, factor in enumerate(project(layer.weights.position_embeddings, weight)):
            arrays.add(f"position_{name}_{head}", factor)
    arrays.add("position_scale", layer.scales.mean_over_tokens())
    if layer.weights.norm_kind == "none":
        return
    arrays.add("token_variance", layer.scales.token_variance)
    arrays.add("position_variance", layer.scales.position_variance[:text_limit])
    thin = thin_covariance(layer.scales, text_limit)
    if thin.token.shape[1]:
        arrays.add_half("token_covariance", thin.token, thin.error)
        arrays.add("position_covariance", thin.position)


def _write_factors(layer: Layer, arrays: Arrays, scale: Float[np.ndarray, "token"], watch: Watcher) -> None:
    """Write the query and key factors of every head, and the mean query that centring subtracts."""
    sides = {"query": query_side(layer.weights, layer.folded), "key": key_side(layer.weights, layer.folded)}
    heads = [(name, side, head) for name, side in sides.items() for head in range(len(side.weight))]
    centres = []
    for done, (name, side, head) in enumerate(heads, 1):
        factor = side.of_vocabulary(layer.weights.token_embeddings, layer.scales.bare_tokens, head)
        arrays.add_half(f"{name}_{head}", factor)
        if name == "query":
            centres.append(np.einsum("td,t->d", factor, 1 / scale.astype(np.float64)) / len(factor))
        watch(done, len(heads))
    arrays.add("centre_query", np.stack(centres))


def described_tokens(layer: Layer) -> dict[str, Any]:
    """The content of tokens.json: one text per row of the embedding table."""
    vocabulary, ids = layer.vocabulary, range(layer.vocab_size)
    as_bytes = {token: vocabulary.as_bytes(token) for token in ids}
    return {
        "texts": [vocabulary.text(token) for token in ids],
        "bytes": {
            str(token): content.hex()
            for token, content in as_bytes.items()
            if content.decode("utf-8", "ignore").encode() != content
        },
        "special": sorted(token for token in vocabulary.apart if token < layer.vocab_size),
        "continuing_prefix": getattr(vocabulary.tokenizer.model, "continuing_subword_prefix", None) or "",
    }


COUNTS_FOLDER = "counts"
MOST_PAIRS = 4 << 20  # 32 MB per direction
PAIRS_PER_SHARD = 1 << 16  # 512 kB per file
LARGEST = 2**32 - 1


def write_counts(counts: Counts, vocab_size: int, folder: Path, most: int = MOST_PAIRS) -> dict[str, Any]:
    """Write the most frequent pairs by query and by key; return their description for bundle.json."""
    (folder / COUNTS_FOLDER).mkdir()
    bigrams, threshold = counts.bigrams, 1
    if len(bigrams.counts) > most:
        least = int(np.partition(bigrams.counts, -most)[-most])
        threshold = least if np.count_nonzero(bigrams.counts >= least) <= most else least + 1
    kept = (bigrams.counts >= threshold) & (bigrams.prefixes < vocab_size) & (bigrams.suffixes < vocab_size)
    keys, queries, occurrences = bigrams.prefixes[kept], bigrams.suffixes[kept], bigrams.counts[kept]
    order = np.lexsort((queries, keys))
    return {
        "threshold": threshold,
        "pairs": len(occurrences),
        "pairs_per_shard": PAIRS_PER_SHARD,
        "total_tokens": int(counts.tokens.sum()),
        "total_pairs": len(bigrams.counts),
        "by_query": _write_rows(folder, "by_query", queries, keys, occurrences, vocab_size),
        "by_key": _write_rows(folder, "by_key", keys[order], queries[order], occurrences[order], vocab_size),
    }


def _write_rows(
    folder: Path,
    name: str,
    rows: UInt32[np.ndarray, "pair"],
    others: UInt32[np.ndarray, "pair"],
    occurrences: np.ndarray,
    vocab_size: int,
) -> dict[str, int]:
    """Write an index of rows, and the pairs in files of equal length."""
    index = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=vocab_size))]).astype("<u4")
    (folder / COUNTS_FOLDER / f"{name}.index.bin").write_bytes(index.tobytes())
    shards = range(0, len(rows), PAIRS_PER_SHARD)
    for number, begin in enumerate(shards):
        pairs = slice(begin, begin + PAIRS_PER_SHARD)
        stored = np.concatenate([others[pairs], np.minimum(occurrences[pairs], LARGEST)]).astype("<u4")
        (folder / COUNTS_FOLDER / f"{name}-{number:03}.bin").write_bytes(stored.tobytes())
    return {"shards": len(shards)}


TEXT = "The magician untied the wooden puppets before the unforgettable performance."
COMPARED = 2048  # key tokens that the true one is compared with


def sample(layer: Layer, limit: int) -> dict[str, Any]:
    """What the page shows first: a text, a continuation token, and the head that best finds its preceding piece.

    The text is as many words of `TEXT` as the model can read; there is none without a tokenizer.
    """
    words = TEXT.split(" ") if layer.has_vocabulary else []
    for number in range(len(words), 0, -1):
        text = " ".join(words[:number])
        ids = layer.vocabulary.encode(text)
        readable = ids and max(ids) < layer.vocab_size and layer.weights.padding_token_id not in ids
        if readable and len(ids) <= limit:
            break
    else:
        first = layer.vocab_size // 2
        return {"token": first, "text": None, "ids": [first], "head": 0}
    inside = set(layer.vocabulary.word_internal())
    pairs = [(key, query) for key, query in pairwise(ids) if query in inside]
    head = joining_head(layer, pairs) if pairs else 0
    return {"token": pairs[0][1] if pairs else ids[-1], "text": text, "ids": ids, "head": head}


def joining_head(layer: Layer, pairs: Sequence[tuple[int, int]]) -> int:
    """The head in which, on average over the pairs, the fewest keys have a larger Tᵉᵉ than the true one."""
    others = np.arange(0, layer.vocab_size, max(1, layer.vocab_size // COMPARED))
    keys, queries = np.array(pairs).T

    def vectors(side: Side, tokens: np.ndarray) -> np.ndarray:
        inputs = layer.weights.token_embeddings[tokens] / layer.scales.bare_tokens()[tokens, None]
        return side.less_constant(inputs, side.constant)

    query = rotated_by_offset(layer.weights, vectors(query_side(layer.weights, layer.folded), queries), 1)
    key = vectors(key_side(layer.weights, layer.folded), np.concatenate([keys, others]))
    scores = query @ for_each_head(key, layer.weights).transpose(0, 2, 1)
    true = np.diagonal(scores, axis1=1, axis2=2)
    larger = scores[:, :, len(keys) :] > true[:, :, None]
    return int(larger.mean(axis=(1, 2)).argmin())
