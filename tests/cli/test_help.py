"""Help fits a screen: the options that people use first, the advanced ones after them."""

from __future__ import annotations

import re

import pytest

from detoklens.cli.app import topics
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.parameters import settings_of
from detoklens.questions.study import study
from tests.command_line import call

SCREEN = 45  # lines
COMMANDS = [name for names in topics().values() for name in names]
FIRST = [
    *("--layer", "--pieces", "--heads", "--truth", "--counts", "--seed", "--workers"),
    *("--format", "--figure", "--width", "--out", "--help"),
]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_screen_without_the_advanced_options(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    first = call(name, "--help").stdout.partition("Advanced options:")[0]
    assert len(first.strip().splitlines()) <= SCREEN
    assert max(map(len, first.splitlines())) <= 80


def test_the_first_options_of_auroc():
    first, _, advanced = call("auroc", "--help").stdout.partition("Advanced options:")
    assert re.findall(r"^  (?:-h, )?(--[a-z-]+)", first, re.MULTILINE) == FIRST
    assert "--bootstrap" in advanced
    assert "--text" in advanced  # only layers beyond 0 read text


def test_a_parameter_without_an_option_is_a_python_argument_only():
    hidden = [setting for setting in settings_of(Auroc) if not setting.parameter.cli]
    assert {setting.name for setting in hidden} == {"pmi_above", "weights", "per_octave"}
    for setting in hidden:
        assert setting.flag not in call("auroc", "--help").stdout
        assert call("auroc", "demo", setting.flag, "1").exit_code == 2
    demo = study("demo")
    assert demo.command(Auroc(pieces=True)) == "detoklens auroc demo --pieces"
    assert "study.ask(dl.Auroc(pieces=True, per_octave=4))" in demo.command(Auroc(pieces=True, per_octave=4))
