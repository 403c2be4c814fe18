"""The recipe is a folder of scripts, not a package: its tests put that folder on the path."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

TRAINING = Path(__file__).parents[2] / "training"
sys.path.insert(0, str(TRAINING))

SYLLABLES = ("con", "nect", "ion", "sus", "pic", "ex", "cept", "pro", "tect", "ing", "er", "un", "der", "stand")


def made_up_text(words: int, seed: int) -> str:
    """Words of one to three syllables, so that there are merges to learn."""
    draw = random.Random(seed)
    return " ".join("".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(words)) + ".\n"


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 documents, of which the hash of the id holds a few out; a tenth come from a source to leave out."""
    folder = tmp_path_factory.mktemp("text")
    lines = [
        json.dumps({"id": f"{'other' if n % 10 == 0 else 'book'}/{n}", "text": made_up_text(60, n)}) for n in range(400)
    ]
    (folder / "shard.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Script = Callable[..., Ended]


@pytest.fixture(scope="session")
def script() -> Script:
    """Run a step of the recipe with the command line its users give, in this process (torch is slow to import)."""

    def run(name: str, *arguments: object) -> Ended:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        out, err = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
            code = _exit_code(importlib.import_module(name).main)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        return Ended(code, out.getvalue(), err.getvalue())

    return run


def _exit_code(main: Callable[[], None]) -> int:
    try:
        importlib.import_module("failure").run_as_command(main)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.fixture(scope="session")
def data(text_folder: Path, script: Script, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of 300 tokens and the streams it gives."""
    out = tmp_path_factory.mktemp("data")
    made = script("tokenizer", text_folder, out / "tokenizer.json", "--vocabulary", 300, "--sources", "book")
    assert made.returncode == 0, made.stderr
    tokenised = script("tokenise", text_folder, out, "--sources", "book")
    assert tokenised.returncode == 0, tokenised.stderr
    return out
