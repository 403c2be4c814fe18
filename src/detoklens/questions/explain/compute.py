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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int
from rich.cells import cell_len, set_cell_size

from detoklens.questions.base import View
from detoklens.scores.factors import Mean
from detoklens.scores.layer import Layer, TokenIds
from detoklens.scores.softmax import seen_keys, softcapped
from detoklens.scores.terms import MEANINGS, Terms
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.wording import head_name, listed, plural, term_symbol, token_shown

ROUNDING = 1e-6  # nats; a smaller change may be float32 rounding
TOKEN = 12  # terminal columns of a token and its position
BAR = 4  # terminal columns of attention 1
LIFTS = 2  # largest lifts shown per link
FALLS = 0.1  # by which removing a term must lower the attention of the link that a summary names

HeadQueryKey = Float[np.ndarray, "head query key"]
Places = Int[np.ndarray, "link"]


@dataclass(frozen=True)
class Explanation:
    """The terms of a text in some heads, its attention, and its attention without each term."""

    heads: list[int]
    token_ids: Int[np.ndarray, "query"]
    terms: Terms
    score: HeadQueryKey
    attention: HeadQueryKey
    without: dict[str, HeadQueryKey]
    seen: Bool[np.ndarray, "query key"]
    """The visible keys of each query."""

    def __repr__(self) -> str:
        return (
            f"Explanation of {plural(len(self.token_ids), 'token')} in {listed([head_name(h) for h in self.heads])}: "
            f"score, attention, and attention without each of {listed(list(self.without))}, all "
            f"[head {len(self.heads)}, query {len(self.token_ids)}, key {len(self.token_ids)}]"
        )

    def log_odds(self, scores: Float[np.ndarray, "query key"], query: Places, key: Places) -> Float[np.ndarray, "link"]:
        """The log-odds of one key against all other visible keys, in nats; 0 for a single key."""
        scaled = softcapped(scores[query].astype(np.float64) * self.terms.attention_scale, self.terms.softcap)
        own = scaled[np.arange(len(key)), key]
        scaled[~self.seen[query]] = -np.inf
        scaled[np.arange(len(key)), key] = -np.inf
        return np.where(self.seen[query].sum(axis=1) > 1, own - np.logaddexp.reduce(scaled, axis=1), 0.0)


def explain(layer: Layer, token_ids: TokenIds, heads: Sequence[int] | None = None, mean: Mean = None) -> Explanation:
    """Terms, attention and attention without each term; the terms are those of `layer.terms(ids, mean)`."""
    chosen = list(range(layer.n_heads)) if heads is None else list(heads)
    layer.check(heads=chosen)
    ids = layer.check_text(token_ids)
    whole = layer.terms(ids, mean)
    terms = replace(whole, parts={str(name): part[chosen] for name, part in whole.parts.items()})
    keys = np.arange(len(ids))
    ranges = [seen_keys(int(query), len(ids), terms.is_causal, terms.window) for query in keys]
    return Explanation(
        heads=chosen,
        token_ids=ids,
        terms=terms,
        score=terms.total(),
        attention=terms.attention(),
        without={name: terms.attention_without(name) for name in terms.parts},
        seen=np.stack([(keys >= seen.start) & (keys < seen.stop) for seen in ranges]),
    )


_PAIR = (
    HEAD,
    Column("query_position", "position of the query token, from 0", "Int32"),
    Column(
        "key_position",
        "position of the key token, up to the query's own or, in a bidirectional model, the last",
        "Int32",
    ),
    Column("query_token", "id of the query token", "Int32"),
    Column("key_token", "id of the key token", "Int32"),
    Column("query_text", "text of the query token", "String"),
    Column("key_text", "text of the key token", "String"),
)


def explanation_schema(terms: Sequence[str]) -> Schema:
    """Schema of every pair of tokens, for a model with these terms."""
    return Schema(
        "explanation",
        "Terms, scores and attention of every pair of tokens",
        *_PAIR,
        Column("special", "whether the query or the key is a special token, such as [CLS]", "Boolean"),
        *(Column(term, f"the term {term}, before the attention scale") for term in terms),
        Column("score", "the sum of all terms", defined=True),
        Column("attention", "softmax of score × attention scale over the visible keys", defined=True),
        *(Column(f"without_{term}", f"attention without the term {term}") for term in terms),
    )


