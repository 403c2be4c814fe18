"""Exact, weight-based analysis of a language model's first attention layer.

    study = detoklens.study("demo")                       # a model plus corpus counts and documents
    study.ask(detoklens.Auroc(pieces=True)).sentence      # an answer: summary, tables, figures
    study.layer.terms("The connection was lost.")         # the exact score terms of a text

Public names are imported on first use, so `import detoklens` is instant; `make docs` lists them for type checkers in
`__init__.pyi`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

if sys.platform == "win32":
    raise ImportError("detoklens runs on Linux and macOS; on Windows, use WSL")

from detoklens.errors import DetokLensError, too_little_address_space
from detoklens.questions.catalogue import QUESTIONS, TOPICS
from detoklens.version import __version__

HOMES = {
    "DetokLensError": "detoklens.errors",
    "Answer": "detoklens.questions.answer",
    "Comparison": "detoklens.questions.answer",
    "Counts": "detoklens.corpus.counts",
    "Layer": "detoklens.scores.layer",
    "Study": "detoklens.questions.study",
    "Term": "detoklens.scores.terms",
    "Terms": "detoklens.scores.terms",
    "Vocabulary": "detoklens.tokens",
    "compare": "detoklens.questions.study",
    "import_counts": "detoklens.corpus.count",
    "load": "detoklens.loading",
    "load_vocabulary": "detoklens.loading",
    "read_answer": "detoklens.questions.store",
    "schema": "detoklens.questions.json_schema",
    "study": "detoklens.questions.study",
}
_QUESTIONS = {name.capitalize(): name for names in TOPICS.values() for name in names}

__all__ = [*HOMES, *_QUESTIONS, "__version__"]


def __getattr__(name: str) -> Any:
    loads = name in (*HOMES, *_QUESTIONS) and not {"numpy", "polars"} <= sys.modules.keys()
    if loads and (too_little := too_little_address_space()):
        raise DetokLensError(too_little)
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    if name in _QUESTIONS:
        from detoklens.questions.parameters import documented

        return documented(QUESTIONS[_QUESTIONS[name]])
    raise AttributeError(f"module 'detoklens' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
