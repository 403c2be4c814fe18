"""From a folder's tokenizer files to a `tokenizers.Tokenizer`.

`tokenizer.json` is read as it is. Older checkpoints have `vocab.json` and `merges.txt`: GPT-2's byte-level BPE.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from detoklens.errors import CheckpointError, first_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_OF_TEXT = "<|endoftext|>"
LARGEST_ID = 10_000_000  # the largest vocabularies in use have some 260,000 tokens


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The folder's tokenizer without padding or truncation, or None where it has none."""
    if (folder / "tokenizer.json").is_file():
        return read_tokenizer_file(folder / "tokenizer.json")
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _checked(_from_vocab_and_merges(folder), folder)
    return None


def tokenizer_from_json(text: str) -> Tokenizer:
    """A tokenizer from the text of a tokenizer.json."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(text)


def read_tokenizer_file(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json, without padding or truncation."""
    try:
        tokenizer = tokenizer_from_json(path.read_text(encoding="utf-8"))
    except OSError:
        raise
    except Exception as error:  # the library raises bare Exception for whatever it can't parse
        raise CheckpointError(
            f"{path}: not a tokenizer that can be read ({first_line(error)}); download it again"
        ) from error
    return _checked(tokenizer, path)


def _checked(tokenizer: Tokenizer, where: Path) -> Tokenizer:
    """A stranger's tokenizer made ready: with ids that lists can be as long as, and every token of a text counted."""
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest > LARGEST_ID:
        raise CheckpointError(f"{where}: token id {largest} is beyond any vocabulary in use; download it again")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _from_vocab_and_merges(folder: Path) -> Tokenizer:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    try:
        vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        tokenizer = Tokenizer(models.BPE(vocab, _read_merges(folder / "merges.txt")))
    except OSError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{folder}: vocab.json and merges.txt can't be read ({first_line(error)}); download them again"
        ) from error
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if END_OF_TEXT in vocab:
        tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return tokenizer


def _read_merges(path: Path) -> list[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    return [(left, right) for left, right in pairs]
