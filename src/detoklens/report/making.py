"""One report from beginning to end: tables, figures, the page, and where all of it comes from."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import polars as pl

from detoklens.engines import Engine
from detoklens.errors import OutputError
from detoklens.report.assembling import SCHEMAS, assemble, chosen_heads
from detoklens.report.computing import Listener, Progress, compute
from detoklens.report.content import Content, Picture
from detoklens.report.drawing import Sketchbook, drawings
from detoklens.report.page import render_page
from detoklens.report.subject import Subject
from detoklens.version import __version__

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
    claim(folder)
    tables, passed = compute(subject, folder / "tables", engine, listener)
    pictures, drawn = _draw(subject, tables, folder / "figures", width, listener)
    started = time.perf_counter()
    watch = listener.begin("Write the page")
    if watch is not None:
        watch(0, 1)
    content = assemble(subject, tables, pictures, passed, folder / "tables")
    write_page(folder, content)
    write_whole(folder / "tables" / "README.md", column_guide(tables))
    written = Progress("page", "Write the page", time.perf_counter() - started)
    listener.end(written)
    write_whole(folder / PROVENANCE, provenance([subject], [*passed, drawn, written]))
    return folder / PAGE


def claim(folder: Path) -> None:
    """Make the folder ours; one that holds something else is refused."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / PROVENANCE).is_file():
        raise OutputError(f"{folder} holds something else and is not overwritten; name a new or empty folder by --out")
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; name a folder by --out")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / PROVENANCE).is_file():
        write_whole(folder / PROVENANCE, json.dumps({"detoklens": __version__, "finished": False}) + "\n")


def write_page(folder: Path, content: Content) -> None:
    write_whole(folder / PAGE, render_page(content))


def write_whole(path: Path, text: str) -> None:
    """Write a text file under a temporary name and rename it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def column_guide(tables: dict[str, pl.DataFrame]) -> str:
    """The README of the tables: each table's question, and each column's meaning."""
    parts = ["# Tables\n\nEach table is there as parquet (its metadata says where it comes from) and as CSV.\n"]
    for name, frame in tables.items():
        schema = SCHEMAS[name]
        rows = [
            f"| `{column.name}` | {column.dtype} | {column.meaning.replace('|', chr(92) + '|')} |"
            for column in schema.columns
            if column.name in frame.columns
        ]
        heading = f"## {name}\n\n{schema.question} {len(frame):,} rows.\n\n| column | type | meaning |\n|---|---|---|\n"
        parts.append(heading + "\n".join(rows) + "\n")
    return "\n".join(parts)


def provenance(subjects: Sequence[Subject], passed: Sequence[Progress]) -> str:
    """What the report was made of: models, counts, text, versions, the command, and the time of each step."""
    record = {
        "detoklens": __version__,
        "finished": True,
        "command": sys.argv,
        "models": [
            {
                "model": subject.layer.name,
                "weights_sha256": subject.layer.fingerprint,
                "tokenizer_sha256": subject.layer.vocabulary.fingerprint if subject.layer.has_vocabulary else None,
                "counts_sha256": None if subject.counts is None else subject.counts.fingerprint,
                "documents": len(subject.documents),
                "seed": subject.seed,
            }
            for subject in subjects
        ],
        "versions": {"python": platform.python_version()} | {name: version(name) for name in RECORDED},
        "steps": [
            {"step": step.step, "seconds": round(step.seconds, 3), "kept": step.kept, "missing": list(step.missing)}
            for step in passed
        ],
    }
    return json.dumps(record, indent=1) + "\n"


def _draw(
    subject: Subject,
    tables: dict[str, pl.DataFrame],
    folder: Path,
    width: str | float,
    listener: Listener,
) -> tuple[dict[str, list[Picture]], Progress]:
    started = time.perf_counter()
    watch = listener.begin("Draw the figures")
    folder.mkdir(parents=True, exist_ok=True)
    book = Sketchbook(folder, width)
    pictures: dict[str, list[Picture]] = {}
    planned = drawings(tables, chosen_heads(subject, tables), subject.layer.n_heads)
    for done, drawing in enumerate(planned):
        if watch is not None:
            watch(done, len(planned))
        pictures.setdefault(drawing.spec.question, []).append(book.picture(drawing, tables))
    progress = Progress("figures", "Draw the figures", time.perf_counter() - started)
    listener.end(progress)
    return pictures, progress
