"""JSON schemas of questions and of the other tables that commands print, generated from their declarations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from detoklens.errors import RangeError
from detoklens.model.verify import VERIFICATION
from detoklens.questions.base import Question, Value
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.parameters import REQUIRED, Parameter, choices_of, settings_of
from detoklens.tables.schema import COUNT_TOTALS, PREDECESSORS, Schema
from detoklens.version import __version__

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string", NoneType: "null"}
COLUMN_TYPES = {"String": "string", "Boolean": "boolean", "Float32": "number", "Float64": "number"}
OTHER_TABLES = {"verify": [VERIFICATION], "count": [COUNT_TOTALS], "counts": [COUNT_TOTALS, PREDECESSORS]}
"""What commands that are not questions print, as a list of rows."""
VERDICT = {
    "description": "the conclusion; null for a question that only measures",
    "type": ["object", "null"],
    "properties": {
        "value": {"enum": list(get_args(Value))},
        "heads": {"description": "heads that it names, e.g. L0H1", "type": "array", "items": {"type": "string"}},
        "reason": {"description": "the control that decided", "type": "string"},
    },
    "required": ["value", "heads", "reason"],
}


def schema(question: str | None = None) -> dict[str, Any]:
    """The JSON schema of a question: its parameters, its tables, and what ``--format json`` prints.

    Parameters
    ----------
    question
        The name of a question, e.g. ``"auroc"``, or ``"verify"``, ``"count"``, ``"counts"``, which print a list of
        rows; all of them by default.

    Returns
    -------
    dict
        A schema of the printed object. Under ``$defs``, ``parameters`` describes the arguments and every table has the
        schema of a row. Without a question, the schemas by name under ``questions`` and ``commands``.

    Raises
    ------
    RangeError
        No question has this name.

    Examples
    --------
    >>> import detoklens as dl
    >>> list(dl.schema("partners")["$defs"]["parameters"]["properties"])[:3]
    ['mean', 'offset', 'direction']
    """
    if question is None:
        questions = {name: _question(name, QUESTIONS[name]) for name in QUESTIONS}
        return {
            "detoklens": __version__,
            "questions": questions,
            "commands": {name: _rows(name) for name in OTHER_TABLES},
        }
    if question in OTHER_TABLES:
        return _rows(question)
    if question not in QUESTIONS:
        raise RangeError(
            f"unknown question {question!r}; the questions are {', '.join(QUESTIONS)}; "
            f"{', '.join(OTHER_TABLES)} have a schema too"
        )
    return _question(question, QUESTIONS[question])


def _question(name: str, question: type[Question]) -> dict[str, Any]:
    settings = settings_of(question)
    parameters = {
        "description": f"arguments of detoklens.{question.__name__}",
        "type": "object",
        "properties": {setting.name: _parameter(setting) for setting in settings},
        "required": [setting.name for setting in settings if setting.default is REQUIRED],
        "additionalProperties": False,
    }
    tables = [
        {"properties": {"table": {"const": table.name}, "rows": {"items": {"$ref": f"#/$defs/{table.name}"}}}}
        for table in question.tables
    ]
    return {
        "$schema": DIALECT,
        "title": name,
        "description": QUESTIONS.listings[name].summary,
        "type": "object",
        "properties": {
            "question": {"const": name},
            "model": {"type": "string"},
            "verdict": VERDICT,
            "summary": {"type": "string"},
            "table": {"type": "string"},
            "rows": {"type": "array"},
        },
        "required": ["question", "model", "verdict", "summary", "table", "rows"],
        "oneOf": tables,
        "$defs": {"parameters": parameters, **{table.name: _row(table) for table in question.tables}},
    }


def _rows(name: str) -> dict[str, Any]:
    """The schema of a list of rows, all from the same table of the command."""
    tables = OTHER_TABLES[name]
    return {
        "$schema": DIALECT,
        "title": name,
        "type": "array",
        "anyOf": [{"items": {"$ref": f"#/$defs/{table.name}"}} for table in tables],
        "$defs": {table.name: _row(table) for table in tables},
    }


def _parameter(setting: Parameter) -> dict[str, Any]:
    kinds = [_type(kind) for kind in choices_of(setting.kind)]
    if setting.least is not None:
        kinds = [{**kind, "minimum": setting.least} if kind != {"type": "null"} else kind for kind in kinds]
    described = {"description": setting.help, **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}
    if setting.default is not REQUIRED:
        described["default"] = list(setting.default) if isinstance(setting.default, tuple) else setting.default
    if setting.cli and not setting.positional:
        described["x-option"] = setting.flag
    return described


def _type(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if get_origin(kind) is Sequence:
        items = [_type(choice) for choice in choices_of(get_args(kind)[0])]
        return {"type": "array", "items": items[0] if len(items) == 1 else {"anyOf": items}}
    return {"type": TYPES[kind]} if kind in TYPES else {}


def _row(table: Schema) -> dict[str, Any]:
    """The schema of a row; a column can be missing if an input was, and a number is null if it is undefined."""
    columns = {
        column.name: {"description": column.meaning, "type": [COLUMN_TYPES.get(column.dtype, "integer"), "null"]}
        for column in table.columns
    }
    return {"description": table.question, "type": "object", "properties": columns, "additionalProperties": False}
