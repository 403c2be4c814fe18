"""Makes tests/data/tiny-gpt2: a GPT-2 with a 300-token vocabulary and random weights of a trained layer's kind.

    python -m tests.data.make_tiny_gpt2

It is small enough to commit and gives verify and partners something to run on where nothing else is at hand.
"""

from __future__ import annotations

from pathlib import Path

from tests.layers import random_first_layer, write_gpt2, write_tokenizer

FOLDER = Path(__file__).parent / "tiny-gpt2"
TEXT = (
    "The connection between suspicion and exception is a question of protection; "
    "nations that make mention of tradition pay attention to their position and condition. "
)


def main() -> None:
    layer = random_first_layer(n_heads=3, d_head=8, vocab_size=300, n_positions=64, dtype="float32", seed=7)
    write_gpt2(FOLDER, layer)
    write_tokenizer(FOLDER, [TEXT] * 20, vocab_size=300)


if __name__ == "__main__":
    main()
