"""Killed at random moments, with memory that spills at every stage, and run again to the end: the same bytes."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from detoklens.corpus import documents
from detoklens.corpus.count import count_corpus
from detoklens.engines import open_engine
from detoklens.tokens import Vocabulary
from tests.corpus.conftest import byte_level_vocabulary
from tests.corpus.plain_counting import folder_bytes, write_jsonl
from tests.corpus.spill_stages import STAGES, noted_stages
from tests.fuzz.budget import cases

KILLS = 4
SHARE_OF_A_RUN = 1.2  # is the longest that a run gets before it is killed: some are done by then and begin anew
MEMORIES = [20_000, 100_000, 200_000, 400_000, 1_000_000]
"""Bytes for each worker: from some dozen spills a shard to none. In earnest none is less than 32 MB."""

# Small shards make many parts and two levels of merging out of little text; each part is slowed a little, so that
# kills find the run in its counting, merging and writing. It says when its libraries are loaded and the work begins.
SCRIPT = """
import sys, time
from detoklens.corpus import count, documents
from detoklens.engines import open_engine
from detoklens.loading import load_vocabulary

def unhurried(rows):
    for row in rows:
        time.sleep(0.05)
        yield row

if __name__ == "__main__":
    documents.SMALLEST = 4096
    documents.SMALLEST_SHARE = 1
    add_parts = count.add_parts
    count.add_parts = lambda paths: (lambda runs, *sums: (unhurried(runs), *sums))(*add_parts(paths))
    source, tokenizer, out, workers, share = sys.argv[1:]
    memory = int(workers) * int(share)
    print("begun", flush=True)
    with open_engine("local", int(workers)) as engine:
        count.count_corpus([source], load_vocabulary(tokenizer), out, memory=memory, engine=engine)
"""


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return byte_level_vocabulary(300)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of nearly as many different pairs as they have characters."""
    chance = random.Random(3)
    texts = ["".join(map(chr, chance.choices(range(32, 127), k=chance.randrange(600)))) for _ in range(600)]
    return write_jsonl(tmp_path_factory.mktemp("texts") / "texts.jsonl", texts)


def test_the_memories_spill_at_every_stage(
    source: Path, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "SMALLEST", 4096)
    monkeypatch.setattr(documents, "SMALLEST_SHARE", 1)
    contents = []
    with noted_stages() as seen, open_engine("local", 1) as engine:
        for share in MEMORIES:
            count_corpus([source], vocabulary, tmp_path / str(share), memory=share, engine=engine)
            contents.append(folder_bytes(tmp_path / str(share)))
    assert set(seen) == STAGES
    assert contents == contents[:1] * len(MEMORIES)


def test_killed_at_random_moments_and_finished(source: Path, vocabulary: Vocabulary, tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(SCRIPT)
    (tmp_path / "tokenizer.json").write_text(vocabulary.to_json(), encoding="utf-8")
    command = [sys.executable, str(tmp_path / "count.py"), str(source), str(tmp_path / "tokenizer.json")]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with _begun([*command, str(whole), "1", str(10**8)]) as process:
        begun = time.monotonic()
        assert process.wait() == 0
    duration = time.monotonic() - begun
    kills = finished = 0
    for chance in cases(KILLS):
        while not _is_killed(command, killed, chance, duration):
            finished += _is_the_same(killed, whole)
        kills += 1
        finished += _is_the_same(killed, whole)
    subprocess.run([*command, str(killed), "2", str(MEMORIES[0])], check=True)
    assert folder_bytes(killed) == folder_bytes(whole)
    sys.stdout.write(f"killed {kills} times, {finished + 1} counts finished, all the same bytes\n")
    assert sorted(os.listdir(killed)) == ["bigrams.parquet", "manifest.json", "tokens.parquet"]


def _is_killed(command: list[str], folder: Path, chance: random.Random, duration: float) -> bool:
    """Go on with the counting for a while; was the run killed before it was done?"""
    workers, share = chance.choice(["1", "2"]), chance.choice(MEMORIES)
    with _begun([*command, str(folder), workers, str(share)]) as process:
        time.sleep(chance.uniform(0, SHARE_OF_A_RUN * duration))
        was_running = process.poll() is None
        process.send_signal(signal.SIGKILL)
    return was_running


@contextmanager
def _begun(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A counting that has loaded its libraries; it has ended afterwards."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process


def _is_the_same(killed: Path, whole: Path) -> bool:
    """Where it was done in spite of the kills: was it right? Then the next one begins anew."""
    if not (killed / "manifest.json").exists():
        return False
    found = {name: content for name, content in folder_bytes(killed).items() if not name.startswith(".counting")}
    assert found == folder_bytes(whole)
    shutil.rmtree(killed)
    return True
