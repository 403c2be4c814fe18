"""Time the steps of `twins` relative to the bare matrix products that the ranks need.

    python benchmarks/twins.py                                        GPT-2 small's size, 2,000 words, all conditions
    python benchmarks/twins.py --vocabulary 4096 --heads 4 --d-head 32 --words 1000

The model is a random GPT-2 of the given size, with random two-piece words (ranks cost the same for any weights). The
steps are the block's output for every candidate, the words' vectors in every condition (and the null's, if the
condition applies to it), their ranks at two places, and the intervals. The additive control adds up to 32 texts per
word. The products are rankings · 2 places · words · candidates · width multiply-adds at the mean speed of 2048³ float32
products on all cores, timed for a few seconds before and after. Ratios are given for elapsed time, which needs an idle
machine, and for CPU time, which other load disturbs less. Memory is that of the process, including weights. The first
words' ranks are compared with numpy's, which may differ by one where two cosines are equal up to rounding.
"""

from __future__ import annotations

import argparse
import json
from functools import partial

import numpy as np

from auroc import PRODUCT_SIZE, Cost, measured, product_costs, scaled_mean, watched_memory
from detoklens.measures.twins import (
    Candidates,
    ClosedWorld,
    control_pieces,
    exchanged_first,
    partner_words,
    rank_measures,
    standardised,
)
from detoklens.parallel import available_cores
from detoklens.scores.layer import Layer
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.first_layer import FeedForward, FirstLayer, MlpSublayer, Norm

PLACES, COMPARED = 2, 20
random = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return random.standard_normal(shape, dtype=np.float32) * np.float32(0.1)


def random_world(options: argparse.Namespace) -> ClosedWorld:
    """A random GPT-2 first block."""
    heads, d_head, width = options.heads, options.d_head, options.heads * options.d_head
    gain, no_bias = np.ones(width, np.float32), np.zeros(width, np.float32)
    sides = {f"{side}_weight": normal(width, heads, d_head) for side in ("query", "key", "value")}
    biases = {f"{side}_bias": normal(heads, d_head) for side in ("query", "key", "value")}
    layer = FirstLayer(
        token_embeddings=normal(options.vocabulary, width),
        position_embeddings=normal(16, width),
        norm_gain=gain,
        norm_bias=no_bias,
        norm_epsilon=1e-5,
        output_weight=normal(heads, d_head, width),
        output_bias=no_bias,
        attention_scale=d_head**-0.5,
        **sides,
        **biases,
    )
    mlp = FeedForward("gelu_tanh", normal(width, 4 * width), normal(4 * width), normal(4 * width, width), no_bias)
    rest = MlpSublayer(mlp, input_norm=Norm("layer", gain, no_bias, 1e-5))
    return ClosedWorld.of(Layer(Checkpoint("random", {"model_type": "gpt2"}, layer, None, None)), (0,), rest)


def largest_difference(candidates: Candidates, whole: np.ndarray, words: np.ndarray, twins: np.ndarray) -> float:
    """Largest difference of the first words' ranks from those computed with one numpy product."""
    directions = standardised(words)[:COMPARED]
    cosines = directions @ standardised(whole).T
    own = cosines[np.arange(len(directions)), twins[:COMPARED]][:, None]
    ours = candidates.ranks_by_direction(directions, twins[:COMPARED])
    return float(np.abs(ours - 1 - (cosines > own).sum(axis=1)).max())


def run(options: argparse.Namespace) -> dict[str, float]:
    squares = product_costs(options.seconds_of_products)
    with watched_memory() as memory:
        world = random_world(options)
        pieces = random.integers(1, options.vocabulary, (options.words, 2))
        twins, token_ids = random.integers(1, options.vocabulary, options.words), np.arange(options.vocabulary)
        threads = options.threads or available_cores()
        null, partners = exchanged_first(pieces, 0), partner_words(pieces, 0)
        conditions = {
            name: partial(world.vectors, texts, threads=threads) for name, texts in control_pieces(pieces, null).items()
        }
        conditions["additive"] = partial(world.additive, pieces, partners, threads=threads)
        words, nulls = (partial(world.vectors, texts, threads=threads, kept={}) for texts in (pieces, null))
        for name, look in world.ablations(range(options.heads)).items():
            conditions[name] = partial(words, look=look)
            if not name.startswith("only_"):
                conditions[f"null_{name}"] = partial(nulls, look=look)
        width = options.heads * options.d_head
        world.candidates(token_ids[:64], "block").ranks(normal(2, width), twins[:2] % 64)
        of_candidates, vectors_cost, ranks_cost = [], [], []
        ranks: dict[str, list[np.ndarray]] = {place: [] for place in world.places}
        for place in world.places:
            candidates = None  # one place's at a time
            with measured() as cost:
                candidates = world.candidates(token_ids, place, threads)
            of_candidates += cost
            for compute in conditions.values():
                with measured() as cost:
                    vectors = compute(place)
                vectors_cost += cost
                with measured() as cost:
                    ranks[place].append(candidates.ranks(vectors, twins, threads))
                ranks_cost += cost
        with measured() as of_intervals:
            for place in world.places:
                rank_measures(np.stack(ranks[place]))
    squares += product_costs(options.seconds_of_products)
    steps = {"candidates": of_candidates, "vectors": vectors_cost, "ranks": ranks_cost, "intervals": of_intervals}
    total = summed([one for costs in steps.values() for one in costs])
    operations = len(conditions) * PLACES * options.words * options.vocabulary * options.heads * options.d_head
    product = scaled_mean(squares, operations / PRODUCT_SIZE**3)
    first = world.vectors(pieces, "block")
    return {
        **{f"seconds_of_{name}": summed(costs).elapsed for name, costs in steps.items()},
        **{f"processor_seconds_of_{name}": summed(costs).processor for name, costs in steps.items()},
        "conditions": len(conditions),
        "seconds": total.elapsed,
        "seconds_of_the_product": product.elapsed,
        "times_the_product": (total / product)[0],
        "times_the_product_in_processor_time": (total / product)[1],
        "memory_megabytes": memory.peak / 1e6,
        "largest_difference_of_ranks": largest_difference(
            candidates, world.vectors(token_ids[:, None], "block"), first, twins
        ),
    }


def summed(costs: list[Cost]) -> Cost:
    return Cost(sum(cost.elapsed for cost in costs), sum(cost.processor for cost in costs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--d-head", type=int, default=64)
    parser.add_argument("--words", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seconds-of-products", type=float, default=4.0)
    print(json.dumps({name: round(value, 4) for name, value in run(parser.parse_args()).items()}, indent=2))


if __name__ == "__main__":
    main()
