"""Which figure answers which question, from which tables?

`FIGURES[name].draw({"heatmap": frame, ...}, heads=[7, 1], width="page")` takes the tables by their schemas' names and
returns a matplotlib Figure. `per_head` figures have a panel for each head: draw them for chosen heads and for all.
`COMPARISONS[name].draw({"heads": {"step 0": frame, "step 1000": frame}, ...})` takes each table once for every
checkpoint, by label and in order. matplotlib is imported when the first figure is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GLUE = "Which heads glue tokens together?"
PARTNERS = "With what?"
POSITION = "How does position pull?"
TEXT = "What does the text say?"
TERMS = "Which term matters?"
ODD = "What is odd about this checkpoint?"
QUESTIONS = (GLUE, PARTNERS, POSITION, TEXT, TERMS, ODD)


@dataclass(frozen=True)
class FigureSpec:
    """One figure: the function of the same name in the module of the same name, and what it needs and says."""

    name: str
    question: str
    tables: tuple[str, ...]
    title: str
    caption: str
    optional: tuple[str, ...] = ()
    per_head: bool = False

    def can_draw(self, tables: Mapping[str, Any]) -> bool:
        """Whether every table that it can't do without is there."""
        return all(name in tables for name in self.tables)

    def draw(self, tables: Mapping[str, Any], **options: Any) -> Figure:
        """The figure from tables by name; other tables are left alone."""
        used = [tables[name] for name in self.tables] + [tables.get(name) for name in self.optional]
        return self.function(*used, **options)

    @property
    def function(self) -> Any:
        return getattr(import_module(f"detoklens.figures.{self.name}"), self.name)


