"""Reports and exports that were killed, damaged or met a full disk, and are made again: the same bytes as at once."""

from __future__ import annotations

import errno
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from detoklens.errors import OutputError
from detoklens.explorer.bundle import whole_folder, write_bundle
from detoklens.questions.base import ReportEntry
from detoklens.questions.heatmap import Heatmap
from detoklens.questions.shape import Shape
from detoklens.questions.study import Study, Work
from detoklens.questions.variance import Variance
from detoklens.report import drawing
from detoklens.report import folder as answers
from detoklens.report.report import make_report
from tests.fuzz.budget import cases
from tests.fuzz.damage import damaged
from tests.layers import random_layer

ROOT = Path(__file__).resolve().parents[2]
QUICK = [ReportEntry(each) for each in (Shape(), Heatmap(tokens=5), Variance())]
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.fuzz.test_reports import make_quick

replace, renames = Path.replace, int(sys.argv[2])

def replace_some(path, target):
    global renames
    if renames == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    renames -= 1
    return replace(path, target)

if __name__ == "__main__":
    Path.replace = replace_some
    make_quick(Path(sys.argv[1]))
"""


def make_quick(folder: Path) -> None:
    """A report of three questions with figures of one format."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(answers, "report_entries", lambda study, layers: QUICK)
        patched.setattr(drawing, "FORMATS", ("svg",))
        make_report(Study(random_layer(vocab_size=30, dtype="float32"), work=Work(workers=1)), folder, heads=[0])


def contents(folder: Path) -> dict[str, bytes]:
    """Every file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "report"
    make_quick(folder)
    return folder


def test_killed_and_continued(whole: Path, tmp_path: Path) -> None:
    """Before the second file of an answer has its name, among the figures, or before any other file has its name."""
    for number, chance in enumerate(cases(2)):
        out, renames = tmp_path / str(number), (2, 7)[number] if number < 2 else chance.randrange(len(contents(whole)))
        command = [sys.executable, "-c", KILLED, str(out), str(renames)]
        ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert list(out.rglob(".*.partial")), "what the kill left"
        make_quick(out)
        assert contents(out) == contents(whole), renames


def test_damaged_and_continued(whole: Path, tmp_path: Path) -> None:
    """Damage to every file but one table, also to the one that marks the folder as a report."""
    out, expected = tmp_path / "out", contents(whole)
    make_quick(out)
    for chance in cases(2):
        spared = chance.choice(sorted(name for name in expected if name.endswith(".parquet")))
        for name in sorted(expected.keys() - {spared}):
            (out / name).write_bytes(damaged(chance, expected[name]))
        make_quick(out)
        assert contents(out) == expected


def test_a_report_without_a_readable_provenance_is_known_by_its_tables(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole / "tables", out / "tables")
    for content in (b"", b'{"detoklens": "0.1.0", "kind": "repopt"}', b'{"detoklens": "0.1.0", "ki'):
        (out / "provenance.json").write_bytes(content)
        caplog.clear()
        with pytest.raises(OutputError, match="holds a report and is not overwritten by a comparison"):
            answers.refuse_foreign(out, "comparison")
        answers.claim(out, "report")
        answers.claim(out, "report")
        (said,) = caplog.messages
        assert said == f"detoklens: {out / 'provenance.json'} is damaged; computing it again"
    (out / "provenance.json").unlink()
    with pytest.raises(OutputError, match="contains other files"):
        answers.claim(out, "report")
    (out / "provenance.json").write_bytes(b"")
    for path in (out / "tables").iterdir():
        path.write_bytes(b"")
    with pytest.raises(OutputError, match="contains other files"):
        answers.claim(out, "report")


def test_a_full_disk_and_continued(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes = Path.write_bytes
    for number, chance in enumerate(cases(2)):
        out, room = tmp_path / str(number), chance.randrange(1, len(contents(whole)))
        written: list[Path] = []

        def write_some(path: Path, content: bytes, written: list[Path] = written, room: int = room) -> int:
            written.append(path)
            if len(written) > room:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write_bytes(path, content)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_bytes", write_some)
            with pytest.raises(OutputError, match="No space left on device; free some space"):
                make_quick(out)
        assert not list(out.rglob(".*.partial"))
        make_quick(out)
        assert contents(out) == contents(whole), room


@pytest.mark.parametrize("name", ["tables", "figures", "counts", "models"])
def test_nothing_is_written_through_a_link(whole: Path, tmp_path: Path, name: str) -> None:
    foreign, out = tmp_path / "foreign", tmp_path / "out"
    foreign.mkdir()
    (foreign / "shape.parquet").write_bytes((whole / "tables" / "shape.parquet").read_bytes()[:-1])
    out.mkdir()
    (out / "provenance.json").write_bytes((whole / "provenance.json").read_bytes())
    (out / name).symlink_to(foreign)
    before = contents(foreign)
    with pytest.raises(OutputError, match="is a link, and nothing is written through links"):
        make_quick(out)
    assert contents(foreign) == before


def test_the_folder_itself_may_be_a_link(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    make_quick(tmp_path / "link")
    assert contents(tmp_path / "real") == contents(whole)


def test_an_export_that_is_killed_between_its_renames_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(random_layer(vocab_size=30, dtype="float32"))
    folder = write_bundle(study, tmp_path / "out", cards_later=True)
    before = (folder / "bundle.json").read_bytes()
    rename = Path.rename

    class Killed(BaseException):
        pass

    def killed(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise Killed
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(Killed):
            write_bundle(study, folder, cards_later=True)
    assert not folder.exists()
    with suppress(ZeroDivisionError), whole_folder(folder):
        taken_back = (folder / "bundle.json").read_bytes()
        raise ZeroDivisionError
    assert taken_back == before == (folder / "bundle.json").read_bytes()
    write_bundle(study, folder, cards_later=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
