"""What all questions have in common: terms are written one way wherever people read."""

from __future__ import annotations

import pytest

from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS


@pytest.mark.parametrize("question", list(QUESTIONS.values()))
def test_terms_are_written_with_raised_letters(question: type[Question]) -> None:
    """`Tᵉᵉ` is how comments write it; tables, captions, equations and help say Tᵉᵉ."""
    meanings = [column.meaning for schema in question.tables for column in schema.columns]
    figures = [text for spec in question.figures for text in (spec.title, spec.caption)]
    asked = [schema.question for schema in question.tables]
    assert [text for text in [*meanings, *asked, *figures, question.equation, question.__doc__] if "T^" in text] == []
