"""All questions, in the order in which help, gallery and reference show them."""

from __future__ import annotations

from detoklens.questions.attention.question import Attention
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.base import Question
from detoklens.questions.contributions.question import Contributions
from detoklens.questions.explain.question import Explain
from detoklens.questions.frequency.question import Frequency
from detoklens.questions.heads.question import Heads
from detoklens.questions.heatmap.question import Heatmap
from detoklens.questions.layers.question import Layers
from detoklens.questions.lexicon.question import Lexicon
from detoklens.questions.partners.question import Partners
from detoklens.questions.positions.question import Positions
from detoklens.questions.shape.question import Shape
from detoklens.questions.twins.question import Twins
from detoklens.questions.variance.question import Variance
from detoklens.questions.words.question import Words

QUESTIONS: dict[str, type[Question]] = {
    question.name(): question
    for question in (
        Partners,
        Words,
        Heatmap,
        Lexicon,
        Auroc,
        Heads,
        Twins,
        Layers,
        Frequency,
        Positions,
        Shape,
        Variance,
        Attention,
        Contributions,
        Explain,
    )
}


def register(question: type[Question]) -> type[Question]:
    """Make a question known: it becomes a command, and can be read back from a folder."""
    QUESTIONS[question.name()] = question
    return question
