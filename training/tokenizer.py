"""Train a byte-level BPE tokenizer with GPT-2's pre-tokenization.

python training/tokenizer.py TEXT OUT/tokenizer.json --vocabulary 4096 --sources gutenberg inaugural
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from failure import RecipeError, run_as_command
from text import add_sources_option, training_documents
from writing import whole_file

END_OF_TEXT = "<|endoftext|>"
SMALLEST = len(pre_tokenizers.ByteLevel.alphabet()) + 2  # all bytes, the end-of-text token and one merge
LARGEST = 1 << 16  # ids are stored as uint16


def learn(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Train the tokenizer: merge the most frequent pairs greedily, never across GPT-2's pre-tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[END_OF_TEXT],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() < vocabulary:
        raise RecipeError(
            f"the text is too small to train on: it gives {tokenizer.get_vocab_size()} of the {vocabulary} "
            "tokens requested; pass more text or a smaller --vocabulary"
        )
    return tokenizer


def save(tokenizer: Tokenizer, path: Path) -> None:
    """Write the tokenizer file atomically."""
    with whole_file(path) as part:
        tokenizer.save(str(part), pretty=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("text", type=Path, help="text folder")
    parser.add_argument("out", type=Path, help="output file (tokenizer.json)")
    parser.add_argument("--vocabulary", type=int, default=4096, help="vocabulary size")
    add_sources_option(parser)
    options = parser.parse_args()
    if not SMALLEST <= options.vocabulary <= LARGEST:
        raise RecipeError(f"--vocabulary {options.vocabulary} is out of range; pass {SMALLEST} to {LARGEST}")
    texts = (document.text for document in training_documents(options.text, options.sources))
    save(learn(texts, options.vocabulary), options.out)
    print(f"{options.vocabulary} tokens in {options.out}")


if __name__ == "__main__":
    run_as_command(main)
