"""The public API is documented with numpydoc sections, and its examples run."""

from __future__ import annotations

import doctest
import inspect
import re
from enum import Enum
from functools import cached_property
from typing import Any

import pytest

import detoklens as dl

PUBLIC = {name: getattr(dl, name) for name in dl.__all__ if callable(getattr(dl, name))}
QUESTIONS = {name: thing for name, thing in PUBLIC.items() if name in dl._QUESTIONS}
CLASSES = {
    name: thing
    for name, thing in PUBLIC.items()
    if inspect.isclass(thing) and name not in QUESTIONS and not issubclass(thing, Exception)
}
FUNCTIONS = {name: thing for name, thing in PUBLIC.items() if inspect.isfunction(thing)}
MEMBERS = {
    f"{owner}.{name}": member
    for owner, each in CLASSES.items()
    for name, member in vars(each).items()
    if not name.startswith("_") and not isinstance(member, each)
}
METHODS = {
    name: getattr(member, "__func__", member)
    for name, member in MEMBERS.items()
    if inspect.isfunction(getattr(member, "__func__", member))
}


def section(text: str, title: str) -> str:
    """The body of a numpydoc section; empty without it."""
    found = re.search(rf"^{title}\n-{{{len(title)}}}\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def entries(documented: Any, title: str) -> list[str]:
    """The names that a section describes."""
    named = re.findall(r"^\*{0,2}(\w+(?:, \w+)*)$", section(inspect.getdoc(documented) or "", title), re.MULTILINE)
    return [name for names in named for name in names.split(", ")]


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_every_parameter_result_and_error_is_documented(name: str) -> None:
    function = {**FUNCTIONS, **METHODS}[name]
    text = inspect.getdoc(function) or ""
    assert text
    assert entries(function, "Parameters") == parameters(function)
    if parameters(function) and inspect.signature(function).return_annotation != "None":
        assert section(text, "Returns")
    for error in re.findall(r"^        raise (\w+Error)", inspect.getsource(function), re.MULTILINE):
        assert error in section(text, "Raises") or "DetokLensError" in section(text, "Raises")


@pytest.mark.parametrize("name", [name for name in MEMBERS if name not in METHODS])
def test_every_attribute_is_documented(name: str) -> None:
    owner, _, attribute = name.partition(".")
    member = MEMBERS[name]
    described = inspect.getdoc(member) if isinstance(member, property | cached_property) else None
    assert described or attribute in entries(CLASSES[owner], "Attributes")


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_documents_its_constructor_and_has_an_example(name: str) -> None:
    owner = CLASSES[name]
    described = [*entries(owner, "Parameters"), *entries(owner, "Attributes")]
    made_from = [member.name for member in owner] if issubclass(owner, Enum) else parameters(owner)
    inherited = [*entries(owner.__base__, "Attributes")]
    assert not {*made_from} - {*described, *inherited}
    fields = {*dir(owner), *getattr(owner, "__dataclass_fields__", ()), *made_from}
    assert {*described} <= fields
    assert section(inspect.getdoc(owner) or "", "Examples")


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_document_their_fields(name: str) -> None:
    assert entries(QUESTIONS[name], "Parameters") == parameters(QUESTIONS[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_an_example(name: str) -> None:
    assert section(inspect.getdoc(FUNCTIONS[name]) or "", "Examples")


EXAMPLES = [test for name in [*FUNCTIONS, *CLASSES] for test in doctest.DocTestFinder().find(PUBLIC[name], name)]


@pytest.mark.parametrize("example", [test for test in EXAMPLES if test.examples], ids=lambda test: test.name)
def test_examples_run(example: doctest.DocTest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=shown.append)
    assert not result.failed, "".join(shown)
