"""docs/cli.md is what the commands say of themselves; `make docs` writes it anew."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_command_reference_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from make_cli_reference import REFERENCE, reference

    assert sys.modules["make_cli_reference"]
    assert REFERENCE.read_text(encoding="utf-8") == reference()
