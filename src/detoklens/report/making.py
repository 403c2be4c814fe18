"""One report from beginning to end: tables, figures, the page, and where all of it comes from."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import polars as pl

from detoklens.analyses.text_blocks import digest
from detoklens.analyses.watching import Watcher
from detoklens.engines import Engine
from detoklens.errors import OutputError
from detoklens.report.assembling import SCHEMAS, assemble
from detoklens.report.choosing import chosen_heads
from detoklens.report.computing import Listener, Progress, compute
from detoklens.report.drawing import Sketchbook, drawings
from detoklens.report.page import render_page
from detoklens.report.partner_index import partner_index
from detoklens.report.steps import STEPS
from detoklens.report.subject import Subject
from detoklens.report.writing import write_whole
from detoklens.tables.schema import Schema
from detoklens.version import __version__

KIND = "report"
PAGE, PROVENANCE = "report.html", "provenance.json"
RECORDED = ("numpy", "scipy", "numba", "polars", "pyarrow", "matplotlib", "tokenizers", "gigatoken")


def make_report(
    subject: Subject,
    folder: Path,
    width: str | float = "page",
    engine: Engine | None = None,
    listener: Listener | None = None,
) -> Path:
    """Write FOLDER/report.html with its tables/, figures/ and provenance.json; what is there already is kept."""
    listener = listener or Listener()
    claim(folder, KIND)
    tables, passed = compute(subject, folder / "tables", engine, listener)
    planned = drawings(tables, chosen_heads(subject.heads, tables), subject.layer.n_heads)
    with timed("figures", "Draw the figures", listener, passed) as watch:
        pictures = Sketchbook(folder / "figures", width).pictures(planned, tables, engine, watch)
    with timed("partners_index", "Find the partners of every token", listener, passed):
        partners = partner_index(subject, engine)
    with timed("page", "Write the page", listener, passed):
        content = assemble(subject, tables, pictures, passed, folder / "tables", partners)
        guide = column_guide([(SCHEMAS[name], frame) for name, frame in tables.items()])
        write_whole(folder / "tables" / "README.md", guide.encode())
        write_whole(folder / PAGE, render_page(content).encode())
    write_whole(folder / PROVENANCE, provenance(KIND, [subject], passed).encode())
    return folder / PAGE


@contextlib.contextmanager
def timed(step: str, title: str, listener: Listener, passed: list[Progress]) -> Iterator[Watcher | None]:
    """Tell the listener of a step that is no analysis, and note its time."""
    started = time.perf_counter()
    yield listener.begin(title)
    passed.append(Progress(step, title, time.perf_counter() - started))
    listener.end(passed[-1])


def refuse_foreign(folder: Path, kind: str = KIND) -> None:
    """An error where the folder holds anything but a report (or comparison) of ours; nothing is written."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; name a folder by --out")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    found = _kind_of(folder)
    if found is None:
        raise OutputError(f"{folder} holds something else and is not overwritten; name a new or empty folder by --out")
    if found != kind:
        raise OutputError(f"{folder} holds a {found} and is not overwritten by a {kind}; name another folder by --out")


def claim(folder: Path, kind: str) -> None:
    """Make the folder ours; one that holds something else is refused."""
    refuse_foreign(folder, kind)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / PROVENANCE).is_file():
        begun = json.dumps({"detoklens": __version__, "kind": kind, "finished": False})
        write_whole(folder / PROVENANCE, f"{begun}\n".encode())


def _kind_of(folder: Path) -> str | None:
    """What kind of ours the folder is; None where it is not."""
    try:
        record = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ours = isinstance(record, dict) and "detoklens" in record and "kind" in record
    return str(record["kind"]) if ours else None


def column_guide(tables: Sequence[tuple[Schema, pl.DataFrame]]) -> str:
    """The README of the tables: each table's question, and each column's meaning."""
    parts = ["# Tables\n\nEach table is there as parquet (its metadata says where it comes from) and as CSV.\n"]
    for schema, frame in tables:
        rows = [
            f"| `{column.name}` | {column.dtype} | {column.meaning.replace('|', chr(92) + '|')} |"
            for column in schema.columns
            if column.name in frame.columns
        ]
        heading = f"## {schema.name}\n\n{schema.question} {len(frame):,} rows.\n\n"
        parts.append(heading + "| column | type | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def provenance(kind: str, subjects: Sequence[Subject], passed: Sequence[Progress]) -> str:
    """What the report was made of: models, counts, text, settings, versions, the command, and each step's time."""
    record = {
        "detoklens": __version__,
        "kind": kind,
        "finished": True,
        "command": ["detoklens", *sys.argv[1:]],
        "models": [
            {
                "model": subject.layer.name,
                "weights_sha256": subject.layer.fingerprint,
                "tokenizer_sha256": subject.layer.vocabulary.fingerprint if subject.layer.has_vocabulary else None,
                "counts_sha256": None if subject.counts is None else subject.counts.fingerprint,
                "documents": len(subject.documents),
                "documents_sha256": digest(subject.documents) if subject.documents else None,
                "heads": "chosen by the head cards" if subject.heads is None else list(subject.heads),
                "seed": subject.seed,
            }
            for subject in subjects
        ],
        "settings": {step.name: dict(step.settings) for step in STEPS},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in RECORDED},
        "steps": [
            {"step": step.step, "seconds": round(step.seconds, 3), "kept": step.kept, "missing": list(step.missing)}
            for step in passed
        ],
    }
    return json.dumps(record, indent=1) + "\n"