_FIGURES = (
    FigureSpec(
        "auroc",
        GLUE,
        ("auroc_by_head",),
        "AUROC by head",
        "How well each head ranks the tokens that precede a token in the corpus above all others: mean AUROC of "
        "Tᵉᵉ over query tokens with its bootstrap interval, beside two nulls (queries exchanged; keys permuted "
        "within equal frequency) and the AUROC of the keys' corpus frequency alone. 0.5 is chance.",
        optional=("auroc_controls",),
    ),
    FigureSpec(
        "auroc_pieces",
        GLUE,
        ("auroc_pieces_by_head",),
        "AUROC by head over pieces of words",
        "The mean AUROC of Tᵉᵉ over query tokens that continue a word, with its bootstrap interval, beside the same "
        "two nulls and the keys' corpus frequency alone. 0.5 is chance.",
        optional=("auroc_pieces_controls",),
    ),
    FigureSpec(
        "roc",
        GLUE,
        ("roc_points",),
        "ROC curves of single query tokens",
        "Share of bigrams whose first token scores above a threshold, against the share of other tokens above it, "
        "for the query tokens in the legend. The diagonal is chance.",
        optional=("auroc_by_token",),
        per_head=True,
    ),
    FigureSpec(
        "precision",
        GLUE,
        ("precision_by_head",),
        "Precision by head",
        "How many of the keys that a head ranks first precede the query token in the corpus: average precision "
        "and precision of the first k keys, each beside what a constant score would reach.",
    ),
    FigureSpec(
        "words",
        GLUE,
        ("words_by_head",),
        "Putting words together",
        "Rank of a word's piece before, asked from the piece after, as a share of the vocabulary (median over "
        "pairs; small is good, 0.5 is chance), beside the same for another word's query.",
    ),
    FigureSpec(
        "head_cards",
        GLUE,
        ("heads",),
        "Head cards",
        "Each head in one row: AUROC against corpus bigrams and its null, rank of a word's piece before, how much "
        "a token matches itself, preference for rare tokens, and the shape of the query-key product.",
    ),
    FigureSpec(
        "heatmap",
        GLUE,
        ("heatmap",),
        "Tᵉᵉ of tokens drawn at random",
        "Scores of every pair of the drawn tokens, with and without LayerNorm's division. Each panel is coloured "
        "from its own smallest to its own largest score, given above it; no LN: without the division. A diagonal: "
        "the token looks for itself.",
        optional=("heatmap_tokens",),
        per_head=True,
    ),
    FigureSpec(
        "partners",
        PARTNERS,
        ("partners",),
        "Strongest partners",
        "The key tokens with the largest Tᵉᵉ for each query token, best first, in each head; ␣ is a space.",
        per_head=True,
    ),
    FigureSpec(
        "lexicon",
        PARTNERS,
        ("lexicon",),
        "The heads' own lexicons",
        "Among each head's strongest pairs over the whole vocabulary, up to each rank: the share whose joined "
        "text is a word, and the share that occurs in the corpus.",
        per_head=True,
    ),
    FigureSpec(
        "lexicon_scores",
        PARTNERS,
        ("lexicon",),
        "Strength of the strongest pairs",
        "Tᵉᵉ of each head's strongest pairs by rank; the six highest heads are named.",
    ),
    FigureSpec(
        "position_alone",
        POSITION,
        ("positions",),
        "Position alone (Tᵖ)",
        "How strongly each key position asserts itself, whoever asks: mean σ over the vocabulary, the band that "
        "holds most tokens, and beside it the same without LayerNorm's division.",
        per_head=True,
    ),
    FigureSpec(
        "position_comparison",
        POSITION,
        ("positions",),
        "Position and position (Tᵖᵖ)",
        "What each query position looks for among key positions, with the band that holds most pairs of tokens.",
        per_head=True,
    ),
    FigureSpec(
        "position_scales",
        POSITION,
        ("positions",),
        "Position and position (Tᵖᵖ) with extreme σ",
        "What one query position looks for: with the vocabulary's mean, largest and smallest σ at the query and at "
        "the keys, and the band that holds most pairs of tokens.",
        per_head=True,
    ),
    FigureSpec(
        "position_sum",
        POSITION,
        ("positions",),
        "Both position terms together (Tᵖ + Tᵖᵖ)",
        "Sum of the two terms that depend on positions alone, for each query position.",
        per_head=True,
    ),
    FigureSpec(
        "position_attention",
        POSITION,
        ("positions",),
        "Attention by position alone",
        "Softmax of Tᵖ + Tᵖᵖ over the keys up to the query: the attention if positions were all there is.",
        per_head=True,
    ),
    FigureSpec(
        "shape_numbers",
        POSITION,
        ("shape",),
        "Shape of the position terms",
        "Each head in one row: slope of Tᵖ and how well a line fits, period and share of Tᵖᵖ's leading wave, and "
        "where the softmax of their sum puts its mass, for each query position.",
    ),
    FigureSpec(
        "attention",
        TEXT,
        ("attention",),
        "Attention on text and by position alone",
        "Mean attention over documents with the band that holds most of them, against the softmax of Tᵖ + Tᵖᵖ "
        "that the weights alone predict, for one query position.",
        per_head=True,
    ),
    FigureSpec(
        "attention_near",
        TEXT,
        ("attention",),
        "Attention on the nearest keys",
        "Mean attention on the last 30 keys up to the query, with the band that holds most documents, against what "
        "the weights alone predict.",
        per_head=True,
    ),
    FigureSpec(
        "attention_parts",
        TEXT,
        ("attention_agreement",),
        "Where attention goes",
        "Attention on the first position, on far keys, on the 15 keys before the query and on the query itself: "
        "measured on text (upper bar) and predicted from position alone (lower bar), mean over query positions.",
    ),
    FigureSpec(
        "contributions",
        TERMS,
        ("contributions",),
        "What each term contributes",
        "How much attention on text changes when one term is left out: KL divergence by query position, mean "
        "over documents.",
        per_head=True,
    ),
    FigureSpec(
        "contribution_shares",
        TERMS,
        ("contributions_by_head",),
        "Shares of the terms by head",
        "Each term's part of the sum of a head's KL divergences.",
    ),
    FigureSpec(
        "token_alone",
        TERMS,
        ("self_assertion",),
        "Token alone (Tᵉ) against frequency",
        "How strongly each token asserts itself, whoever asks, against its corpus count plus one; ρ is Spearman's "
        "correlation over the tokens that the table of heads names.",
        optional=("frequency_by_head",),
        per_head=True,
    ),
    FigureSpec(
        "token_variance",
        ODD,
        ("frequency_by_token",),
        "Variance of token embeddings against frequency",
        "Variance of each token's embedding against its corpus count plus one.",
        optional=("embedding_variance",),
    ),
    FigureSpec(
        "position_variance",
        ODD,
        ("position_variance",),
        "Variance of position embeddings",
        "Variance of all, of the first ten and of the last ten position embeddings; squares mark outliers.",
    ),
    FigureSpec(
        "first_position",
        ODD,
        ("switch",),
        "The switch at position 0",
        "Tᵖ at position 0 and its mean over the next ten positions, without and with LayerNorm's division.",
    ),
    FigureSpec(
        "last_positions",
        ODD,
        ("last_queries",),
        "The last query positions",
        "Tᵖᵖ without LayerNorm for the last five query positions; odd: the last line departs from the others, "
        "as if hardly trained.",
        optional=("undertrained",),
        per_head=True,
    ),
)
_COMPARISONS = (
    FigureSpec(
        "compare_heads",
        GLUE,
        ("heads",),
        "Heads of several checkpoints",
        "Each number of the head cards over the checkpoints: one line a head where all have as many heads, else "
        "one point.",
    ),
    FigureSpec(
        "compare_auroc",
        GLUE,
        ("auroc_by_head",),
        "AUROC by head in several checkpoints",
        "Mean AUROC with its bootstrap interval, for each head and checkpoint.",
    ),
    FigureSpec(
        "compare_positions",
        POSITION,
        ("positions",),
        "Position's pull in several checkpoints",
        "Tᵖ, Tᵖᵖ, their sum or its softmax in each head, one line a checkpoint.",
        per_head=True,
    ),
    FigureSpec(
        "compare_contributions",
        TERMS,
        ("contributions_by_head",),
        "Terms of several checkpoints",
        "Each term's share of the heads' KL divergences, mean over heads.",
    ),
)
FIGURES = {spec.name: spec for spec in _FIGURES}
COMPARISONS = {spec.name: spec for spec in _COMPARISONS}
