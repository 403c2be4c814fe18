"""The folder of a report: claiming it, asking its questions, describing its tables, recording its provenance."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detoklens.errors import MissingError, OutputError, RangeError, TokenError
from detoklens.measures.documents import digest
from detoklens.questions.answer import Store, labelled
from detoklens.questions.layers.question import Layers
from detoklens.report.content import Listener, Step
from detoklens.report.sections import SECTIONS, WORD, Entry, SectionPlan
from detoklens.tables.files import NOTE
from detoklens.version import __version__
from detoklens.wording import sentence
from detoklens.writing import make_folder, refuse_links, write_whole

if TYPE_CHECKING:
    import polars as pl

    from detoklens.progress import Watcher
    from detoklens.questions.answer import Answer
    from detoklens.questions.study import Study
    from detoklens.tables.schema import Schema


PAGE, PROVENANCE = "report.html", "provenance.json"
RECORDED = ("numpy", "scipy", "numba", "polars", "pyarrow", "matplotlib", "tokenizers", "gigatoken")


def refuse_foreign(folder: Path, kind: str) -> None:
    """Raise an OutputError if the folder holds anything but a report (or comparison) of this kind."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; pass a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    found = _kind_of(folder)
    if found is None:
        raise OutputError(f"{folder} holds something else and is not overwritten; pass a new or empty folder")
    if found != kind:
        raise OutputError(f"{folder} holds a {found} and is not overwritten by a {kind}; pass another folder")
    refuse_links(folder)


def claim(folder: Path, kind: str) -> None:
    """Create the folder and mark it as a report; refuse one that holds something else."""
    refuse_foreign(folder, kind)
    make_folder(folder)
    if not (folder / PROVENANCE).is_file():
        begun = json.dumps({"detoklens": __version__, "kind": kind, "finished": False})
        write_whole(folder / PROVENANCE, f"{begun}\n".encode())


def _kind_of(folder: Path) -> str | None:
    """`report` or `comparison`; None for any other folder."""
    try:
        record = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    ours = isinstance(record, dict) and "detoklens" in record and "kind" in record
    return str(record["kind"]) if ours else None


def column_guide(tables: Sequence[tuple[str, Schema, pl.DataFrame]]) -> str:
    """The README of the tables: what each table answers and what each column means."""
    parts = [f"# Tables\n\nEach table is stored as parquet, with its provenance in the metadata, and as CSV. {NOTE}\n"]
    for name, schema, frame in tables:
        rows = [
            f"| `{column.name}` | {column.dtype} | {column.meaning.replace('|', chr(92) + '|')} |"
            for column in schema.columns
        ]
        heading = f"## {name}\n\n{sentence(schema.question)} {len(frame):,} rows.\n\n"
        parts.append(heading + "| column | type | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def record(folder: Path, kind: str, studies: Sequence[Study], steps: Sequence[Step]) -> None:
    """Write the provenance: models, counts, text, versions, the command, and the duration of each step."""
    made_of = {
        "detoklens": __version__,
        "kind": kind,
        "finished": True,
        "command": ["detoklens", *sys.argv[1:]],
        "models": [_recorded(study) for study in studies],
        "versions": {"python": platform.python_version()} | {name: version(name) for name in RECORDED},
        "steps": [
            {"step": step.title, "seconds": round(step.seconds, 3), "kept": step.kept, "missing": list(step.missing)}
            for step in steps
        ],
    }
    write_whole(folder / PROVENANCE, (json.dumps(made_of, indent=1) + "\n").encode())


def _recorded(study: Study) -> dict[str, Any]:
    layer, text = study.layer, study.has("text")
    return {
        "model": layer.name,
        "weights_sha256": layer.fingerprint,
        "tokenizer_sha256": layer.vocabulary.fingerprint if layer.has_vocabulary else None,
        "counts_sha256": None if study.counts is None else study.counts.fingerprint,
        "documents": len(study.documents) if text else 0,
        "documents_sha256": digest(study.documents) if text else None,
        "seed": study.seed,
    }


WITHOUT = {
    "counts": "Omitted without corpus counts",
    "text": "Omitted without text",
    "vocabulary": "Omitted because the model has no tokenizer",
    "position_table": "Omitted because the model has no position embeddings",
    "causal": "Omitted because the model's attention is not causal",
}


@dataclass(frozen=True)
class Asked:
    """A question of a section and its answer, or why there is none."""

    section: SectionPlan
    entry: Entry
    answer: Answer | None = None
    left_out: str = ""

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by file name."""
        if self.answer is None:
            return {}
        named = self.answer.tables.items()
        return {labelled(self.entry.label, self.entry.question, name): frame for name, frame in named}


def ask_all(
    study: Study, folder: Path, listener: Listener, only_compared: bool = False, layers: int | None = None
) -> list[Asked]:
    """Ask all questions of all sections; answers in the folder with the same inputs are reused.

    With `layers`, that many blocks of the real model are run too.
    """
    run = {} if layers is None else {WORD.title: [Entry(Layers(up_to=layers))]}
    planned = [
        (section, entry) for section in SECTIONS for entry in (*section.entries(study), *run.get(section.title, ()))
    ]
    return [
        _ask(study, section, entry, folder, listener)
        for section, entry in planned
        if entry.compared or not only_compared
    ]


def _ask(study: Study, section: SectionPlan, entry: Entry, folder: Path, listener: Listener) -> Asked:
    title = f"{entry.question.name()}{entry.remark}"
    started, computed = time.perf_counter(), False

    @contextlib.contextmanager
    def watching(doing: str) -> Iterator[Watcher | None]:
        nonlocal computed
        computed = True
        yield listener.begin(f"{title}: {doing}")

    try:
        answer = study.ask(entry.question, Store(folder, entry.label), watching)
    except MissingError as error:
        listener.tell(Step(title, missing=(error.need,)))
        return Asked(section, entry, left_out=f"{WITHOUT[error.need]}: {title}.")
    except (TokenError, RangeError) as error:
        listener.tell(Step(title, missing=(str(error),)))
        return Asked(section, entry, left_out=f"Omitted: {title} ({error}).")
    listener.tell(Step(title, time.perf_counter() - started, kept=not computed))
    return Asked(section, entry, answer)


def all_tables(asked: Sequence[Asked]) -> dict[str, pl.DataFrame]:
    """Every table of a report by file name."""
    return {name: frame for each in asked for name, frame in each.tables.items()}
