"""Runs a report's steps, each once: what was done before with the same inputs is read, not done again.

A table's file carries its provenance: model, counts, documents, settings and version. A step whose tables all carry the
provenance that it would write now is finished; so an interrupted report goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from detoklens.analyses.block_runs import Runner
from detoklens.analyses.text_blocks import digest
from detoklens.analyses.watching import Watcher
from detoklens.engines import Engine
from detoklens.report.asking import Asked
from detoklens.report.steps import STEPS, Step
from detoklens.report.subject import Subject
from detoklens.report.writing import write_whole
from detoklens.tables.files import read_provenance, write_tables
from detoklens.tables.parts import Parts
from detoklens.tables.provenance import Provenance
from detoklens.tables.schema import Schema


@dataclass(frozen=True)
class Progress:
    """How one step went: `seconds` it took, whether it was `kept` from before, or what is `missing` for it."""

    step: str
    title: str
    seconds: float = 0.0
    kept: bool = False
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listener:
    """Who is told about steps: that one begins (and gives a watcher for its bar), and how it went."""

    begin: Callable[[str], Watcher | None] = lambda _title: None
    end: Callable[[Progress], None] = lambda _progress: None


def compute(
    subject: Subject,
    folder: Path,
    engine: Engine | None = None,
    listener: Listener | None = None,
    steps: Sequence[Step] = STEPS,
) -> tuple[dict[str, pl.DataFrame], list[Progress]]:
    """All tables that the subject allows, in FOLDER as parquet and CSV, and how each step went."""
    listener = listener or Listener()
    tables: dict[str, pl.DataFrame] = {}
    passed = []
    for step in steps:
        missing = step.missing(subject)
        if missing:
            progress = Progress(step.name, step.title, missing=tuple(missing))
        else:
            progress = _do(step, subject, folder, engine, listener, tables)
        passed.append(progress)
        listener.end(progress)
    return tables, passed


def provenance_of(step: Step, subject: Subject) -> Provenance:
    """What decides the numbers of a step."""
    settings = {**step.settings, "seed": subject.seed}
    if "text" in step.needs:
        settings["documents_digest"] = digest(subject.documents)
    counts = None if subject.counts is None else subject.counts.fingerprint
    return Provenance(f"report-{step.name}", subject.layer.name, subject.layer.fingerprint, counts, settings)


def _do(
    step: Step,
    subject: Subject,
    folder: Path,
    engine: Engine | None,
    listener: Listener,
    tables: dict[str, pl.DataFrame],
) -> Progress:
    provenance = provenance_of(step, subject)
    started = time.perf_counter()
    kept = _kept(step.schemas, folder, provenance)
    if kept is not None:
        tables |= kept
        return Progress(step.name, step.title, time.perf_counter() - started, kept=True)
    runner = Runner(engine, Parts.of_question(folder, provenance), listener.begin(step.title))
    answer = step.ask(Asked(subject, tables, runner))
    made = [(_fitting(schema, frame), frame) for schema, frame in zip(step.schemas, answer, strict=True)]
    write_made(folder, made, provenance)
    runner.finish()
    tables |= {schema.name: frame for schema, frame in made}
    return Progress(step.name, step.title, time.perf_counter() - started)


def _kept(schemas: Sequence[Schema], folder: Path, provenance: Provenance) -> dict[str, pl.DataFrame] | None:
    paths = {schema.name: folder / f"{schema.name}.parquet" for schema in schemas}
    wanted = provenance.to_json()
    if any(read_provenance(path) != wanted or not path.with_suffix(".csv").is_file() for path in paths.values()):
        return None
    return {name: pl.read_parquet(path) for name, path in paths.items()}


def write_made(folder: Path, made: Sequence[tuple[Schema, pl.DataFrame]], provenance: Provenance) -> None:
    """CSV first: a table counts as finished by its parquet file."""
    folder.mkdir(parents=True, exist_ok=True)
    for schema, frame in made:
        write_whole(folder / f"{schema.name}.csv", frame.write_csv().encode())
    write_tables(folder, made, provenance)


def _fitting(schema: Schema, frame: pl.DataFrame) -> Schema:
    """The schema without the columns that an answer leaves out: counts, where there are none."""
    return schema.without(*(column.name for column in schema.columns if column.name not in frame.columns))
