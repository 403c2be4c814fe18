"""How far is a report? Each step tells a listener that it begins, and how it went."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from detoklens.progress import Watcher


@dataclass(frozen=True)
class Step:
    """How one step went: the `seconds` it took, whether it was `kept` from before, or what is `missing` for it."""

    title: str
    seconds: float = 0.0
    kept: bool = False
    missing: tuple[str, ...] = ()


@dataclass
class Listener:
    """Who is told about steps: that one begins (and gives a watcher for its bar), and how it went."""

    begin: Callable[[str], Watcher | None] = lambda _title: None
    end: Callable[[Step], None] = lambda _step: None
    passed: list[Step] = field(default_factory=list)
    label: str = ""
    """Which of several models the steps are about."""

    def about(self, label: str) -> Listener:
        """The same listener, told a model's label before each step."""
        return Listener(self.begin, self.end, self.passed, f"{label}: ")

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Watcher | None]:
        """A step that is always done."""
        started = time.perf_counter()
        yield self.begin(self.label + title)
        self.tell(Step(title, time.perf_counter() - started))

    def tell(self, step: Step) -> None:
        """Note how a step went."""
        told = Step(self.label + step.title, step.seconds, step.kept, step.missing)
        self.passed.append(told)
        self.end(told)
