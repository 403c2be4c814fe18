"""Plan and manifest: what is counted.

The plan records the inputs, the tokenizer, the options and the versions before the first part is written. The manifest,
written last, adds the totals and the hashes of the files. Neither depends on how the work was distributed: the same
inputs and options give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from detoklens.corpus.encoding import COST, TOKENIZERS, Choice
from detoklens.corpus.inputs import InputFile
from detoklens.corpus.records import ReadingOptions
from detoklens.errors import CountsError
from detoklens.strict_json import parse_json
from detoklens.tokens import Vocabulary

FORMAT, FORMAT_VERSION = "detoklens counts", 2
BIGRAMS, TOKENS, MANIFEST = "bigrams.parquet", "tokens.parquet", "manifest.json"
WORK = ".counting"
BIGRAM_SCHEMA = pa.schema([("suffix", pa.uint32()), ("prefix", pa.uint32()), ("count", pa.int64())])
TOKEN_SCHEMA = pa.schema([("token", pa.uint32()), ("count", pa.int64()), ("text", pa.string())])

JsonObject = dict[str, Any]


def make_plan(
    files: Sequence[InputFile],
    vocabulary: Vocabulary,
    reading: ReadingOptions,
    limit_documents: int | None,
    parse_special_tokens: bool,
) -> JsonObject:
    """Return everything that determines the counts except the tokenizer library, which is chosen from the input."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "inputs": [file.pin() for file in files],
        "tokenizer": {"fingerprint": vocabulary.fingerprint, "vocabulary_size": vocabulary.size},
        "options": {
            **asdict(reading),
            "limit_documents": limit_documents,
            "parse_special_tokens": parse_special_tokens,
        },
        "versions": {name: version(name) for name in ("detoklens", "numpy", "pyarrow", TOKENIZERS)},
    }


def with_library(plan: JsonObject, choice: Choice) -> JsonObject:
    """Add the tokenizer library, its version and, if it is not the fast one, the reason and the cost."""
    versions = plan["versions"] | {choice.library: choice.version}
    return plan | {
        "tokenized_with": choice.library,
        "not_gigatoken_because": choice.reason,
        "tokenizing_takes": None if choice.reason is None else COST,
        "versions": versions,
    }


def differences(old: JsonObject, new: JsonObject, compare_versions: bool) -> list[str]:
    """Describe how a new plan differs from an old one; empty if the old run can be resumed."""
    found = _input_differences(old["inputs"], new["inputs"])
    if compare_versions and "tokenized_with" in new and new["tokenized_with"] != old["tokenized_with"]:
        found.append(f"tokenized with {old['tokenized_with']} before, {new['tokenized_with']} now")
    for section in ("tokenizer", "options") + (("versions",) if compare_versions else ()):
        for name, value in new[section].items():
            before = old[section].get(name)
            if before != value and not _is_only_laxer(name, before, value):
                found.append(f"{section.removesuffix('s')} {name.replace('_', ' ')} was {before}, now {value}")
    return found


def _is_only_laxer(name: str, before: object, value: object) -> bool:
    """Whether a run only started to skip bad records; finished parts had none, so they stay valid."""
    return name == "skip_bad" and before is False and value is True


def _input_differences(old: list[JsonObject], new: list[JsonObject]) -> list[str]:
    before, now = ({pin["path"]: pin for pin in pins} for pins in (old, new))
    gone = [f"input {path} is missing" for path in before if path not in now]
    added = [f"input {path} was not there before" for path in now if path not in before]
    changed = [
        f"input {path} has changed ({before[path]['size']} bytes before, {now[path]['size']} now)"
        for path in now
        if path in before and before[path] != now[path]
    ]
    found = gone + added + changed
    if not found and list(before) != list(now):
        found = ["the inputs are in another order"]
    return found


def read_json(path: Path) -> JsonObject:
    """Return a plan or manifest without its checksum; refuse any other or damaged file."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        checksum = content.pop("checksum", None) if isinstance(content, dict) else None
        is_undamaged = checksum == _checksum(content)
    except (OSError, ValueError, RecursionError) as error:
        raise CountsError(f"{path}: can't be read as JSON ({error}); count again into another folder") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CountsError(f"{path}: not a manifest of counts; name a folder made by `detoklens count`")
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise CountsError(f"{path}: counts of format {version}; only {FORMAT_VERSION} is read; count again")
    if not is_undamaged:
        raise CountsError(f"{path}: damaged (its checksum is wrong); count again into another folder")
    return content


def json_text(content: JsonObject) -> str:
    """Return the file content of a plan or manifest, including its checksum."""
    return json.dumps(content | {"checksum": _checksum(content)}, indent=2) + "\n"


def _checksum(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_hash(path: Path) -> JsonObject:
    """Return size and sha256 of a finished file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": digest}
