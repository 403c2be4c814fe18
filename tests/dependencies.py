"""Print the lowest supported or the installed dependency versions: `python -m tests.dependencies lowest|tested`."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"  # an oracle, pinned; other versions bring gigabytes along


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def at_run_time() -> list[Requirement]:
    """What the package itself can't do without."""
    return [Requirement(text) for text in project()["dependencies"]]


def promised() -> list[Requirement]:
    """What pyproject.toml asks for: the package's own dependencies and those of its extras."""
    of_extras = [Requirement(text) for extra in project()["optional-dependencies"].values() for text in extra]
    needs = [*at_run_time(), *of_extras]
    return [need for need in needs if need.name != project()["name"]]  # an extra by another of its names


def lowest() -> list[str]:
    """Each promise at its lower bound."""
    pins = [f"{need.name}=={re.sub('^>=', '', str(need.specifier))}" for need in promised()]
    return sorted(TORCH if pin.startswith("torch==") else pin for pin in pins)


def come_along(needs: Iterable[Requirement]) -> dict[str, Distribution]:
    """What is installed of these, and of all that they need in turn, by name."""
    found: dict[str, Distribution] = {}
    waiting = list(needs)
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        if name in found or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # of another platform
            continue
        waiting += [Requirement(text) for text in found[name].requires or []]
    return found


def installed() -> list[str]:
    """The versions here of all that is promised, and of all that comes along with it."""
    found = come_along(promised())
    return sorted(f"{name}=={each.version.partition('+')[0]}" for name, each in found.items())


if __name__ == "__main__":
    sys.stdout.write("\n".join({"lowest": lowest, "tested": installed}[sys.argv[1]]()) + "\n")
