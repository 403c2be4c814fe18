"""What does a report show? Sections, each a list of questions. A new question is one more entry here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

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
SHORTEST_EXAMPLE = 3  # letters
EXAMPLES, SHOWN_PARTNERS, CURVES = 8, 8, 2
DRAWN_TOKENS = 60
LEXICON_PAIRS = 1000
PLACES = 32  # query positions of the contributions' curves, evenly spread


@dataclass(frozen=True)
class Entry:
    """One question of a section.

    The `label` tells two answers to the same question apart in the names of files, the `remark` in the titles of
    figures. What is `compared` is asked when several models are set side by side.
    """

    question: Question
    label: str = ""
    remark: str = ""
    compared: bool = False


@dataclass(frozen=True)
class SectionPlan:
    """A title, and the questions under it, which may depend on what the study has."""

    title: str
    entries: Callable[[Study], Sequence[Entry]]
    has_search: bool = False


def glue(study: Study) -> Sequence[Entry]:
    curves = curve_tokens(study)
    heatmap = Heatmap(tokens=max(2, min(DRAWN_TOKENS, study.layer.vocab_size)))
    return [
        Entry(Auroc(pieces=True), "auroc_pieces", " over pieces of words", compared=True),
        *of_family(study, Auroc(pieces=True), "auroc_pieces", " over pieces of words"),
        Entry(Auroc(), compared=True),
        *([Entry(Auroc(roc=curves))] if curves else []),
        Entry(Words(), compared=True),
        *of_family(study, Words(), "words"),
        Entry(Heads(), compared=True),
        Entry(heatmap),
        *of_family(study, heatmap, "heatmap"),
    ]


def word(_study: Study) -> Sequence[Entry]:
    return [Entry(Twins(), compared=True)]


def partners(study: Study) -> Sequence[Entry]:
    top, lexicon = min(SHOWN_PARTNERS, study.layer.vocab_size), Lexicon(top=LEXICON_PAIRS, no_self=True)
    return [
        Entry(lexicon),
        *of_family(study, lexicon, "lexicon"),
        Entry(Partners(example_tokens(study), top=top)),
    ]


def of_family(study: Study, question: AtOffset, label: str, remark: str = "") -> Sequence[Entry]:
    """The same as only some families can be asked: with the means split off, or ahead."""
    entries = []
    if study.layer.positions != "learned":
        split = replace(question, mean="vocabulary")
        entries.append(Entry(split, f"{label}_split", f"{remark}, means split off", compared=True))
    if isinstance(question, Joining) and not study.layer.is_causal:
        ahead = replace(question, direction="ahead")
        entries.append(Entry(ahead, f"{label}_ahead", f"{remark}, asked ahead", compared=True))
    return entries


def position(_study: Study) -> Sequence[Entry]:
    return [Entry(Shape(), compared=True), Entry(Positions(), compared=True)]


def text(_study: Study) -> Sequence[Entry]:
    return [Entry(Attention())]


def terms(study: Study) -> Sequence[Entry]:
    asked = Contributions()
    if not study.missing(asked):
        asked = Contributions(query_positions=places_looked_from(study))
    return [Entry(asked, compared=True), Entry(Frequency())]


def odd(_study: Study) -> Sequence[Entry]:
    return [Entry(Variance(), compared=True)]


def paper(study: Study) -> Sequence[Entry]:
    return [Entry(Words(paper=True))] if is_gpt2_small(study) else []


def is_gpt2_small(study: Study) -> bool:
    """Whether this is the model of the paper: its sizes, and its vocabulary by the paper's own words."""
    layer = study.layer
    sizes = (layer.n_heads, layer.d_head, layer.d_model, layer.n_positions, layer.vocab_size)
    if sizes != (12, 64, 768, 1024, 50257) or not layer.has_vocabulary:
        return False
    return layer.vocabulary.encode(" sapiens") == [31841, 10465]


PAPER = SectionPlan("Are the paper's numbers found again?", paper)
WORD = SectionPlan("Does it write the word?", word)
SECTIONS: list[SectionPlan] = [
    SectionPlan("Which heads glue tokens together?", glue),
    WORD,
    SectionPlan("With what?", partners, has_search=True),
    SectionPlan("How does position pull?", position),
    SectionPlan("What does the text say?", text),
    SectionPlan("Which term matters?", terms),
    SectionPlan("What is odd about this checkpoint?", odd),
    PAPER,
]


def example_tokens(study: Study) -> list[int]:
    """Query tokens to show: the paper's where the vocabulary has them, else the most frequent pieces of words.

    Without a tokenizer, whose pieces are not known, the most frequent tokens, or the first.
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
    """Example tokens whose curve is defined: the corpus has some of its pairs, but not all."""
    if study.counts is None:
        return []
    starts = study.counts.bigrams.indptr
    sizes = starts[1:] - starts[:-1]
    return [token for token in example_tokens(study) if 0 < sizes[token] < study.layer.vocab_size][:CURVES]


def places_looked_from(study: Study) -> list[int]:
    """Query positions spread evenly over the longest document."""
    longest = max(len(ids) for ids in study.documents)
    return [int(place) for place in np.unique(np.linspace(0, longest - 1, PLACES).round())]
