"""The frame of the command line: help, version, errors as one line, nothing undocumented."""

from __future__ import annotations

import pytest

from detoklens.cli.app import COMMANDS
from detoklens.version import __version__
from tests.command_line import call, refuse


def test_version_and_help():
    assert call("--version").stdout == f"detoklens {__version__}\n"
    assert "Usage: detoklens" in call("--help").stdout
    assert call("-h").exit_code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command):
    done = call(command, "--help")
    assert done.exit_code == 0
    if "Commands:" not in done.stdout:
        assert "Example" in done.stdout
        assert f"detoklens {command}" in done.stdout


def test_the_top_help_lists_every_command():
    help_text = call("--help").stdout
    assert [command for command in COMMANDS if f"  {command} " not in help_text] == []


def test_an_unknown_command_is_a_usage_error():
    done = call("frobnicate")
    assert done.exit_code == 2
    assert "frobnicate" in done.stderr


def test_what_the_user_can_mend_is_one_line(tmp_path):
    assert refuse("verify", tmp_path / "nowhere").startswith(f"detoklens: {tmp_path}/nowhere: no such folder")
    assert "no config.json" in refuse("verify", tmp_path)
