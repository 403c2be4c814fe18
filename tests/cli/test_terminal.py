"""Answers in a terminal of 80 columns: nothing is wider, and what does not fit is named with how to see it."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len

from tests.cli.test_full_disk import ASKED, READING
from tests.command_line import call
from tests.spelled import write_spelled


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_spelled(tmp_path_factory.mktemp("here") / "model").parent


def printed(folder, monkeypatch, *words):
    """What a terminal of 80 columns shows."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    asked = ["model" if word == "MODEL" else word for word in {**ASKED, **READING}[words[0]]]
    stdout = Terminal()
    assert call(words[0], *asked, *words[1:], answer_to=stdout).exit_code == 0
    return stdout.getvalue()


@pytest.mark.parametrize("command", ["partners", "heatmap", "positions", "shape", "variance", "explain", "verify"])
def test_nothing_is_wider_than_the_terminal(command, folder, monkeypatch):
    shown = printed(folder, monkeypatch, command)
    assert [line for line in shown.splitlines() if cell_len(line) > 80] == []


def test_what_does_not_fit_is_named_and_shown_if_asked(folder, monkeypatch):
    assert " more columns (--wide, or another --format): " in printed(folder, monkeypatch, "heatmap")
    assert " more column" not in printed(folder, monkeypatch, "heatmap", "--wide")


def test_whether_it_is_equal_is_seen_at_once(folder, monkeypatch):
    shown = printed(folder, monkeypatch, "verify")
    assert "passed" in shown.splitlines()[2]
    assert " more columns (in another --format): " in shown
