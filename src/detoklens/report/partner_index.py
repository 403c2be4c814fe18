"""The strongest partners of every token, packed for the page's search box: 20 ids a head, four bytes each.

A vocabulary too large for the page is cut to its most frequent tokens (to its first ones where no corpus tells), so
that the packed index stays below 15 MB.
"""

from __future__ import annotations

import base64

import numpy as np
from jaxtyping import Int

from detoklens.analyses.ranking import top_keys
from detoklens.report.content import PartnerIndex
from detoklens.report.subject import Subject
from detoklens.report.wording import token_shown
from detoklens.scores.affinity import Affinity

TOP = 20
LARGEST = 15_000_000  # bytes of the packed index
BLOCK = 256  # query tokens scored together


def partner_index(subject: Subject) -> PartnerIndex | None:
    """Partners by T^ee of every token, or of as many frequent ones as fit; None without a tokenizer."""
    layer = subject.layer
    if not layer.has_vocabulary:
        return None
    top = min(TOP, layer.vocab_size)
    searched = _searched(subject, top)
    affinity = layer.token_affinity()
    partners = np.concatenate(
        [_partners(affinity, searched[begin : begin + BLOCK], top) for begin in range(0, len(searched), BLOCK)]
    )
    return PartnerIndex(
        tokens=[token_shown(layer.token(token)) for token in range(layer.vocab_size)],
        searched=[int(token) for token in searched],
        n_heads=layer.n_heads,
        top=top,
        partners=base64.b64encode(partners.astype("<u4").tobytes()).decode("ascii"),
        seen=_seen(subject, searched, partners),
        note=_note(len(searched), layer.vocab_size, subject.counts is not None, top),
    )


def _searched(subject: Subject, top: int) -> Int[np.ndarray, "query"]:
    layer = subject.layer
    bytes_per_token = layer.n_heads * top * (4 + 1 / 8) * 4 / 3
    room = int(LARGEST // bytes_per_token)
    if room >= layer.vocab_size:
        return np.arange(layer.vocab_size)
    if subject.counts is None:
        return np.arange(room)
    return np.sort(np.argsort(-subject.counts.tokens, kind="stable")[:room])


def _partners(affinity: Affinity, tokens: Int[np.ndarray, "query"], top: int) -> Int[np.ndarray, "query head rank"]:
    scores = affinity.scores(tokens)
    return np.array([[top_keys(row, top) for row in head] for head in scores]).transpose(1, 0, 2)


def _seen(
    subject: Subject, searched: Int[np.ndarray, "query"], partners: Int[np.ndarray, "query head rank"]
) -> str | None:
    if subject.counts is None:
        return None
    bits = np.zeros(partners.shape, bool)
    for row, token in enumerate(searched):
        prefixes, _ = subject.counts.bigrams.predecessors(int(token))
        bits[row] = np.isin(partners[row], prefixes)
    return base64.b64encode(np.packbits(bits.ravel()).tobytes()).decode("ascii")


def _note(searched: int, vocab_size: int, has_counts: bool, top: int) -> str:
    if searched == vocab_size:
        whom = f"All {vocab_size:,} tokens can be searched"
    else:
        chosen = "most frequent" if has_counts else "first"
        whom = f"The {searched:,} {chosen} of {vocab_size:,} tokens can be searched: more would not fit into the page"
    return f"{whom}; the {top} keys with the largest Tᵉᵉ in each head. ␣ is a space."
