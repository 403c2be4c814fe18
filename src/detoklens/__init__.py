"""Exact, weight-based analysis of a language model's first attention layer.

    study = detoklens.study("demo")                       # a model plus corpus counts and documents
    study.ask(detoklens.Auroc(pieces=True)).sentence      # an answer: summary, tables, figures
    study.layer.terms("The connection was lost.")         # the exact score terms of a text

Public names are imported on first use, so `import detoklens` is instant.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("detoklens runs on Linux and macOS; on Windows, use WSL")

from detoklens.errors import DetokLensError, too_little_address_space
from detoklens.questions.catalogue import QUESTIONS, TOPICS
from detoklens.version import __version__

if TYPE_CHECKING:
    from detoklens.corpus.count import import_counts
    from detoklens.corpus.counts import Counts
    from detoklens.loading import load, load_vocabulary
    from detoklens.questions.anatomy.question import Anatomy
    from detoklens.questions.answer import Answer, Comparison, read_answer
    from detoklens.questions.attention.question import Attention
    from detoklens.questions.auroc.question import Auroc
    from detoklens.questions.comparing import compare
    from detoklens.questions.contributions.question import Contributions
    from detoklens.questions.explain.question import Explain
    from detoklens.questions.frequency.question import Frequency
    from detoklens.questions.heads.question import Heads
    from detoklens.questions.heatmap.question import Heatmap
    from detoklens.questions.json_schema import schema
    from detoklens.questions.layers.question import Layers
    from detoklens.questions.lexicon.question import Lexicon
    from detoklens.questions.lookback.question import Lookback
    from detoklens.questions.paper.question import Paper
    from detoklens.questions.partners.question import Partners
    from detoklens.questions.positions.question import Positions
    from detoklens.questions.shape.question import Shape
    from detoklens.questions.study import Study, study
    from detoklens.questions.twins.question import Twins
    from detoklens.questions.variance.question import Variance
    from detoklens.questions.words.question import Words
    from detoklens.scores.layer import Layer
    from detoklens.scores.terms import Term, Terms
    from detoklens.tokens import Vocabulary

_HOMES = {
    "Answer": "detoklens.questions.answer",
    "Comparison": "detoklens.questions.answer",
    "Counts": "detoklens.corpus.counts",
    "Layer": "detoklens.scores.layer",
    "Study": "detoklens.questions.study",
    "Term": "detoklens.scores.terms",
    "Terms": "detoklens.scores.terms",
    "Vocabulary": "detoklens.tokens",
    "compare": "detoklens.questions.comparing",
    "import_counts": "detoklens.corpus.count",
    "load": "detoklens.loading",
    "load_vocabulary": "detoklens.loading",
    "read_answer": "detoklens.questions.answer",
    "schema": "detoklens.questions.json_schema",
    "study": "detoklens.questions.study",
}
_QUESTIONS = {name.capitalize(): name for names in TOPICS.values() for name in names}

__all__ = ["DetokLensError", *_HOMES, *_QUESTIONS, "__version__"]


def __getattr__(name: str) -> Any:
    loads = name in (*_HOMES, *_QUESTIONS) and not {"numpy", "polars"} <= sys.modules.keys()
    if loads and (too_little := too_little_address_space()):
        raise DetokLensError(too_little)
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _QUESTIONS:
        return QUESTIONS[_QUESTIONS[name]]
    raise AttributeError(f"module 'detoklens' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
