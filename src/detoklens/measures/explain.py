"""The terms behind layer 0's attention in one text: every pair of tokens, and each head's strongest links.

1. The score of a pair is the sum of its terms and the attention its softmax; `without_t` is the softmax of the sum
   without term t.
2. Links are ranked by their attention; equal attention is equal rank. A query that sees one key attends to it
   regardless of the scores, so its link is left out (unless no query of the text sees two).
3. The term that explains a link is the one whose removal lowers its attention most. Log-odds,
   s_j − log Σ_k≠j exp s_k, are compared, because they still differ where the attention rounds to 1.
4. A term's lift is what it adds to the link's scaled score beyond its mean over the visible keys. Softmax ignores a
   constant, so a term that is the same for all keys lifts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from detoklens.scores.factors import Mean
from detoklens.scores.layer import Layer, TokenIds
from detoklens.scores.softmax import seen_keys, softcapped
from detoklens.scores.terms import Terms
from detoklens.wording import head_name, listed, plural

HeadQueryKey = Float[np.ndarray, "head query key"]
ROUNDING = 1e-6  # nats; a smaller change may be float32 rounding


@dataclass(frozen=True)
class Links:
    """One head's strongest links, strongest first."""

    head: int
    query: Int[np.ndarray, "link"]
    key: Int[np.ndarray, "link"]
    rank: Int[np.ndarray, "link"]
    attention: Float[np.ndarray, "link"]
    terms: Sequence[str | None]
    """The term that explains each link; None if no removal lowers it."""
    without: Sequence[float | None]
    """The attention of each link without that term."""
    lifts: Mapping[str, Float[np.ndarray, "link"]]


@dataclass(frozen=True)
class Explanation:
    """The terms of a text in some heads, its attention, and its attention without each term."""

    heads: list[int]
    token_ids: Int[np.ndarray, "query"]
    terms: Terms
    score: HeadQueryKey
    attention: HeadQueryKey
    without: dict[str, HeadQueryKey]

    def __repr__(self) -> str:
        return (
            f"Explanation of {plural(len(self.token_ids), 'token')} in {listed([head_name(h) for h in self.heads])}: "
            f"score, attention, and attention without each of {listed(list(self.without))}, all "
            f"[head {len(self.heads)}, query {len(self.token_ids)}, key {len(self.token_ids)}]"
        )

    def links(self, top: int = 5) -> list[Links]:
        """Each head's strongest links, and the term that explains each."""
        return [self._links_of(place, top) for place in range(len(self.heads))]

    def _links_of(self, place: int, top: int) -> Links:
        seen = self.seen()
        candidates = seen & (seen.sum(axis=1) > 1)[:, None]
        query, key = np.nonzero(candidates if candidates.any() else seen)
        attention = self.attention[place][query, key]
        order = np.argsort(-attention, kind="stable")[:top]
        query, key, attention = query[order], key[order], attention[order]
        rank = 1 + np.searchsorted(-attention, -attention)
        terms = self._explaining(place, query, key)
        without = [
            None if term is None else float(self.without[term][place, i, j])
            for term, i, j in zip(terms, query, key, strict=True)
        ]
        lifts = {name: self._lifts(name, place, query, key) for name in self.without}
        return Links(self.heads[place], query, key, rank, attention, terms, without, lifts)

    def _explaining(self, place: int, query: np.ndarray, key: np.ndarray) -> list[str | None]:
        """The term whose removal lowers each link most; None if none does, e.g. with a single key."""
        names = list(self.without)
        whole = self.score[place]
        left = {name: whole - self.terms.full(name)[place] for name in names}
        explaining: list[str | None] = []
        for i, j in zip(query, key, strict=True):
            odds = {name: self._log_odds(scores[i], i, j) for name, scores in left.items()}
            least = min(names, key=odds.__getitem__)
            lowers = self._log_odds(whole[i], i, j) - odds[least] > ROUNDING
            explaining.append(least if lowers else None)
        return explaining

    def _log_odds(self, scores: Float[np.ndarray, "key"], query: int, key: int) -> float:
        """The log-odds of one key against all other visible keys, in nats; 0 for a single key."""
        seen = self._seen(query)
        scaled = softcapped(scores[seen].astype(np.float64) * self.terms.attention_scale, self.terms.softcap)
        others = np.delete(scaled, key - seen.start)
        return float(scaled[key - seen.start] - np.logaddexp.reduce(others)) if len(others) else 0.0

    def _seen(self, query: int | np.integer) -> slice:
        return seen_keys(int(query), len(self.token_ids), self.terms.is_causal, self.terms.window)

    def seen(self) -> Bool[np.ndarray, "query key"]:
        """The visible keys of each query."""
        keys = np.arange(len(self.token_ids))
        ranges = [self._seen(query) for query in keys]
        return np.stack([(keys >= seen.start) & (keys < seen.stop) for seen in ranges])

    def _lifts(self, name: str, place: int, query: np.ndarray, key: np.ndarray) -> Float[np.ndarray, "link"]:
        scores = self.terms.full(name)[place]
        means = np.array([scores[i, self._seen(i)].mean(dtype=np.float64) for i in query])
        return (scores[query, key] - means) * self.terms.attention_scale


def explain(layer: Layer, token_ids: TokenIds, heads: Sequence[int] | None = None, mean: Mean = None) -> Explanation:
    """Terms, attention and attention without each term; the terms are those of `layer.terms(ids, mean)`."""
    chosen = list(range(layer.n_heads)) if heads is None else list(heads)
    layer.check_heads(chosen)
    ids = layer.check_text(token_ids)
    whole = layer.terms(ids, mean)
    terms = replace(whole, parts={str(name): part[chosen] for name, part in whole.parts.items()})
    return Explanation(
        heads=chosen,
        token_ids=ids,
        terms=terms,
        score=terms.total(),
        attention=terms.attention(),
        without={name: terms.attention_without(name) for name in terms.parts},
    )
