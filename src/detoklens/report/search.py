"""The data of the page's search box: the strongest partners of every token, by plain and by centred scores.

If they don't fit the page, fewer partners are listed, then only those of the most frequent tokens (of the first ones
without counts).
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from jaxtyping import Int

from detoklens.measures.ranking import HeadScores, pair_counts, top_keys
from detoklens.measures.words import given_words, split_words, token_texts
from detoklens.parallel import thread_map
from detoklens.questions.partners import example_tokens
from detoklens.questions.study import Study
from detoklens.report.page import script_json
from detoklens.scores.affinity import Affinity
from detoklens.wording import token_shown

EXAMPLE_WORD = "connection"
TOPS = (20, 10)  # partners per head: the first number that fits
FEWEST = 100  # tokens that can be searched however full the page is
ID_TEXT = 8  # bytes of a searchable token's id as text
ROWS = 128  # query tokens scored together


def example_word(study: Study) -> tuple[str, list[int]] | None:
    """A word of two pieces and their ids; None if there is none.

    "connection", or else the word with the smallest ids: tokenizers number common pieces first.
    """
    if not study.has("vocabulary"):
        return None
    vocabulary, found = study.layer.vocabulary, dict[str, list[int]]()
    for split in split_words(vocabulary, [EXAMPLE_WORD, *(word for word in given_words(None) if " " not in word)]):
        known = len(split.token_ids) == 2 and max(split.token_ids) < study.layer.vocab_size
        if known and split.apart.isdisjoint(split.token_ids) and len(vocabulary.encode(split.word)) > 1:
            found[split.word] = list(split.token_ids)
    word = EXAMPLE_WORD if EXAMPLE_WORD in found else min(found, key=lambda each: max(found[each]), default=None)
    return None if word is None else (word, found[word])


def partner_index(study: Study, available: int, example: tuple[str, list[int]] | None = None) -> dict[str, Any]:
    """Partners by Tᵉᵉ of every token, or of as many tokens as fit into the available bytes, for page.js.

    `plain` and `centred` hold, in base64, `partners`: little-endian ids of `id_bytes` bytes, [token, head, rank], and
    with counts `seen`: one bit per partner, most significant first, set if the corpus has the pair. `tokens` are the
    texts of all tokens, None without a tokenizer; `mark` is its prefix of continuation tokens. The page first searches
    for `example`, a word with its pieces, or else an example token.
    """
    layer, counts, examples = study.layer, study.counts, example_tokens(study)
    keys, id_bytes = layer.meaningful_tokens, 2 if layer.vocab_size <= 1 << 16 else 4
    tokens = None
    if layer.has_vocabulary:
        tokens = [token_shown(text or "") for text in token_texts(layer, range(layer.vocab_size))]
    word, pieces = example or (str(examples[0]) if tokens is None else tokens[examples[0]], examples[:1])

    searched = np.arange(layer.vocab_size)
    room = available - (0 if tokens is None else len(script_json(tokens)))
    for top in (min(most, len(keys)) for most in TOPS):
        bits = 2 * layer.n_heads * top * (8 * id_bytes + (counts is not None))
        fits = max(FEWEST, int(room // (bits / 8 * 4 / 3 + ID_TEXT)))
        if fits >= layer.vocab_size:
            break
    else:
        shown_first = {*examples, *pieces}
        others = searched if counts is None else np.argsort(-counts.tokens, kind="stable")
        searched = np.unique([*shown_first, *others[: fits - len(shown_first)]])

    def view(centred: bool) -> dict[str, str | None]:
        affinity = layer.token_affinity(centred=centred)
        partners = find_partners(affinity, searched, top, study.workers, keys)
        seen = None
        if counts is not None:
            queries = np.repeat(searched, partners[0].size)
            in_corpus = pair_counts(counts, partners.ravel().astype(np.int64), queries) > 0
            seen = base64.b64encode(np.packbits(in_corpus).tobytes()).decode("ascii")
        return {"partners": base64.b64encode(partners.astype(f"<u{id_bytes}").tobytes()).decode("ascii"), "seen": seen}

    return {
        "tokens": tokens,
        "mark": layer.vocabulary.continuing_mark if tokens else "",
        "searched": searched.tolist(),
        "n_heads": layer.n_heads,
        "top": top,
        "id_bytes": id_bytes,
        "plain": view(centred=False),
        "centred": view(centred=True),
        "note": _note(study, len(searched), top),
        "example": word,
    }


def find_partners(
    affinity: Affinity,
    tokens: Int[np.ndarray, "query"],
    top: int,
    workers: int = 1,
    keys: Int[np.ndarray, "candidate"] | None = None,
) -> Int[np.ndarray, "query head rank"]:
    """The `top` keys of each query token in each head, among these keys (default: all)."""
    keys = np.arange(affinity.vocab_size) if keys is None else keys
    partners = np.empty((len(tokens), affinity.n_heads, top), np.uint32)

    def rank(head: int) -> None:
        scores = HeadScores.of(affinity.key_of(head)[keys])
        for begin in range(0, len(tokens), ROWS):
            rows = slice(begin, begin + ROWS)
            partners[rows, head] = keys[top_keys(scores.rows(affinity.query[head, tokens[rows]]), top)]

    list(thread_map(rank, range(affinity.n_heads), workers))
    return partners


def _note(study: Study, searched: int, top: int) -> str:
    layer = study.layer
    covered = f"Covers all {layer.vocab_size:,} tokens."
    if searched < layer.vocab_size:
        which = "first" if study.counts is None else "most frequent"
        covered = f"Covers the {searched:,} {which} of {layer.vocab_size:,} tokens and some examples; more do not fit."
    ranked = f"Shows the {top} keys with the largest Tᵉᵉ in each head"
    if left_out := layer.vocab_size - len(layer.meaningful_tokens):
        ranked += f", without {left_out:,} tokens that are special, untrained or in no text"
    spelling = " ␣ is a space. A word is split into the fewest tokens that spell it; the tokenizer may differ."
    return f"{covered} {ranked}.{spelling if layer.has_vocabulary else ''}"
