"""Sample documents from the trained model, starting from `<|endoftext|>`, at temperature 1.

    python training/sample.py OUT/checkpoint OUT/documents.jsonl.zst --documents 300

A document ends when the model ends it or after `--length` tokens. Beyond the context length, the model sees the last
half of its context. Documents that do not fill a context when tokenized again are dropped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import GPT2LMHeadModel
from transformers.utils.logging import disable_progress_bar

from failure import RecipeError, run_as_command
from text import Document, write_documents

BATCH = 64


@torch.no_grad()
def sample_ids(model: GPT2LMHeadModel, batch: int, length: int, generator: torch.Generator) -> Tensor:
    """Sample `batch` rows of `length` ids after `<|endoftext|>`, each from the softmax."""
    context, end = model.config.n_positions, model.config.eos_token_id
    ids = torch.full((batch, 1), end)
    unread, cache, cached = ids, None, 0
    while ids.shape[1] <= length:
        output = model(unread, past_key_values=cache, use_cache=True)
        cache, cached = output.past_key_values, cached + unread.shape[1]
        drawn = torch.multinomial(output.logits[:, -1].softmax(-1), 1, generator=generator)
        ids = torch.cat([ids, drawn], dim=1)
        unread = drawn
        if cached == context:
            unread, cache, cached = ids[:, -context // 2 :], None, 0
    return ids[:, 1:]


def finished(ids: list[int], end: int) -> list[int]:
    """The ids before the first `<|endoftext|>`."""
    return ids[: ids.index(end)] if end in ids else ids


def sample_documents(folder: Path, count: int, length: int, seed: int) -> Iterator[Document]:
    """Sample documents that fill at least one context until there are enough."""
    model = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    context, end = model.config.n_positions, model.config.eos_token_id
    if length < context:
        raise RecipeError(f"--length {length} is below the model's context of {context} tokens; pass a larger one")
    generator = torch.Generator().manual_seed(seed)
    kept = 0
    while kept < count:
        for row in sample_ids(model, BATCH, length, generator).tolist():
            text = tokenizer.decode(finished(row, end))
            long_enough = len(tokenizer.encode(text, add_special_tokens=False).ids) >= context
            if long_enough and kept < count:
                yield Document(f"sampled/{kept:04d}", text)
                kept += 1
        if kept == 0:
            raise RecipeError(f"{folder} wrote {BATCH} documents, none of {context} tokens; train it longer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="checkpoint folder written by export.py")
    parser.add_argument("out", type=Path, help="output file (.jsonl.zst)")
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--length", type=int, default=384, help="maximum number of tokens per document")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()  # loading takes no noticeable time
    chosen = sample_documents(options.checkpoint, options.documents, options.length, options.seed)
    print(f"{write_documents(options.out, chosen)} documents in {options.out}")


if __name__ == "__main__":
    run_as_command(main)
