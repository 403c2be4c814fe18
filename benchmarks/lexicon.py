"""Time the search for the largest of V × V pairs relative to argpartition on whole rows and to a bare product.

    python benchmarks/lexicon.py                               GPT-2 small's vocabulary, two heads: about two minutes
    python benchmarks/lexicon.py --vocabulary 8000 --heads 4
    python benchmarks/lexicon.py --vocabulary 151936 --heads 1 --d-head 128 --top 1000      a head of Qwen2.5-Coder-1.5B

Everything is timed in one run. The baseline is the obvious implementation: compute whole rows of scores for 128 queries
at a time, append them to the best pairs so far, and apply numpy's argpartition; it runs on some queries and is scaled
up. The product is H · V² · d' multiply-adds at the mean speed of 2048³ float32 products on all cores, timed for a few
seconds before and after; the ratio to the single fastest one is printed too. Ratios are given for elapsed time, which
needs an idle machine, and for CPU time, which other load disturbs less. Memory is that of all processes.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from auroc import Cost, measured, product_costs, random_affinity, scaled_mean, squares_in, watched_memory
from detoklens.measures.ranking import ALONE, largest_pairs
from detoklens.parallel import Arrays, Runner, available_cores
from detoklens.scores.affinity import Affinity

ROWS = 128


def whole_rows(affinity: Affinity, top: int, n_queries: int) -> np.ndarray:
    """The largest scores of the first head's first queries, computed the obvious way."""
    best, places = np.empty(0, np.float32), np.empty(0, np.int64)
    for first in range(0, n_queries, ROWS):
        scores = affinity.query[0, first : first + ROWS] @ affinity.key[0].T
        joined = np.concatenate([best, scores.ravel()])
        all_places = np.concatenate([places, np.arange(scores.size) + first * affinity.vocab_size])
        kept = np.argpartition(-joined, top)[:top]
        best, places = joined[kept], all_places[kept]
    return np.sort(best)[::-1]


def find(affinity: Affinity, top: int, runner: Runner = ALONE) -> list[Arrays]:
    """The largest pairs of all heads."""
    tokens = np.arange(affinity.vocab_size)
    return largest_pairs(
        lambda head: (affinity.query[head], affinity.key_of(head)), affinity.n_heads, tokens, top, runner=runner
    )


def same_scores(affinity: Affinity, top: int, n_queries: int, expected: np.ndarray) -> float:
    """The largest difference between the two methods on the same queries."""
    some = Affinity(affinity.query[:1, :n_queries], affinity.key[:1])
    padded = np.full((1, affinity.vocab_size - n_queries, some.query.shape[2]), 0, np.float32)
    found = find(Affinity(np.concatenate([some.query, padded], axis=1), some.key), top)
    return float(np.abs(found[0]["score"] - expected).max())


def run(options: argparse.Namespace) -> dict[str, float]:
    affinity = random_affinity(options.heads, options.vocabulary, options.d_head)
    squares = product_costs(options.seconds_of_products)
    runner = Runner(options.workers)
    with watched_memory() as memory:
        find(affinity.of_heads([0]), 10, runner)  # compiles
        with measured() as cost:
            find(affinity, options.top, runner)
    with watched_memory() as whole_memory, measured() as rows_cost:
        expected = whole_rows(affinity, options.top, options.baseline_queries)
    squares += product_costs(options.seconds_of_products)
    times_rows = options.heads * options.vocabulary / options.baseline_queries
    baseline = Cost(rows_cost[0].elapsed * times_rows, rows_cost[0].processor * times_rows)
    product = scaled_mean(squares, squares_in(options))
    return {
        "seconds": cost[0].elapsed,
        "seconds_a_head": cost[0].elapsed / options.heads,
        "times_faster_than_whole_rows": (baseline / cost[0])[0],
        "times_faster_than_whole_rows_in_processor_time": (baseline / cost[0])[1],
        "times_the_product": (cost[0] / product)[0],
        "times_the_product_in_processor_time": (cost[0] / product)[1],
        "times_the_fastest_product": cost[0].elapsed / squares_in(options) / min(one.elapsed for one in squares),
        "cores_busy": cost[0].processor / cost[0].elapsed,
        "memory_of_search_and_workers_megabytes": (memory.peak - memory.before) / 1e6,
        "memory_of_whole_rows_megabytes": (whole_memory.peak - whole_memory.before) / 1e6,
        "a_whole_head_of_scores_megabytes": options.vocabulary**2 * 4 / 1e6,
        "largest_difference_from_whole_rows": same_scores(affinity, options.top, options.baseline_queries, expected),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--d-head", type=int, default=64)
    parser.add_argument("--top", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--baseline-queries", type=int, default=1_280)
    parser.add_argument("--seconds-of-products", type=float, default=4.0)
    print(json.dumps({name: round(value, 10) for name, value in run(parser.parse_args()).items()}, indent=2))


if __name__ == "__main__":
    main()
