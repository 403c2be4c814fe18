"""Time the exact AUROC of all heads and tokens relative to a plain matrix product and to scikit-learn.

    python benchmarks/auroc.py                                 GPT-2 small's size: a few minutes on two cores
    python benchmarks/auroc.py --vocabulary 8000 --bigrams 500000 --heads 4

Everything is timed in one run. The baselines are a 2048³ float32 product on all cores, timed for a few seconds before
and after and scaled to H · V² · d' multiply-adds, and scikit-learn's `roc_auc_score` on the same scores of some query
tokens. Both sides of the product ratio are means over those seconds; the ratio to the single fastest product is printed
as well.

Three variants are timed too: with frequency-matched negatives; with matched negatives, the frequency baseline and keys
permuted for each query; and with swapped queries on top. The second is also compared with 2.3 times the product, the
time that AUROC against all keys alone once took; the limit is 1.6 times that.

Ratios are given for elapsed time, which needs an idle machine, and for CPU time, which other load disturbs less. Memory
is the sum over this process and its workers, with shared pages counted once, sampled while the AUROC is computed.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from statistics import mean
from unittest.mock import patch

import numpy as np
import psutil
from sklearn.metrics import roc_auc_score

from detoklens.kernels.ranking import AUROC
from detoklens.measures.auroc import Measures, RankingOptions, measure_heads
from detoklens.measures.positives import Positives
from detoklens.measures.ranking import scores_of
from detoklens.parallel import Runner, available_cores
from detoklens.scores.affinity import Affinity

PRODUCT_SIZE = 2048
SKEW = 0.7
"""Exponent of the Zipf-like token distribution: probability falls as rank to the power −0.7 among distinct pairs."""

BEFORE = 2.3
"""Time of AUROC against all keys alone, relative to the product, before any variant was added."""

random = np.random.default_rng(0)


def random_affinity(n_heads: int, vocab_size: int, d_head: int) -> Affinity:
    """Random query and key factors."""
    query, key = (random.standard_normal((n_heads, vocab_size, d_head), dtype=np.float32) for _ in range(2))
    return Affinity(query, key)


def zipf_like_positives(vocab_size: int, n_pairs: int) -> Positives:
    """About `n_pairs` distinct pairs of Zipf-like tokens with Zipf-like counts."""
    sizes = _zipf_like_sizes(vocab_size, n_pairs)
    keys = np.concatenate([_zipf_like_keys(vocab_size, size) for size in sizes])
    weights = random.zipf(2.0, len(keys)).clip(max=10**7)
    return Positives(np.concatenate([[0], np.cumsum(sizes)]), keys.astype(np.uint32), weights)


def _zipf_like_sizes(vocab_size: int, n_pairs: int) -> np.ndarray:
    """Number of predecessors of each token, at most half the vocabulary."""
    sizes = (1.0 + np.arange(vocab_size)) ** -SKEW
    for _ in range(50):
        sizes = np.minimum(sizes * n_pairs / sizes.sum(), vocab_size / 2)
    return sizes.round().astype(np.int64)


def _zipf_like_keys(vocab_size: int, size: int) -> np.ndarray:
    """Sorted distinct tokens, frequent ones more likely: one from each of `size` equal-probability bins."""
    shares = (np.arange(size) + random.random(size)) / max(size, 1)
    drawn = (vocab_size * shares ** (1 / (1 - SKEW))).astype(np.int64) - np.arange(size)
    return np.maximum.accumulate(drawn) + np.arange(size)


@dataclass(frozen=True)
class Cost:
    """Elapsed seconds, and CPU seconds of this process and its workers."""

    elapsed: float
    processor: float

    def __truediv__(self, other: Cost) -> tuple[float, float]:
        return self.elapsed / other.elapsed, self.processor / other.processor


@contextmanager
def measured() -> Iterator[list[Cost]]:
    cost: list[Cost] = []
    started, used = time.perf_counter(), processor_time()
    yield cost
    cost.append(Cost(time.perf_counter() - started, processor_time() - used))


def processor_time() -> float:
    """CPU seconds of this process (to the microsecond) and its workers (to the hundredth)."""
    workers = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return time.process_time() + sum(spent.user + spent.system for spent in workers)


def product_costs(seconds: float) -> list[Cost]:
    """Time square products on all cores, one after another, for this many seconds."""
    left, right = (random.standard_normal((PRODUCT_SIZE, PRODUCT_SIZE), dtype=np.float32) for _ in range(2))
    left @ right
    costs: list[Cost] = []
    while sum(cost.elapsed for cost in costs) < seconds:
        with measured() as cost:
            left @ right
        costs += cost
    return costs


def squares_in(options: argparse.Namespace) -> float:
    """The number of square products with as many operations as all scores of all heads."""
    return options.heads * options.vocabulary**2 * options.d_head / PRODUCT_SIZE**3


def scaled_mean(costs: list[Cost], times: float) -> Cost:
    return Cost(times * mean(cost.elapsed for cost in costs), times * mean(cost.processor for cost in costs))


@dataclass
class Memory:
    """Peak memory of this process and its children together, in bytes."""

    peak: int = 0
    before: int = 0
    _done: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self._done.wait(0.25):
            self.peak = max(self.peak, memory_in_use())


def memory_in_use() -> int:
    total = 0
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total


@contextmanager
def watched_memory() -> Iterator[Memory]:
    memory = Memory(before=memory_in_use())
    thread = threading.Thread(target=memory.watch, daemon=True)
    thread.start()
    yield memory
    memory._done.set()
    thread.join()


def without_exchanged_queries() -> AbstractContextManager[object]:
    """Skip the swapped-query null, leaving permuted keys as the only null."""
    return patch("detoklens.measures.auroc.next_in_circle", return_value=np.empty(0, np.int64))


def timed(
    runner: Runner, affinity: Affinity, positives: Positives, counted: bool = False, controls: bool = False
) -> tuple[Cost, Measures]:
    """Measure all query tokens and their cost; `counted` adds matched negatives, `controls` the nulls."""
    counts = np.bincount(positives.keys, positives.weights, positives.vocab_size).astype(np.int64) if counted else None
    with measured() as cost:
        tokens = np.arange(positives.vocab_size)
        measures = measure_heads(affinity, positives, tokens, counts, RankingOptions(controls=controls), runner)
    return cost[0], measures


def sklearn_on_same_scores(
    affinity: Affinity, positives: Positives, measures: Measures, n_tokens: int
) -> tuple[float, float]:
    """scikit-learn's seconds per query token and head, and the largest difference from our AUROC."""
    tokens = np.flatnonzero((positives.sizes > 0) & (positives.sizes < positives.vocab_size))
    tokens = random.choice(tokens, n_tokens, replace=False)
    first_head = affinity.of_heads([0])
    seconds, difference = 0.0, 0.0
    for token in tokens:
        scores = scores_of(first_head, token)[0]
        keys, weights = positives.of(token)
        right, weight = np.zeros(positives.vocab_size), np.ones(positives.vocab_size)
        right[keys], weight[keys] = 1, weights
        started = time.perf_counter()
        expected = roc_auc_score(right, scores, sample_weight=weight)
        seconds += time.perf_counter() - started
        difference = max(difference, abs(expected - measures.heads[0, token, AUROC]))
    return seconds / n_tokens, difference


