"""The catalogue of questions: names, topics and summaries, without importing any question.

Adding a question means adding its module and one line here. Another package registers one through an entry point in
the group `detoklens.questions`, whose name is the command and whose value is the class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from detoklens.errors import DetokLensError, first_line

if TYPE_CHECKING:
    from detoklens.questions.base import Question

ENTRY_POINTS = "detoklens.questions"
TOPICS = {
    "Token terms": {
        "partners": "List the key tokens with the highest Tᵉᵉ for a query token, per head.",
        "words": "Rank the preceding piece of split words among all key tokens.",
        "heatmap": "Compute Tᵉᵉ between sampled tokens, with and without LayerNorm's σ.",
        "lexicon": "Find the token pairs with the highest Tᵉᵉ in the whole vocabulary.",
        "frequency": "Correlate Tᵉ and embedding variance with token frequency.",
    },
    "Detokenization": {
        "auroc": "Test which heads rank a token's corpus predecessors above other tokens.",
        "heads": "Print a scorecard of all heads, one row each.",
        "anatomy": "Split the variance of every head's score into six shares.",
        "lookback": "Find what makes heads look back from continuation tokens, but not from whole words.",
        "twins": "Test whether the first layer writes words.",
        "layers": "Find the layer at which the model has composed a word from its pieces.",
    },
    "Position terms": {
        "positions": "Show where position alone directs attention: Tᵖ, Tᵖᵖ and their softmax.",
        "shape": "Measure the shape of the position terms, per head.",
        "variance": "Measure the variance of position embeddings and find anomalies.",
    },
    "Attention on text": {
        "attention": "Compare attention on text with the softmax of Tᵖ + Tᵖᵖ.",
        "contributions": "Measure how much attention on text changes when a term is removed.",
        "explain": "Show which term explains each head's strongest links in a text.",
    },
    "The paper": {
        "paper": "Check each claim of the paper on a model.",
    },
}


@dataclass(frozen=True)
class Listing:
    """What help shows of a question without importing it; `target` is the class, or `module:Class`."""

    topic: str
    summary: str
    target: str | type[Question]


class Catalogue(Mapping[str, "type[Question]"]):
    """The question classes by command name, in help order; a class is imported on first use."""

    @cached_property
    def listings(self) -> dict[str, Listing]:
        """Topic, summary and class of every question."""
        installed = {
            point.name: Listing("Installed questions", f"From {point.module.partition('.')[0]}.", point.value)
            for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
        }
        built_in = {
            name: Listing(topic, summary, f"detoklens.questions.{name}:{name.capitalize()}")
            for topic, summaries in TOPICS.items()
            for name, summary in summaries.items()
        }
        return built_in | {name: listing for name, listing in installed.items() if name not in built_in}

    def __getitem__(self, name: str) -> type[Question]:
        target = self.listings[name].target
        if not isinstance(target, str):
            return target
        module, _, class_name = target.partition(":")
        try:
            found = import_module(module)
            if hasattr(found, "__path__") and not hasattr(found, class_name):  # questions/x/question.py
                found = import_module(f"{module}.question")
            question: type[Question] = getattr(found, class_name)
        except (ImportError, AttributeError) as error:
            if module.startswith("detoklens."):
                raise
            raise DetokLensError(
                f"question {name}: {target} can't be imported ({first_line(error)}); update or uninstall its package"
            ) from error
        return question

    def __iter__(self) -> Iterator[str]:
        return iter(self.listings)

    def __contains__(self, name: object) -> bool:  # Mapping's own would import the question
        return name in self.listings

    def __len__(self) -> int:
        return len(self.listings)

    def register(self, question: type[Question]) -> type[Question]:
        """Add a question to this process: it becomes a command and its answers can be read back from a folder."""
        summary = (question.__doc__ or "").strip().partition("\n")[0]
        self.listings[question.name()] = Listing("Registered questions", summary, question)
        return question


QUESTIONS = Catalogue()
register = QUESTIONS.register
