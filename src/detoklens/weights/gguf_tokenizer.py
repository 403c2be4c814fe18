"""The tokenizer of a GGUF file, converted to an equivalent tokenizer.json.

`gpt2` is byte-level BPE: the file has tokens, merges and the name of a pre-tokenizer (`pre`). `llama` is SentencePiece
BPE: pieces with scores, where neighbours merge into the piece with the highest score.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from detoklens.errors import CheckpointError, shown
from detoklens.tokens import Vocabulary
from detoklens.tokens.tokenizer_files import LARGEST_ID, library_call

CONTROL, USER_DEFINED = 3, 4  # types of tokens
MOST_TOKENS = LARGEST_ID + 1
MOST_CHARACTERS_SLICED = 200_000_000  # when searching for merges: a few seconds; Gemma's 256,000 tokens need 10 million
MOST_MERGES = 2_000_000  # about 500 MB; Gemma has 580,604
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CUT = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BY_CASE = (  # a word is capitals, then small letters; %s: what may follow it
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s"
    r"|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
)
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def _bytes(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _cut(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _digits(individual: bool) -> dict[str, Any]:
    return {"type": "Digits", "individual_digits": individual}


@dataclass(frozen=True)
class PreTokenizer:
    """How text is cut before merges, as the tokenizer.json of the models with this `pre` says."""

    steps: dict[str, Any]
    is_composed: bool = False  # text is in Unicode's form C
    keeps_whole_tokens: bool = False  # text that is a whole token is not split by merges


_GPT2 = PreTokenizer(_bytes(use_regex=True))
_NEOX = replace(_GPT2, is_composed=True)
_LLAMA3 = PreTokenizer(_sequence(_cut(_CUT % 3), _bytes(use_regex=False)), keeps_whole_tokens=True)
_DIGITS = PreTokenizer(_sequence(_digits(individual=True), _bytes(use_regex=True)))
PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "mpt": _NEOX,
    "olmo": _NEOX,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "dbrx": replace(_LLAMA3, keeps_whole_tokens=False),  # OLMo 2 and Phi-4, too
    "qwen2": PreTokenizer(_sequence(_cut(_CUT % 1), _bytes(use_regex=False)), is_composed=True),
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "falcon": PreTokenizer(
        _sequence(
            {"type": "Punctuation", "behavior": "Contiguous"},
            _bytes(use_regex=True),
            _digits(individual=False),
            _cut("[0-9][0-9][0-9]"),
        )
    ),
    "bloom": PreTokenizer(_sequence(_cut(_BLOOM), _bytes(use_regex=False))),
    "gpt-4o": PreTokenizer(
        _sequence(_cut(_BY_CASE % (f"{_CONTRACTIONS}?", f"{_CONTRACTIONS}?", r"\p{N}{1,3}")), _bytes(use_regex=False))
    ),
    "tekken": PreTokenizer(
        _sequence(_cut(_BY_CASE % ("", "", r"\p{N}")), _bytes(use_regex=False)), keeps_whole_tokens=True
    ),
}
"""The pre-tokenizers that are read, by `tokenizer.ggml.pre`."""
UNNAMED = (None, "default")
CUT_AS_GPT2 = ("gpt2", "gptneox", "phi2", "mpt")  # architectures whose files may leave the pre-tokenizer unnamed


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
        raise ValueError(f"{len(tokens):,} tokens are more than any supported vocabulary has")
    if not isinstance(tokens, list) or len(set(tokens)) < len(tokens):
        return None, ("the GGUF file's tokens are missing or not all different: its tokenizer is not read",)
    if kind == "llama":
        return Vocabulary.from_json(json.dumps(_sentencepiece(settings, tokens))), ()
    pre, architecture = settings.get("tokenizer.ggml.pre"), settings.get("general.architecture")
    if pre in UNNAMED and architecture in CUT_AS_GPT2:
        pre = "gpt-2"
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        what = f"tokenizer {shown(kind)}" if kind != "gpt2" else f"pre-tokenizer {shown(pre or 'default')}"
        return None, (f"the GGUF file's {what} is not read; pass the model's tokenizer.json as tokenizer",)
    return Vocabulary.from_json(json.dumps(_byte_level(settings, tokens, PRE_TOKENIZERS[pre]))), ()


def _byte_level(settings: Mapping[str, Any], tokens: list[str], pre: PreTokenizer) -> dict[str, Any]:
    model = {
        "type": "BPE",
        "vocab": _ids(tokens),
        "merges": list(settings.get("tokenizer.ggml.merges", [])),
        "ignore_merges": pre.keeps_whole_tokens,
    }
    return {
        "version": "1.0",
        "added_tokens": _added(settings, tokens),
        "normalizer": {"type": "NFC"} if pre.is_composed else None,
        "pre_tokenizer": pre.steps,
        "decoder": _bytes(use_regex=True),
        "model": model,
    }


def _sentencepiece(settings: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    ids, scores = _ids(tokens), settings.get("tokenizer.ggml.scores")
    unknown = settings.get("tokenizer.ggml.unknown_token_id", 0)
    has_prefix = settings.get("tokenizer.ggml.add_space_prefix", True)
    prefix = [{"type": "Prepend", "prepend": "▁"}] * has_prefix
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    decoders = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        *[{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * has_prefix,
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
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
            "special": bool(kinds[number] == CONTROL),
        }
        for number, token in enumerate(tokens)
        if kinds is not None and number < len(kinds) and kinds[number] in (CONTROL, USER_DEFINED)
    ]
