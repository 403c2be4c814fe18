"""What is set wrongly is one line; what is set rightly is spelled as the command line reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest

from detoklens.errors import RangeError
from detoklens.questions.parameters import (
    Checked,
    Heads,
    Parameter,
    Scale,
    settings_of,
    to_cli_args,
    whole_numbers,
)


@dataclass(frozen=True)
class Things(Checked):
    heads: Heads = None
    top: Annotated[int, Parameter("How many.", least=1)] = 10
    share: Annotated[float, Parameter("Of all.")] = 0.5
    kind: Annotated[Literal["plain", "odd"], Parameter("Which.")] = "plain"
    quiet: Annotated[bool, Parameter("Say nothing.")] = False
    drawn: Annotated[bool, Parameter("Draw.", flag="--drawn/--no-drawn")] = True
    scale: Scale = "mean"
    file: Annotated[Path | None, Parameter("Where.")] = None
    note: str = "no parameter"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"top": "3"}, "top is a whole number"),
        ({"top": 2.5}, "top is a whole number"),
        ({"top": True}, "top is a whole number"),
        ({"top": 0}, "at least 1 is needed"),
        ({"heads": [0.5]}, "heads is a list, each a whole number or None"),
        ({"heads": "0,1"}, "heads is a list"),
        ({"share": "half"}, "share is a number"),
        ({"kind": "even"}, "kind is one of 'plain', 'odd'"),
        ({"quiet": 1}, "quiet is True or False"),
        ({"scale": "median"}, "scale is one of 'mean', 'published', 'bare' or a whole number"),
        ({"file": 3}, "file is a path or None"),
        ({"heads": np.array([[0], [1]])}, "heads is a list"),
    ],
)
def test_a_wrong_value_is_one_line_that_says_what_is_accepted(given, said):
    with pytest.raises(RangeError) as caught:
        Things(**given)
    assert said in str(caught.value)
    assert str(caught.value).startswith("Things(")
    assert "\n" not in str(caught.value)


def test_a_long_wrong_value_is_cut():
    with pytest.raises(RangeError) as caught:
        Things(top="x" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("heads", [[1, 0], (1, 0), np.array([1, 0]), iter([1, 0])])
def test_lists_become_tuples_of_plain_numbers(heads):
    assert Things(heads=heads).heads == (1, 0)
    assert hash(Things(heads=(1, 0)))


def test_a_single_value_may_stand_alone():
    assert Things(heads=3).heads == (3,)
    assert Things(share=1).share == 1.0
    assert Things(file="x").file == Path("x")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, []),
        ({"heads": [0, 7]}, ["--heads", "0,7"]),
        ({"top": 3, "quiet": True}, ["--top", "3", "--quiet"]),
        ({"drawn": False}, ["--no-drawn"]),
        ({"kind": "odd", "scale": 5}, ["--kind", "odd", "--scale", "5"]),
        ({"file": Path("a b")}, ["--file", "a b"]),
    ],
)
def test_what_differs_from_the_default_is_spelled(given, words):
    assert to_cli_args(Things(**given)) == words


def test_only_fields_with_a_parameter_are_settings():
    assert "note" not in [setting.name for setting in settings_of(Things)]


def test_lists_of_numbers_are_read():
    read = whole_numbers("heads")
    assert read("0-2, 7") == (0, 1, 2, 7)
    for wrong in ("", "a", "1-", "-1", "3-1", "0-9999999999", "1" * 30):
        with pytest.raises(ValueError, match=r"e\.g\."):
            read(wrong)