def smaller(affinity: Affinity, positives: Positives) -> tuple[Affinity, Positives]:
    """Half the vocabulary: the first tokens and the pairs among them."""
    half = positives.vocab_size // 2
    suffix = np.repeat(np.arange(positives.vocab_size), positives.sizes)
    kept = positives.where((suffix < half) & (positives.keys < half))
    return (
        Affinity(np.ascontiguousarray(affinity.query[:, :half]), np.ascontiguousarray(affinity.key[:, :half])),
        Positives(kept.indptr[: half + 1], kept.keys, kept.weights),
    )


def run(options: argparse.Namespace) -> dict[str, float]:
    affinity = random_affinity(options.heads, options.vocabulary, options.d_head)
    positives = zipf_like_positives(options.vocabulary, options.bigrams)
    squares = product_costs(options.seconds_of_products)
    runner = Runner(options.workers)
    measure_heads(affinity.of_heads([0]), positives, np.arange(min(512, options.vocabulary)), runner=runner)  # compiles
    with watched_memory() as memory:
        cost, measures = timed(runner, affinity, positives)
    squares += product_costs(options.seconds_of_products)
    fewer_heads, _ = timed(runner, affinity.of_heads(list(range(options.heads // 2))), positives)
    fewer_tokens, _ = timed(runner, *smaller(affinity, positives))
    matched_too, _ = timed(runner, affinity, positives, counted=True)
    with without_exchanged_queries():
        with_exchanged, _ = timed(runner, affinity, positives, counted=True, controls=True)
    all_controls, _ = timed(runner, affinity, positives, counted=True, controls=True)
    product = scaled_mean(squares, squares_in(options))
    sklearn_seconds, difference = sklearn_on_same_scores(affinity, positives, measures, options.sklearn_tokens)
    each = cost.elapsed / (options.heads * options.vocabulary)
    return {
        "seconds": cost.elapsed,
        "product_seconds": product.elapsed,
        "times_the_product": (cost / product)[0],
        "times_the_product_in_processor_time": (cost / product)[1],
        "times_the_fastest_product": cost.elapsed / squares_in(options) / min(one.elapsed for one in squares),
        "cores_busy": cost.processor / cost.elapsed,
        "times_faster_than_sklearn": sklearn_seconds / each,
        "largest_difference_from_sklearn": difference,
        "peak_gigabytes": memory.peak / 1e9,
        "of_that_before_gigabytes": memory.before / 1e9,
        "with_matched_negatives_processor_time": (matched_too / cost)[1],
        "with_all_controls_processor_time": (all_controls / cost)[1],
        "with_matched_and_exchanged_keys_processor_time": (with_exchanged / cost)[1],
        "with_matched_and_exchanged_keys_times_before": (with_exchanged / product)[0] / BEFORE,
        "with_matched_and_exchanged_keys_times_before_in_processor_time": (with_exchanged / product)[1] / BEFORE,
        "twice_the_heads_processor_time": (cost / fewer_heads)[1],
        "twice_the_vocabulary_processor_time": (cost / fewer_tokens)[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--d-head", type=int, default=64)
    parser.add_argument("--bigrams", type=int, default=20_000_000)
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--sklearn-tokens", type=int, default=200)
    parser.add_argument("--seconds-of-products", type=float, default=4.0)
    print(json.dumps({name: round(value, 10) for name, value in run(parser.parse_args()).items()}, indent=2))


if __name__ == "__main__":
    main()
