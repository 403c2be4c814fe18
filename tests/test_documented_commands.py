"""Every command in the README and the docs runs, on the demo checkpoint and a small text.

Placeholder file and model names are replaced with local ones; everything else runs as written.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from detoklens import demo
from tests.command_line import call

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "howto").glob("*.md"))]
GENERATED = "cli.md"

CODE = re.compile(r"```.*?```|`[^`\n]+`|^(?: {4}[^\n]*\n)+", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"detoklens [a-z]+(?: [^`\n#|]+)?")
ELSEWHERE = re.compile(
    r"detoklens as dl|Skylion007|whisper|stories15M|MiniLM|--layer 1|count texts|/shared/|ray|COUNTS|pythia|INPUT|DIR\b|"
    r"explore|c-bad|gemma3|qwen\.gguf|…|\[|NAME|\.\.\.|--engine|\\$|FILE|SIZE|--by rank"
)

AT_HAND = {
    "gpt2": "demo",
    "MODEL": "demo",
    "TEXTS": "texts",
    "model.gguf": "demo",
    "small=gpt2": "start=demo@0",  # the same as on another page: asked once
    "medium=gpt2-medium": "end=demo",
    "middle=demo@4194304": "again=demo",  # answered already
    "TOKEN": "ion",
    "iens": "ion",
    " Korea": " the",
    " Jackson": " of",
    " chloride": " to",
    " sapiens": " the",
    "1,7": "0,1",
    "7": "1",
    "50,500,1000": "10,100,200",
    "500": "100",
    "5000": "5",
    "10000": "100",
    "/usr/share/dict/words": "drugs.txt",
    "drugs.txt": "drugs.txt",
}


def documented(pages: Sequence[Path] = PAGES) -> list[str]:
    """The commands of the pages, each once, left out those about clusters, hub datasets, GPT-2 itself, placeholders."""
    found = set()
    for page in pages:
        if page.name == GENERATED:
            continue
        for code in CODE.findall(page.read_text(encoding="utf-8")):
            found |= {match.strip() for match in COMMAND.findall(code)}
    return sorted(command for command in found if not ELSEWHERE.search(command))


def as_typed_here(command: str) -> list[str]:
    """The words of a command with names replaced by what is at hand, without redirections."""
    words = shlex.split(re.split(r" [<>]", command)[0])[1:]
    return [AT_HAND.get(word, word) for word in words]


def to_run(pages: Sequence[Path] = PAGES) -> list[list[str]]:
    """What is left to run, each once; a command that a sentence names without its arguments is none."""
    unfinished = (["count"], ["counts", "import"], ["explain", "demo"], ["partners", "demo"])
    elsewhere = (["compare"],)  # tests/report/test_table_contents.py runs it and looks at every table
    typed = {tuple(as_typed_here(command)) for command in documented(pages)}
    typed -= {words for words in typed if (*words, "demo") in typed}  # the model that is asked where none is named
    return [list(words) for words in sorted(typed) if list(words) not in (*unfinished, *elsewhere)]


def furnish(tmp_path: Path) -> None:
    """Put into a folder what the pages take for granted: counts, texts, word lists."""
    text = "The connection between the nation and its tradition was a question of attention. " * 40
    for name in ("openwebtext", "texts"):
        (tmp_path / name).mkdir()
        pl.DataFrame({"text": [f"{number}. {text}" for number in range(6)]}).write_parquet(
            tmp_path / name / "a.parquet"
        )
    (tmp_path / "counts").symlink_to(demo.COUNTS)
    (tmp_path / "text.txt").write_text(text[:400])
    (tmp_path / "drugs.txt").write_text("acetaminophen\nibuprofen\npenicillin\nconnections\n")
    (tmp_path / "words.txt").write_text("priest\ndescending\n")
    page = (ROOT / "docs" / "howto" / "corpus-import.md").read_text(encoding="utf-8")
    with contextlib.chdir(tmp_path):  # the page makes the files that it imports
        exec(page.partition("```python\n")[2].partition("```")[0], {})


@pytest.fixture(scope="module")
def furnished(tmp_path_factory):
    """One folder for all commands, as somebody has who goes through the pages: reports find what is there already."""
    if not demo.CHECKPOINT.is_dir():
        pytest.skip("NOT TESTED: the demo checkpoint is missing from the package")
    folder = tmp_path_factory.mktemp("workplace")
    furnish(folder)
    return folder


@pytest.fixture
def workplace(furnished, monkeypatch):
    monkeypatch.chdir(furnished)
    return furnished


def test_commands_are_found():
    assert len(documented()) > 20
    assert "detoklens verify demo" in documented()


@pytest.mark.usefixtures("only_svg", "shared_answers")
@pytest.mark.parametrize("words", to_run(), ids=" ".join)
def test_documented_commands_run(words, workplace, monkeypatch):
    if words[0] == "count":
        words[words.index("--out") + 1] = f"counts-of-{words[1].partition('/')[0]}"
    if words[:2] == ["counts", "import"]:
        words = [*words, "--workers", "1"]
    if words[0] == "report":  # one folder for all: what the same inputs decide is asked once
        words = [*(words[: words.index("--out")] if "--out" in words else words), "--out", "a-report"]
    if "-" in words:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((workplace / "text.txt").read_bytes())))
    if "parquet" in words:
        words[words.index("parquet")] = "csv"  # binary output needs a real stdout
    done = call(*words)
    assert done.exit_code == 0, done.stderr
    assert done.stdout
