"""The folder of a report: claiming it, asking its questions, describing its tables, recording its provenance."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from detoklens.errors import MissingError, OutputError, RangeError, TokenError
from detoklens.measures.documents import digest
from detoklens.progress import Listener, Step, Watcher
from detoklens.questions.base import ReportEntry
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.layers.question import Layers
from detoklens.questions.store import Store, labelled
from detoklens.tables.files import NOTE, DamagedTableError, note_recomputed, read_stored
from detoklens.version import __version__
from detoklens.wording import sentence
from detoklens.writing import make_folder, refuse_links, write_whole

if TYPE_CHECKING:
    import polars as pl

    from detoklens.questions.answer import Answer, Comparison
    from detoklens.questions.study import Study
    from detoklens.tables.schema import Schema


PAGE, PROVENANCE = "report.html", "provenance.json"
REPORT, COMPARISON = "report", "comparison"
RECORDED = ("numpy", "scipy", "numba", "polars", "pyarrow", "matplotlib", "tokenizers", "gigatoken")


def refuse_foreign(folder: Path, kind: str) -> None:
    """Raise an OutputError if the folder holds anything but a report (or comparison) of this kind."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; pass a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    found = _kind_of(folder)
    if found is None:
        raise OutputError(f"{folder} contains other files and is not overwritten; pass a new or empty folder")
    if found != kind:
        raise OutputError(f"{folder} holds a {found} and is not overwritten by a {kind}; pass another folder")
    refuse_links(folder)


def claim(folder: Path, kind: str) -> None:
    """Create the folder and mark it as a report; refuse one with other content."""
    refuse_foreign(folder, kind)
    make_folder(folder)
    if _recorded_kind(folder) is None:
        if (folder / PROVENANCE).is_file():
            note_recomputed(f"{folder / PROVENANCE} is damaged")
        begun = json.dumps({"detoklens": __version__, "kind": kind, "finished": False})
        write_whole(folder / PROVENANCE, f"{begun}\n".encode())


def _kind_of(folder: Path) -> str | None:
    """`report` or `comparison`; None for any other folder.

    A report whose provenance is damaged is known by its tables.
    """
    if (recorded := _recorded_kind(folder)) is not None or not (folder / PROVENANCE).is_file():
        return recorded
    for path in [*sorted(folder.glob("tables/*.parquet")), *sorted(folder.glob("models/*/*.parquet"))]:
        with contextlib.suppress(DamagedTableError):
            if read_stored(path) is not None:
                return COMPARISON if (folder / "models").is_dir() else REPORT
    return None


def _recorded_kind(folder: Path) -> str | None:
    """The kind that the provenance states; None if it is missing, damaged or of something else."""
    try:
        record = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    ours = isinstance(record, dict) and "detoklens" in record and record.get("kind") in (REPORT, COMPARISON)
    return str(record["kind"]) if ours else None


def column_guide(tables: Mapping[str, tuple[Schema, pl.DataFrame]]) -> str:
    """The README of the tables: what each table answers and what each column means."""
    parts = [f"# Tables\n\nEach table is stored as parquet, with its provenance in the metadata, and as CSV. {NOTE}\n"]
    for name, (schema, frame) in tables.items():
        rows = [
            f"| `{column.name}` | {column.dtype} | {column.meaning.replace('|', chr(92) + '|')} |"
            for column in schema.columns
        ]
        heading = f"## {name}\n\n{sentence(schema.question)} {len(frame):,} rows.\n\n"
        parts.append(heading + "| column | type | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def record(folder: Path, kind: str, studies: Sequence[Study], steps: Sequence[Step]) -> None:
    """Write the provenance: models, counts, text, versions, the command and the steps; no times, which never repeat."""
    models = [
        {
            "model": study.layer.name,
            "weights_sha256": study.layer.fingerprint,
            "tokenizer_sha256": study.layer.vocabulary.fingerprint if study.layer.has_vocabulary else None,
            "counts_sha256": None if study.counts is None else study.counts.fingerprint,
            "documents": len(study.documents) if study.has("text") else 0,
            "documents_sha256": digest(study.documents) if study.has("text") else None,
            "seed": study.seed,
        }
        for study in studies
    ]
    made_of = {
        "detoklens": __version__,
        "kind": kind,
        "finished": True,
        "command": ["detoklens", *sys.argv[1:]],
        "models": models,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in RECORDED},
        "steps": [{"step": step.title, "missing": step.missing} for step in steps],
    }
    write_whole(folder / PROVENANCE, (json.dumps(made_of, indent=1) + "\n").encode())


