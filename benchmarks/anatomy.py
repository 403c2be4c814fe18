"""How long does the anatomy of all heads take? Ratios to projecting the vocabulary once.

    python benchmarks/anatomy.py                                   GPT-2 small's and Llama 3 8B's shape: minutes, 5 GB
    python benchmarks/anatomy.py --shape gpt2 --vocabulary 8000

Weights are random. The baseline, timed in the same run on the same number of threads, is x W̃ of every token for the
queries of every head and for all keys. Ratios are of elapsed time, which needs a quiet machine, and of processor time,
which a busy one disturbs less. Limit: 3 times the projection.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from auroc import measured, watched_memory
from detoklens.parallel import Runner, available_cores, thread_map
from detoklens.questions.anatomy.compute import anatomies
from detoklens.scores.layer import Layer
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.first_layer import FirstLayer

SHAPES = {"gpt2": (50_257, 12, 12, 64), "llama": (128_256, 32, 8, 128)}  # vocabulary, heads, key heads, d_head
N_POSITIONS, N_OFFSETS = 1024, 32


def random_layer(vocabulary: int, n_heads: int, key_heads: int, d_head: int, learned: bool) -> Layer:
    random, d_model = np.random.default_rng(0), n_heads * d_head

    def draw(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    weights = FirstLayer(
        token_embeddings=draw(vocabulary, d_model),
        position_embeddings=draw(N_POSITIONS if learned else 0, d_model),
        norm_gain=draw(d_model),
        norm_bias=draw(d_model),
        norm_epsilon=1e-5,
        query_weight=draw(d_model, n_heads, d_head),
        query_bias=draw(n_heads, d_head),
        key_weight=draw(d_model, key_heads, d_head),
        key_bias=draw(key_heads, d_head),
        value_weight=draw(d_model, key_heads, d_head),
        value_bias=draw(key_heads, d_head),
        output_weight=draw(n_heads, d_head, d_model),
        output_bias=draw(d_model),
        attention_scale=d_head**-0.5,
        rotary_frequencies=None if learned else 1e4 ** -(np.arange(d_head // 2) / (d_head // 2)),
        longest_text=N_POSITIONS,
    )
    return Layer(Checkpoint("random", {}, weights, None, None))


def run(shape: str, options: argparse.Namespace) -> dict[str, float]:
    vocabulary, n_heads, key_heads, d_head = SHAPES[shape]
    if options.heads:
        n_heads, key_heads = options.heads, max(1, options.heads * key_heads // n_heads)
    layer = random_layer(
        options.vocabulary or vocabulary, n_heads, key_heads, options.d_head or d_head, shape == "gpt2"
    )
    runner = Runner(options.workers or available_cores())
    weights = np.full(layer.vocab_size, 1 / layer.vocab_size)
    position = N_POSITIONS // 2 if shape == "gpt2" else None
    projections = [*layer.folded.query_weight, *layer.folded.key_weight]
    layer.scales.bare_tokens()
    table = layer.weights.token_embeddings
    with measured() as projected:
        for _ in thread_map(lambda weight: (table @ weight).shape, projections, runner.workers):
            pass
    with watched_memory() as memory, measured() as found:
        anatomies(layer, range(n_heads), weights, N_OFFSETS, position, runner)
    elapsed, processor = found[0] / projected[0]
    return {
        "seconds": found[0].elapsed,
        "processor_seconds": found[0].processor,
        "times_the_projection": elapsed,
        "times_the_projection_in_processor_time": processor,
        "memory_megabytes": (memory.peak - memory.before) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--vocabulary", type=int)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--d-head", type=int)
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    found = {shape: run(shape, options) for shape in options.shape or SHAPES}
    print(
        json.dumps({s: {name: round(value, 4) for name, value in each.items()} for s, each in found.items()}, indent=2)
    )


if __name__ == "__main__":
    main()
