"""The sections of a report, each a list of questions. A new question is one more entry here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from detoklens.questions.attention.question import Attention
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.base import Question
from detoklens.questions.contributions.question import Contributions
from detoklens.questions.frequency.question import Frequency
from detoklens.questions.heads.question import Heads
from detoklens.questions.heatmap.question import Heatmap
from detoklens.questions.lexicon.question import Lexicon
from detoklens.questions.options import AtOffset, Joining
from detoklens.questions.partners.question import Partners
from detoklens.questions.positions.question import Positions
from detoklens.questions.shape.question import Shape
from detoklens.questions.twins.question import Twins
from detoklens.questions.variance.question import Variance
from detoklens.questions.words.question import Words

if TYPE_CHECKING:
    from detoklens.questions.study import Study

PAPER_TOKENS = ("iens", " Jackson", "yo", " Korea", " Obama", " Einstein", " chloride", " century")
SHORTEST_EXAMPLE = 3  # characters
EXAMPLES, SHOWN_PARTNERS, CURVES = 8, 8, 2
DRAWN_TOKENS = 60
LEXICON_PAIRS = 1000


@dataclass(frozen=True)
class Entry:
    """One question of a section.

    `label` distinguishes two answers to the same question in file names, `remark` in figure titles. Comparisons of
    several models ask only the entries that are `compared`.
    """

    question: Question
    label: str = ""
    remark: str = ""
    compared: bool = False


@dataclass(frozen=True)
class SectionPlan:
    """A section's title and its questions, which may depend on the study."""

    title: str
    entries: Callable[[Study], Sequence[Entry]]
    has_search: bool = False


def detokenization_heads(study: Study) -> Sequence[Entry]:
    curves = curve_tokens(study)
    heatmap = Heatmap(tokens=max(2, min(DRAWN_TOKENS, study.layer.vocab_size)))
    return [
        Entry(Auroc(pieces=True), "auroc_pieces", " on continuation tokens", compared=True),
        *variants(study, Auroc(pieces=True), "auroc_pieces", " on continuation tokens"),
        Entry(Auroc(), compared=True),
        *([Entry(Auroc(roc=curves))] if curves else []),
        Entry(Words(), compared=True),
        *variants(study, Words(), "words"),
        Entry(Heads(), compared=True),
        Entry(heatmap),
        *variants(study, heatmap, "heatmap"),
    ]


def token_partners(study: Study) -> Sequence[Entry]:
    top, lexicon = min(SHOWN_PARTNERS, study.layer.vocab_size), Lexicon(top=LEXICON_PAIRS, no_self=True)
    return [
        Entry(lexicon),
        *variants(study, lexicon, "lexicon"),
        Entry(Partners(example_tokens(study), top=top)),
    ]


def variants(study: Study, question: AtOffset, label: str, remark: str = "") -> Sequence[Entry]:
    """Variants for some families only: with means split off, or with the key after the query."""
    entries = []
    if study.layer.positions != "learned":
        split = replace(question, mean="vocabulary")
        entries.append(Entry(split, f"{label}_split", f"{remark}, means split off", compared=True))
    if isinstance(question, Joining) and not study.layer.is_causal:
        ahead = replace(question, direction="ahead")
        entries.append(Entry(ahead, f"{label}_ahead", f"{remark}, key after query", compared=True))
    return entries


def term_contributions(_study: Study) -> Sequence[Entry]:
    return [Entry(Contributions(), compared=True), Entry(Frequency())]


def is_gpt2_small(study: Study) -> bool:
    """Whether this is the paper's model, by its sizes and by a word of its vocabulary."""
    layer = study.layer
    sizes = (layer.n_heads, layer.d_head, layer.d_model, layer.n_positions, layer.vocab_size)
    if sizes != (12, 64, 768, 1024, 50257) or not layer.has_vocabulary:
        return False
    return layer.vocabulary.encode(" sapiens") == [31841, 10465]


WORD = SectionPlan("Does the layer write the word?", lambda _: [Entry(Twins(), compared=True)])
PAPER = SectionPlan("The paper's numbers", lambda study: [Entry(Words(paper=True))] if is_gpt2_small(study) else [])
SECTIONS: list[SectionPlan] = [
    SectionPlan("Detokenization heads", detokenization_heads),
    WORD,
    SectionPlan("Token partners", token_partners, has_search=True),
    SectionPlan("Position terms", lambda _: [Entry(Shape(), compared=True), Entry(Positions(), compared=True)]),
    SectionPlan("Attention on text", lambda _: [Entry(Attention())]),
    SectionPlan("Term contributions", term_contributions),
    SectionPlan("Checkpoint anomalies", lambda _: [Entry(Variance(), compared=True)]),
    PAPER,
]


def example_tokens(study: Study) -> list[int]:
    """Query tokens to show: the paper's if the vocabulary has them all, else the most frequent continuation tokens.

    Without a tokenizer: the most frequent tokens. Without counts, the first instead of the most frequent.
    """
    size = study.layer.vocab_size
    if not study.has("vocabulary"):
        return _most_frequent(study, list(range(size)))[:EXAMPLES]
    vocabulary = study.layer.vocabulary
    spelled = (vocabulary.tokenizer.token_to_id(text.replace(" ", "Ġ")) for text in PAPER_TOKENS)
    known = [token for token in spelled if token is not None and token < size]
    if len(known) == len(PAPER_TOKENS):
        return known[:EXAMPLES]
    pieces = [token for token in vocabulary.word_internal() if token < size]
    long = [token for token in pieces if len(vocabulary.text(token)) >= SHORTEST_EXAMPLE]
    return _most_frequent(study, long or pieces or list(range(size)))[:EXAMPLES]


def _most_frequent(study: Study, tokens: list[int]) -> list[int]:
    if study.counts is None:
        return tokens
    seen = study.counts.tokens
    return sorted(tokens, key=lambda token: (-int(seen[token]), token))


def curve_tokens(study: Study) -> list[int]:
    """Example tokens whose ROC curve is defined: with both positives and negatives."""
    if study.counts is None:
        return []
    starts = study.counts.bigrams.indptr
    sizes = starts[1:] - starts[:-1]
    return [token for token in example_tokens(study) if 0 < sizes[token] < study.layer.vocab_size][:CURVES]
