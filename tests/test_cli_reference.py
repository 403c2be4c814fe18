"""The pages written by `make docs` are up to date: cli.md from the help texts, tables.md and gallery.md from questions."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_command_reference_is_up_to_date(monkeypatch):
    if f"typer=={version('typer')}\n" not in (ROOT / "constraints.txt").read_text(encoding="utf-8"):
        pytest.skip("NOT TESTED: the page is laid out by another version of typer than that of constraints.txt")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from make_cli_reference import REFERENCE, reference

    assert sys.modules["make_cli_reference"]
    assert REFERENCE.read_text(encoding="utf-8") == reference()


def test_pages_made_of_the_registry_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from make_tables import PAGES

    for name, page in PAGES.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), f"{name}: run `make docs`"
