"""All questions, in the order in which help, gallery and reference show them."""

from __future__ import annotations

from detoklens.questions.attention import Attention
from detoklens.questions.auroc import Auroc
from detoklens.questions.contributions import Contributions
from detoklens.questions.explain import Explain
from detoklens.questions.frequency import Frequency
from detoklens.questions.heads import Heads
from detoklens.questions.heatmap import Heatmap
from detoklens.questions.layers import Layers
from detoklens.questions.lexicon import Lexicon
from detoklens.questions.partners import Partners
from detoklens.questions.positions import Positions
from detoklens.questions.question import Question
from detoklens.questions.shape import Shape
from detoklens.questions.twins import Twins
from detoklens.questions.variance import Variance
from detoklens.questions.words import Words

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
