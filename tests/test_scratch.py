"""A process removes its temporary folders on exit, and the next start removes only those of killed processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detoklens.writing import LOCK, PREFIX, scratch_folder

HOLD = """
import sys, time
from pathlib import Path
from detoklens.writing import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "array").write_bytes(b"x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds a folder in tmp_path, and the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_folder_is_gone_when_the_work_ends_or_fails(tmp_path):
    with scratch_folder(tmp_path) as folder:
        (folder / "array").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError), scratch_folder(tmp_path) as folder:
        (folder / "nowhere" / "array").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_at_the_next_start(holder, tmp_path):
    process, left = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (left / "array").is_file()
    with scratch_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_what_a_living_process_holds_stays(holder, tmp_path):
    _, held = holder
    with scratch_folder(tmp_path):
        assert (held / "array").is_file()


def test_what_is_not_ours_stays(tmp_path):
    """A folder without our lock, one of another machine, and a link into somebody's folder."""
    for name, content in (("unlocked", None), ("elsewhere", b"another machine")):
        (tmp_path / f"{PREFIX}{name}").mkdir()
        if content is not None:
            (tmp_path / f"{PREFIX}{name}" / LOCK).write_bytes(content)
    theirs = tmp_path / "theirs"
    with scratch_folder(tmp_path) as folder:
        theirs.mkdir()
        (theirs / LOCK).write_bytes((folder / LOCK).read_bytes())
    (tmp_path / f"{PREFIX}linked").symlink_to(theirs)
    with scratch_folder(tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"{PREFIX}unlocked", f"{PREFIX}elsewhere", f"{PREFIX}linked", "theirs"]
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can make a folder of another user")
def test_what_another_user_left_stays(tmp_path):
    with scratch_folder(tmp_path) as folder:
        lock = (folder / LOCK).read_bytes()
    theirs = tmp_path / f"{PREFIX}theirs"
    theirs.mkdir()
    (theirs / LOCK).write_bytes(lock)
    os.chown(theirs, 65534, 65534)
    with scratch_folder(tmp_path):
        assert theirs.is_dir()
    os.chown(theirs, 0, 0)
    with scratch_folder(tmp_path):
        assert not theirs.exists()