def links_schema(terms: Sequence[str]) -> Schema:
    """Schema of each head's strongest links, for a model with these terms."""
    return Schema(
        "links",
        "Each head's strongest links and the term that explains each",
        *_PAIR,
        Column("rank", "rank by attention within the head; equal attention, equal rank", "Int32"),
        Column("attention", "attention of the link", defined=True),
        Column("term", "the term whose removal lowers the link's attention most; null if none does", "String"),
        Column("without_term", "the link's attention without that term"),
        *(
            Column(f"lift_{term}", f"scaled score that {term} adds beyond its mean over the visible keys, in nats")
            for term in terms
        ),
    )


def terms_of(links: pl.DataFrame) -> list[str]:
    """The terms of an answer, in order."""
    return [name.removeprefix("lift_") for name in links.columns if name.startswith("lift_")]


def pair_table(found: Explanation, texts: Sequence[str], special: Collection[int] = ()) -> pl.DataFrame:
    """One row per head, query and visible key; `special` are ids of tokens."""
    names = list(found.without)
    schema = explanation_schema(names)
    query, key = np.nonzero(found.seen)
    is_special = np.isin(found.token_ids, list(special))
    return pl.concat(
        schema.frame(
            {
                **_pair_columns(head, query, key, found.token_ids, texts),
                "special": is_special[query] | is_special[key],
                **{name: found.terms.full(name)[place][query, key] for name in names},
                "score": found.score[place][query, key],
                "attention": found.attention[place][query, key],
                **{f"without_{name}": found.without[name][place][query, key] for name in names},
            }
        )
        for place, head in enumerate(found.heads)
    )


def strongest_links(found: Explanation, texts: Sequence[str], top: int) -> pl.DataFrame:
    """Each head's strongest links, and the term that explains each: null if no removal lowers it."""
    names, frames = list(found.without), []
    several = found.seen & (found.seen.sum(axis=1) > 1)[:, None]
    candidates = np.nonzero(several if several.any() else found.seen)
    for place, head in enumerate(found.heads):
        order = np.argsort(-found.attention[place][candidates], kind="stable")[:top]
        query, key = (each[order] for each in candidates)
        attention, score = found.attention[place][query, key], found.score[place]
        terms = [found.terms.full(name)[place] for name in names]
        odds = np.stack([found.log_odds(score - term, query, key) for term in terms])
        is_lower = found.log_odds(score, query, key) - odds.min(axis=0) > ROUNDING
        without = np.stack([found.without[name][place][query, key] for name in names])
        means = [np.mean(term[query], axis=1, where=found.seen[query], dtype=np.float64) for term in terms]
        lifts = (np.stack([term[query, key] for term in terms]) - means) * found.terms.attention_scale
        explaining = odds.argmin(axis=0)
        columns = {
            "rank": 1 + np.searchsorted(-attention, -attention),
            "attention": attention,
            "term": pl.Series(
                [names[each] if lower else None for each, lower in zip(explaining, is_lower, strict=True)],
                dtype=pl.String,
            ),
            "without_term": np.where(is_lower, without[explaining, np.arange(len(query))], np.nan),
            **{f"lift_{name}": each for name, each in zip(names, lifts, strict=True)},
        }
        frames.append(links_schema(names).frame(_pair_columns(head, query, key, found.token_ids, texts) | columns))
    return pl.concat(frames)


def _pair_columns(head: int, query: Places, key: Places, token_ids: np.ndarray, texts: Sequence[str]) -> dict[str, Any]:
    named = pl.Series(texts, dtype=pl.String)
    return {
        "head": np.full(len(query), head),
        "query_position": query,
        "key_position": key,
        "query_token": token_ids[query],
        "key_token": token_ids[key],
        "query_text": named.gather(query),
        "key_text": named.gather(key),
    }


