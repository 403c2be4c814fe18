"""requirements-lowest.txt and constraints.txt agree with pyproject.toml."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.dependencies import ROOT, TORCH, installed, lowest, promised


def lines(name: str) -> list[str]:
    return [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


CONSTRAINTS = {canonicalize_name(pin.name): pin for pin in map(Requirement, lines("constraints.txt"))}


def test_the_lowest_versions_are_those_that_are_promised() -> None:
    assert lines("requirements-lowest.txt") == lowest(), "run `make dependencies`"


def test_each_promise_has_one_lower_bound_and_nothing_else() -> None:
    for need in promised():
        assert [part.operator for part in need.specifier] == [">="], str(need)


@pytest.mark.parametrize("need", promised(), ids=str)
def test_what_was_tested_is_what_is_promised(need: Requirement) -> None:
    [pin] = CONSTRAINTS[canonicalize_name(need.name)].specifier
    assert pin.operator == "=="
    assert need.specifier.contains(pin.version)


def test_all_that_comes_along_is_among_what_was_installed() -> None:
    """Of this environment; another platform, or a newer version, may bring along other packages."""
    if any(line not in lines("constraints.txt") for line in installed()):
        pytest.skip("NOT TESTED: the installed versions are others than those of constraints.txt")
    assert lines("constraints.txt") == installed()


def test_torch_is_pinned_wherever_it_is_installed() -> None:
    for name in ("requirements-test.txt", "requirements-lowest.txt", "constraints.txt"):
        assert [line for line in lines(name) if Requirement(line).name == "torch"] == [TORCH]
