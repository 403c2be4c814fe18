"""What is each head like, for the page? The head cards with the meaning of each column."""

from __future__ import annotations

from typing import Any

from detoklens.errors import DetokLensError
from detoklens.questions.heads import HEADS, SEEN_FIRST, Heads
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer

CARDS = "heads.json"
MOST_WORK = 2e13  # multiplications of all tokens with all tokens in all heads: GPT-2 small has 2e12, an 8B model 7e13


def too_large(layer: Layer) -> str | None:
    """Why a model's head cards are left out; None where they are not."""
    if float(layer.vocab_size) ** 2 * layer.n_heads * layer.d_head <= MOST_WORK:
        return None
    return (
        f"Head cards compare all {layer.vocab_size:,} tokens with each other in all {layer.n_heads} heads, which takes "
        "hours for a model of this size; `detoklens heads` makes them."
    )


def head_cards_or_problem(study: Study) -> dict[str, Any]:
    """The same while somebody is looking at the page already: what goes wrong is said there."""
    try:
        return head_cards(study)
    except DetokLensError as error:
        return {"problem": f"{error}"}


def head_cards(study: Study) -> dict[str, Any]:
    """heads.json: what `heads` answers; columns of which nothing is known are named apart."""
    answer = study.ask(Heads())
    cards = answer.tables["heads"]
    known = [column for column in HEADS.columns if cards[column.name].null_count() < len(cards)]
    names = [column.name for column in known]
    return {
        "columns": [{"name": column.name, "dtype": column.dtype, "meaning": column.meaning} for column in known],
        "rows": cards.select(names).to_dicts(),
        "shown": [name for name in SEEN_FIRST if name in names],
        "sentence": answer.sentence,
        "missing": [
            {"name": column.name, "meaning": column.meaning} for column in HEADS.columns if column.name not in names
        ],
    }
