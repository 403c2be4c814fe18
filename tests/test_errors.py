"""Messages: one line of plain characters and bounded length, whatever a stranger's file puts into them."""

from __future__ import annotations

import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.errors import LONGEST_MESSAGE, LONGEST_VALUE, CheckpointError, DetokLensError, one_line, shown

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
