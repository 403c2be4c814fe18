"""The frame of the command line: help, version, errors as one line, nothing undocumented."""

from __future__ import annotations

import subprocess
import sys

import pytest

from detoklens.__main__ import main
from detoklens.cli.app import topics
from detoklens.version import __version__
from tests.command_line import call, refuse
from tests.layers import random_first_layer, write_gpt2

COMMANDS = [name for names in topics().values() for name in names]


def test_version_and_help():
    assert call("--version").stdout == f"detoklens {__version__}\n"
    assert "Usage: detoklens" in call("--help").stdout
    assert call("-h").exit_code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command):
    done = call(command, "--help")
    assert done.exit_code == 0
    if command != "counts":
        assert "Example" in done.stdout
        assert f"detoklens {command}" in done.stdout


def test_the_top_help_lists_every_command():
    help_text = call("--help").stdout
    assert [command for command in COMMANDS if f"  {command} " not in help_text] == []


class Interrupting:
    """Ctrl-C while a module is looked for."""

    def find_spec(self, name, *_rest):
        if name == "detoklens.cli.app":
            raise KeyboardInterrupt


def test_an_interrupt_of_the_first_imports_is_one_line(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "detoklens.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "\nStopped; run the same command to continue.\n")


def test_an_unknown_command_is_a_usage_error():
    done = call("frobnicate")
    assert done.exit_code == 2
    assert "frobnicate" in done.stderr
    assert "Did you mean" not in done.stderr


def test_a_misspelled_command_gets_a_suggestion():
    assert "Did you mean 'auroc'?" in call("aurocc").stderr


def test_an_unknown_snapshot_lists_those_there_are():
    line = refuse("partners", "demo@7", "ion")
    assert "unknown snapshot demo@7" in line
    assert "demo@0" in line


def test_a_tokenizer_file_that_is_missing_or_compressed_is_named(tmp_path):
    missing = tmp_path / "tokenizer.json.zst"
    assert refuse("partners", "demo", "ion", "--tokenizer", missing).startswith(f"detoklens: {missing}: no such file;")
    missing.write_bytes(b"")
    assert "is compressed; decompress it" in refuse("partners", "demo", "ion", "--tokenizer", missing)


def test_what_the_user_can_mend_is_one_line(tmp_path):
    assert refuse("verify", tmp_path / "nowhere").startswith(f"detoklens: {tmp_path}/nowhere: no such folder")
    assert "no config.json" in refuse("verify", tmp_path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NOT TESTED: memory is limited by Linux's means")
def test_too_little_memory_is_one_line_that_says_what_to_lower(tmp_path):
    """The scores of 50,000 tokens in a head are 10 GB, where 8 GB of addresses are allowed."""
    model = write_gpt2(tmp_path, random_first_layer(n_heads=2, d_head=2, vocab_size=50_000, dtype="float32"))
    limited = "import resource, runpy; resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)); "
    code = limited + "runpy.run_module('detoklens', run_name='__main__')"
    asked = ["heatmap", str(model), "--tokens", "50000"]
    done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("detoklens: not enough memory (Unable to allocate ")
    assert "lower --heads, --tokens" in line
