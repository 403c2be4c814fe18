"""What may be in the output folder, who may write to it, and what a run that ends early leaves there."""

import errno
import multiprocessing
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from detoklens.corpus import count, documents, pairs, tasks
from detoklens.corpus.count import count_corpus
from detoklens.corpus.counts import Counts
from detoklens.corpus.counts_folder import open_output
from detoklens.corpus.encoding import Encoded, GigatokenEncoder
from detoklens.corpus.pairs import add_parts
from detoklens.corpus.reading import ReadingOptions
from detoklens.engines import open_engine
from detoklens.errors import CorpusError, CountsError, OutputError, TokenError
from detoklens.tokens import Vocabulary
from tests.corpus.conftest import byte_level_vocabulary
from tests.corpus.plain_counting import edit_sealed, folder_bytes, write_jsonl

Run = Callable[..., Counts]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some text in three shards."""
    monkeypatch.setattr(documents, "SMALLEST", 1000)
    return write_jsonl(tmp_path / "texts.jsonl", [f"the sand in {number}" for number in range(80)])


@pytest.fixture
def run(source: Path, small_vocabulary: Vocabulary, tmp_path: Path) -> Run:
    def run(*inputs: Path, vocabulary: Vocabulary = small_vocabulary, out: str = "counts", **options: object) -> Counts:
        with open_engine("local", 1) as engine:
            return count_corpus(inputs or [source], vocabulary, tmp_path / out, engine=engine, **options)  # type: ignore[arg-type]

    return run


@pytest.fixture
def interrupted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the first of three shards is counted."""
    done = count.count_corpus.__globals__["perform"]

    def stop_after_one(task: tasks.CountTask) -> tuple[tasks.Task, tasks.Tally]:
        if task.shard.index > 0:
            raise KeyboardInterrupt
        result: tuple[tasks.Task, tasks.Tally] = done(task)
        return result

    monkeypatch.setattr(count, "perform", stop_after_one)
    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.setattr(count, "perform", done)
    return tmp_path / "counts"


def parts_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".counting" / "parts").iterdir())


