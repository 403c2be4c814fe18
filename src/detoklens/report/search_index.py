"""The strongest partners of every token, packed for the page's search box: 20 ids a head, four bytes each.

A vocabulary too large for the page is cut to its most frequent tokens (to its first ones where no corpus tells), so
that the packed index stays below 15 MB.
"""

from __future__ import annotations

import base64

import numpy as np
from jaxtyping import Int

from detoklens.engines import Engine
from detoklens.measures.pair_counts import pair_counts
from detoklens.measures.ranking import HeadScores, top_keys
from detoklens.measures.token_text import token_texts
from detoklens.questions.study import Study
from detoklens.report.content import PartnerIndex
from detoklens.scores.affinity import Affinity
from detoklens.wording import token_shown

TOP = 20
LARGEST = 15_000_000  # bytes of the packed index
ROWS = 128  # query tokens scored together
TASK_QUERIES = 4096  # query tokens of one task of a worker


def partner_index(study: Study, engine: Engine | None = None) -> PartnerIndex | None:
    """Partners by T^ee of every token, or of as many frequent ones as fit; None without a tokenizer."""
    layer = study.layer
    if not layer.has_vocabulary:
        return None
    top = min(TOP, layer.vocab_size)
    searched = _searched(study, top)
    partners = find_partners(layer.token_affinity(), searched, top, engine)
    return PartnerIndex(
        tokens=["" if text is None else token_shown(text) for text in token_texts(layer, range(layer.vocab_size))],
        searched=[int(token) for token in searched],
        n_heads=layer.n_heads,
        top=top,
        partners=base64.b64encode(partners.astype("<u4").tobytes()).decode("ascii"),
        seen=_seen(study, searched, partners),
        note=_note(len(searched), layer.vocab_size, study.counts is not None, top),
    )


def _searched(study: Study, top: int) -> Int[np.ndarray, "query"]:
    layer = study.layer
    bytes_per_token = layer.n_heads * top * (4 + 1 / 8) * 4 / 3
    room = int(LARGEST // bytes_per_token)
    if room >= layer.vocab_size:
        return np.arange(layer.vocab_size)
    if study.counts is None:
        return np.arange(room)
    return np.sort(np.argsort(-study.counts.tokens, kind="stable")[:room])


def find_partners(
    affinity: Affinity, tokens: Int[np.ndarray, "query"], top: int, engine: Engine | None = None
) -> Int[np.ndarray, "query head rank"]:
    """The `top` keys of each query in each head, computed by the engine's workers where there is one."""
    blocks = [
        (head, slice(begin, begin + TASK_QUERIES))
        for head in range(affinity.n_heads)
        for begin in range(0, len(tokens), TASK_QUERIES)
    ]
    tasks = ((affinity.query[head, tokens[block]], affinity.key[head], top) for head, block in blocks)
    found = map(best_keys, tasks) if engine is None else engine.run(best_keys, tasks, ordered=True)
    partners = np.empty((len(tokens), affinity.n_heads, top), np.uint32)
    for (head, block), keys in zip(blocks, found, strict=True):
        partners[block, head] = keys
    return partners


def best_keys(task: tuple[np.ndarray, np.ndarray, int]) -> Int[np.ndarray, "query rank"]:
    """The best keys of some queries, a few rows of scores in memory at a time."""
    queries, keys, top = task
    scores = HeadScores.of(keys)
    return np.concatenate(
        [top_keys(scores.rows(queries[place : place + ROWS]), top) for place in range(0, len(queries), ROWS)]
    )


def _seen(study: Study, searched: Int[np.ndarray, "query"], partners: Int[np.ndarray, "query head rank"]) -> str | None:
    if study.counts is None:
        return None
    queries = np.repeat(searched, partners[0].size)
    counted = pair_counts(study.counts, partners.ravel().astype(np.int64), queries)
    return base64.b64encode(np.packbits(counted > 0).tobytes()).decode("ascii")


def _note(searched: int, vocab_size: int, has_counts: bool, top: int) -> str:
    if searched == vocab_size:
        whom = f"All {vocab_size:,} tokens can be searched"
    else:
        chosen = "most frequent" if has_counts else "first"
        whom = f"The {searched:,} {chosen} of {vocab_size:,} tokens can be searched: more would not fit into the page"
    return f"{whom}; the {top} keys with the largest Tᵉᵉ in each head. ␣ is a space."
