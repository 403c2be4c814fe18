"""The public API is documented with numpydoc sections."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import detoklens as dl

FUNCTIONS = [
    *(dl.study, dl.compare, dl.load, dl.load_vocabulary, dl.read_answer, dl.import_counts),
    *(dl.Study.ask, dl.Study.report, dl.Study.explore, dl.Answer.figure, dl.Answer.write),
]


def section(text: str, title: str) -> str:
    """The body of a numpydoc section; empty without it."""
    found = re.search(rf"^{title}\n-{{{len(title)}}}\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_every_parameter_and_result_is_documented(function: Callable[..., Any]) -> None:
    text = inspect.getdoc(function) or ""
    described = re.findall(r"^\*{0,2}(\w+)$", section(text, "Parameters"), re.MULTILINE)
    assert described == [name for name in inspect.signature(function).parameters if name != "self"]
    assert section(text, "Returns")
    assert section(text, "Examples")


@pytest.mark.parametrize("owner", [dl.Answer, dl.Comparison], ids=lambda owner: owner.__name__)
def test_attributes_exist(owner: type) -> None:
    named = re.findall(r"^(\w+)$", section(inspect.getdoc(owner) or "", "Attributes"), re.MULTILINE)
    fields = {*dir(owner), *owner.__dataclass_fields__}
    assert named
    assert set(named) <= fields
