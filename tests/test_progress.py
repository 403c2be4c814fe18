"""A progress bar appears after a moment in a terminal, and never elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from detoklens import progress as watching


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A stderr that says it is a terminal."""
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    return stderr


def test_long_work_shows_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(watching, "PATIENCE", -1.0)
    with watching.shown_steps("turning pages") as watch:
        assert watch is not None
        watch(1, 2)
        watch(2, 2)
    assert "turning pages" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with watching.shown_steps("turning pages") as watch:
        assert watch is not None
        watch(2, 2)
    assert terminal.getvalue() == ""


def test_without_a_terminal_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with watching.shown_steps("turning pages") as watch:
        assert watch is watching.unwatched
