"""How long does lookback take, and how much memory? Ratios to projecting the vocabulary once.

    python benchmarks/lookback.py                                  GPT-2 small's and Llama 3 8B's shape: minutes, 6 GB
    python benchmarks/lookback.py --shape gpt2 --vocabulary 8000

Weights are random; half of the vocabulary has a class, and each of those tokens has 150 distinct predecessors, about as
many as in counts of 11 million tokens. Timed: lifts of all heads with both nulls and the bootstrap, and, separately,
attention to the previous token on text; the memory is the peak of both. The baseline is x W̃ of every token for all
queries and keys, in the same run. Limits at GPT-2's shape on two cores: 60 seconds, 3 GB.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from anatomy import N_POSITIONS, SHAPES, random_layer
from auroc import measured, watched_memory
from detoklens.corpus.counts import Bigrams
from detoklens.measures.chance import draws_for
from detoklens.parallel import Runner, available_cores, thread_map
from detoklens.questions.lookback.compute import Draws, QueryTokens, lifts_of, random_alignments, text_lookback

PREDECESSORS, PLACES = 150, 8


def run(shape: str, options: argparse.Namespace) -> dict[str, float]:
    vocabulary, n_heads, key_heads, d_head = SHAPES[shape]
    if options.heads:
        n_heads, key_heads = options.heads, max(1, options.heads * key_heads // n_heads)
    learned = shape == "gpt2"
    layer = random_layer(options.vocabulary or vocabulary, n_heads, key_heads, options.d_head or d_head, learned)
    random, size = np.random.default_rng(0), layer.vocab_size
    runner = Runner(options.workers or available_cores())
    counts = (1e6 / (1 + np.arange(size))).astype(np.int64) + 20
    labels = random.choice(["C", "W", "F", ""], size, p=[0.15, 0.25, 0.1, 0.5])
    prefixes = random.integers(size, size=(size, min(PREDECESSORS, size)), dtype=np.uint32)
    starts = np.arange(size + 1, dtype=np.int64) * prefixes.shape[1]
    bigrams = Bigrams(starts, prefixes.ravel(), random.integers(1, 9, prefixes.size))
    documents = [random.integers(size, size=N_POSITIONS) for _ in range(options.documents)]
    positions = np.linspace(20, N_POSITIONS - 1, PLACES).astype(int).tolist() if learned else ()
    layer.scales.bare_tokens()
    table, projections = layer.weights.token_embeddings, [*layer.folded.query_weight, *layer.folded.key_weight]
    with measured() as projected:
        for _ in thread_map(lambda weight: (table @ weight).shape, projections, runner.workers):
            pass
    with watched_memory() as memory:
        with measured() as found:
            tokens = QueryTokens.of(labels, counts, bigrams)
            draws = Draws(tokens, draws_for(n_heads), 0)
            frequencies, heads = counts.astype(np.float64), range(n_heads)
            lifts = lifts_of(layer, tokens, frequencies, heads, runner, positions=positions, draws=draws)
            random_alignments(lifts.matrices, draws_for(n_heads), 0)
            draws.estimate(lifts.parts)
        with measured() as read:
            text_lookback(layer, documents, labels, list(range(n_heads)), None, runner)
    elapsed, processor = found[0] / projected[0]
    return {
        "seconds": found[0].elapsed,
        "processor_seconds": found[0].processor,
        "text_seconds": read[0].elapsed,
        "text_processor_seconds": read[0].processor,
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
    parser.add_argument("--documents", type=int, default=100, help="of 1,024 tokens")
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    found = {shape: run(shape, options) for shape in options.shape or SHAPES}
    print(
        json.dumps({s: {name: round(value, 4) for name, value in each.items()} for s, each in found.items()}, indent=2)
    )


if __name__ == "__main__":
    main()
