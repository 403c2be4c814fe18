"""Where does a table come from? What was asked of which model and tokenizer, with which counts, by which version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from detoklens.version import __version__


@dataclass(frozen=True)
class Provenance:
    """All that decides a table's numbers, and nothing that does not: the same question has the same provenance."""

    command: str
    model: str
    model_fingerprint: str
    tokenizer_fingerprint: str | None = None
    counts_fingerprint: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, default=str)
