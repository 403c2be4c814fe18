"""What has to be computed for a report? Each step asks one analysis and gives its tables; later ones see earlier ones.

A step names what it can't do without: `vocabulary`, `counts` or `text`. Where that is missing the step is left out, and
the page says so under its question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import polars as pl

from detoklens.report import asking
from detoklens.report.subject import Subject
from detoklens.tables import (
    attention,
    auroc,
    contributions,
    frequency,
    heads,
    heatmap,
    lexicon,
    partners,
    positions,
    words,
)
from detoklens.tables import shape as shapes
from detoklens.tables import variance as variances
from detoklens.tables.schema import Schema

AUROC_PIECES_BY_HEAD = Schema(
    "auroc_pieces_by_head",
    "Which heads detokenize, asked from tokens that go on with a word only?",
    auroc.AUROC_BY_HEAD.columns,
)
AUROC_PIECES_CONTROLS = Schema(
    "auroc_pieces_controls",
    "How much of that AUROC remains when the query, or the key, is exchanged, or frequency alone ranks the keys?",
    auroc.AUROC_CONTROLS.columns,
)


@dataclass(frozen=True)
class Step:
    """One analysis of a report: what it makes, what it needs, what decides its numbers, and how it is asked."""

    name: str
    title: str
    schemas: tuple[Schema, ...]
    ask: Callable[[asking.Asked], Sequence[pl.DataFrame]]
    settings: Mapping[str, Any]
    needs: frozenset[str] = frozenset()

    def missing(self, subject: Subject) -> list[str]:
        """What of its needs the subject does not have."""
        there = {
            "vocabulary": subject.layer.has_vocabulary,
            "counts": subject.counts is not None,
            "text": bool(subject.documents),
            "gpt2": asking.is_gpt2_small(subject),
        }
        return sorted(need for need in self.needs if not there[need])


STEPS: tuple[Step, ...] = (
    Step(
        "auroc",
        "Rank corpus bigrams in every head",
        (
            auroc.AUROC_BY_TOKEN,
            auroc.AUROC_BY_HEAD,
            auroc.AUROC_CONTROLS,
            auroc.PRECISION_BY_HEAD,
        ),
        asking.ask_auroc,
        {"k": asking.FIRST_KEYS, "bootstrap": asking.RESAMPLES},
        frozenset({"counts"}),
    ),
    Step("auroc_pieces", "Rank bigrams that end in a piece of a word", (AUROC_PIECES_BY_HEAD, AUROC_PIECES_CONTROLS),
         asking.ask_auroc_of_pieces, {"bootstrap": asking.RESAMPLES}, frozenset({"counts", "vocabulary"})),
    Step("words", "Put a word list together", (words.WORD_RANKS, words.WORDS_BY_HEAD), asking.ask_words, {},
         frozenset({"vocabulary"})),
    Step("heatmap", "Compare drawn tokens", (heatmap.HEATMAP_TOKENS, heatmap.HEATMAP, heatmap.HEATMAP_BY_HEAD),
         asking.ask_heatmap, {"size": asking.DRAWN_TOKENS}),
    Step("roc", "Follow single tokens' curves", (auroc.ROC_POINTS,), asking.ask_roc, {"tokens": asking.CURVES},
         frozenset({"counts", "vocabulary"})),
    Step("partners", "List the partners of some tokens", (partners.PARTNERS,), asking.ask_partners,
         {"tokens": asking.EXAMPLES, "top": asking.SHOWN_PARTNERS}, frozenset({"vocabulary"})),
    Step("lexicon", "Mine the lexicon in the weights", (lexicon.LEXICON, lexicon.LEXICON_BY_HEAD), asking.ask_lexicon,
         {"top": asking.LEXICON_PAIRS, "words": find_spec("wordfreq") is not None}, frozenset({"vocabulary"})),
    Step("frequency", "Set terms against frequency",
         (frequency.FREQUENCY_BY_HEAD, frequency.EMBEDDING_VARIANCE, frequency.FREQUENCY_BY_TOKEN,
          frequency.SELF_ASSERTION), asking.ask_frequency, {}),
    Step("positions", "Look where position pulls", (positions.POSITIONS,), asking.ask_positions, {}),
    Step("shape", "Put the shape of position terms in numbers", (shapes.SHAPE, shapes.WAVES), asking.ask_shape, {}),
    Step("variance", "Find exceptional positions",
         (variances.POSITION_VARIANCE, variances.SWITCH, variances.LAST_QUERIES, variances.UNDERTRAINED),
         asking.ask_variance, {}),
    Step("attention", "Measure attention on text", (attention.ATTENTION, attention.ATTENTION_AGREEMENT),
         asking.ask_attention, {}, frozenset({"text"})),
    Step("contributions", "Take each term away",
         (contributions.CONTRIBUTIONS, contributions.CONTRIBUTIONS_BY_HEAD), asking.ask_contributions,
         {"places": asking.PLACES}, frozenset({"text"})),
    Step("heads", "Write the head cards", (heads.HEADS,), asking.ask_heads, {}),
    Step("paper", "Set the paper's Table 1 beside ours", (words.PAPER_RANKS,), asking.ask_paper, {},
         frozenset({"gpt2", "vocabulary"})),
)  # fmt: skip
