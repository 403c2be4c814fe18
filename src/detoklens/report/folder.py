"""The folder of a report: made ours before anything is written, and recorded when all is done."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detoklens.errors import OutputError
from detoklens.tables.csv_text import NOTE
from detoklens.version import __version__
from detoklens.writing import make_folder, refuse_links, write_whole

if TYPE_CHECKING:
    import polars as pl

    from detoklens.questions.study import Study
    from detoklens.report.steps import Step
    from detoklens.tables.schema import Schema

PAGE, PROVENANCE = "report.html", "provenance.json"
RECORDED = ("numpy", "scipy", "numba", "polars", "pyarrow", "matplotlib", "tokenizers", "gigatoken")


def refuse_foreign(folder: Path, kind: str) -> None:
    """An error where the folder holds anything but a report (or comparison) of ours; nothing is written."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; name a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    found = _kind_of(folder)
    if found is None:
        raise OutputError(f"{folder} holds something else and is not overwritten; name a new or empty folder")
    if found != kind:
        raise OutputError(f"{folder} holds a {found} and is not overwritten by a {kind}; name another folder")
    refuse_links(folder)


def claim(folder: Path, kind: str) -> None:
    """Make the folder ours; one that holds something else is refused."""
    refuse_foreign(folder, kind)
    make_folder(folder)
    if not (folder / PROVENANCE).is_file():
        begun = json.dumps({"detoklens": __version__, "kind": kind, "finished": False})
        write_whole(folder / PROVENANCE, f"{begun}\n".encode())


def _kind_of(folder: Path) -> str | None:
    """What kind of ours the folder is; None where it is not."""
    try:
        record = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    ours = isinstance(record, dict) and "detoklens" in record and "kind" in record
    return str(record["kind"]) if ours else None


def column_guide(tables: Sequence[tuple[str, Schema, pl.DataFrame]]) -> str:
    """The README of the tables: each table's question, and each column's meaning."""
    parts = [f"# Tables\n\nEach table is there as parquet (its metadata says where it comes from) and as CSV. {NOTE}\n"]
    for name, schema, frame in tables:
        rows = [
            f"| `{column.name}` | {column.dtype} | {column.meaning.replace('|', chr(92) + '|')} |"
            for column in schema.columns
        ]
        heading = f"## {name}\n\n{schema.question} {len(frame):,} rows.\n\n"
        parts.append(heading + "| column | type | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def record(folder: Path, kind: str, studies: Sequence[Study], steps: Sequence[Step]) -> None:
    """Write what the report was made of: models, counts, text, versions, the command, and each step's time."""
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
    from detoklens.measures.text_blocks import digest

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