SECTIONS = (
    "Scorecard",
    "Detokenization heads",
    "Looking back",
    "Words written by the layer",
    "Token partners",
    "Anatomy of heads",
    "Position terms",
    "Attention on text",
    "Term contributions",
    "Token frequency",
    "Checkpoint anomalies",
)
"""The order of the sections; a question that names another one comes last."""


def report_entries(study: Study, layers: int | None = None) -> list[ReportEntry]:
    """Everything that a report asks a study, by section; with `layers`, that many blocks of the real model too."""
    found = [entry for question in QUESTIONS.values() for entry in question.report_entries(study)]
    found += [] if layers is None else [ReportEntry(Layers(up_to=layers))]
    titles = dict.fromkeys([*SECTIONS, *(entry.question.report_section for entry in found)])
    return [entry for title in titles if title for entry in found if entry.question.report_section == title]


@dataclass(frozen=True)
class Asked:
    """A question of a report and its answer, or the error that prevented one."""

    entry: ReportEntry
    answer: Answer | Comparison | None = None
    error: MissingError | TokenError | RangeError | None = None

    @property
    def tables(self) -> dict[str, tuple[Schema, pl.DataFrame]]:
        """The tables with their schemas, by file name."""
        if self.answer is None:
            return {}
        return {
            labelled(self.entry.label, self.entry.question, schema.name): (schema, self.answer.tables[schema.name])
            for schema in self.answer.schemas
        }


@dataclass(frozen=True)
class ReportStore(Store):
    """A folder of answers in a report; notes the files it writes."""

    claimed: bool = True
    written: list[Path] = field(default_factory=list)

    def keep(self, answer: Answer | Comparison) -> list[Path]:
        self.written.extend(super().keep(answer))
        return self.written


def ask_all(
    study: Study, folder: Path, listener: Listener, only_compared: bool = False, layers: int | None = None
) -> list[Asked]:
    """Ask all questions of a report; answers in the folder with the same inputs are reused."""
    entries = [entry for entry in report_entries(study, layers) if entry.compared or not only_compared]
    asked = []
    try:
        for number, entry in enumerate(entries):
            study.upcoming = [each.question for each in entries[number + 1 :]]
            started, store = time.perf_counter(), ReportStore(folder, entry.label)
            begin = partial(_begin, listener, entry.title)
            try:
                answer = study.ask(entry.question, store, begin)
            except (MissingError, TokenError, RangeError) as error:
                missing = error.need if isinstance(error, MissingError) else str(error)
                listener.tell(Step(entry.title, missing=missing))
                asked.append(Asked(entry, error=error))
            else:
                listener.tell(Step(entry.title, time.perf_counter() - started, kept=not store.written))
                asked.append(Asked(entry, answer))
    finally:  # also after an interrupt: the study may be asked other questions
        study.upcoming = ()
        study.prepared.clear()
    return asked


def _begin(listener: Listener, title: str, progress_label: str) -> contextlib.AbstractContextManager[Watcher | None]:
    return contextlib.nullcontext(listener.begin(f"{title}: {progress_label}"))


def all_tables(asked: Sequence[Asked]) -> dict[str, tuple[Schema, pl.DataFrame]]:
    """Every table of a report with its schema, by file name."""
    return {name: found for each in asked for name, found in each.tables.items()}
