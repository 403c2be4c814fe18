"""A verdict as data: what a question concludes, for which heads, and which control decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

Value = Literal["yes", "no", "untestable"]


@dataclass(frozen=True)
class Verdict:
    """The conclusion of an answer.

    `value` is "yes", "no" or "untestable"; `heads` are the heads it names, such as "L0H1"; `reason` says in plain words
    which control decided. Summaries, JSON output, reports, the explorer and comparisons are made from it.
    """

    value: Value
    reason: str
    heads: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.value not in get_args(Value):
            raise ValueError(f"a verdict is one of {', '.join(get_args(Value))}, not {self.value!r}")

    def __bool__(self) -> bool:
        """Whether the verdict is "yes"."""
        return self.value == "yes"

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON holds it."""
        return {"value": self.value, "heads": list(self.heads), "reason": self.reason}
