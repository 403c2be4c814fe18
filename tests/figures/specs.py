"""The figures of all questions, by name."""

from __future__ import annotations

from detoklens.questions.catalogue import QUESTIONS

FIGURES = {spec.name: spec for question in QUESTIONS.values() for spec in question.figures}
COMPARISONS = {spec.name: spec for question in QUESTIONS.values() for spec in question.compared_figures}
