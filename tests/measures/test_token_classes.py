"""Orthographic classes of tokens, by leading space or by continuation mark."""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece

from detoklens.measures.token_classes import KINDS, orthographic_classes
from detoklens.tokens import Vocabulary


def names(vocabulary: Vocabulary, size: int) -> list[str]:
    classes = orthographic_classes(vocabulary, size)
    return [f"{'continues' if each >= len(KINDS) else 'begins'} {KINDS[each % len(KINDS)]}" for each in classes]


def test_a_leading_space_begins_a_word() -> None:
    tokens = ["▁the", "▁The", "▁1", "▁", "ing", "NG", "9", ",", "▁,"]
    model = BPE({token: number for number, token in enumerate(tokens)}, [], unk_token=None)
    found = names(Vocabulary(Tokenizer(model)), 11)
    assert found[:4] == ["begins letter", "begins capital", "begins digit", "begins other"]
    assert found[4:8] == ["continues letter", "continues capital", "continues digit", "continues other"]
    assert found[8:] == ["begins other", "continues other", "continues other"]


def test_a_continuation_mark_continues_one() -> None:
    tokens = ["the", "##ing", "##9", "7", "[UNK]", "##"]
    model = WordPiece({token: number for number, token in enumerate(tokens)}, unk_token="[UNK]")
    found = names(Vocabulary(Tokenizer(model)), 6)
    assert found == [
        "begins letter",
        "continues letter",
        "continues digit",
        "begins digit",
        "begins other",
        "continues other",
    ]
