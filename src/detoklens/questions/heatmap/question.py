"""What does Tᵉᵉ look like for tokens drawn at random, and does a token look for itself (Figure 2B, appendix)?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import polars as pl

from detoklens.figures.spec import FigureSpec
from detoklens.measures.heatmap import draw_tokens, drawn_scores, identical_tokens
from detoklens.measures.words import token_texts
from detoklens.questions.options import AFFINITY, AtOffset
from detoklens.questions.parameters import Centred, Heads, Parameter, Scale
from detoklens.tables.schema import HEAD, KEY_TOKEN_ID, QUERY_TOKEN_ID, TOKEN, TOKEN_ID, Column, Schema
from detoklens.wording import deviations, head_name, listed, listed_some, percent, plural

if TYPE_CHECKING:
    from detoklens.parallel import Runner
    from detoklens.questions.base import ByLabel, Frames
    from detoklens.questions.study import Study


LAYER_NORM = Column("layer_norm", "Boolean", "whether scores are divided by σ of query and key, as LayerNorm does")

HEATMAP_TOKENS = Schema(
    "heatmap_tokens",
    "Which tokens were drawn?",
    (Column("place", "Int32", "row and column of the token in the heatmap, from 0"), TOKEN_ID, TOKEN),
)

HEATMAP = Schema(
    "heatmap",
    "What is Tᵉᵉ of every pair of the drawn tokens?",
    (
        HEAD,
        LAYER_NORM,
        Column("query_place", "Int32", "row of the heatmap"),
        Column("key_place", "Int32", "column of the heatmap"),
        QUERY_TOKEN_ID,
        KEY_TOKEN_ID,
        Column("score", "Float32", "Tᵉᵉ of the pair"),
    ),
)

HEATMAP_BY_HEAD = Schema(
    "heatmap_by_head",
    "How wide is Tᵉᵉ spread in each head, and does the identical token stand out?",
    (
        HEAD,
        LAYER_NORM,
        Column("minimum", "Float64", "smallest score of a drawn pair"),
        Column("maximum", "Float64", "largest score of a drawn pair"),
        Column("diagonal_mean", "Float64", "mean score of the drawn tokens with themselves"),
        Column("other_mean", "Float64", "mean score of the drawn pairs of different tokens"),
        Column("diagonal_share", "Float64", "share of drawn rows whose largest score is on the diagonal"),
        Column("self_match", "Float64", "mean over the drawn tokens of the z-score of Tᵉᵉ[i, i] in row i of all keys"),
        Column("self_first", "Float64", "share of the drawn tokens that rank first among all keys of their own row"),
        Column("self_median_rank", "Float64", "median rank of the identical token among all keys"),
        Column(
            "same_keys", "Float64", "share of Tᵉᵉ's variance along all keys that the key's mean over queries explains"
        ),
    ),
)

CLEARLY = 2.0  # standard deviations above the mean key
MOST = 0.5  # of the variance along the keys
NAMED = 6  # heads that a sentence names
ALL_EQUAL = "All keys have the same score in every head, so no token stands out."


@dataclass(frozen=True, repr=False)
class Heatmap(AtOffset):
    """Draw tokens and compare each with each by Tᵉᵉ, with LayerNorm's division by σ and without.

    Prints per head the range of the scores, how far the identical token stands out, and whether all queries prefer the
    same keys; with --out, all scores too.

    Example: detoklens heatmap gpt2 --tokens 300 --out heatmap/
    """

    tokens: Annotated[int, Parameter("How many tokens are drawn; a smaller vocabulary is taken whole.", least=2)] = 100
    heads: Heads = None
    centred: Centred = False
    scale: Scale = "mean"

    topic = "What does a token look for?"
    progress_label = "comparing tokens"
    uses = frozenset({"vocabulary", "seed", "counts"})
    tables = (HEATMAP_BY_HEAD, HEATMAP_TOKENS, HEATMAP)
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "heatmap_by_head": ("head", "layer_norm", "minimum", "maximum", "self_match", "self_first", "same_keys"),
        "heatmap": ("head", "layer_norm", "query_token_id", "key_token_id", "score"),
    }
    equation = AFFINITY
    figures = (
        FigureSpec(
            "heatmap",
            "heatmap",
            ("heatmap",),
            "Tᵉᵉ of tokens drawn at random",
            "Scores of every pair of the drawn tokens, with and without LayerNorm's division. Each panel is coloured "
            "from its own smallest to its own largest score, given above it; no LN: without the division. Where names "
            "would touch, only every second, third … token is named. A diagonal: the token looks for itself.",
            optional=("heatmap_tokens",),
            per_head=True,
        ),
    )

    @classmethod
    def examples(cls) -> Sequence[Question]:
        return (cls(tokens=60),)

    def settings(self, study: Study) -> dict[str, Any]:
        return super().settings(study) | {"tokens": min(self.tokens, study.layer.vocab_size)}

    def ask(self, study: Study, runner: Runner) -> Frames:
        """The half with LayerNorm has the σ that was asked for; the other half leaves the division out.

        Where queries and keys are normed themselves there is no other half.
        """
        layer, heads = study.layer, study.heads(self.heads)
        if self.tokens > layer.vocab_size:
            runner.say(f"all {layer.vocab_size} tokens of the vocabulary are compared; {self.tokens} were asked for")
        ids = draw_tokens(layer.vocab_size, min(self.tokens, layer.vocab_size), study.seed)
        scores, by_head = [], []
        for divided in (True,) if layer.weights.has_query_key_norms else (True, False):
            affinity = self.affinity(study, self.scale if divided else None, self.centred, heads)
            drawn = drawn_scores(affinity, ids)
            scores.append(_long(heads, divided, ids, drawn))
            columns = {"head": heads, "layer_norm": [divided] * len(heads)}
            by_head.append(HEATMAP_BY_HEAD.frame(columns | identical_tokens(affinity, ids, drawn, runner.watch)))
        tokens = {"place": np.arange(len(ids)), "token_id": ids, "token": token_texts(layer, ids)}
        return {
            "heatmap_by_head": pl.concat(by_head).sort("head", maintain_order=True),
            "heatmap_tokens": HEATMAP_TOKENS.frame(tokens),
            "heatmap": pl.concat(scores),
        }

    def summarize(self, tables: Frames) -> str:
        """Which heads look for the identical token, how clearly, and which prefer the same keys whatever the query."""
        alike = _by_self_match(tables["heatmap_by_head"])
        if alike.is_empty():
            return ALL_EQUAL
        best, drawn = alike.row(0, named=True), len(tables["heatmap_tokens"])
        same = _say_same(alike)
        return (
            f"{_say_alike(alike)}: over {plural(drawn, 'drawn token')}{self.manner} its score is on average "
            f"{deviations(best['self_match'], digits=2)} the mean of all keys, and the largest of all for "
            f"{percent(best['self_first'])} of them; {same}."
        )

    def summarize_comparison(self, by_label: ByLabel) -> str:
        alike = {label: _by_self_match(tables["heatmap_by_head"]) for label, tables in by_label.items()}
        best = {label: heads.row(0, named=True) for label, heads in alike.items() if len(heads)}
        said = [
            f"{deviations(row['self_match'], digits=2)} it in {label} ({head_name(row['head'])})"
            for label, row in best.items()
        ]
        if not said:
            return ALL_EQUAL
        whom = f"Identical tokens{self.manner} against the mean of all keys"
        return f"{whom}, in the head that looks for them most: {listed(said)}."


def _by_self_match(by_head: pl.DataFrame) -> pl.DataFrame:
    """The heads with LayerNorm, that whose tokens look most for themselves first."""
    known = by_head.filter(layer_norm=True).drop_nulls("self_match")
    return known.sort("self_match", descending=True, maintain_order=True)


def _say_alike(alike: pl.DataFrame) -> str:
    """The heads in which the identical token clearly stands out; else the one in which it does most."""
    names = [head_name(head) for head in alike.filter(alike["self_match"] >= CLEARLY)["head"]]
    if not names:
        return f"No head clearly looks for the identical token; {head_name(alike['head'][0])} does most"
    if len(names) == 1:
        return f"{names[0]} looks for the identical token"
    return f"{listed_some(names, NAMED)} look for the identical token, most of all {names[0]}"


def _say_same(by_head: pl.DataFrame) -> str:
    """The heads in which most of the variance along the keys is the same for every query."""
    ordered = by_head.sort("same_keys", descending=True, nulls_last=True, maintain_order=True)
    same = ordered.filter(ordered["same_keys"] >= MOST).select("head", "same_keys")
    if same.is_empty():
        return "no head prefers mostly the same keys whatever the query"
    names = [f"{head_name(head)} ({percent(share)})" for head, share in same.iter_rows()]
    common = "with the common share of Tᵉᵉ's variance along the keys"
    return f"the same keys whatever the query are preferred, {common}, by {listed_some(names, NAMED)}"


def _long(heads: Sequence[int], divided: bool, ids: np.ndarray, scores: np.ndarray) -> pl.DataFrame:
    """One row a score."""
    head, query, key = (axis.ravel() for axis in np.indices(scores.shape, dtype=np.int32))
    return HEATMAP.frame(
        {
            "head": np.asarray(heads)[head],
            "layer_norm": np.full(scores.size, divided),
            "query_place": query,
            "key_place": key,
            "query_token_id": ids[query],
            "key_token_id": ids[key],
            "score": scores.ravel(),
        }
    )
