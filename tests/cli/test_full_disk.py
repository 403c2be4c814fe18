"""A full disk, or a stdout that takes nothing: one line, exit code 1, nothing half-written, in every command."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from detoklens.cli.app import topics
from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.parameters import to_cli_args
from detoklens.tables.files import MARK, read_stored
from tests.command_line import PROGRAM, Result, call, run
from tests.spelled import LINES, write_spelled

pytestmark = pytest.mark.usefixtures("few_words", "undrawn")

COMMANDS = [name for names in topics().values() for name in names]

FULL = "/dev/full"
NO_SPACE = "No space left on device"
CHOSEN: dict[str, tuple[str, ...]] = {
    "partners": ("MODEL", "--token-id", "300", "--top", "300"),
    "words": ("MODEL", "WORDS"),
    "heatmap": ("MODEL", "--tokens", "120"),
    "auroc": ("MODEL", "--counts", "COUNTS", "--workers", "1", "--bootstrap", "0"),
    "lexicon": ("MODEL", "--top", "5000", "--workers", "1"),
    "frequency": ("MODEL", "--counts", "COUNTS"),
    "heads": ("MODEL", "--counts", "COUNTS"),
    "anatomy": ("MODEL", "--counts", "COUNTS", "--workers", "1"),
    "lookback": ("demo", "--query-positions", "60", "--documents", "5", "--workers", "1"),
    "twins": ("demo", "--triples", "40", "--pieces", "2", "--candidates", "60", "--bootstrap", "0"),
    "layers": ("demo", "--up-to", "1", "--triples", "40", "--candidates", "60", "--bootstrap", "0", "--workers", "1"),
    "attention": ("MODEL", "--text", "TEXT", "--workers", "1"),
    "contributions": ("MODEL", "--text", "TEXT", "--workers", "1"),
    "explain": ("MODEL", "--token-ids", "1,2,300,5"),
    "count": ("TEXT", "--tokenizer", "MODEL", "--workers", "1"),
    "report": ("MODEL", "--counts", "COUNTS", "--text", "TEXT", "--workers", "1"),
    "compare": ("MODEL", "again=MODEL", "--workers", "1"),
}


def words_of(question: type[Question]) -> tuple[str, ...]:
    """Arguments for a question's first example and for the inputs that it needs."""
    inputs = {"counts": ("--counts", "COUNTS"), "text": ("--text", "TEXT")}
    needed = [word for need, words in inputs.items() if need in question.needs for word in words]
    return ("MODEL", *to_cli_args(question.examples()[0]), *needed)


ASKED = {name: words_of(question) for name, question in QUESTIONS.items()} | CHOSEN
"""Every command that writes under --out; those in CHOSEN are asked for tables that are not small."""

READING = {"verify": ("MODEL",), "counts": ("show", "COUNTS"), "schema": ("auroc",)}
SERVING = {"explore"}  # writes by --export, see below
FORMATS = ("table", "csv", "json", "parquet")
PRINTED_BY = [command for command in COMMANDS if command not in ("report", "compare", "schema", *SERVING)]
PRINTING = [
    *((command, FORMATS[number % len(FORMATS)]) for number, command in enumerate(PRINTED_BY)),
    *(("shape", output_format) for output_format in FORMATS),
]
"""All print in the same way: each in one of the formats, one of them in every format."""
AT_THE_END = [
    *(["partners", "MODEL", "--token-id", "300", "--format", name] for name in FORMATS),
    ["verify", "MODEL", "--tolerance", "0", "--format", "csv"],
    ["report", "MODEL", "--workers", "1", "--out", "OUT"],
    ["schema", "auroc"],
    ["--version"],
    ["--help"],
]


def test_every_command_is_asked():
    assert {*ASKED, *READING} | SERVING == set(COMMANDS)


@pytest.fixture(scope="module")
def at_hand(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("inputs")
    write_spelled(folder / "model")
    (folder / "text.txt").write_text("\n".join(LINES), encoding="utf-8")
    (folder / "words.txt").write_text("\n".join(sorted(set(" ".join(LINES).split()))), encoding="utf-8")
    counting = ("count", folder / "text.txt", "--tokenizer", folder / "model", "--workers", "1")
    run(*counting, "--out", folder / "counts")
    names = {"MODEL": "model", "TEXT": "text.txt", "WORDS": "words.txt", "COUNTS": "counts"}
    return {word: str(folder / name) for word, name in names.items()}


def typed(command: str, at_hand: dict[str, str]) -> list[str]:
    words = {**ASKED, **READING}[command]
    return [
        command,
        *(word.replace("MODEL", at_hand["MODEL"]) if "=" in word else at_hand.get(word, word) for word in words),
    ]


@pytest.fixture
def small_disk(tmp_path) -> Iterator[contextlib.AbstractContextManager[Path]]:
    """A function that gives a disk of so many bytes."""
    mounted: list[Path] = []

    def make(size: int) -> Path:
        disk = tmp_path / f"disk-{size}"
        disk.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True)
        if done.returncode:
            pytest.skip("NOT TESTED: disks of 64 kB and 300 kB need root, who may mount them")
        mounted.append(disk)
        return disk

    yield make
    for disk in mounted:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> None:
    """Leave no room on a disk."""
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(b"\0" * 4096)