def summarize_links(pairs: pl.DataFrame, links: pl.DataFrame) -> str:
    """The strongest link that depends on one term, special tokens aside, and how many links each term explains."""
    counted = links["term"].drop_nulls().value_counts(sort=True).sort("count", "term", descending=[True, False])
    shares = [f"{term_symbol(term)} {number}" for term, number in counted.iter_rows()]
    explained = (
        f" Of the {plural(len(links), 'strongest link')}, each term explains: {listed(shares)}." if shares else ""
    )
    several = pairs.filter(pl.len().over("head", "query_position") > 1)
    among = pairs if several.is_empty() else several
    ordinary = among.filter(~pl.col("special"))
    if ordinary.is_empty():
        return f"Every link is from or to a special token.{explained}"
    without = [f"without_{term}" for term in terms_of(links)]
    falling = ordinary.filter(pl.col("attention") - pl.min_horizontal(without) >= FALLS)
    candidates = ordinary if falling.is_empty() else falling
    link = candidates.sort("attention", descending=True, maintain_order=True).row(0, named=True)
    stronger = among.filter(pl.col("attention") > link["attention"])
    tied = len(candidates.filter(attention=link["attention"]))
    which = " between ordinary tokens" if stronger["special"].any() else ""
    which += f" that depend{'s' * (tied == 1)} on one term" if not stronger["special"].all() else ""
    query, key = (f"“{token_shown(link[name])}”" for name in ("query_text", "key_text"))
    first, size = f"{query} to {key} in {head_name(link['head'])}", f"{link['attention']:.2f}"
    lead = f"The strongest link{which} is {first} (attention {size})"
    if tied > 1:
        lead = f"{plural(tied, 'link')}{which} share the largest attention ({size}); the first is {first}"
    if falling.is_empty():
        return f"{lead}; removing any one term lowers it by less than {FALLS}."
    removed = min(without, key=lambda name: float(link[name]))
    term = term_symbol(removed.removeprefix("without_"))
    return f"{lead}, explained by {term}: attention falls to {link[removed]:.2f} without it.{explained}"


def links_view(links: pl.DataFrame) -> View:
    """One link per line of at most 80 characters."""
    terms, rows, above = terms_of(links), [], None
    for link in links.iter_rows(named=True):
        without = link["without_term"]
        rows.append(
            {
                "head": "" if link["head"] == above else head_name(link["head"]),
                "token": _placed(link["query_text"], link["query_position"]),
                "attends to": _placed(link["key_text"], link["key_position"]),
                "attention": f"{link['attention']:.2f} {'█' * round(link['attention'] * BAR)}".rstrip(),
                "term": link["term"] or "–",
                "without": "–" if without is None else f"{without:.2f}",
                "lifts": _lifts({name: link[f"lift_{name}"] for name in terms}),
            }
        )
        above = link["head"]
    return View("each head's strongest links, by attention; lifts in nats", pl.DataFrame(rows))


def _placed(text: str, position: int) -> str:
    """A token, escaped and truncated, and its position."""
    width, shown = TOKEN - 1 - len(str(position)), token_shown(text) or '""'
    short = shown if cell_len(shown) <= width else set_cell_size(shown, width - 1).rstrip() + "…"
    return f"{short} {position}"


def _lifts(lifts: Mapping[str, float]) -> str:
    """The largest lifts, up or down."""
    largest = sorted(lifts, key=lambda name: -abs(lifts[name]))[:LIFTS]
    shown = [f"{name} {lifts[name]:+.{1 if abs(lifts[name]) < 99.95 else 0}f}" for name in largest]
    return " ".join(shown).replace("-", "−")


def legend_view(links: pl.DataFrame) -> View:
    """What the terms mean and how many links each explains."""
    terms = terms_of(links)
    meanings = min((each for each in MEANINGS.values() if each.keys() >= set(terms)), key=len)  # the kind of positions
    explained = [(links["term"] == term).sum() for term in terms]
    legend = {
        "term": terms,
        "symbol": [term_symbol(term) for term in terms],
        "reads as": [meanings[term] for term in terms],
        "explains": [f"{number} of {len(links)}" for number in explained],
    }
    return View("a link's term is the one whose removal lowers its attention most", pl.DataFrame(legend))