def test_an_interrupted_run_keeps_its_parts_and_is_continued(
    interrupted: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parts_of(interrupted) == ["0-00000000.arrow"]
    with pytest.raises(CountsError, match="counting was interrupted; run the same"):
        Counts.open(interrupted)
    counted: list[int] = []
    perform = count.perform
    monkeypatch.setattr(count, "perform", lambda task: (counted.append(task.shard.index), perform(task))[1])
    run()
    assert counted == [1, 2]
    run(out="at once")
    assert folder_bytes(interrupted) == folder_bytes(interrupted.with_name("at once"))


def test_finished_counts_are_not_made_again(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    before = folder_bytes(tmp_path / "counts")
    monkeypatch.setattr(count, "perform", None)
    run()
    assert folder_bytes(tmp_path / "counts") == before


OTHER_REQUESTS = {
    "tokenizer fingerprint was": {"vocabulary": byte_level_vocabulary(301)},
    "option limit documents was None, now 5": {"limit_documents": 5},
    "option parse special tokens was False, now True": {"parse_special_tokens": True},
    "option text field was text, now body": {"reading": ReadingOptions(text_field="body")},
}


@pytest.mark.parametrize(("message", "request_"), OTHER_REQUESTS.items())
@pytest.mark.parametrize("state", ["interrupted", "finished"])
def test_other_counts_are_refused_with_what_differs(
    state: str, message: str, request_: dict[str, object], run: Run, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if state == "interrupted":
        request.getfixturevalue("interrupted")
    else:
        run()
    before = folder_bytes(tmp_path / "counts")
    with pytest.raises(OutputError, match=message) as error:
        run(**request_)
    assert "\n" not in str(error.value)
    assert folder_bytes(tmp_path / "counts") == before


def test_other_inputs_are_refused_with_what_differs(interrupted: Path, run: Run, source: Path) -> None:
    other = write_jsonl(source.with_name("other.jsonl"), ["the"])
    with pytest.raises(
        OutputError, match=r"input .*texts\.jsonl is missing; input .*other\.jsonl was not there before"
    ):
        run(other)
    with source.open("a") as file:
        file.write('{"text": "more"}\n')
    with pytest.raises(OutputError, match=r"input .*texts\.jsonl has changed \(\d+ bytes before, \d+ now\)"):
        run()


def test_another_order_of_inputs_is_another_input(run: Run, source: Path) -> None:
    other = write_jsonl(source.with_name("other.jsonl"), ["the"])
    run(source, other)
    with pytest.raises(OutputError, match="another order"):
        run(other, source)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gigatoken": "0.1"}, r"version gigatoken was 0\.1, now"),
        ({"tokenized_with": "tokenizers"}, "tokenized with tokenizers before, gigatoken now"),
    ],
)
def test_other_versions_do_not_continue_a_run(
    change: dict[str, object], message: str, interrupted: Path, run: Run
) -> None:
    def changed(plan: dict[str, Any]) -> None:
        plan["versions"] |= {name: value for name, value in change.items() if name in plan["versions"]}
        plan |= {name: value for name, value in change.items() if name in plan}

    edit_sealed(interrupted / ".counting" / "plan.json", changed)
    with pytest.raises(OutputError, match=message):
        run()


def test_a_bad_record_met_on_the_way_can_be_skipped_without_counting_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_jsonl(tmp_path / "bad.jsonl", [f"the sand in {number}" for number in range(80)])
    with path.open("a") as file:
        file.write("broken\n")
    with pytest.raises(CorpusError, match="line 81: broken JSON"):
        run(path)
    assert parts_of(tmp_path / "counts") != []
    counts = run(path, reading=ReadingOptions(skip_bad=True))
    assert counts.manifest["totals"]["skipped_records"] == 1
    run(path, reading=ReadingOptions(skip_bad=True), out="at once")
    assert folder_bytes(tmp_path / "counts") == folder_bytes(tmp_path / "at once")
    with pytest.raises(OutputError, match="option skip bad was True, now False"):
        run(path)


def test_where_nothing_could_be_counted_nothing_is_left(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("broken\n")
    with pytest.raises(CorpusError, match="line 1: broken JSON"):
        run(path)
    assert not (tmp_path / "counts").exists()


@pytest.mark.parametrize("content", ["", "\n\n", '{"text": ""}\n'])
def test_an_input_without_text_is_refused(content: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text(content)
    with pytest.raises(CorpusError, match="has no tokens"):
        run(path)
    assert not (tmp_path / "counts").exists()


def test_an_input_that_goes_away_on_the_way_is_named(run: Run, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perform = count.perform
    monkeypatch.setattr(count, "perform", lambda task: (perform(task), source.unlink(missing_ok=True))[0])
    with pytest.raises(CorpusError, match=r"texts\.jsonl: can no longer be read"):
        run()


def test_file_names_need_not_be_text(run: Run, small_vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.txt"))
    path.write_text("the sand")
    lines = write_jsonl(Path(f"{path}.jsonl"), ["the sand"])
    table = Path(f"{path}.parquet")
    with table.open("wb") as file:
        pq.write_table(pa.table({"text": ["the sand"]}), file)
    out = f"{path.name}.counts"
    assert run(path, lines, table, out=out).tokens.sum() == 3 * len(small_vocabulary.encode("the sand"))
    assert run(path, lines, table, out=out).manifest["inputs"][0]["path"] == str(path)


def test_a_folder_with_something_else_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts" / "thesis.tex").write_text("important")
    with pytest.raises(OutputError, match=r"contains other files \(thesis\.tex\)"):
        run()
    assert folder_bytes(tmp_path / "counts") == {"thesis.tex": b"important"}


def test_a_foreign_manifest_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts" / "manifest.json").write_text('{"name": "an app"}')
    with pytest.raises(CountsError, match="not a manifest of counts"):
        run()
    assert folder_bytes(tmp_path / "counts") == {"manifest.json": b'{"name": "an app"}'}


def test_only_leftovers_of_this_program_are_removed(run: Run, tmp_path: Path) -> None:
    run()
    (tmp_path / "counts" / "archive.part-1.rar").write_bytes(b"important")
    run()
    assert (tmp_path / "counts" / "archive.part-1.rar").read_bytes() == b"important"


def test_counts_below_the_input_folder_are_no_input(run: Run, source: Path, tmp_path: Path) -> None:
    first = run(tmp_path)
    assert [pin["path"] for pin in first.manifest["inputs"]] == [str(source)]
    assert run(tmp_path).fingerprint == first.fingerprint
    assert run(tmp_path / "**").fingerprint == first.fingerprint


def test_a_file_in_place_of_the_folder_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "counts").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        run()


def test_an_empty_folder_is_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "counts").mkdir()
    run()
    assert sorted(folder_bytes(tmp_path / "counts")) == ["bigrams.parquet", "manifest.json", "tokens.parquet"]


def test_two_runs_at_once_into_one_folder_are_refused(run: Run, tmp_path: Path) -> None:
    with open_output(tmp_path / "counts"), pytest.raises(OutputError, match="another run is counting into it"):
        run()
    run()


def _hold(folder: Path, ready: object, done: object) -> None:
    with open_output(folder):
        ready.set()  # type: ignore[attr-defined]
        done.wait()  # type: ignore[attr-defined]


def test_the_lock_of_a_killed_process_is_gone(run: Run, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path / "counts", ready, done))
    holder.start()
    assert ready.wait(60)
    with pytest.raises(OutputError, match="another run"):
        run()
    holder.kill()
    holder.join()
    run()
    assert sorted(folder_bytes(tmp_path / "counts")) == ["bigrams.parquet", "manifest.json", "tokens.parquet"]


def test_half_written_files_of_a_killed_run_are_removed(interrupted: Path, run: Run) -> None:
    (interrupted / ".counting/parts/0-00000001.arrow.part-34").write_bytes(b"spilled")
    for name in (".bigrams.parquet.0a1b.partial", ".counting/.plan.json.0a1b.partial"):
        (interrupted / name).write_bytes(b"half")
    run()
    assert sorted(folder_bytes(interrupted)) == ["bigrams.parquet", "manifest.json", "tokens.parquet"]


@pytest.mark.parametrize("file", ["0-00000001.arrow", "bigrams.parquet", "tokens.parquet", "manifest.json"])
@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_keeps_the_finished_parts(
    file: str, reason: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when one file is about to be renamed; the run is continued once there is room."""
    replace = Path.replace

    def full(temporary: Path, path: Path) -> Path:
        if path.name == file:
            raise OSError(reason, "no")
        return replace(temporary, path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(OutputError, match=f"{file}: .*; finished parts are kept.*run the same command again"):
            run()
    assert "0-00000000.arrow" in parts_of(tmp_path / "counts")
    assert not [name for name in folder_bytes(tmp_path / "counts") if ".part" in name and "/parts/" not in name]
    run()
    run(out="at once")
    assert folder_bytes(tmp_path / "counts") == folder_bytes(tmp_path / "at once")


def test_a_worker_that_meets_a_limit_on_file_size_says_so(
    small_vocabulary: Vocabulary, tmp_path: Path, source: Path
) -> None:
    """A real refusal of the system in a real worker process."""
    with (
        open_engine("local", 2) as engine,
        pytest.raises(OutputError, match="part: File too large; finished parts"),
    ):
        list(engine.run(_write_too_much, [str(tmp_path / "part")]))
    assert [path.name for path in tmp_path.iterdir()] == ["texts.jsonl"]


def _write_too_much(path: str) -> None:
    import resource
    import signal

    import numpy as np

    from detoklens.corpus.pairs import Run, write_part
    from detoklens.corpus.reading import Tally

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    run = Run(np.arange(200_000, dtype=np.uint32), np.ones(200_000, np.int64))
    write_part(Path(path), [run], run.keys.dtype, np.zeros(7, np.int64), Tally(documents_with_tokens=-200_000))


def test_a_damaged_part_is_named_and_can_be_counted_again(tmp_path: Path) -> None:
    part = tmp_path / "0-00000000.arrow"
    part.write_bytes(b"ARROW1\0\0" + bytes(40))
    with pytest.raises(CountsError, match=r"0-00000000\.arrow: damaged; delete it"):
        add_parts([part])


def test_counts_that_lost_something_in_the_last_merge_are_not_finished(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_the_first(paths: Sequence[Path]) -> tuple[object, ...]:
        _, *sums = pairs.add_parts(paths)
        return pairs.merged_runs(paths[1:]), *sums

    with monkeypatch.context() as patched:
        patched.setattr(count, "add_parts", without_the_first)
        with pytest.raises(CountsError, match=r"counts: counted \d+ bigrams, expected \d+"):
            run()
    with pytest.raises(CountsError, match="counting was interrupted"):
        Counts.open(tmp_path / "counts")
    run()
    run(out="at once")
    assert folder_bytes(tmp_path / "counts") == folder_bytes(tmp_path / "at once")


def test_a_library_that_loses_a_document_is_refused(
    run: Run, small_vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(GigatokenEncoder):
        def encode(self, texts: Sequence[bytes]) -> Encoded:
            return super().encode(texts[:20])

    text = small_vocabulary.to_json()
    monkeypatch.setattr(tasks, "open_encoder", lambda *_: Forgetful(text, parse_special_tokens=False))
    with pytest.raises(TokenError, match="gigatoken returned ids for 20 documents instead of"):
        run()
    assert not (tmp_path / "counts").exists()


def test_parts_without_their_plan_are_not_taken(interrupted: Path, run: Run, source: Path) -> None:
    """They could be of any text: here the text is another by now."""
    (interrupted / ".counting" / "plan.json").unlink()
    write_jsonl(source, [f"the band in {number}" for number in range(80)])
    run()
    run(out="at once")
    assert folder_bytes(interrupted) == folder_bytes(interrupted.with_name("at once"))


DEEP = '{"format":' * 100_000


@pytest.mark.parametrize("content", ["{", "", "[]", "\x00", DEEP, "[" * 100_000])
def test_a_plan_that_can_not_be_read_is_one_line(content: str, interrupted: Path, run: Run) -> None:
    (interrupted / ".counting" / "plan.json").write_text(content)
    with pytest.raises(CountsError, match=r"plan\.json: ") as error:
        run()
    assert "\n" not in str(error.value)
    assert parts_of(interrupted) == ["0-00000000.arrow"]


def test_a_damaged_plan_is_refused(interrupted: Path, run: Run) -> None:
    path = interrupted / ".counting" / "plan.json"
    path.write_text(path.read_text().replace('"text_field": "text"', '"text_field": "test"'))
    with pytest.raises(CountsError, match=r"plan\.json: damaged \(its checksum is wrong\)"):
        run()


def test_a_damaged_part_is_refused_when_the_run_is_continued(interrupted: Path, run: Run) -> None:
    part = interrupted / ".counting" / "parts" / "0-00000000.arrow"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(CountsError, match=r"0-00000000\.arrow: damaged; delete it and run the same command to count"):
        run()
    part.unlink()
    run()
    run(out="at once")
    assert folder_bytes(interrupted) == folder_bytes(interrupted.with_name("at once"))
