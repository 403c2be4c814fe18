"""Which single bytes does a byte-level tokenizer lack, and which texts need one of them?

gigatoken reads no byte-level tokenizer without a token for each of the 256 bytes; SmolLM2's lacks 21. So each missing
byte gets a placeholder beyond the vocabulary. A placeholder among a text's ids says that the text holds a byte that
the tokenizer does not know: `tokenizers` leaves it out and may then join what stood beside it, so that text is its.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from jaxtyping import Int, UInt32

from detoklens.tokens.byte_text import BYTE_OF_CHARACTER


def add_placeholders(description: dict[str, Any]) -> int | None:
    """Give each missing byte an id beyond all others, in place; the first such id, None where no byte is missing."""
    model = description["model"]
    if model.get("type") != "BPE" or '"ByteLevel"' not in json.dumps(description["pre_tokenizer"]):
        return None
    vocabulary: dict[str, int] = model["vocab"]
    missing = [character for character in BYTE_OF_CHARACTER if character not in vocabulary]
    if not missing:
        return None
    first = 1 + max([*vocabulary.values(), *(token["id"] for token in description["added_tokens"])], default=-1)
    vocabulary.update({character: first + rank for rank, character in enumerate(missing)})
    return first


def texts_with(
    first: int, ids: UInt32[np.ndarray, "token_in_batch"], offsets: Int[np.ndarray, "document_and_end"]
) -> Int[np.ndarray, "document"]:
    """The numbers of the texts among whose ids is one from `first` on."""
    places = np.flatnonzero(ids >= first)
    return np.unique(np.searchsorted(offsets, places, side="right") - 1)


def replaced(
    ids: UInt32[np.ndarray, "token_in_batch"],
    offsets: Int[np.ndarray, "document_and_end"],
    texts: Int[np.ndarray, "document"],
    rows: list[UInt32[np.ndarray, "_"]],
) -> tuple[UInt32[np.ndarray, "_"], Int[np.ndarray, "document_and_end"]]:
    """The ids with those of some texts replaced by other rows, and where each text begins then."""
    parts, lengths, done = [], np.diff(offsets), 0
    for text, row in zip(texts, rows, strict=True):
        parts += [ids[done : offsets[text]], row]
        done, lengths[text] = int(offsets[text + 1]), len(row)
    return np.concatenate([*parts, ids[done:]]), np.concatenate([[0], np.cumsum(lengths)])
