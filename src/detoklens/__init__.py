"""detoklens: what does a language model's first attention layer do, and why?

    layer = detoklens.load("gpt2")
    layer.terms(token_ids).attention()

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
    from detoklens.scores.layer import Layer
    from detoklens.scores.terms import Term, Terms
    from detoklens.tokens import Vocabulary

_HOMES = {
    "Counts": "detoklens.corpus.counts",
    "DetokLensError": "detoklens.errors",
    "Layer": "detoklens.scores.layer",
    "Term": "detoklens.scores.terms",
    "Terms": "detoklens.scores.terms",
    "Vocabulary": "detoklens.tokens",
    "load": "detoklens.loading",
    "load_vocabulary": "detoklens.loading",
}

__all__ = [
    "Counts",
    "DetokLensError",
    "Layer",
    "Term",
    "Terms",
    "Vocabulary",
    "__version__",
    "load",
    "load_vocabulary",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'detoklens' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
