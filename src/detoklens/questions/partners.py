"""Token partners: the keys with the largest Tᵉᵉ for a query token, in each head (Figure 2A, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl

from detoklens.errors import TokenError
from detoklens.figures import theme
from detoklens.figures.labels import token_name
from detoklens.figures.panels import EDGE, LABEL, chosen_heads
from detoklens.figures.spec import FigureSpec
from detoklens.measures.ranking import HeadScores, pair_counts, top_keys
from detoklens.measures.words import joined_texts, token_texts
from detoklens.parallel import Runner
from detoklens.questions.base import Frames, Question, ReportEntry, View
from detoklens.questions.options import AFFINITY, PairQuestion
from detoklens.questions.parameters import Centred, Heads, Parameter, Scale, to_cli_args
from detoklens.questions.study import Study
from detoklens.scores.affinity import Affinity
from detoklens.tables.schema import (
    BIGRAM_COUNT,
    HEAD,
    JOINED,
    KEY_TOKEN,
    KEY_TOKEN_ID,
    QUERY_TOKEN,
    QUERY_TOKEN_ID,
    RANK,
    SCORE,
    Schema,
)
from detoklens.wording import SEAM, head_name, listed, token_shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_TOKENS = ("iens", " Jackson", "yo", " Korea", " Obama", " Einstein", " chloride", " century")
EXAMPLES = len(PAPER_TOKENS)
SHORTEST_EXAMPLE = 3  # characters
PARTNERS = Schema(
    "partners",
    "Keys with the largest Tᵉᵉ by query token and head",
    HEAD,
    QUERY_TOKEN_ID,
    QUERY_TOKEN,
    RANK,
    KEY_TOKEN_ID,
    KEY_TOKEN,
    SCORE,
    JOINED,
    BIGRAM_COUNT,
)


def token_words(tokens: Sequence[str | int]) -> list[str]:
    """Format tokens as command-line arguments: texts as they are, ids with --token-id."""
    texts = [token for token in tokens if isinstance(token, str)]
    return texts + [word for token in tokens if isinstance(token, int) for word in ("--token-id", str(token))]


@dataclass(frozen=True, repr=False)
class Partners(PairQuestion):
    """List the key tokens with the highest Tᵉᵉ for a query token, per head.

    Tokens must match exactly: " Korea" with its space and "Korea" are two tokens.

    Example: detoklens partners gpt2 " Korea" --heads 7 --top 5
    """

    tokens: Annotated[
        Sequence[str | int],
        Parameter(
            'Query tokens as text, including spaces: " Korea".',
            metavar="TOKEN",
            positional=True,
            spell=token_words,
        ),
    ] = ()
    token_id: Annotated[Sequence[int], Parameter("Query token by id; repeatable.")] = ()
    heads: Heads = None
    top: Annotated[int, Parameter("Number of keys per head.", least=1)] = 10
    centred: Centred = False
    scale: Scale = "mean"

    report_section = "Token partners"
    progress_label = "ranking keys"
    uses = frozenset({"counts", "vocabulary"})
    reads_counts = True
    tables = (PARTNERS,)
    equation = AFFINITY
    figures = (
        FigureSpec(
            "partners",
            ("partners",),
            "Strongest partners",
            "The keys with the largest Tᵉᵉ for each query token, best first, in each head; ␣ is a space. The "
            "paper's Figure 2A.",
            per_head=True,
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tokens", (*self.tokens, *self.token_id))
        object.__setattr__(self, "token_id", ())

    def settings(self, study: Study) -> dict[str, Any]:
        return super().settings(study) | {"tokens": self._query_ids(study)}

    @classmethod
    def report_entries(cls, study: Study) -> Sequence[ReportEntry]:
        return [ReportEntry(cls(example_tokens(study), top=min(EXAMPLES, study.layer.vocab_size)), headline=False)]

    @classmethod
    def examples(cls) -> Sequence[Question]:
        return (cls(["ion"], top=8),)

    def cli_args(self, study: Study) -> list[str]:
        """Pass a token that looks like an option by its id."""
        named = [study.layer.token_id(token) if str(token).startswith("-") else token for token in self.tokens]
        return to_cli_args(replace(self, tokens=named))

    def ask(self, study: Study, _runner: Runner) -> Frames:
        heads, queries = study.heads(self.heads), self._query_ids(study)
        affinity = self.affinity(study, self.scale, self.centred, heads, queries)
        partners = partners_of(affinity, heads, queries, self.top, study.meaningful_tokens())
        return {"partners": describe_pairs(study, PARTNERS, partners, self.looks_ahead)}

    def summarize(self, tables: Frames) -> str:
        """The top partners of the first token, in the head with its largest score."""
        found = tables["partners"]
        first = found.filter(query_token_id=found["query_token_id"][0], rank=1).sort("score", descending=True)
        best = found.filter(query_token_id=first["query_token_id"][0], head=first["head"][0]).sort("rank").head(3)
        keys = [f"“{_shown(key, number)}”" for key, number in best.select("key_token", "key_token_id").iter_rows()]
        query = _shown(first["query_token"][0], first["query_token_id"][0])
        return f"“{query}” scores highest in {head_name(first['head'][0])}{self.options_note}, with {listed(keys)}."

    def views(self, tables: Frames) -> Sequence[View]:
        """Without ids, unless the tokens have no text."""
        frame = tables["partners"]
        if not frame["query_token"].has_nulls():
            frame = frame.drop("query_token_id", "key_token_id")
        return [View(PARTNERS.question, frame)]

    def page_views(self, tables: Frames) -> Sequence[View]:
        """The same with a mark between the two joined tokens."""
        order = ("query_token", "key_token") if self.looks_ahead else ("key_token", "query_token")
        seamed = pl.concat_str(*order, separator=SEAM).alias("joined")
        return [View(view.title, view.frame.with_columns(seamed)) for view in self.views(tables)]

    def _query_ids(self, study: Study) -> list[int]:
        if not self.tokens:
            raise TokenError('no query token was given; pass one as text, e.g. " Korea", or by its id')
        return list(dict.fromkeys(study.token_ids(self.tokens)))


def _shown(text: str | None, token_id: int) -> str:
    return f"id {token_id}" if text is None else token_shown(text)


def partners_of(
    affinity: Affinity, heads: Sequence[int], queries: Sequence[int], top: int, tokens: np.ndarray | None = None
) -> pl.DataFrame:
    """The top keys of each query token in each head, among these tokens (default: all).

    The affinity's queries are these query tokens.
    """
    tokens = np.arange(affinity.vocab_size) if tokens is None else tokens
    own_keys = affinity.own_keys or range(len(heads))
    packed = {own: HeadScores.of(affinity.shared_key[own][tokens]) for own in sorted(set(own_keys))}
    rows = [packed[own].rows(query) for own, query in zip(own_keys, affinity.query, strict=True)]
    keys = np.stack([top_keys(scores, top) for scores in rows], axis=1)
    scores = np.stack([np.take_along_axis(row, keys[:, place], 1) for place, row in enumerate(rows)], axis=1)
    query, head, rank = (axis.ravel() for axis in np.indices(keys.shape))
    return pl.DataFrame(
        {
            "head": np.asarray(heads)[head],
            "query_token_id": np.asarray(queries)[query],
            "rank": rank + 1,
            "key_token_id": tokens[keys.ravel()],
            "score": scores.ravel(),
        }
    )


def describe_pairs(study: Study, schema: Schema, pairs: pl.DataFrame, looks_ahead: bool) -> pl.DataFrame:
    """A table of pairs with their texts and, with counts, how often they occur."""
    queries, keys = pairs["query_token_id"].to_numpy(), pairs["key_token_id"].to_numpy()
    first, second = (queries, keys) if looks_ahead else (keys, queries)
    described = pairs.with_columns(
        pl.Series("query_token", token_texts(study.layer, queries), pl.String),
        pl.Series("key_token", token_texts(study.layer, keys), pl.String),
        pl.Series("joined", joined_texts(study.layer, first, second), pl.String),
    )
    if study.counts is None:
        return schema.without("count").conform(described)
    return schema.conform(described.with_columns(pl.Series("count", pair_counts(study.counts, first, second))))


def example_tokens(study: Study) -> list[int]:
    """Query tokens for reports: the paper's if the vocabulary has them all, else the most frequent continuation tokens.

    Without a tokenizer: the most frequent tokens. Without counts, the first instead of the most frequent.
    """
    candidates = study.layer.meaningful_tokens.tolist()
    if study.has("vocabulary"):
        vocabulary, known = study.layer.vocabulary, set(candidates)
        spelled = [vocabulary.tokenizer.token_to_id(text.replace(" ", "Ġ")) for text in PAPER_TOKENS]
        papers = [token for token in spelled if token is not None and token in known]
        if len(papers) == EXAMPLES:
            return papers
        pieces = [token for token in vocabulary.word_internal() if token in known]
        long = [token for token in pieces if len(vocabulary.text(token)) >= SHORTEST_EXAMPLE]
        candidates = long or pieces or candidates
    if study.counts is not None:
        seen = study.counts.tokens
        candidates.sort(key=lambda token: (-int(seen[token]), token))
    return candidates[:EXAMPLES]


LINE = 0.125  # inches
NARROWEST = 0.92  # inches for a token's name
MOST_LETTERS = 15
MOST_BLOCKS = 24  # one per head and query token, unless tokens are given


def partners(
    partners: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    top: int = 8,
    width: theme.Width = "page",
) -> Figure:
    """Write the keys with the largest Tᵉᵉ for the given query tokens, or the first few."""
    named = partners.select("query_token_id", "query_token").unique(maintain_order=True)
    shown, labels = chosen_heads(partners, heads), dict(named.iter_rows())
    few = max(1, MOST_BLOCKS // max(1, len(shown)))
    asked = list(tokens) if tokens is not None else named["query_token_id"].head(few).to_list()
    blocks = [(token, head) for token in asked for head in shown]
    rows = partners.filter(pl.col("rank") <= top).sort("rank")
    figure, places = _blank_blocks(len(blocks), len(shown), top, theme.inches(width))
    for (token, head), (left, upper) in zip(blocks, places, strict=True):
        found = rows.filter(query_token_id=token, head=head).select("key_token", "key_token_id")
        keys = [token_name(text, key, MOST_LETTERS) for text, key in found.iter_rows()]
        _write_block(figure, left, upper, f"{token_name(labels.get(token), token)}  {head_name(head)}", keys)
    return figure


def _blank_blocks(blocks: int, heads: int, lines: int, total: float) -> tuple[Figure, list[tuple[float, float]]]:
    """An empty figure and each block's upper left corner, in inches from the left and from the top."""
    columns = max(1, min(blocks, int(total / NARROWEST)))
    if columns > heads > 0:
        columns -= columns % heads  # a token's heads are on one line
    rows = -(-blocks // columns)
    tall = LABEL + lines * LINE + LABEL / 2
    figure = theme.blank_figure(total, max(1, rows) * tall)
    step = total / columns
    return figure, [(EDGE + index % columns * step, index // columns * tall) for index in range(blocks)]


def _write_block(figure: Figure, left: float, upper: float, title: str, keys: Sequence[str]) -> None:
    wide, tall = figure.get_size_inches()
    lines = [title, *(f"{rank}  {key}" for rank, key in enumerate(keys, 1))]
    for place, text in enumerate(lines if len(keys) else [title, "no data"]):
        y = 1 - (upper + 0.03 + place * LINE + (0.03 if place else 0)) / tall
        weight = "normal" if place else "bold"
        figure.text(left / wide, y, text, va="top", fontsize=theme.SMALL_SIZE, fontweight=weight)
