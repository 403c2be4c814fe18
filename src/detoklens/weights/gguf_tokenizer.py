"""The tokenizer of a GGUF file, converted to an equivalent tokenizer.json.

`gpt2` is byte-level BPE: the file has tokens, merges and the name of a pre-tokenizer (`pre`). `llama` is SentencePiece
BPE: pieces with scores, where neighbours merge into the piece with the highest score.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from detoklens.errors import CheckpointError
from detoklens.tokens import Vocabulary
from detoklens.tokens.tokenizer_files import LARGEST_ID, library_call

CONTROL, USER_DEFINED = 3, 4  # types of tokens
MOST_TOKENS = LARGEST_ID + 1
MOST_CHARACTERS_SLICED = 200_000_000  # when searching for merges: a few seconds; Gemma's 256,000 tokens need 10 million
MOST_MERGES = 2_000_000  # about 500 MB; Gemma has 580,604
_CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def _bytes(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(digits: int) -> dict[str, Any]:
    cut = {"type": "Split", "pattern": {"Regex": _CUT % digits}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [cut, _bytes(use_regex=False)]}


WAYS_TO_CUT = {
    "gpt-2": _bytes(use_regex=True),
    "default": _bytes(use_regex=True),
    "llama-bpe": _split(digits=3),
    "llama3": _split(digits=3),
    "qwen2": _split(digits=1),
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _bytes(True)]},
}
WITHOUT_MERGES = ("llama-bpe", "llama3")  # text that is a whole token is not split by merges


def gguf_vocabulary(
    settings: Mapping[str, Any], where: str = "the GGUF file"
) -> tuple[Vocabulary | None, tuple[str, ...]]:
    """The file's tokenizer, or None with a note that says why."""

    def damaged(reason: str) -> CheckpointError:
        return CheckpointError(f"{where}: its tokenizer can't be read ({reason}); download it again")

    with library_call(damaged):
        return _vocabulary(settings)


def _vocabulary(settings: Mapping[str, Any]) -> tuple[Vocabulary | None, tuple[str, ...]]:
    kind, tokens = settings.get("tokenizer.ggml.model"), settings.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > MOST_TOKENS:
        raise ValueError(f"{len(tokens):,} tokens are more than any vocabulary in use has")
    if not isinstance(tokens, list) or len(set(tokens)) < len(tokens):
        return None, ("the GGUF file's tokens are missing or not all different: its tokenizer is not read",)
    if kind == "llama":
        return Vocabulary.from_json(json.dumps(_sentencepiece(settings, tokens))), ()
    way = settings.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or way not in WAYS_TO_CUT:
        return None, (f"the GGUF file's tokenizer ({kind!r}, cut as {way!r}) is not read",)
    return Vocabulary.from_json(json.dumps(_byte_level(settings, tokens, str(way)))), ()


def _byte_level(settings: Mapping[str, Any], tokens: list[str], way: str) -> dict[str, Any]:
    model = {
        "type": "BPE",
        "vocab": _ids(tokens),
        "merges": list(settings.get("tokenizer.ggml.merges", [])),
        "ignore_merges": way in WITHOUT_MERGES,
    }
    return {
        "version": "1.0",
        "added_tokens": _added(settings, tokens),
        "normalizer": {"type": "NFC"} if way == "qwen2" else None,
        "pre_tokenizer": WAYS_TO_CUT[way],
        "decoder": _bytes(use_regex=True),
        "model": model,
    }


def _sentencepiece(settings: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    ids, scores = _ids(tokens), settings.get("tokenizer.ggml.scores")
    unknown = settings.get("tokenizer.ggml.unknown_token_id", 0)
    prefix = [{"type": "Prepend", "prepend": "▁"}] if settings.get("tokenizer.ggml.add_space_prefix", True) else []
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    decoders = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    return {
        "version": "1.0",
        "added_tokens": _added(settings, tokens),
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, replaced]},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "vocab": ids,
            "merges": _merges(tokens, scores if scores is not None else [0.0] * len(tokens), ids),
            "unk_token": tokens[unknown] if unknown < len(tokens) else None,
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


def _merges(tokens: Sequence[str], scores: Sequence[float], ids: Mapping[str, int]) -> list[list[str]]:
    """Every merge of two pieces into a third, highest score first.

    The work grows with the square of a token's length, so overlong tokens of hostile files are refused.
    """
    if len(scores) != len(tokens):
        raise ValueError(f"there are {len(scores):,} scores for {len(tokens):,} tokens")
    if sum(len(token) ** 2 for token in tokens) > MOST_CHARACTERS_SLICED:
        raise ValueError(f"its longest token has {max(map(len, tokens)):,} characters: too many to look for merges")
    found = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                found.append((-float(score), ids[token], -cut, left, right))
        if len(found) > MOST_MERGES:
            raise ValueError(f"its tokens have more than {MOST_MERGES:,} merges")
    return [[left, right] for *_, left, right in sorted(found)]


def _ids(tokens: Sequence[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _added(settings: Mapping[str, Any], tokens: Sequence[str]) -> list[dict[str, Any]]:
    kinds = settings.get("tokenizer.ggml.token_type")
    return [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": bool(kinds[number] == CONTROL),
        }
        for number, token in enumerate(tokens)
        if kinds is not None and number < len(kinds) and kinds[number] in (CONTROL, USER_DEFINED)
    ]
