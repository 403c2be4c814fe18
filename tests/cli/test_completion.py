"""Shells complete models, heads and tokens; a wrong model completes nothing and says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from detoklens import demo
from detoklens.cli.completion import complete_heads, complete_model, complete_question, complete_tokens


def context(model: str | None) -> SimpleNamespace:
    return SimpleNamespace(params={"model": model})


@pytest.fixture(autouse=True)
def same_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    for name, revisions in {"models--gpt2": ["main"], "models--some--model-a": ["main", "step7"]}.items():
        (tmp_path / "hub" / name / "refs").mkdir(parents=True)
        for revision in revisions:
            (tmp_path / "hub" / name / "refs" / revision).write_text("0" * 40)
    return tmp_path


def test_models(same_environment: Path) -> None:
    (same_environment / "runs" / "step1").mkdir(parents=True)
    (same_environment / "runs" / "step1" / "config.json").write_text("{}")
    (same_environment / "tiny.gguf").touch()
    (same_environment / "notes.txt").touch()
    assert complete_model("de") == ["demo", *demo.snapshots()]
    assert complete_model("") == ["demo", *demo.snapshots(), "gpt2", "some/model-a", "hub/", "runs/", "tiny.gguf"]
    assert complete_model("runs/") == ["runs/step1"]
    assert complete_model("some/model-a@") == ["some/model-a@main", "some/model-a@step7"]
    assert complete_model("start=demo@0") == ["start=demo@0"]
    assert complete_model("/nothing/at/all") == []


def test_questions() -> None:
    assert complete_question("pa") == ["partners", "paper"]


def test_heads() -> None:
    assert complete_heads(context("demo"), "") == ["0", "1", "2", "3"]
    assert complete_heads(context(None), "1,") == ["1,0", "1,2", "1,3"]
    assert complete_heads(context(str(demo.CHECKPOINT)), "0,3") == ["0,3"]
    assert complete_heads(context("nobody/nothing"), "") == []


def test_tokens() -> None:
    assert "ion" in [text for text, _ in complete_tokens(context("demo"), "io")]
    found = [text for text, _ in complete_tokens(context("demo"), " conn")]
    assert " conn" in found
    assert all(text.startswith(" conn") for text in found)
    assert len(complete_tokens(context("demo"), "")) <= 60
    assert complete_tokens(context("nobody/nothing"), "a") == []


@pytest.mark.parametrize(
    ("shell", "words", "expected"),
    [
        ("bash", "auroc demo --heads 2,", "2,3"),
        ("bash", "partners demo io", "ion"),
        ("zsh", "count texts --tokenizer dem", '"demo@0"'),
        ("fish", "schema par", "partners"),
    ],
)
def test_shells_ask_the_program(shell: str, words: str, expected: str) -> None:
    environment = {
        **os.environ,
        "_DETOKLENS_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": f"detoklens {words}",
        "COMP_CWORD": str(words.count(" ") + 1),
        "_TYPER_COMPLETE_ARGS": f"detoklens {words}",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    code = "import sys; sys.argv = ['detoklens']; from detoklens.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert expected in done.stdout.split(), (done.stdout, done.stderr)
    assert done.stderr == ""
