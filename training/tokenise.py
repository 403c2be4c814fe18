"""Tokenize all documents into one stream of token ids, with `<|endoftext|>` after each.

    python training/tokenise.py TEXT OUT --sources gutenberg inaugural

needs OUT/tokenizer.json and writes OUT/train.bin, OUT/heldout.bin (uint16) and OUT/stream.json.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from failure import RecipeError, run_as_command
from text import Document, add_sources_option, documents
from tokenizer import END_OF_TEXT
from writing import whole_file

BATCH = 512  # documents, about 4 MB of text
STREAMS = ("train", "heldout")


def write_streams(chosen: Iterator[Document], tokenizer: Tokenizer, out: Path) -> dict[str, int]:
    """Write OUT/train.bin and OUT/heldout.bin; return the number of documents and tokens of each."""
    sizes = {f"{stream}_{unit}": 0 for stream in STREAMS for unit in ("documents", "tokens")}
    with contextlib.ExitStack() as opened:
        parts = {stream: opened.enter_context(whole_file(out / f"{stream}.bin")) for stream in STREAMS}
        files = {stream: opened.enter_context(part.open("wb")) for stream, part in parts.items()}
        for document, ids in _tokenised(chosen, tokenizer):
            stream = "heldout" if document.held_out else "train"
            ids.tofile(files[stream])
            sizes[f"{stream}_documents"] += 1
            sizes[f"{stream}_tokens"] += len(ids)
    return sizes


def _tokenised(chosen: Iterator[Document], tokenizer: Tokenizer) -> Iterator[tuple[Document, np.ndarray]]:
    end = tokenizer.token_to_id(END_OF_TEXT)
    while batch := list(itertools.islice(chosen, BATCH)):
        encoded = tokenizer.encode_batch_fast([document.text for document in batch], add_special_tokens=False)
        for document, encoding in zip(batch, encoded, strict=True):
            yield document, np.array([*encoding.ids, end], dtype=np.uint16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("text", type=Path, help="text folder")
    parser.add_argument("out", type=Path, help="output folder, which must contain tokenizer.json")
    add_sources_option(parser)
    options = parser.parse_args()
    path = options.out / "tokenizer.json"
    if not path.is_file():
        raise RecipeError(f"{path} is missing; run tokenizer.py first")
    tokenizer = Tokenizer.from_file(str(path))
    sizes = write_streams(documents(options.text, options.sources), tokenizer, options.out)
    digest = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
    summary = json.dumps({"vocabulary": tokenizer.get_vocab_size(), "tokenizer": digest, **sizes}, indent=1)
    with whole_file(options.out / "stream.json") as part:
        part.write_text(summary + "\n", encoding="utf-8")
    print(summary)


if __name__ == "__main__":
    run_as_command(main)
