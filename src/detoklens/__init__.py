"""detoklens: what does a language model's first attention layer do, and why?

    study = detoklens.study("demo")                       # a model with what is known of text
    study.ask(detoklens.Auroc(pieces=True)).sentence      # an answer: sentence, tables, figures
    study.layer.terms("The connection was lost.")         # the terms of a text's scores, exactly

The public names are imported when they are first used, so that `import detoklens` is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from detoklens.version import __version__

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts
    from detoklens.errors import DetokLensError
    from detoklens.loading import load, load_vocabulary
    from detoklens.questions.answer import Answer, Comparison, read_answer
    from detoklens.questions.catalogue import (
        Attention,
        Auroc,
        Contributions,
        Explain,
        Frequency,
        Heads,
        Heatmap,
        Layers,
        Lexicon,
        Partners,
        Positions,
        Shape,
        Twins,
        Variance,
        Words,
    )
    from detoklens.questions.comparing import compare
    from detoklens.questions.study import Study, study
    from detoklens.scores.layer import Layer
    from detoklens.scores.terms import Term, Terms
    from detoklens.tokens import Vocabulary

_HOMES = {
    "Answer": "detoklens.questions.answer",
    "Comparison": "detoklens.questions.answer",
    "Counts": "detoklens.corpus.counts",
    "DetokLensError": "detoklens.errors",
    "Layer": "detoklens.scores.layer",
    "Study": "detoklens.questions.study",
    "Term": "detoklens.scores.terms",
    "Terms": "detoklens.scores.terms",
    "Vocabulary": "detoklens.tokens",
    "compare": "detoklens.questions.comparing",
    "load": "detoklens.loading",
    "load_vocabulary": "detoklens.loading",
    "read_answer": "detoklens.questions.answer",
    "study": "detoklens.questions.study",
}
_QUESTIONS = "detoklens.questions.catalogue"

__all__ = [
    "Answer",
    "Attention",
    "Auroc",
    "Comparison",
    "Contributions",
    "Counts",
    "DetokLensError",
    "Explain",
    "Frequency",
    "Heads",
    "Heatmap",
    "Layer",
    "Layers",
    "Lexicon",
    "Partners",
    "Positions",
    "Shape",
    "Study",
    "Term",
    "Terms",
    "Twins",
    "Variance",
    "Vocabulary",
    "Words",
    "__version__",
    "compare",
    "load",
    "load_vocabulary",
    "read_answer",
    "study",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'detoklens' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, _QUESTIONS)), name)


def __dir__() -> list[str]:
    return __all__
