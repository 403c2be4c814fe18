"""Which heads are looked at closely, and which tokens are shown as examples?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from detoklens.analyses.auroc import word_internal
from detoklens.report.subject import Subject

Tables = Mapping[str, pl.DataFrame]

PAPER_TOKENS = ("iens", " Jackson", "yo", " Korea", " Obama", " Einstein", " chloride", " century")
SHORTEST_EXAMPLE = 3


def gluing_head(tables: Tables) -> int | None:
    """The head that glues best: highest above its nulls over pieces of words, else over all tokens, else by words."""
    for name, column, descending in (
        ("auroc_pieces_controls", "above_null", True),
        ("auroc_controls", "above_null", True),
        ("words_by_head", "median_share", False),
    ):
        judged = tables[name].drop_nulls(column) if name in tables else pl.DataFrame()
        if len(judged):
            return int(judged.sort(column, descending=descending, maintain_order=True)["head"][0])
    return None


def chosen_heads(asked: Sequence[int] | None, tables: Tables) -> list[int]:
    """The heads to draw large: those asked for, else the best gluing one and the most self-matching."""
    if asked is not None:
        return list(dict.fromkeys(asked))
    cards = tables["heads"].sort("self_match", descending=True, nulls_last=True, maintain_order=True)
    best = gluing_head(tables)
    return list(dict.fromkeys([*([] if best is None else [best]), *cards["head"]]))[:2]


def example_tokens(subject: Subject, number: int) -> list[int]:
    """Query tokens to show: the paper's where the vocabulary has them, else the most frequent pieces of words."""
    vocabulary, size = subject.layer.vocabulary, subject.layer.vocab_size
    spelled = (vocabulary.tokenizer.token_to_id(text.replace(" ", "Ġ")) for text in PAPER_TOKENS)
    known = [token for token in spelled if token is not None and token < size]
    if len(known) == len(PAPER_TOKENS):
        return known[:number]
    pieces = [token for token in word_internal(vocabulary) if token < size]
    long = [token for token in pieces if len(vocabulary.text(token)) >= SHORTEST_EXAMPLE]
    return _most_frequent(subject, long or pieces or list(range(size)))[:number]


def _most_frequent(subject: Subject, tokens: list[int]) -> list[int]:
    if subject.counts is None:
        return tokens
    seen = subject.counts.tokens
    return sorted(tokens, key=lambda token: (-int(seen[token]), token))
