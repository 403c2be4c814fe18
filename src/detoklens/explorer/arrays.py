"""The files of an explorer bundle: arrays of the layer, tokens, corpus counts, and the sample shown first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import frexp
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float16, Int64, UInt32

from detoklens.corpus.counts import Counts
from detoklens.progress import Watcher
from detoklens.scores.factors import (
    Side,
    for_each_head,
    key_side,
    project,
    query_side,
    rotated_by_offset,
)
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

    def add(self, name: str, values: np.ndarray, dtype: str = "float32") -> None:
        """Write an array in this type."""
        self._write(name, np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<")), 1.0, 0.0)

    def add_half(self, name: str, values: Float[np.ndarray, "row column"], error: float | None = None) -> None:
        """Write an array in half precision; `error` replaces the measured relative error of its rows."""
        multiplier = multiplier_of(values)
        stored = halved(values, multiplier)
        self._write(name, stored, multiplier, row_error(values, stored, multiplier) if error is None else error)

    def _write(self, name: str, stored: np.ndarray, multiplier: float, error: float) -> None:
        file = f"{FOLDER}/{name}.bin"
        (self.folder / FOLDER).mkdir(exist_ok=True)
        with (self.folder / file).open("wb") as out:
            out.write(stored.data.cast("B") if stored.size else b"")
        self.described[name] = {
            "file": file,
            "dtype": stored.dtype.name,
            "shape": list(stored.shape),
            "multiplier": multiplier,
            "error": error,
        }


def multiplier_of(values: np.ndarray) -> float:
    """The power of two by which stored numbers are multiplied."""
    largest = float(np.abs(values).max(initial=0.0))
    return 2.0 ** (frexp(largest)[1] - TOP) if largest else 1.0


def halved(values: np.ndarray, multiplier: float) -> Float16[np.ndarray, "..."]:
    """The values divided by the multiplier, in half precision."""
    return np.ascontiguousarray(values / values.dtype.type(multiplier), "<f2")


def row_error(
    values: Float[np.ndarray, "row column"], stored: Float16[np.ndarray, "row column"], multiplier: float
) -> float:
    """The largest |stored row − row| / |row|."""
    worst = 0.0
    for begin in range(0, len(values), ROWS):
        exact = values[begin : begin + ROWS].astype(np.float64)
        length = np.linalg.norm(exact, axis=1)
        off = np.linalg.norm(stored[begin : begin + ROWS].astype(np.float64) * multiplier - exact, axis=1)
        worst = max(worst, float(np.divide(off, length, out=np.zeros_like(off), where=length > 0).max(initial=0.0)))
    return worst


TOLERANCE = 1e-4  # relative error of σ: changes a score of 40 by less than 0.01


@dataclass(frozen=True)
class ThinCovariance:
    """Cov(e, p) as position · tokenᵀ, and the largest relative error of σ with `token` in half precision."""

    token: Float[np.ndarray, "token rank"]
    position: Float[np.ndarray, "position rank"]
    error: float


def thin_covariance(scales: ScaleTable, length: int) -> ThinCovariance:
    """Factor the covariances of all tokens with the first positions."""
    covariance = scales.covariance(slice(0, length))
    variance = np.maximum(scales.of_positions(slice(0, length)) ** 2, np.finfo(covariance.dtype).tiny)
    positions = _leading(covariance)
    tokens = (covariance.T @ positions).astype(np.float32)
    rank = _smallest_rank(covariance, variance, positions, tokens)
    token, position = tokens[:, :rank], positions[:, :rank]
    multiplier = multiplier_of(token)
    stored = halved(token, multiplier).astype(np.float32) * np.float32(multiplier)
    return ThinCovariance(token, position, _scale_error(covariance, variance, position @ stored.T))


def _leading(covariance: Float[np.ndarray, "position token"]) -> Float[np.ndarray, "position position"]:
    """The left singular vectors, the strongest first."""
    wide = covariance.astype(np.float64)
    _, vectors = np.linalg.eigh(wide @ wide.T)
    return np.ascontiguousarray(vectors[:, ::-1], np.float32)


def _smallest_rank(
    covariance: Float[np.ndarray, "position token"],
    variance: Float[np.ndarray, "position token"],
    positions: Float[np.ndarray, "position position"],
    tokens: Float[np.ndarray, "token position"],
) -> int:
    """The smallest rank within the tolerance, by bisection."""
    low, high = 0, positions.shape[1]
    while low < high:
        middle = (low + high) // 2
        error = _scale_error(covariance, variance, positions[:, :middle] @ tokens[:, :middle].T)
        low, high = (low, middle) if error < TOLERANCE else (middle + 1, high)
    return low


def _scale_error(
    covariance: Float[np.ndarray, "position token"],
    variance: Float[np.ndarray, "position token"],
    found: Float[np.ndarray, "position token"],
) -> float:
    """The largest relative error of σ: |error of Cov| / σ², with σ² in `variance`. Overwrites `found`."""
    found -= covariance
    found /= variance
    return float(max(found.max(), -found.min()))


def write_layer(layer: Layer, arrays: Arrays, text_limit: int, watch: Watcher | None = None) -> None:
    """Write all arrays of a layer."""
    scale = token_divisor(layer)
    arrays.add("token_scale", scale)
    _write_factors(layer, arrays, scale, watch)
    common = layer.common_part(None)
    arrays.add("bias_query", common.query)
    arrays.add("bias_key", common.key)
    if layer.positions == "learned":
        _write_positions(layer, arrays)
        _write_scales(layer, arrays, text_limit)
    else:
        mean = layer.common_part("vocabulary")
        arrays.add("mean_query", mean.query)
        arrays.add("mean_key", mean.key)


def token_divisor(layer: Layer) -> Float[np.ndarray, "token"]:
    """The σ that Tᵉᵉ over the vocabulary is divided by; 1 if queries and keys are normalized already."""
    return np.ones(layer.vocab_size, np.float32) if layer.weights.has_query_key_norms else layer.token_scale("mean")


def _write_factors(layer: Layer, arrays: Arrays, scale: Float[np.ndarray, "token"], watch: Watcher | None) -> None:
    query, key = query_side(layer.weights, layer.folded), key_side(layer.weights, layer.folded)
    in_all, centres = len(query.weight) + len(key.weight), []
    for head in range(len(query.weight)):
        factor = _factor(layer, query, head)
        arrays.add_half(f"query_{head}", factor)
        centres.append(np.einsum("td,t->d", factor, 1 / scale.astype(np.float64)) / len(factor))
        _tell(watch, head + 1, in_all)
    for head in range(len(key.weight)):
        arrays.add_half(f"key_{head}", _factor(layer, key, head))
        _tell(watch, len(query.weight) + head + 1, in_all)
    arrays.add("centre_query", np.stack(centres))


def _factor(layer: Layer, side: Side, head: int) -> Float[np.ndarray, "token d_head"]:
    return side.of_vocabulary(layer.weights.token_embeddings, layer.scales.bare_tokens, head)


def _write_positions(layer: Layer, arrays: Arrays) -> None:
    positions = layer.weights.position_embeddings
    queries, keys = (project(positions, weight) for weight in (layer.folded.query_weight, layer.folded.key_weight))
    for head in range(layer.n_heads):
        arrays.add(f"position_query_{head}", queries[head])
        arrays.add(f"position_key_{head}", keys[head])
    arrays.add("position_scale", layer.scales.mean_over_tokens())


def _write_scales(layer: Layer, arrays: Arrays, text_limit: int) -> None:
    """Write the parts of σ of any token at the first positions; nothing without a norm."""
    if layer.weights.norm_kind == "none":
        return
    arrays.add("token_variance", layer.scales.token_variance)
    arrays.add("position_variance", layer.scales.position_variance[:text_limit])
    thin = thin_covariance(layer.scales, text_limit)
    if thin.token.shape[1]:
        arrays.add_half("token_covariance", thin.token, thin.error)
        arrays.add("position_covariance", thin.position)


def _tell(watch: Watcher | None, done: int, in_all: int) -> None:
    if watch is not None:
        watch(done, in_all)


def described_tokens(layer: Layer) -> dict[str, Any]:
    """The content of tokens.json: one text per row of the embedding table."""
    vocabulary = layer.vocabulary
    as_bytes = {token: vocabulary.as_bytes(token) for token in range(layer.vocab_size)}
    return {
        "texts": [vocabulary.text(token) for token in as_bytes],
        "bytes": {str(token): found.hex() for token, found in as_bytes.items() if not _is_text(found)},
        "special": sorted(token for token in vocabulary.apart if token < layer.vocab_size),
        "continuing_prefix": getattr(vocabulary.tokenizer.model, "continuing_subword_prefix", None) or "",
    }


def _is_text(found: bytes) -> bool:
    try:
        found.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


COUNTS_FOLDER = "counts"
MOST_PAIRS = 4 << 20  # 32 MB per direction
PAIRS_PER_SHARD = 1 << 16  # 512 kB per file
LARGEST = 2**32 - 1


def write_counts(counts: Counts, vocab_size: int, folder: Path, most: int = MOST_PAIRS) -> dict[str, Any]:
    """Write the pairs by query and by key; return their description for bundle.json."""
    (folder / COUNTS_FOLDER).mkdir()
    bigrams = counts.bigrams
    threshold = _threshold(bigrams.counts, most)
    kept = (bigrams.counts >= threshold) & (bigrams.prefixes < vocab_size) & (bigrams.suffixes < vocab_size)
    keys, queries, found = bigrams.prefixes[kept], bigrams.suffixes[kept], bigrams.counts[kept]
    order = np.lexsort((queries, keys))
    return {
        "threshold": threshold,
        "pairs": len(found),
        "pairs_per_shard": PAIRS_PER_SHARD,
        "total_tokens": int(counts.tokens.sum()),
        "total_pairs": len(bigrams.counts),
        "by_query": _write_rows(folder, "by_query", queries, keys, found, vocab_size),
        "by_key": _write_rows(folder, "by_key", keys[order], queries[order], found[order], vocab_size),
    }


def token_counts(counts: Counts, vocab_size: int) -> Int64[np.ndarray, "token"]:
    """Count of each token of the model; 0 for ids that the tokenizer lacks."""
    padded = np.zeros(vocab_size, np.int64)
    known = counts.tokens[:vocab_size]
    padded[: len(known)] = known
    return padded


def _threshold(found: Int64[np.ndarray, "pair"], most: int) -> int:
    """The smallest count such that at most `most` pairs have it or a larger one."""
    if len(found) <= most:
        return 1
    place = len(found) - most
    least = int(np.partition(found, place)[place])
    return least if int(np.count_nonzero(found >= least)) <= most else least + 1


def _write_rows(
    folder: Path,
    name: str,
    rows: UInt32[np.ndarray, "pair"],
    others: UInt32[np.ndarray, "pair"],
    found: Int64[np.ndarray, "pair"],
    vocab_size: int,
) -> dict[str, int]:
    """Write an index of rows, and the pairs in files of equal length."""
    index = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=vocab_size))]).astype("<u4")
    (folder / COUNTS_FOLDER / f"{name}.index.bin").write_bytes(index.tobytes())
    shards = range(0, len(rows), PAIRS_PER_SHARD)
    for number, begin in enumerate(shards):
        pairs = slice(begin, begin + PAIRS_PER_SHARD)
        counted = np.minimum(found[pairs], LARGEST)
        stored = np.concatenate([others[pairs], counted]).astype("<u4")
        (folder / COUNTS_FOLDER / f"{name}-{number:03}.bin").write_bytes(stored.tobytes())
    return {"shards": len(shards)}


TEXT = "The magician untied the wooden puppets before the unforgettable performance."
COMPARED = 2048  # key tokens that the true one is compared with


def sample(layer: Layer, limit: int) -> dict[str, Any]:
    """What the page shows first: a text, a continuation token, and the head that best finds its preceding piece."""
    text, ids = _readable(layer, limit)
    if not text:
        first = layer.vocab_size // 2
        return {"token": first, "text": None, "ids": [first], "head": 0}
    inside = set(layer.vocabulary.word_internal())
    pairs = [(key, query) for key, query in pairwise(ids) if query in inside]
    head = joining_head(layer, pairs) if pairs else 0
    return {"token": pairs[0][1] if pairs else ids[-1], "text": text, "ids": ids, "head": head}


def _readable(layer: Layer, limit: int) -> tuple[str, list[int]]:
    """As many words of the sample text as the model can read; none without a tokenizer."""
    words = TEXT.split(" ") if layer.has_vocabulary else []
    for number in range(len(words), 0, -1):
        text = " ".join(words[:number])
        ids = layer.vocabulary.encode(text)
        if 0 < len(ids) <= limit and _can_be_read(layer, ids):
            return text, ids
    return "", []


def joining_head(layer: Layer, pairs: Sequence[tuple[int, int]]) -> int:
    """The head in which, on average over the pairs, the fewest keys have a larger Tᵉᵉ than the true one."""
    step = max(1, layer.vocab_size // COMPARED)
    others = np.arange(0, layer.vocab_size, step)
    keys, queries = np.array(pairs).T
    asking = rotated_by_offset(layer.weights, _vectors(layer, query_side(layer.weights, layer.folded), queries), 1)
    asked = _vectors(layer, key_side(layer.weights, layer.folded), np.concatenate([keys, others]))
    scores = asking @ for_each_head(asked, layer.weights).transpose(0, 2, 1)
    true = np.diagonal(scores, axis1=1, axis2=2)
    larger = scores[:, :, len(keys) :] > true[:, :, None]
    return int(larger.mean(axis=(1, 2)).argmin())


def _vectors(layer: Layer, side: Side, tokens: np.ndarray) -> np.ndarray:
    inputs = layer.weights.token_embeddings[tokens] / layer.scales.bare_tokens()[tokens, None]
    return side.less_constant(inputs, side.constant)


def _can_be_read(layer: Layer, ids: list[int]) -> bool:
    return all(token < layer.vocab_size and token != layer.weights.padding_token_id for token in ids)
