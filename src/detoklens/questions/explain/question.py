"""The terms behind layer 0's attention in one text, for every pair of tokens."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from detoklens.errors import TokenError
from detoklens.figures.spec import FigureSpec
from detoklens.questions.base import Question, View
from detoklens.questions.explain.compute import (
    explain,
    explanation_schema,
    legend_view,
    links_schema,
    links_view,
    pair_table,
    strongest_links,
    summarize_links,
    terms_of,
)
from detoklens.questions.options import TermQuestion
from detoklens.questions.parameters import Heads, Parameter, comma_separated, to_cli_args, whole_numbers
from detoklens.questions.texts import find_beginning
from detoklens.scores.terms import MEANINGS
from detoklens.tables.schema import Schema

if TYPE_CHECKING:
    from detoklens.parallel import Runner
    from detoklens.questions.base import Frames
    from detoklens.questions.study import Study


STANDARD_INPUT = "-"


def read_text(given: str) -> str:
    """The text from the command line; a hyphen means standard input."""
    if given != STANDARD_INPUT:
        return given
    if sys.stdin.isatty():
        sys.stderr.write("reading the text from standard input; end it with Ctrl-D\n")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenError(f"the text is not valid UTF-8 at byte {error.start}; convert it first") from error


ALL_TERMS = tuple(dict.fromkeys(str(name) for meanings in MEANINGS.values() for name in meanings))


@dataclass(frozen=True, repr=False)
class Explain(TermQuestion):
    """Show which term explains each head's strongest links in a text.

    A link is a pair of a query and a key token; its term is the one whose removal lowers its attention most. The full
    table has every pair with its terms, score, attention, and attention without each term.

    Example: detoklens explain gpt2 "Homo sapiens" --heads 7
    """

    text: Annotated[
        str | Sequence[int] | None,
        Parameter(
            "The text, in quotes; - reads it from standard input.", metavar="TEXT", positional=True, read=read_text
        ),
    ] = None
    token_ids: Annotated[
        Sequence[int] | None,
        Parameter(
            "Token ids instead of a text.",
            metavar="464,2068",
            read=whole_numbers("token ids"),
            spell=comma_separated("--token-ids"),
        ),
    ] = None
    heads: Heads = None
    top: Annotated[int, Parameter("Number of links per head.", least=1)] = 3
    prepend_bos: Annotated[bool, Parameter("Prepend the beginning-of-text token.")] = False

    progress_label = "explaining"
    uses = frozenset({"vocabulary", "counts"})
    tables = (explanation_schema(ALL_TERMS), links_schema(ALL_TERMS))
    equation = (
        "s = Σ T,  α[h, i, :] = softmax over the visible keys of s / √d′,  without T: softmax of (s − T) / √d′;  "
        "links: by α, of queries that see two keys or more;  a link's term: the one whose removal lowers α most"
    )
    figures = (
        FigureSpec(
            "explain",
            ("explanation", "links"),
            "Attention in the text and the terms that explain it",
            "Attention of each query (row) to its visible keys (columns). Each head's strongest links are framed; the "
            "term whose removal lowers a link most is at the end of its row. In long texts the links are bars. Tᵉᵉ: "
            "token–token; Tᵖᵖ: position–position; Tᵉᵖ: token–position; Tᵖᵉ: position–token; Tᵉ: token only; Tᵖ: "
            "position only.",
            per_head=True,
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text is not None and not isinstance(self.text, str) and self.token_ids is None:
            object.__setattr__(self, "token_ids", self.text)
            object.__setattr__(self, "text", None)

    @classmethod
    def examples(cls) -> Sequence[Question]:
        return (cls("the priest was descending", heads=[1]),)

    def settings(self, study: Study) -> dict[str, Any]:
        asked = {"token_ids": self._ids(study), "heads": study.heads(self.heads), "top": self.top}
        return asked | self.applicable_options(study)

    def cli_args(self, study: Study) -> list[str]:
        """A text that looks like an option, or contains a null character, is passed as token ids."""
        if isinstance(self.text, str) and (self.text.startswith("-") or "\0" in self.text):
            return to_cli_args(replace(self, text=None, token_ids=_encoded(study, self.text)))
        return to_cli_args(self)

    def ask(self, study: Study, runner: Runner) -> Frames:
        for note in find_beginning(study.layer).notes if self.prepend_bos else ():
            runner.say(note)
        found = explain(study.layer, self._ids(study), study.heads(self.heads), self.split_off(study))
        texts = [study.layer.token(int(token_id)) for token_id in found.token_ids]
        special = study.layer.vocabulary.apart if study.has("vocabulary") else ()
        return {"explanation": pair_table(found, texts, special), "links": strongest_links(found, texts, self.top)}

    def schemas(self, tables: Frames) -> list[Schema]:
        terms = terms_of(tables["links"])
        return [explanation_schema(terms), links_schema(terms)]

    def summarize(self, tables: Frames) -> str:
        return summarize_links(tables["explanation"], tables["links"])

    def views(self, tables: Frames) -> Sequence[View]:
        """The links, and a legend of the terms."""
        return [links_view(tables["links"]), legend_view(tables["links"])]

    def _ids(self, study: Study) -> list[int]:
        """The token ids of the text."""
        if (self.text is None) == (self.token_ids is None):
            raise TokenError('pass either a text, e.g. "Homo sapiens", or token ids')
        ids = list(self.token_ids) if self.token_ids is not None else _encoded(study, str(self.text))
        if not ids or self.text == "":
            raise TokenError('the text is empty; pass one, e.g. "Homo sapiens"')
        beginning = [find_beginning(study.layer).token_id] if self.prepend_bos else []
        return ids if ids[:1] == beginning else beginning + ids


def _encoded(study: Study, text: str) -> list[int]:
    """The ids of the text; an encoder's with the special tokens it always reads ([CLS] and [SEP])."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenError(f"the text is not valid UTF-8 at character {error.start}; convert it first") from error
    return study.layer.vocabulary.encode(text, special_tokens=not study.layer.is_causal)
