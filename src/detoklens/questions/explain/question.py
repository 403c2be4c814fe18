"""Why does layer 0 attend as it does in this text? Every pair of tokens, its terms, and what each term does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from detoklens.errors import TokenError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.explain import explain
from detoklens.questions.base import View
from detoklens.questions.explain.compute import (
    SIX,
    explanation_schema,
    legend_view,
    links_schema,
    links_view,
    pair_table,
    strongest_links,
    symbol,
    terms_of,
)
from detoklens.questions.options import SplitTerms
from detoklens.questions.parameters import Heads, Parameter, in_one_word, to_cli_args, whole_numbers
from detoklens.questions.texts import beginning_token
from detoklens.tables.schema import Schema
from detoklens.wording import head_name, listed, plural, term_name, token_shown

if TYPE_CHECKING:
    from detoklens.parallel import Runner
    from detoklens.questions.base import Frames
    from detoklens.questions.study import Study


STANDARD_INPUT = "-"


def read_text(given: str) -> str:
    """The text of the command line; a hyphen stands for standard input."""
    if given != STANDARD_INPUT:
        return given
    if sys.stdin.isatty():
        sys.stderr.write("reading the text from standard input; end it with Ctrl-D\n")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenError(f"the text is not valid UTF-8 at byte {error.start}; convert it first") from error


@dataclass(frozen=True, repr=False)
class Explain(SplitTerms):
    """Show which term explains each head's strongest links in a text.

    Beside the links there is every pair of tokens: the terms, the score, the attention, and what the attention would be
    without each term.

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
            "Token ids in place of a text.",
            metavar="464,2068",
            read=whole_numbers("token ids"),
            spell=in_one_word("--token-ids"),
        ),
    ] = None
    heads: Heads = None
    top: Annotated[int, Parameter("How many links of each head are shown.", least=1)] = 3
    prepend_bos: Annotated[bool, Parameter("Put the model's beginning-of-text token in front.")] = False

    topic = "What happens on text?"
    progress_label = "explaining"
    uses = frozenset({"vocabulary", "counts"})
    tables = (explanation_schema(SIX), links_schema(SIX))
    equation = (
        "s = Σ T,  α[h, i, :] = softmax over the keys in view of s / √d′,  without T: softmax of (s − T) / √d′;  "
        "strength of a link: α log₂(α n), where its query sees n keys;  its term: the one whose removal lowers α most"
    )
    figures = (
        FigureSpec(
            "explain",
            "explain",
            ("explanation", "links"),
            "Attention in the text and the terms that explain it",
            "Attention of each token (row) to the tokens that it sees (columns); each head's strongest links are "
            "framed, with the term whose removal lowers the link most at the end of the row. Where names would be "
            "too small, the links are bars instead. Tᵉᵉ: token and token; Tᵖᵖ: position and position; Tᵉᵖ: token and "
            "position; Tᵖᵉ: position and token; Tᵉ: token alone; Tᵖ: position alone.",
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
        return asked | self.of_family(study)

    def cli_args(self, study: Study) -> list[str]:
        """A text that a command line would take for an option, or can't hold, is given by its token ids."""
        if isinstance(self.text, str) and (self.text.startswith("-") or "\0" in self.text):
            return to_cli_args(replace(self, text=None, token_ids=study.layer.vocabulary.encode(self.text)))
        return to_cli_args(self)

    def ask(self, study: Study, runner: Runner) -> Frames:
        found = explain(study.layer, self._ids(study), study.heads(self.heads), self.split_off(study))
        texts = [study.layer.token(int(token_id)) for token_id in found.token_ids]
        return {"explanation": pair_table(found, texts), "links": strongest_links(found, texts, self.top)}

    def schemas(self, tables: Frames) -> list[Schema]:
        terms = terms_of(tables["links"])
        return [explanation_schema(terms), links_schema(terms)]

    def summarize(self, tables: Frames) -> str:
        """The strongest link of all with its term, and how many links each term explains."""
        links = tables["links"]
        link = links.sort("strength", descending=True, maintain_order=True).row(0, named=True)
        query, key = (f"“{token_shown(link[name])}”" for name in ("query_text", "key_text"))
        strongest = (
            f"The strongest link is {query} to {key} in {head_name(link['head'])} (attention {link['attention']:.2f})"
        )
        if link["term"] is None:
            return f"{strongest}; taking away any one term would not lower it."
        counted = links["term"].drop_nulls().value_counts(sort=True).sort("count", "term", descending=[True, False])
        shares = [f"{symbol(term)} {number}" for term, number in counted.iter_rows()]
        return (
            f"{strongest}, explained by {term_name(link['term'])}: {link['without_term']:.2f} without it; of the "
            f"{plural(len(links), 'strongest link')} each term explains so many: {listed(shares)}."
        )

    def views(self, tables: Frames) -> Sequence[View]:
        """The links, one a line, and below what the terms stand for."""
        return [links_view(tables["links"]), legend_view(tables["links"])]

    def _ids(self, study: Study) -> list[int]:
        """The text's ids, whichever way it was given; an error where there is none, or both are."""
        if (self.text is None) == (self.token_ids is None):
            raise TokenError('give either a text, such as "Homo sapiens", or token ids')
        ids = list(self.token_ids) if self.token_ids is not None else _encoded(study, str(self.text))
        if not ids:
            raise TokenError('the text is empty: no token, so nothing attends; give a text such as "Homo sapiens"')
        return [beginning_token(study.layer), *ids] if self.prepend_bos else ids


def _encoded(study: Study, text: str) -> list[int]:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenError(f"the text is not valid UTF-8 at character {error.start}; convert it first") from error
    return study.layer.vocabulary.encode(text)
