"""Killed at ten random moments and run again to the end: the same bytes, and nothing left behind."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from detoklens.tokens import Vocabulary
from tests.corpus.plain_counting import folder_bytes, write_jsonl

KILLS = 10

# Small shards make many parts and two levels of merging out of little text; each part is slowed a little, so that ten
# kills find the run in its counting, merging and writing.
SCRIPT = """
import sys, time
from detoklens.corpus import artefact, count, shards
from detoklens.engines import open_engine
from detoklens.loading import load_vocabulary

def unhurried(rows):
    for row in rows:
        time.sleep(0.05)
        yield row

if __name__ == "__main__":
    shards.SMALLEST = 4096
    merged = count.merged_blocks
    count.merged_blocks = lambda parts: unhurried(merged(parts))
    source, tokenizer, out, workers = sys.argv[1:]
    with open_engine("local", int(workers)) as engine:
        count.count_corpus([source], load_vocabulary(tokenizer), out, engine=engine)
"""


@pytest.fixture
def arguments(tmp_path: Path, small_vocabulary: Vocabulary) -> list[str]:
    generator = random.Random(3)
    words = ["the", "and", "in", "thin", "our", "zebra", "🤦", "sand", "an"]
    texts = [" ".join(generator.choices(words, k=generator.randrange(1500))) for _ in range(500)]
    (tmp_path / "count.py").write_text(SCRIPT)
    (tmp_path / "tokenizer.json").write_text(small_vocabulary.to_json(), encoding="utf-8")
    source = write_jsonl(tmp_path / "texts.jsonl", texts)
    return [sys.executable, str(tmp_path / "count.py"), str(source), str(tmp_path / "tokenizer.json")]


def test_killed_ten_times_and_finished(arguments: list[str], tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    begun = time.monotonic()
    subprocess.run([*arguments, str(whole), "1"], check=True)
    duration = time.monotonic() - begun

    seed = random.randrange(10**6)
    moments = random.Random(seed)
    kills = 0
    while kills < KILLS:
        workers = str(moments.choice([1, 2]))
        process = subprocess.Popen([*arguments, str(killed), workers])
        _wait_for_work(killed, process)
        time.sleep(moments.uniform(0, 0.25 * duration))
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (killed / "manifest.json").exists():
            assert folder_bytes(whole) == _finished(killed), f"seed {seed}"
            shutil.rmtree(killed)
    subprocess.run([*arguments, str(killed), "2"], check=True)
    assert folder_bytes(killed) == folder_bytes(whole), f"seed {seed}"
    assert sorted(os.listdir(killed)) == ["bigrams.parquet", "manifest.json", "tokens.parquet"]


def _wait_for_work(folder: Path, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None and not (folder / ".counting").exists():
        time.sleep(0.005)


def _finished(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in folder_bytes(folder).items() if not name.startswith(".counting")}
