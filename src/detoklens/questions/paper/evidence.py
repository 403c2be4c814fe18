"""The evidence that the paper's claims are judged by: a model's answers, and the paper's Table 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from detoklens.errors import CorpusError, MissingError, RangeError, TokenError
from detoklens.measures.heatmap import draw_tokens, drawn_scores, identical_tokens
from detoklens.measures.ranking import pair_ranks
from detoklens.questions.answer import Answer
from detoklens.questions.attention import Attention
from detoklens.questions.base import Question
from detoklens.questions.contributions import Contributions
from detoklens.questions.frequency import Frequency
from detoklens.questions.positions.question import Positions
from detoklens.questions.shape import Shape
from detoklens.questions.study import Study
from detoklens.questions.variance import Variance
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import softmax
from detoklens.tables.schema import HEAD, JOINED, KEY_TOKEN, QUERY_TOKEN, RANK, SCORE, Column, Schema

SAME_TOKEN, DETOKENIZING = 1, 7  # the two heads that the paper shows

PAPER_RANKS = Schema(
    "paper_ranks",
    "Ranks of the paper's Table 1",
    HEAD,
    QUERY_TOKEN,
    KEY_TOKEN,
    JOINED,
    Column("paper_rank", "rank in the paper", "Int32"),
    RANK,
    Column("difference", "rank minus paper_rank; null if the model lacks the token or head", "Int32"),
    SCORE,
)

# Table 1: (head, rank, key) by query. Where a sequence that the paper prints contradicts its key, the key counts.
TABLE_1 = {
    "yo": ((3, 1, "Tok"), (3, 2, " Tok"), (4, 6, "Tok"), (7, 1, "Tok")),
    " Korea": ((4, 1, " North"), (7, 1, " North"), (7, 2, "North"), (7, 3, " South"), (7, 4, "South")),
    " Obama": (
        (1, 3, " Barack"), (1, 8, "President"), (4, 3, " Barack"), (5, 5, " Barack"), (7, 2, " President"),
        (7, 3, " Michelle"),
    ),
    " Einstein": ((7, 1, " Albert"), (7, 2, "Albert")),
    " Jackson": (
        (7, 1, " Michael"), (7, 2, " Peter"), (7, 3, "Michael"), (7, 4, " Jesse"), (7, 5, "Peter"), (7, 6, " Janet"),
    ),
    " chloride": (
        (7, 1, " aluminum"), (7, 3, " copper"), (7, 6, " vinyl"), (7, 7, " sodium"), (7, 8, " platinum"),
        (10, 2, " potassium"), (10, 3, " sodium"),
    ),
    " century": ((3, 1, " 19"), (3, 7, " nineteenth"), (7, 1, " 21"), (7, 6, " twentieth")),
}  # fmt: skip
PAPER_TABLE = tuple((head, query, key, rank) for query, rows in TABLE_1.items() for head, rank, key in rows)

# torch.manual_seed(42); torch.randint(0, 50257, (100,)): the tokens of the authors' heatmaps
AUTHORS_SAMPLE = (
    11486, 31563, 6140, 17682, 13134, 22911, 20243, 43382, 18369, 45413, 15311, 43463, 41719, 22475, 24320, 38446,
    16968, 20582, 47240, 49338, 7686, 47136, 28857, 3697, 30919, 39757, 26019, 27807, 39021, 24161, 38411, 990, 28475,
    46682, 36568, 44593, 2841, 46086, 23416, 14331, 50170, 7618, 7880, 2603, 35445, 11354, 15730, 33050, 39118, 11726,
    10113, 16030, 6922, 11694, 25964, 49817, 40076, 29911, 32945, 28978, 41826, 6907, 279, 35317, 15807, 31380, 41936,
    32080, 49857, 32995, 35332, 36480, 15960, 24005, 3369, 10285, 30665, 2821, 23503, 38004, 19961, 18281, 43167, 45475,
    42516, 38035, 29919, 3588, 18000, 45772, 10444, 12426, 42899, 43008, 2776, 35755, 45464, 35984, 34032, 1832,
)  # fmt: skip

MISSING = {
    "counts": "it needs corpus counts: pass --counts",
    "text": "it needs text: pass --text",
    "vocabulary": "it needs a tokenizer",
    "position_table": "it needs learned position embeddings",
    "causal": "it needs causal attention",
}
KINDS = {"rotary": "rotary positions", "alibi": "ALiBi"}
ABOUT_GPT2 = "a number, head or token of GPT-2 small"
NO_BIAS = "Tᵖ is 0 without a query bias"


class Inapplicable(Exception):
    """Why a claim can't be judged on this model with these inputs."""


