"""`detoklens count` and `detoklens counts show` as they are typed."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from detoklens import demo
from detoklens.cli.progress import describe
from detoklens.corpus.count import Progress
from detoklens.corpus.reading import Tally
from detoklens.tokens import Vocabulary
from tests.command_line import call, refuse, run
from tests.corpus.conftest import byte_level_vocabulary
from tests.corpus.plain_counting import folder_bytes, plain_counts, without_special_parsing, write_jsonl

TEXTS = ["the sand in the thin band", "and the sand", "zebra"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "tokenizer.json").write_text(byte_level_vocabulary(300).to_json(), encoding="utf-8")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "texts.jsonl", TEXTS)


@pytest.fixture
def counts(source: Path, tokenizer: Path, tmp_path: Path) -> Path:
    run("count", source, "--tokenizer", tokenizer, "--out", tmp_path / "counts", "--workers", 1)
    return tmp_path / "counts"


def test_totals_are_the_answer_and_stderr_is_quiet(source: Path, tokenizer: Path, tmp_path: Path) -> None:
    command = ("count", source, "--tokenizer", tokenizer, "--out", tmp_path / "counts", "--format", "json")
    result = run(*command, "--workers", 1)
    (totals,) = json.loads(result.stdout)
    vocabulary = Vocabulary.from_folder(tokenizer)
    tokens = [vocabulary.encode(text) for text in TEXTS]
    assert totals["documents"] == 3
    assert totals["tokens"] == sum(map(len, tokens))
    assert totals["bigrams"] == sum(map(len, tokens)) - 3
    assert totals["distinct_tokens"] == len({token for row in tokens for token in row})
    assert result.stderr == ""
    assert run(*command).stdout == result.stdout  # it is done: nothing is counted again


def test_the_options_are_those_of_the_library(tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("the\nsand\nin\n")
    command = ("count", tmp_path / "t.txt", "--tokenizer", tokenizer / "tokenizer.json", "--document-per-line")
    more = ("--limit-documents", 2, "--memory", "100MB", "--batch", "1kB", "--workers", 1, "--format", "json")
    (totals,) = json.loads(run(*command, *more, "--out", tmp_path / "counts").stdout)
    assert totals["documents"] == 2
    options = json.loads((tmp_path / "counts" / "manifest.json").read_text())["options"]
    assert options == {
        "text_field": "text",
        "document_per_line": True,
        "skip_bad": False,
        "limit_documents": 2,
        "parse_special_tokens": False,
    }


def test_what_was_mended_and_skipped_is_said(tokenizer: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"text": "fine"}\nbroken\n{"text": "\xff"}\n')
    result = run("count", path, "--tokenizer", tokenizer, "--out", tmp_path / "c", "--skip-bad", "--workers", 1)
    assert "1 undecodable characters in 1 documents were replaced" in result.stderr
    assert f"1 bad records were skipped, first {path}, line 2: broken JSON" in result.stderr


def test_two_runs_in_two_workers_and_one_give_the_same_files(counts: Path, source: Path, tokenizer: Path) -> None:
    other = counts.with_name("other")
    run("count", source, "--tokenizer", tokenizer, "--out", other, "--workers", 2)
    assert folder_bytes(other) == folder_bytes(counts)


def test_the_totals_of_counts_are_shown(counts: Path) -> None:
    assert "distinct_bigrams" in run("counts", "show", counts).stdout
    (totals,) = json.loads(run("counts", "show", counts, "--format", "json").stdout)
    assert totals["documents"] == 3


def test_demo_names_the_packaged_counts_unless_a_folder_is_called_so(
    counts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    packaged, named = (run("counts", "show", name, "--format", "json").stdout for name in (demo.COUNTS, demo.NAME))
    assert named == packaged
    assert run("auroc", "demo", "--counts", "demo", "--heads", 0, "--tokens", "ing", "--format", "csv").stdout
    counts.rename("demo")
    assert run("counts", "show", "demo", "--format", "json").stdout != packaged


@pytest.mark.parametrize("by_id", [True, False])
def test_the_predecessors_of_a_token_are_shown(counts: Path, tokenizer: Path, by_id: bool) -> None:
    vocabulary = Vocabulary.from_folder(tokenizer)
    space = vocabulary.id(" ")
    asked = ("--token-id", space) if by_id else (" ",)
    result = run("counts", "show", counts, *asked, "--top", 2, "--format", "json")
    _, bigrams = plain_counts(TEXTS, without_special_parsing(vocabulary))
    before = sorted((-count, prefix) for (suffix, prefix), count in bigrams.items() if suffix == space)
    total = sum(-count for count, _ in before)
    assert json.loads(result.stdout) == [
        {
            "rank": rank,
            "prefix_id": prefix,
            "prefix": vocabulary.text(prefix),
            "count": -count,
            "share": -count / total,
        }
        for rank, (count, prefix) in enumerate(before[:2], 1)
    ]
    shown = " ".join(run("counts", "show", counts, *asked).stdout.split())
    assert f"' ' ({space}) occurs {total} times, after" in shown


REFUSED = {
    "no such file or folder": ["nowhere.txt"],
    "unsupported file type": ["tokenizer.json"],
    "--memory 'much' is not a size": ["texts.jsonl", "--memory", "much"],
    "; allow more memory or fewer": ["texts.jsonl", "--memory", "1MB"],
    "--batch '0' is less than a byte": ["texts.jsonl", "--batch", "0"],
    "no field 'body'; it has 'text'": ["texts.jsonl", "--text-field", "body"],
    "choose the ray engine": ["texts.jsonl", "--ray-address", "auto"],
}


@pytest.mark.parametrize(("message", "arguments"), REFUSED.items())
def test_what_can_not_be_done_is_one_line_and_nothing_is_written(
    message: str, arguments: list[str], source: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    (source.parent / "tokenizer.json").write_text("{}")
    line = refuse("count", *arguments, "--tokenizer", tokenizer, "--out", "counts")
    assert message in line
    assert not Path("counts").exists()


def test_show_refuses_what_is_not_there(counts: Path, tmp_path: Path) -> None:
    assert "no manifest.json" in refuse("counts", "show", tmp_path)
    assert "not a single token" in refuse("counts", "show", counts, "sapiens")
    assert "ids go from 0 to 299" in refuse("counts", "show", counts, "--token-id", 300)
    assert "pass one of them" in refuse("counts", "show", counts, "the", "--token-id", 3)


def test_ctrl_c_keeps_what_is_done(counts: Path) -> None:
    """An unfinished folder says so."""
    (counts / "manifest.json").unlink()
    (counts / ".counting").mkdir()
    assert "run the same `detoklens count` command again" in refuse("counts", "show", counts)


def test_help_has_an_example() -> None:
    for command in (("count",), ("counts", "show")):
        assert "Example: detoklens count" in call(*command, "--help").stdout


def test_progress_is_drawn_on_a_terminal(source: Path, tokenizer: Path, tmp_path: Path) -> None:
    main, far_end = pty.openpty()
    command = [sys.executable, "-m", "detoklens", "count", source, "--tokenizer", tokenizer, "--out", tmp_path / "c"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=far_end, env=environment)
    os.close(far_end)
    drawn = b""
    try:
        while chunk := os.read(main, 4096):
            drawn += chunk
    except OSError:
        pass  # the other end is closed
    assert process.wait() == 0
    for word in (b"documents", b"MB/s", b"tokens"):
        assert word in drawn


def test_progress_says_documents_speed_tokens_and_time_left() -> None:
    tally = Tally(documents=1200, text_bytes=50_000_000, tokens=12_000_000)
    progress = Progress(total_size=300, finished_before=100, finished=50, tally=tally)
    assert describe(progress, 10.0) == "counting: 1,200 documents, 50 MB, 5.0 MB/s, 12,000,000 tokens, 0:00:30 left"


def test_an_engine_that_is_not_known_is_a_usage_error(source: Path) -> None:
    result = call("count", source, "--out", source.parent / "counts", "--engine", "spark")
    assert result.exit_code == 2
    assert "'spark' is not one of 'local', 'ray'" in result.stderr
