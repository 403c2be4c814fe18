"""Tokens that no text contains, and tokens that training barely changed."""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Bool, Float

from detoklens.scores.factors import ROWS
from detoklens.tokens import Vocabulary

NOT_IN_UTF8 = (0xC0, 0xC1, *range(0xF5, 0x100))
IMPOSSIBLE_NAME = re.compile(
    r"<unused \d+>|[<\[]\|?(?:unused|reserved)[\w-]*\|?[>\]]|" + "|".join(f"<0x{byte:02X}>" for byte in NOT_IN_UTF8),
    re.IGNORECASE,
)
FEWEST_IMPOSSIBLE = 3
WITHIN = 2.0  # times the impossible tokens' own median distance from their centre
ROUNDING = 0.02  # of the distance of trained tokens: quantisation and late drift
TRAINED_QUANTILE = 0.99  # a distance that trained tokens have, even if most tokens are untrained


def impossible_tokens(vocabulary: Vocabulary, vocab_size: int) -> Bool[np.ndarray, "token"]:
    """Whether each row of the embedding table belongs to a token that no text can contain."""
    lone = {bytes([byte]) for byte in NOT_IN_UTF8}
    impossible = np.ones(vocab_size, bool)
    for token in range(min(vocab_size, vocabulary.size)):
        raw = vocabulary.raw(token)
        is_lone = len(raw) == 1 and vocabulary.as_bytes(token) in lone
        impossible[token] = is_lone or (raw[:1] in "<[" and IMPOSSIBLE_NAME.fullmatch(raw) is not None)
    return impossible


def untrained_tokens(
    embeddings: Float[np.ndarray, "token d_model"], impossible: Bool[np.ndarray, "token"]
) -> Bool[np.ndarray, "token"]:
    """Whether each token is (almost) untrained; none if the tokens that no text contains are not distinct.

    Rows of the table without a token, bytes that UTF-8 never has, and names such as `[unused7]` are impossible in any
    text. What training does to them (nothing, decay, or one common push) it also does to every other token that it
    never met. So a token is untrained if its embedding is as near to the median of the impossible ones as they are.
    """
    found = np.zeros(len(embeddings), bool)
    if np.count_nonzero(impossible) < FEWEST_IMPOSSIBLE:
        return found
    centre = np.median(embeddings[impossible], axis=0)
    starts = range(0, len(embeddings), ROWS)
    distance = np.concatenate([np.linalg.norm(embeddings[at : at + ROWS] - centre, axis=1) for at in starts])
    trained = np.quantile(distance, TRAINED_QUANTILE)
    limit = max(WITHIN * float(np.median(distance[impossible])), ROUNDING * trained)
    return distance <= limit if limit < trained / 2 else found
