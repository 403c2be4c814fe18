"""Time each pass of `layers` on a rotary model with random weights, ablating every head and MLP in turn.

    python benchmarks/layers.py                    30 blocks of width 576, 600 words, the first 8 blocks, all cores
    python benchmarks/layers.py --width 48 --heads 3 --key-heads 3 --mlp 32 --blocks 3 --up-to 2 --triples 40

The steps are those of the question: reading the first blocks from a folder, the candidates alone with the additive
control, the words after every block and, after the last one, the words with each head and each MLP ablated, which
reruns the blocks from the ablated one on. The baseline is the bare matrix products that the blocks need for this: the
number of multiply-adds at the speed of a 2048³ product on as many threads in the same run. Elapsed seconds need an idle
machine; CPU seconds less so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaModel

from detoklens import demo
from detoklens.loading import load
from detoklens.measures.twins import chains, exchanged_first, merge_splits, partner_words, word_tokens
from detoklens.model.first_blocks import one_thread_each, open_blocks
from detoklens.parallel import Runner, available_cores
from detoklens.questions.layers.compute import Measuring
from detoklens.questions.twins.compute import Words
from detoklens.weights.blocks import blocks_fingerprint

PRODUCT = 2048


def make_model(options: argparse.Namespace, folder: Path) -> None:
    """A Llama with random weights and the demo model's tokenizer."""
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=options.width,
        intermediate_size=options.mlp,
        num_hidden_layers=options.blocks,
        num_attention_heads=options.heads,
        num_key_value_heads=options.key_heads,
        bos_token_id=0,
        eos_token_id=0,
    )
    LlamaModel(config).to(torch.bfloat16).save_pretrained(folder)
    shutil.copy(demo.CHECKPOINT / "tokenizer.json", folder)


class Steps:
    """Elapsed and CPU seconds of each step."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}

    @contextmanager
    def step(self, name: str, passes: int = 1) -> Iterator[None]:
        clock, processor = time.perf_counter(), time.process_time()
        yield
        seconds, used = time.perf_counter() - clock, time.process_time() - processor
        self.found[name] = {"seconds": round(seconds, 2), "processor_seconds": round(used, 2)}
        if passes > 1:
            each = {"passes": passes, "seconds_each": round(seconds / passes, 3)}
            self.found[name] |= each | {"processor_seconds_each": round(used / passes, 3)}


def product_processor_seconds() -> float:
    """CPU seconds per multiply-add of a bare product on one thread, the fastest of four."""
    one = torch.randn(PRODUCT, PRODUCT)
    found = []
    for _ in range(4):
        begun = time.process_time()
        one @ one
        found.append(time.process_time() - begun)
    return min(found) / PRODUCT**3


def multiply_adds(options: argparse.Namespace, n_words: int) -> int:
    """Multiply-adds of the linear layers for the words and their null, with each component ablated; three tokens."""
    width, keys = options.width, options.width // options.heads * options.key_heads
    block = 2 * width * width + 2 * width * keys + 3 * width * options.mlp
    passes = sum((options.heads + 1) * (options.up_to - layer) for layer in range(options.up_to))
    return 2 * n_words * 3 * block * passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in {
        "width": 576, "heads": 9, "key-heads": 3, "mlp": 1536, "blocks": 30, "up-to": 8, "triples": 600,
        "workers": available_cores(),
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    torch.manual_seed(0)
    steps = Steps()
    with tempfile.TemporaryDirectory() as name:
        make_model(options, Path(name))
        layer = load(name)
        splits = merge_splits(layer.vocabulary)
        words = chains(splits, word_tokens(layer.vocabulary, splits), 2).sample(options.triples, 0)
        with steps.step("fingerprint of the blocks"):
            blocks_fingerprint(layer.checkpoint, options.up_to)
        with steps.step("reading the blocks"):
            blocks = open_blocks(layer.checkpoint, options.up_to, layer.n_heads)
        with one_thread_each():
            runner = Runner(options.workers)
            null, partners = exchanged_first(words.pieces, 0), partner_words(words.pieces, 0)
            with steps.step("candidates alone, additive control, words"):
                measuring = Measuring(blocks, Words(words, null, partners), np.arange(layer.vocab_size), (0,), runner)
            with steps.step("words after every block", options.up_to):
                measuring.after_every_block()
            with steps.step("words with each component ablated", options.up_to * (options.heads + 1)):
                measuring.with_each_off(options.up_to - 1)
            bare = multiply_adds(options, len(words)) * product_processor_seconds()
    off = steps.found["words with each component ablated"]["processor_seconds"]
    kinds = ("seconds", "processor_seconds")
    total = {kind: round(sum(step[kind] for step in steps.found.values()), 1) for kind in kinds}
    said = {"words": len(words), "candidates": layer.vocab_size, "workers": options.workers, "steps": steps.found}
    beside = {"bare_products_processor_seconds": round(bare, 2), "times_the_product": round(off / bare, 2)}
    print(json.dumps(said | {"total": total} | beside, indent=1))


if __name__ == "__main__":
    main()
