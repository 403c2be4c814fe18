"""Strict parsing of untrusted JSON: duplicate names and deep nesting are ValueErrors."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from detoklens.errors import shown


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError for invalid JSON, duplicate names in an object, and deep nesting.

    Python keeps the last of two equal names, but one flipped bit turns the tensor name `h.1.` into a second `h.0.`.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {shown(twice)} stands twice in one object")
    return found
