"""JSON of strangers: what Python's parser would take silently, or not as a ValueError, is refused here."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from detoklens.errors import shown


def parse_json(text: str | bytes) -> Any:
    """The value, or a ValueError: also for a name that stands twice in one object, and for what is nested too deeply.

    Of two equal names Python keeps the last. One flipped bit makes `h.1.` of a layer's tensor a second `h.0.`.
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
