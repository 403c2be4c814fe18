"""Which versions are promised, and which are installed? `python -m tests.dependencies lowest` (or `tested`) tells."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"  # an oracle, pinned; other versions bring gigabytes along


def promised() -> list[Requirement]:
    """What pyproject.toml asks for: the package's own dependencies and those of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]
    needs = [Requirement(text) for text in texts]
    return [need for need in needs if need.name != project["name"]]  # an extra by another of its names


def lowest() -> list[str]:
    """Each promise at its lower bound."""
    pins = [f"{need.name}=={re.sub('^>=', '', str(need.specifier))}" for need in promised()]
    return sorted(TORCH if pin.startswith("torch==") else pin for pin in pins)


def installed() -> list[str]:
    """The found_here.versions of all that is promised, and of all that comes along with it."""
    found: dict[str, str] = {}
    waiting = promised()
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        if name in found or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        try:
            found_here = distribution(name)
        except PackageNotFoundError:  # of another platform
            continue
        found[name] = found_here.version.partition("+")[0]
        waiting += [Requirement(text) for text in found_here.requires or []]
    return sorted(f"{name}=={version}" for name, version in found.items())


if __name__ == "__main__":
    sys.stdout.write("\n".join({"lowest": lowest, "tested": installed}[sys.argv[1]]()) + "\n")
