"""Error messages are one line of plain characters and bounded length, even when they quote untrusted files."""

from __future__ import annotations

import ast
import pickle
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.errors import LONGEST_MESSAGE, LONGEST_VALUE, CheckpointError, DetokLensError, one_line, shown
from tests.conftest import ROOT

HOSTILE = "name\x1b[2J\r\nrm -rf\u2028\u202egnol\x07\udcff"


@given(text=st.text() | st.text(alphabet="\x1b\n\u202ex", min_size=LONGEST_MESSAGE - 3))
def test_any_message_is_one_bounded_line_that_a_terminal_only_shows(text):
    message = str(DetokLensError(text))
    assert message.isprintable()
    assert len(message) <= LONGEST_MESSAGE
    assert one_line(message) == message


def test_what_fits_is_left_as_it_is():
    assert str(DetokLensError("σ of 東京: “é” – don't\\n")) == "σ of 東京: “é” – don't\\n"


def test_what_would_move_the_cursor_is_written_out():
    assert str(CheckpointError(HOSTILE)) == r"name\x1b[2J\r\nrm -rf\u2028\u202egnol\x07\udcff"


def test_a_long_message_keeps_its_beginning_and_what_to_do():
    message = str(CheckpointError(f"config.json: {'x' * 50_000_000}; download it again"))
    assert message.startswith("config.json: xxx")
    assert message.endswith("xxx; download it again")
    assert len(message) == LONGEST_MESSAGE


def test_a_message_survives_the_way_from_a_worker():
    error = pickle.loads(pickle.dumps(CheckpointError(HOSTILE * 1000)))
    assert type(error) is CheckpointError
    assert str(error) == str(CheckpointError(HOSTILE * 1000))


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [("gpt2", "'gpt2'"), (1.5, "1.5"), (True, "True"), ([1, 2], "[1, 2]"), ("\x1b", r"'\x1b'"), ({"a": 1}, "{'a': 1}")],
)
def test_small_values_are_shown_whole(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(
    "value", ["x" * 10_000_000, [["x" * 1000] * 1000] * 1000, nested(100 * sys.getrecursionlimit())]
)
def test_large_and_deep_values_are_shown_in_short(value):
    assert len(shown(value)) <= LONGEST_VALUE


def messages(tree: ast.AST) -> list[str]:
    """The texts of what a file raises."""
    raised = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    constants = [part for node in raised for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return [part.value for part in constants if isinstance(part.value, str)]


def test_no_message_below_the_command_line_names_its_flags():
    """Who works in Python has no flags; the command line says what it can in its own words."""
    package = ROOT / "src" / "detoklens"
    below = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] != "cli"]
    said = {path: messages(ast.parse(path.read_text(encoding="utf-8"))) for path in below}
    assert sum(map(len, said.values())) > 300
    flags = {path: [text for text in texts if re.search(r"(^|\W)--[a-z]", text)] for path, texts in said.items()}
    assert {path: found for path, found in flags.items() if found} == {}
