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

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """A provenance as `to_json` wrote it; a ValueError or TypeError where it is something else."""
        fields = json.loads(text)
        if not isinstance(fields, dict) or not isinstance(fields.get("options"), dict):
            raise ValueError("its provenance is not an object with options")
        found = cls(**fields)
        texts = (found.command, found.model, found.model_fingerprint, found.version)
        optional = (found.tokenizer_fingerprint, found.counts_fingerprint)
        if not all(isinstance(each, str) for each in (*texts, *(each for each in optional if each is not None))):
            raise ValueError("its provenance has fields of other types")
        if found.to_json() != text:
            raise ValueError("its provenance is not written as detoklens writes it")
        return found

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, default=str)