class Finding(NamedTuple):
    """What a model shows about a claim; `agrees` is None if the claim can't be judged."""

    found: str
    agrees: bool | None = None
    why: str = ""
    number: float | None = None


@dataclass(frozen=True)
class Claim:
    """A claim: where it is made, the rule that judges it, what the source says, the question with the evidence.

    `only` limits it to models with learned positions or to GPT-2 small; "gpt2 number" shows other models' number
    without judging it. `tokens` is what it needs of the token embeddings: nothing, norms (for σ) or directions.
    """

    where: str
    text: str
    says: str
    command: str
    judge: Callable[[Evidence], Finding]
    only: Literal["", "learned", "gpt2", "gpt2 number"] = ""
    tokens: Literal["none", "norms", "directions"] = "directions"
    number: float | None = None
    source: Literal["paper", "authors' files"] = "paper"


class Evidence:
    """The answers that claims are judged by; each question is asked when first needed."""

    def __init__(self, study: Study) -> None:
        self.study, self.layer = study, study.layer
        self._answers: dict[str, Answer] = {}

    def judge(self, claim: Claim) -> Finding:
        """What the model shows about a claim."""
        try:
            if claim.only == "gpt2" and not self.is_gpt2:
                raise Inapplicable(ABOUT_GPT2)
            if claim.only == "learned" and self.layer.positions != "learned":
                kind = KINDS[self.layer.positions]
                raise Inapplicable(f"it needs learned position embeddings, and this model has {kind}")
            found = claim.judge(self)
        except Inapplicable as reason:
            return Finding("", None, str(reason))
        is_shown_only = claim.only == "gpt2 number" and not self.is_gpt2
        return found._replace(agrees=None, why=ABOUT_GPT2) if is_shown_only else found

    def answer(self, question: Question) -> Answer:
        """An answer; inapplicable without its inputs."""
        name = repr(question)
        if name not in self._answers:
            try:
                self._answers[name] = self.study.ask(question)
            except MissingError as error:
                raise Inapplicable(MISSING[error.need]) from error
            except (CorpusError, RangeError, TokenError) as error:
                raise Inapplicable(str(error)) from error
        return self._answers[name]

    def ask(self, question: Question) -> Mapping[str, pl.DataFrame]:
        """The tables of an answer."""
        return self.answer(question).tables

    @cached_property
    def is_gpt2(self) -> bool:
        return is_gpt2_small(self.layer)

    def token(self, text: str) -> int:
        try:
            return self.layer.token_id(text)
        except TokenError as error:
            raise Inapplicable(f"the vocabulary has no token {text!r}") from error

    @cached_property
    def random_text(self) -> np.ndarray:
        """Up to 32 random tokens."""
        ids = np.random.default_rng(self.study.seed).integers(0, self.layer.vocab_size, min(32, self.layer.n_positions))
        padding = self.layer.weights.padding_token_id
        if padding is not None:
            ids[ids == padding] = (padding + 1) % self.layer.vocab_size
        return ids

    @cached_property
    def unfolded(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Attention on random text with and without the key bias, and the layer's output, by the textbook formula."""
        layer, weights, ids = self.layer, self.layer.weights, self.random_text
        if weights.norm_kind != "layer" or weights.softcap is not None or weights.window is not None:
            raise Inapplicable("checked for plain LayerNorm and softmax; detoklens verify compares with transformers")
        x = weights.token_embeddings[ids].astype(np.float64) + weights.position_embeddings[: len(ids)]
        x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + weights.norm_epsilon)
        x = x * weights.norm_gain + weights.norm_bias
        query = np.einsum("id,dhk->hik", x, weights.query_weight) + weights.query_bias[:, None]
        key, value = (
            np.repeat(np.einsum("id,dhk->hik", x, weight), weights.heads_per_key, axis=0)
            for weight in (weights.key_weight, weights.value_weight)
        )
        key_bias, value_bias = (
            np.repeat(bias, weights.heads_per_key, axis=0)[:, None] for bias in (weights.key_bias, weights.value_bias)
        )
        hidden = np.triu(np.full((len(ids), len(ids)), -np.inf), 1) if layer.is_causal else 0.0
        attention, without_bias = (
            softmax(query @ keys.transpose(0, 2, 1) * layer.attention_scale + hidden) for keys in (key + key_bias, key)
        )
        output = np.einsum("hij,hjk,hkd->id", attention, value + value_bias, weights.output_weight)
        return attention, without_bias, output + weights.output_bias

    @cached_property
    def sampled(self) -> Mapping[str, np.ndarray]:
        """Tᵉᵉ between the authors' 100 tokens if the vocabulary is GPT-2's, else between 100 random ones, by head."""
        size = min(len(AUTHORS_SAMPLE), self.layer.vocab_size)
        drawn = np.array(AUTHORS_SAMPLE) if self.is_gpt2 else draw_tokens(self.layer.vocab_size, size, self.study.seed)
        affinity = self.layer.token_affinity("mean")
        return identical_tokens(affinity, drawn, drawn_scores(affinity, drawn))

    @cached_property
    def published_scores(self) -> np.ndarray:
        """Tᵉᵉ of `iens` in head 7 with every key, with σ as the authors' code has it."""
        affinity = self.layer.token_affinity("published", heads=[DETOKENIZING])
        return affinity.scores(np.array([self.token("iens")]))[0, 0]

    def shape_from(self, place: int) -> pl.DataFrame:
        """The shape from one of the default query positions: 0, 1 and 2 are the paper's 50, 500 and 1000."""
        shape = self.ask(Shape())["shape"].sort("head")
        queries = shape["query_position"].unique().sort()
        return shape.filter(query_position=queries[min(place, len(queries) - 1)])

    def curve(self, quantity: str) -> pl.DataFrame:
        """A position term with LayerNorm, from the middle one of the default query positions."""
        rows = self.ask(Positions())["positions"].filter(quantity=quantity, layer_norm=True)
        queries = rows["query_position"].unique().sort()
        return rows.filter(query_position=queries[min(1, len(queries) - 1)])

    def agreement(self, head: int | None = None) -> dict[str, Any]:
        """Attention on text from the middle query position, in a head or in the one that positions predict worst."""
        rows = self.ask(Attention(prepend_bos=False))["attention_agreement"]
        queries = rows["query_position"].unique().sort()
        rows = rows.filter(query_position=queries[len(queries) // 2]).sort("total_variation", descending=True)
        return (rows if head is None else rows.filter(head=head)).row(0, named=True)

    def contributions(self, table: str) -> pl.DataFrame:
        """Contributions of terms on text; on GPT-2 small with end-of-text in front, as in the authors' code."""
        bos = self.is_gpt2 and self.layer.has_vocabulary and not self.study.texts.given
        return self.ask(Contributions(prepend_bos=True if bos else None))[table]

    def frequency(self) -> Answer:
        if self.study.counts is None:
            raise Inapplicable(MISSING["counts"])
        return self.answer(Frequency())

    def variances(self) -> pl.DataFrame:
        """The variance of every trained position."""
        tables = self.ask(Variance())
        return tables["position_variance"].head(tables["trained_range"]["trained"][0])

    def switch(self) -> pl.DataFrame:
        """Tᵖ at position 0, by head."""
        found = self.ask(Variance())["switch"].sort("head")
        if not found["first_without_norm"].to_numpy().any():
            raise Inapplicable(NO_BIAS)
        return found


def is_gpt2_small(layer: Layer) -> bool:
    """Whether this is the paper's model, by its sizes and, with a tokenizer, by a word of its vocabulary."""
    sizes = (layer.n_heads, layer.d_head, layer.d_model, layer.n_positions, layer.vocab_size)
    is_sized = sizes == (12, 64, 768, 1024, 50257) and layer.positions == "learned"
    return is_sized and (not layer.has_vocabulary or layer.vocabulary.encode(" sapiens") == [31841, 10465])


def paper_ranks(layer: Layer) -> pl.DataFrame | None:
    """The paper's rank and ours for every row of Table 1; None if the model has none of its tokens and heads."""
    if not layer.has_vocabulary or layer.positions != "learned":
        return None
    columns = ("head", "query_token", "key_token", "paper_rank")
    rows = pl.DataFrame(PAPER_TABLE, schema=columns, orient="row").with_row_index("row")
    pairs = [(layer.vocabulary.find_id(query), layer.vocabulary.find_id(key)) for _, query, key, _ in PAPER_TABLE]
    known = [row for row, pair in enumerate(pairs) if None not in pair and PAPER_TABLE[row][0] < layer.n_heads]
    if not known:
        return None
    queries, keys = np.array([pairs[row] for row in known], dtype=np.int64).T
    ranks, scores = pair_ranks(layer.token_affinity("mean"), queries, keys[None])
    places = 0, rows["head"].to_numpy()[known], np.arange(len(known))
    found = pl.DataFrame({"row": known, "rank": ranks[places], "score": scores[places]})
    joined = rows.join(found.cast({"row": pl.UInt32}), on="row", how="left", maintain_order="left")
    return PAPER_RANKS.conform(
        joined.with_columns(
            joined=pl.col("key_token") + pl.col("query_token"),
            difference=pl.col("rank").cast(pl.Int32) - pl.col("paper_rank"),
        )
    )