def check_one_line(result: Result) -> None:
    """One line of ours is the last, before it there are notes only."""
    assert result.exit_code == 1, result.stderr
    assert "Traceback" not in result.stderr
    *notes, line = result.stderr.splitlines()
    assert line.startswith("detoklens: ")
    assert not any(note.startswith("detoklens: ") for note in notes)


def check_whole(folder: Path) -> None:
    """No temporary names, and whatever is there can be read to its end."""
    for path in folder.rglob("*"):
        if not path.is_file() or ".parts" in str(path) or ".counting" in str(path):
            continue
        assert not path.name.endswith(".partial"), path
        if path.suffix == ".parquet":
            assert len(pl.read_parquet(path)) >= 0
        if path.suffix == ".html":
            assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
        assert path.stat().st_size > 0


@pytest.mark.parametrize("command", ASKED)
def test_a_full_disk_is_one_line(command, at_hand, small_disk):
    disk = small_disk(64 * 1024)
    (disk / "out").mkdir()
    fill(disk)
    result = call(*typed(command, at_hand), "--out", disk / "out")
    check_one_line(result)
    assert NO_SPACE in result.stderr
    assert [path for path in (disk / "out").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("size", [64 * 1024, 300 * 1024], ids=["64kB", "300kB"])
@pytest.mark.parametrize("command", ASKED)
def test_a_small_disk_holds_all_or_is_one_line(command, size, at_hand, small_disk):
    disk = small_disk(size)
    result = call(*typed(command, at_hand), "--out", disk / "out")
    if result.exit_code:
        check_one_line(result)
        assert NO_SPACE in result.stderr
    check_whole(disk)


def test_an_explorer_is_exported_whole_or_not_at_all(at_hand, small_disk):
    disk = small_disk(64 * 1024)
    result = call("explore", at_hand["MODEL"], "--export", disk / "out")
    check_one_line(result)
    assert NO_SPACE in result.stderr
    assert list(disk.iterdir()) == []


def test_a_full_disk_leaves_what_was_there(at_hand, small_disk):
    disk = small_disk(64 * 1024)
    asked = typed("partners", at_hand)
    run(*asked, "--out", disk)
    before, provenance = (stored := read_stored(disk / "partners.parquet")).content, stored.metadata[MARK]
    fill(disk)
    check_one_line(call(*asked, "--centred", "--out", disk))
    assert (disk / "partners.parquet").read_bytes() == before
    assert read_stored(disk / "partners.parquet").metadata[MARK] == provenance


@pytest.mark.skipif(not Path(FULL).exists(), reason="NOT TESTED: this system has no /dev/full")
@pytest.mark.parametrize(("command", "output_format"), PRINTING)
def test_stdout_that_takes_nothing_is_one_line(command, output_format, at_hand, tmp_path):
    asked = [*typed(command, at_hand), "--format", output_format]
    if command == "count":
        asked += ["--out", str(tmp_path / "counts")]
    with open(FULL, "w", encoding="utf-8") as full:
        check_one_line(call(*asked, answer_to=full))


def as_program(asked: list[str], **streams) -> Result:
    done = subprocess.run([*PROGRAM, *asked], stderr=subprocess.PIPE, text=True, **streams)
    return Result(done.returncode, done.stdout or "", done.stderr)


@pytest.mark.skipif(not Path(FULL).exists(), reason="NOT TESTED: this system has no /dev/full")
@pytest.mark.parametrize("asked", AT_THE_END, ids=" ".join)
def test_nothing_more_is_said_when_the_program_ends(asked, at_hand, tmp_path):
    """What waits in stdout's buffer is written again when the interpreter ends, were it not forgotten."""
    words = [{**at_hand, "OUT": str(tmp_path / "out")}.get(word, word) for word in asked]
    with open(FULL, "w", encoding="utf-8") as full:
        check_one_line(as_program(words, stdout=full))


def test_a_closed_stdout_is_one_line(at_hand):
    check_one_line(as_program(typed("partners", at_hand), preexec_fn=lambda: os.close(1)))


def test_a_pipe_that_was_closed_is_no_error_to_speak_of(at_hand):
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = as_program(typed("partners", at_hand), stdout=write_end)
    os.close(write_end)
    assert (result.exit_code, [line for line in result.stderr.splitlines() if "left out" not in line]) == (1, [])


def test_closed_or_full_stderr_stops_no_answer(at_hand):
    command = [sys.executable, "-m", "detoklens", *typed("partners", at_hand), "--format", "csv"]
    wanted = subprocess.run(command, capture_output=True, check=True).stdout
    closed = subprocess.run(command, stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2), check=True)
    assert closed.stdout == wanted


def test_what_an_encoding_lacks_is_escaped_for_eyes_and_kept_for_programs(at_hand):
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "detoklens", "shape", at_hand["MODEL"], "--format"]
    csv = subprocess.run([*command, "csv"], capture_output=True, check=True, env=environment)
    table = subprocess.run([*command, "table"], capture_output=True, check=True, env=environment)
    assert csv.stdout.startswith(b"head,query_position")
    assert table.stdout.isascii()
