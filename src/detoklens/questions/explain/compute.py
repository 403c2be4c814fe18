"""The tables of an explanation and their display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from rich.cells import cell_len, set_cell_size

from detoklens.questions.base import View
from detoklens.scores.terms import MEANINGS
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.weights.first_layer import Positions
from detoklens.wording import head_name, term_symbol, token_shown

if TYPE_CHECKING:
    from detoklens.measures.explain import Explanation, Links


TOKEN = 12  # terminal columns of a token and its position
BAR = 4  # terminal columns of attention 1
LIFTS = 2  # largest lifts shown per link

_PAIR = (
    HEAD,
    Column("query_position", "Int32", "position of the query token, from 0"),
    Column(
        "key_position",
        "Int32",
        "position of the key token, up to the query's own or, in a bidirectional model, the last",
    ),
    Column("query_token", "Int32", "id of the query token"),
    Column("key_token", "Int32", "id of the key token"),
    Column("query_text", "String", "text of the query token"),
    Column("key_text", "String", "text of the key token"),
)


def explanation_schema(terms: Sequence[str]) -> Schema:
    """Schema of every pair of tokens, for a model with these terms."""
    return Schema(
        "explanation",
        "Terms, scores and attention of every pair of tokens",
        (
            *_PAIR,
            *(Column(term, "Float64", f"the term {term}, before the attention scale") for term in terms),
            Column("score", "Float64", "the sum of all terms", defined=True),
            Column("attention", "Float64", "softmax of score × attention scale over the visible keys", defined=True),
            *(Column(f"without_{term}", "Float64", f"attention without the term {term}") for term in terms),
        ),
    )


def links_schema(terms: Sequence[str]) -> Schema:
    """Schema of each head's strongest links, for a model with these terms."""
    return Schema(
        "links",
        "Each head's strongest links and the term that explains each",
        (
            *_PAIR,
            Column("rank", "Int32", "rank by attention within the head; equal attention, equal rank"),
            Column("attention", "Float64", "attention of the link", defined=True),
            Column("term", "String", "the term whose removal lowers the link's attention most; null if none does"),
            Column("without_term", "Float64", "the link's attention without that term"),
            *(
                Column(
                    f"lift_{term}",
                    "Float64",
                    f"scaled score that {term} adds beyond its mean over the visible keys, in nats",
                )
                for term in terms
            ),
        ),
    )


def terms_of(links: pl.DataFrame) -> list[str]:
    """The terms of an answer, in order."""
    return [name.removeprefix("lift_") for name in links.columns if name.startswith("lift_")]


def pair_table(found: Explanation, texts: Sequence[str]) -> pl.DataFrame:
    """One row per head, query and visible key."""
    names = list(found.without)
    schema = explanation_schema(names)
    query, key = np.nonzero(found.seen())
    return pl.concat(
        schema.frame(
            {
                **_pair_columns(head, query, key, found.token_ids, texts),
                **{name: found.terms.full(name)[place][query, key] for name in names},
                "score": found.score[place][query, key],
                "attention": found.attention[place][query, key],
                **{f"without_{name}": found.without[name][place][query, key] for name in names},
            }
        )
        for place, head in enumerate(found.heads)
    )


def strongest_links(found: Explanation, texts: Sequence[str], top: int) -> pl.DataFrame:
    """Each head's strongest links, and the term that explains each."""
    schema = links_schema(list(found.without))
    return pl.concat(schema.frame(_link_columns(links, found.token_ids, texts)) for links in found.links(top))


def _link_columns(links: Links, token_ids: np.ndarray, texts: Sequence[str]) -> dict[str, Any]:
    return {
        **_pair_columns(links.head, links.query, links.key, token_ids, texts),
        "rank": links.rank,
        "attention": links.attention,
        "term": pl.Series(links.terms, dtype=pl.String),
        "without_term": pl.Series(links.without, dtype=pl.Float64),
        **{f"lift_{name}": lifts for name, lifts in links.lifts.items()},
    }


def _pair_columns(
    head: int, query: np.ndarray, key: np.ndarray, token_ids: np.ndarray, texts: Sequence[str]
) -> dict[str, Any]:
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


def _positions_of(terms: Sequence[str]) -> Positions:
    """The kind of positions that has these terms."""
    if "pp" in terms:
        return "learned"
    return "rotary" if "ep" in terms or len(terms) == 1 else "alibi"


def links_view(links: pl.DataFrame) -> View:
    """One link per line of at most 80 characters."""
    terms = terms_of(links)
    shown = [_cells(link, terms) for link in links.iter_rows(named=True)]
    before = [None, *(row["head"] for row in shown)]
    rows = [
        row | {"head": "" if row["head"] == above else row["head"]} for row, above in zip(shown, before, strict=False)
    ]
    return View("each head's strongest links, by attention; lifts in nats", pl.DataFrame(rows))


def _cells(link: Mapping[str, Any], terms: Sequence[str]) -> dict[str, str]:
    without = link["without_term"]
    return {
        "head": head_name(link["head"]),
        "token": _placed(link["query_text"], link["query_position"]),
        "attends to": _placed(link["key_text"], link["key_position"]),
        "attention": f"{link['attention']:.2f} {'█' * round(link['attention'] * BAR)}".rstrip(),
        "term": link["term"] or "–",
        "without": "–" if without is None else f"{without:.2f}",
        "lifts": _lifts({name: link[f"lift_{name}"] for name in terms}),
    }


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
    meanings = MEANINGS[_positions_of(terms)]
    explained = [(links["term"] == term).sum() for term in terms]
    legend = {
        "term": terms,
        "symbol": [term_symbol(term) for term in terms],
        "reads as": [meanings[term] for term in terms],
        "explains": [f"{number} of {len(links)}" for number in explained],
    }
    return View("a link's term is the one whose removal lowers its attention most", pl.DataFrame(legend))
