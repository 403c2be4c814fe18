"""Scores of many queries against many keys: a matrix product whose rounding does not depend on a score's location.

BLAS splits a matrix as it sees fit, so how it rounds a score depends on the score's row and column. With as few
dimensions as a head has, it also spends a third of its time on packing the keys. Here both sides are packed once, as
panels. A score is one chain of multiply-adds from the first dimension to the last, so its bits depend on its own query
and key alone.

A tile of scores, 6 queries × 2 vectors of keys (32 keys in float32 with AVX-512, else 16), stays in registers while a
loop runs over the dimensions. Compilers don't find this by themselves, so the tile is written in LLVM vectors, which
LLVM maps to the processor's.

The largest scores are found without computing all of them (`pairs_reaching`): a product of few dimensions gives an
upper bound of every score of a tile, and a tile whose bounds stay below a floor is skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from detoklens.kernels.compiling import compiled

QUERIES = 6
"""Queries per panel: with two vectors of keys this makes twelve sums, which fit into sixteen registers."""

VECTOR_BYTES = 64 if binding.get_host_cpu_features().get("avx512f") else 32
VECTORS = 2
KEYS_IN_CACHE = 1 << 17
"""Bytes of keys that are multiplied with all queries before the next block of keys."""

PACKED_AT_ONCE = 1 << 22  # numbers

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))

Panels = Float[np.ndarray, "panel dimension place"]


def keys_of_panel(dtype: np.dtype) -> int:
    """Number of keys in a panel."""
    return VECTORS * VECTOR_BYTES // dtype.itemsize


def query_panels(query: Float[np.ndarray, "query dimension"]) -> Panels:
    """Pack queries into panels, padded with zeros."""
    return _panels(query, QUERIES)


def key_panels(key: Float[np.ndarray, "key dimension"], overwrite: bool = False) -> Panels:
    """Pack keys into panels, padded with zeros; with `overwrite`, in the memory of keys that fill whole panels."""
    return _panels(key, keys_of_panel(key.dtype), overwrite)


def _panels(vectors: Float[np.ndarray, "vector dimension"], width: int, overwrite: bool = False) -> Panels:
    """Pack vectors into panels of `width`; within a panel, dimensions come first."""
    whole, dimensions = len(vectors) // width, vectors.shape[1]
    shape = (-(-len(vectors) // width), dimensions, width)
    if overwrite and not (len(vectors) == whole * width and vectors.flags.c_contiguous):
        raise ValueError(f"{len(vectors)} vectors don't fill panels of {width} in one piece of memory")
    packed = vectors.reshape(shape) if overwrite else np.zeros(shape, vectors.dtype)
    step = max(1, PACKED_AT_ONCE // max(1, width * dimensions))
    for begin in range(0, whole, step):
        some = vectors[begin * width : min(begin + step, whole) * width]
        n = len(some) // width
        packed[begin : begin + n] = some.reshape(n, width, dimensions).transpose(0, 2, 1)
    if whole < len(packed):
        packed[whole, :, : len(vectors) - whole * width] = vectors[whole * width :].T
    return packed


def multiply(
    queries: Panels, keys: Panels, buffer: Float[np.ndarray, "score"] | None = None
) -> Float[np.ndarray, "query key"]:
    """query · key for all queries and keys of the panels, written to the start of `buffer` if given."""
    shape = len(queries) * QUERIES, len(keys) * keys_of_panel(keys.dtype)
    if buffer is None:
        buffer = np.empty(shape[0] * shape[1], keys.dtype)
    wanted = (len(queries), keys.shape[1], QUERIES), (len(keys), keys.shape[1], keys_of_panel(keys.dtype))
    if (queries.shape, keys.shape) != wanted or not queries.dtype == keys.dtype == buffer.dtype in DTYPES:
        raise ValueError(f"{queries.dtype}{queries.shape} and {keys.dtype}{keys.shape} are not panels that multiply")
    if not all(array.flags.c_contiguous for array in (queries, keys, buffer)) or buffer.ndim > 1:
        raise ValueError("panels and the score buffer must be contiguous")
    if not buffer.flags.writeable:
        raise ValueError("the score buffer is read-only")
    scores = buffer[: shape[0] * shape[1]].reshape(shape)
    _multiply(queries, keys, scores)
    return scores


@compiled()
def _multiply(queries: np.ndarray, keys: np.ndarray, scores: np.ndarray) -> None:
    dimensions, width, columns = keys.shape[1], keys.shape[2], scores.shape[1]
    at_once = max(1, KEYS_IN_CACHE // max(1, dimensions * VECTORS * VECTOR_BYTES))
    flat_queries, flat_keys, flat_scores = queries.reshape(-1), keys.reshape(-1), scores.reshape(-1)
    for begin in range(0, len(keys), at_once):
        end = min(begin + at_once, len(keys))
        for query_panel in range(len(queries)):
            first_query = query_panel * dimensions * QUERIES
            first_score = query_panel * QUERIES * columns
            for key_panel in range(begin, end):
                first_key, first = key_panel * dimensions * width, first_score + key_panel * width
                fill_tile(flat_queries, first_query, flat_keys, first_key, dimensions, flat_scores, first, columns)


@compiled()
def pairs_reaching(
    queries: np.ndarray,
    keys: np.ndarray,
    query_bounds: np.ndarray,
    key_bounds: np.ndarray,
    floor: float,
    lowest_bound: float,
    scores: np.ndarray,
    places: np.ndarray,
) -> int:
    """Write score and place (query, key) of every pair of these panels that reaches the floor; return their number.

    The panels of bounds multiply to upper bounds of the scores, up to rounding: a tile is computed only where one of
    them reaches `lowest_bound`. Padding is a pair like any other.
    """
    dimensions, bounding, width = keys.shape[1], key_bounds.shape[1], keys.shape[2]
    flat_queries, flat_keys = queries.reshape(-1), keys.reshape(-1)
    flat_query_bounds, flat_key_bounds = query_bounds.reshape(-1), key_bounds.reshape(-1)
    tile, found = np.empty(QUERIES * width, keys.dtype), 0
    for query_panel in range(len(queries)):
        for key_panel in range(len(keys)):
            first_query, first_key = query_panel * QUERIES, key_panel * width
            first = first_query * bounding
            fill_tile(flat_query_bounds, first, flat_key_bounds, first_key * bounding, bounding, tile, 0, width)
            reached = np.int32(0)
            for place in range(QUERIES * width):
                reached |= np.int32(tile[place] >= lowest_bound)
            if not reached:
                continue
            first = first_query * dimensions
            fill_tile(flat_queries, first, flat_keys, first_key * dimensions, dimensions, tile, 0, width)
            for place in range(QUERIES * width):
                if tile[place] >= floor:
                    scores[found] = tile[place]
                    places[0, found], places[1, found] = first_query + place // width, first_key + place % width
                    found += 1
    return found


@compiled()
def rank_keys(queries: np.ndarray, keys: np.ndarray, n_keys: int, chosen: np.ndarray, ranks: np.ndarray) -> None:
    """Rank of one key for each query: 1 + the number of larger scores + that of equal ones with a smaller index.

    Scores are counted tile by tile and not kept.
    """
    dimensions, width = keys.shape[1], keys.shape[2]
    flat_queries, flat_keys = queries.reshape(-1), keys.reshape(-1)
    tile, own = np.empty(QUERIES * width, keys.dtype), np.empty(len(chosen), keys.dtype)
    for query in range(len(chosen)):
        first_query, first_key = query // QUERIES * QUERIES, chosen[query] // width * width
        fill_tile(flat_queries, first_query * dimensions, flat_keys, first_key * dimensions, dimensions, tile, 0, width)
        own[query] = tile[(query - first_query) * width + chosen[query] - first_key]
        ranks[query] = 1
    at_once = max(1, KEYS_IN_CACHE // max(1, dimensions * VECTORS * VECTOR_BYTES))
    for begin in range(0, len(keys), at_once):
        for first_query in range(0, len(chosen), QUERIES):
            for key_panel in range(begin, min(begin + at_once, len(keys))):
                first_key = key_panel * width
                fill_tile(
                    flat_queries,
                    first_query * dimensions,
                    flat_keys,
                    first_key * dimensions,
                    dimensions,
                    tile,
                    0,
                    width,
                )
                for row in range(min(QUERIES, len(chosen) - first_query)):
                    query, above = first_query + row, 0
                    real = min(width, n_keys - first_key)
                    earlier = min(max(chosen[query] - first_key, 0), real)
                    for place in range(row * width, row * width + earlier):
                        above += tile[place] >= own[query]
                    for place in range(row * width + earlier, row * width + real):
                        above += tile[place] > own[query]
                    ranks[query] += above


@intrinsic
def fill_tile(
    _: Any,
    queries: Any,
    first_query: Any,
    keys: Any,
    first_key: Any,
    dimensions: Any,
    scores: Any,
    first: Any,
    row: Any,
) -> tuple[Any, Any]:
    """The scores of one query panel and one key panel; `row` is the distance between the scores of two queries."""
    signature = types.void(queries, first_query, keys, first_key, dimensions, scores, first, row)
    return signature, _emit_tile


def _emit_tile(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
    _, first_query, _, first_key, dimensions, _, first_score, row = arguments
    queries, keys, scores = (
        context.make_array(signature.args[number])(context, builder, arguments[number]).data for number in (0, 2, 5)
    )
    bits = signature.args[0].dtype.bitwidth
    lanes, integer = 8 * VECTOR_BYTES // bits, dimensions.type
    vector = ir.VectorType(context.get_data_type(signature.args[0].dtype), lanes)
    multiply_add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{lanes}f{bits}"
    )

    def place(start: ir.Value, offset: ir.Value) -> ir.Value:
        return builder.gep(start, [offset])

    def vector_at(start: ir.Value, number: int) -> ir.Value:
        return builder.bitcast(place(start, integer(number * lanes)), vector.as_pointer())

    def in_every_lane(value: ir.Value) -> ir.Value:
        anything, lane = ir.Constant(vector, ir.Undefined), ir.IntType(32)
        one = builder.insert_element(anything, value, lane(0))
        return builder.shuffle_vector(one, anything, ir.Constant(ir.VectorType(lane, lanes), [0] * lanes))

    zero = ir.Constant(vector, None)
    sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(VECTORS)] for _ in range(QUERIES)]
    query, key, tile = place(queries, first_query), place(keys, first_key), place(scores, first_score)
    with cgutils.for_range(builder, dimensions) as loop:
        key_row = place(key, builder.mul(loop.index, integer(VECTORS * lanes)))
        query_row = place(query, builder.mul(loop.index, integer(QUERIES)))
        some_keys = [builder.load(vector_at(key_row, number), align=bits // 8) for number in range(VECTORS)]
        for number, sums_of_query in enumerate(sums):
            of_query = in_every_lane(builder.load(place(query_row, integer(number))))
            for some, total in zip(some_keys, sums_of_query, strict=True):
                builder.store(builder.call(multiply_add, [of_query, some, builder.load(total)]), total)
    for number, sums_of_query in enumerate(sums):
        target = place(tile, builder.mul(row, integer(number)))
        for vector_number, total in enumerate(sums_of_query):
            builder.store(builder.load(total), vector_at(target, vector_number), align=bits // 8)
    return context.get_dummy_value()
