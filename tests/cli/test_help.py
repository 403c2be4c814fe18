"""Help fits a screen: the options that people use first, the advanced ones after them."""

from __future__ import annotations

import inspect
import re

import pytest

from detoklens.cli.adapter import AnalysedModel, Corpus, SeedOptions
from detoklens.cli.app import topics
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.contributions import Contributions
from detoklens.questions.parameters import settings_of
from detoklens.questions.study import Work, study
from detoklens.questions.texts import Texts
from tests.command_line import call

SCREENS = {80: 45, 100: 40}  # lines by columns
MOST_FIRST = 12  # options before the advanced ones
COMMANDS = [name for names in topics().values() for name in names]
FIRST = [
    *("--layer", "--pieces", "--heads", "--truth", "--counts", "--seed", "--workers"),
    *("--format", "--figure", "--width", "--out", "--help"),
]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", SCREENS)
def test_help_fits_a_screen_without_the_advanced_options(name, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    first = call(name, "--help").stdout.partition("Advanced options:")[0]
    assert len(first.strip().splitlines()) <= SCREENS[columns]
    assert max(map(len, first.splitlines())) <= columns
    options = re.findall(r"^  (--[a-z-]+)", first.partition("Options:")[2], re.MULTILINE)
    assert len(options) <= MOST_FIRST


def test_help_names_arguments_and_values_as_they_are_typed():
    shown = call("partners", "--help").stdout
    assert "Usage: detoklens partners [OPTIONS] [MODEL] [TOKEN]...\n" in shown
    assert "Usage: detoklens count [OPTIONS] INPUT...\n" in call("count", "--help").stdout
    assert re.search(r"^  --top N ", shown, re.MULTILINE)
    assert re.search(r"^  --format table\|csv\|json\|parquet$", shown, re.MULTILINE)
    for name in (*COMMANDS, "counts show", "counts import"):
        assert "<" not in call(*name.split(), "--help").stdout.partition("\nOptions:")[0].partition("Arguments:")[2]


def test_the_first_options_of_auroc():
    first, _, advanced = call("auroc", "--help").stdout.partition("Advanced options:")
    assert re.findall(r"^  (?:-h, )?(--[a-z-]+)", first, re.MULTILINE) == FIRST
    assert "--bootstrap" in advanced
    assert "--text" in advanced  # only layers beyond 0 read text


def test_a_parameter_without_an_option_is_a_python_argument_only():
    hidden = [setting for setting in settings_of(Auroc) if not setting.cli]
    assert {setting.name for setting in hidden} == {"pmi_above", "weights", "per_octave", "scale"}
    for setting in hidden:
        assert setting.flag not in call("auroc", "--help").stdout
        assert call("auroc", "demo", setting.flag, "1").exit_code == 2
    demo = study("demo")
    assert demo.command(Auroc(pieces=True)) == "detoklens auroc demo --pieces"
    assert "study.ask(dl.Auroc(pieces=True, per_octave=4))" in demo.command(Auroc(pieces=True, per_octave=4))


@pytest.mark.parametrize("name", ["attention", "contributions"])
def test_questions_about_text_show_its_main_options_first(name):
    first, _, advanced = call(name, "--help").stdout.partition("Advanced options:")
    options = re.findall(r"^  (--[a-z-]+)", first, re.MULTILINE)
    assert {"--text", "--documents", "--prepend-bos"} <= {*options}
    assert "--counts" in advanced  # they only weight the mean that is split off
    assert "--length" in advanced


def test_a_question_without_figures_has_no_option_for_their_width():
    shown = call("paper", "--help").stdout
    assert "--width" not in shown
    assert "--figure" not in shown


def test_python_and_the_command_line_have_the_same_defaults():
    python = inspect.signature(study).parameters
    shared = [setting for owner in (AnalysedModel, Corpus, Texts, SeedOptions, Work) for setting in settings_of(owner)]
    assert {setting.name: setting.default for setting in shared} == {
        name: parameter.default for name, parameter in python.items()
    }


@pytest.mark.parametrize("name", ["attention", "contributions", "report", "compare"])
def test_every_command_samples_as_many_documents(name):
    shown = re.search(r"--documents .*?default:\s*(\d+)", call(name, "--help").stdout, re.DOTALL)
    assert shown is not None
    assert int(shown[1]) == Texts().documents


def test_reports_ask_for_contributions_with_the_default_options():
    assert [entry.question for entry in Contributions.report_entries(study("demo"))] == [Contributions()]


def test_a_wrong_choice_is_one_plain_line():
    refused = call("words", "demo", "--table", "z")
    assert refused.exit_code == 2
    assert "Invalid value for '--table': 'z' is not one of 'words_by_head', " in refused.stderr
