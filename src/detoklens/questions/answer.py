"""What comes back: tables, one sentence, figures, and where they come from. Shown the same way everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detoklens.errors import RangeError, as_path, escape_unprintable
from detoklens.figures.spec import FigureSpec, chosen_spec
from detoklens.questions.question import Question, View
from detoklens.tables.rendering import html_table, text_table
from detoklens.tables.schema import Column, Schema

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from detoklens.questions.verdict import Verdict
    from detoklens.tables.provenance import Provenance

SHOWN_ROWS = 10  # of a table in a notebook
MODEL = Column("model", "String", "label of the checkpoint")


@dataclass(frozen=True, eq=False)
class Answer:
    """What a study answered to a question.

    `tables` are polars tables by name, `sentence` says them in words, `figure()` draws them, `command` gives the same
    numbers on the command line, and `write` keeps all of it in a folder.
    """

    question: Question
    model: str
    tables: Mapping[str, pl.DataFrame]
    provenance: Provenance
    command: str
    notes: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        """The same question with the same numbers from the same source; `read_answer` gives what was written."""
        if not isinstance(other, Answer):
            return NotImplemented
        if (self.provenance.to_json(), self.model, [*self.tables]) != (
            other.provenance.to_json(),
            other.model,
            [*other.tables],
        ):
            return False
        return all(frame.equals(other.tables[name]) for name, frame in self.tables.items())

    def __hash__(self) -> int:
        return hash(self.provenance.to_json())

    @cached_property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return self.question.say(self.tables)

    @cached_property
    def verdict(self) -> Verdict | None:
        """The conclusion as data: value, heads and the control that decided; None where the question only measures."""
        return self.question.verdict(self.tables)

    @property
    def schemas(self) -> list[Schema]:
        """What each table is and what its columns mean."""
        return self.question.schemas(self.tables)

    @property
    def figures(self) -> dict[str, FigureSpec]:
        """The figures that can be drawn of these tables, by name."""
        return {spec.name: spec for spec in self.question.specs() if spec.can_draw(self.tables)}

    def figure(
        self, name: str | None = None, *, heads: Sequence[int] | None = None, width: str | float = "page", **more: Any
    ) -> Figure:
        """A matplotlib figure: the first one where no name is given; `width` is `page`, `column` or inches."""
        spec = self.spec(name)
        chosen = {} if heads is None else {"heads": self._heads_drawn(spec, heads)}
        return spec.draw(self.drawn_from, width=width, **chosen, **more)

    def _heads_drawn(self, spec: FigureSpec, heads: int | Sequence[int]) -> list[int]:
        """The heads to draw, refused where the figure's tables have none such."""
        asked = [heads] if isinstance(heads, int) else list(heads)
        known = {head for name in spec.tables for head in self.tables[name].get_column("head", default=[])}
        wrong = [head for head in asked if known and head not in known]
        if wrong or not asked:
            raise RangeError(f"heads={asked}: the heads of this answer are {', '.join(map(str, sorted(known)))}")
        return asked

    @property
    def drawn_from(self) -> Mapping[str, Any]:
        return self.tables

    def spec(self, name: str | None) -> FigureSpec:
        return chosen_spec(list(self.figures.values()), name, self.question.name())

    def write(self, folder: str | Path) -> list[Path]:
        """Keep the tables in a folder, as parquet with provenance and as CSV, whole or not at all."""
        from detoklens.questions.store import Store

        return Store(as_path(folder, "the folder to write to")).keep(self)

    @property
    def views(self) -> Sequence[View]:
        """What a terminal shows."""
        return self.question.views(self.tables)

    @property
    def page_views(self) -> Sequence[View]:
        """What a report's page shows."""
        return self.question.page_views(self.tables)

    def __str__(self) -> str:
        shown = [text_table(view.frame, f"{self.model}: {view.title}") for view in self.views]
        return "\n".join([*shown, escape_unprintable(self.sentence)])

    def __repr__(self) -> str:
        tables = ", ".join(f"{name} ({len(frame):,} rows)" for name, frame in self.tables.items())
        return escape_unprintable(f"Answer to {self.question!r} of {self.model}: {self.sentence} Tables: {tables}.")

    def _repr_html_(self) -> str:
        """The sentence, the first rows of what a terminal shows, and the first figure, for a notebook."""
        from html import escape

        parts = [f"<p><strong>{escape(self.sentence)}</strong></p>"]
        parts += [html_table(view.frame, view.title, SHOWN_ROWS) for view in self.views]
        if self.figures:
            parts.append(self._figure_html(next(iter(self.figures.values()))))
        return "\n".join(parts)

    def _figure_html(self, spec: FigureSpec) -> str:
        from html import escape

        from detoklens.figures.svg import svg_text

        drawn = svg_text(self.figure(spec.name), spec.name, spec.title, spec.caption)
        caption = f"<figcaption><strong>{escape(spec.title)}.</strong> {escape(spec.caption)}</figcaption>"
        return f"<figure>{drawn}{caption}</figure>"


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Answer):
    """One question answered by several models: each table holds all of them, told apart by the column `model`."""

    labels: tuple[str, ...] = ()

    @cached_property
    def by_label(self) -> dict[str, dict[str, pl.DataFrame]]:
        """Each model's own tables."""
        return {
            label: {name: frame.filter(model=label).drop("model") for name, frame in self.tables.items()}
            for label in self.labels
        }

    @cached_property
    def verdict(self) -> None:
        """Several models have no common verdict: see `verdicts`."""
        return None

    @cached_property
    def verdicts(self) -> dict[str, Verdict | None]:
        """Each model's verdict by its label."""
        return {label: self.question.verdict(tables) for label, tables in self.by_label.items()}

    @cached_property
    def sentence(self) -> str:
        """How the models differ, in one sentence."""
        return self.question.say_compared(self.by_label)

    @property
    def schemas(self) -> list[Schema]:
        """The tables' schemas, with the model's label before all."""
        plain = self.question.schemas(self.tables)
        return [Schema(schema.name, schema.question, (MODEL, *schema.columns)) for schema in plain]

    @property
    def figures(self) -> dict[str, FigureSpec]:
        """The figures that set models side by side."""
        return {spec.name: spec for spec in self.question.compared_specs() if spec.can_draw(self.drawn_from)}

    @property
    def drawn_from(self) -> Mapping[str, Any]:
        return by_table(self.by_label)

    @property
    def views(self) -> Sequence[View]:
        """The first table of all models."""
        first = self.schemas[0]
        return [View(first.question, self.tables[first.name])]

    @property
    def page_views(self) -> Sequence[View]:
        """The same on a page."""
        return self.views


def by_table(by_label: Mapping[str, Mapping[str, pl.DataFrame]]) -> dict[str, dict[str, pl.DataFrame]]:
    """Table by table, the models that have it with at least one row, in order."""
    names = dict.fromkeys(name for tables in by_label.values() for name in tables)
    found = {
        name: {label: tables[name] for label, tables in by_label.items() if name in tables and len(tables[name])}
        for name in names
    }
    return {name: tables for name, tables in found.items() if tables}
