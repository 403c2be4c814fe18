"""Reading options, and tallies of what was read, repaired and skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from detoklens.errors import CorpusError, CountsError

LIKELY_FIELDS = ("text", "content", "raw_content", "body", "document", "article", "story", "sentence")
SHOWN_PROBLEMS = 3
"""Skipped records that a tally names; the others are only counted."""


@dataclass(frozen=True)
class ReadingOptions:
    text_field: str = "text"
    document_per_line: bool = False
    skip_bad: bool = False


@dataclass
class Tally:
    """How much was read, repaired and skipped; tallies of parts add up."""

    documents: int = 0
    documents_with_tokens: int = 0
    text_bytes: int = 0
    tokens: int = 0
    replaced_characters: int = 0
    documents_with_replacements: int = 0
    skipped_records: int = 0
    first_skipped: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.first_skipped = self.first_skipped[:SHOWN_PROBLEMS]

    @property
    def bigrams(self) -> int:
        """Number of adjacent pairs: one for each token except the first of its document."""
        return self.tokens - self.documents_with_tokens

    def check_sums(self, where: object, tokens: int, bigrams: int) -> None:
        """Refuse counts whose number of tokens or bigrams differs from what was read."""
        for kind, found, expected in (("tokens", tokens, self.tokens), ("bigrams", bigrams, self.bigrams)):
            if found != expected:
                raise CountsError(
                    f"{where}: counted {found} {kind}, expected {expected}; this part was discarded: run the same "
                    "command again, and if it happens again, please report a bug"
                )


def bad_record(problem: str, options: ReadingOptions, tally: Tally) -> None:
    """Raise an error that names an unusable record, or skip it."""
    if not options.skip_bad:
        advice = ", or" if "pass text_field=" in problem else "; fix it, or"
        raise CorpusError(f"{problem}{advice} skip such records with skip_bad=True")
    tally.add(Tally(skipped_records=1, first_skipped=[problem]))


def name_the_field(fields: Sequence[str]) -> str:
    """Advice for a corpus without the requested field: the text fields, the most likely first."""
    if not fields:
        return "none of them holds text; check the input"
    fields = sorted(fields, key=lambda field: field.lower() not in LIKELY_FIELDS)
    others = f" (text is also in {', '.join(fields[1:4])})" if len(fields) > 1 else ""
    return f"pass text_field={fields[0]!r}{others}"


def check_length(name: str, size: int, longest: int) -> None:
    """Refuse a document that would not fit into the allowed memory."""
    if size > longest:
        raise CorpusError(
            f"{name}: has a document of more than {longest >> 20} MB, too large for the memory limit; split it "
            "(for .txt files set document_per_line=True), or count with more memory or fewer workers"
        )
