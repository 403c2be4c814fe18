"""Damaged counts, finished or not: one line, or the very same answer; never another number and never a traceback."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detoklens.corpus import count, documents, pairs
from detoklens.corpus.count import count_corpus
from detoklens.corpus.counts import Counts
from detoklens.corpus.reading import Tally
from detoklens.corpus.tasks import CountTask, MergeTask, Task, perform
from detoklens.engines import open_engine
from detoklens.errors import DetokLensError
from detoklens.tokens import Vocabulary
from tests.corpus.conftest import byte_level_vocabulary
from tests.corpus.plain_counting import as_counters, folder_bytes, write_jsonl
from tests.fuzz.budget import cases

FEW_FINISHED, FEW_UNFINISHED = 600, 40
SHARDS_BEFORE_THE_STOP = 18  # of about twenty: sixteen of them are merged to one part


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return byte_level_vocabulary(300)


@pytest.fixture(scope="module", autouse=True)
def small_files() -> Iterator[None]:
    """Many shards and many row groups of little text."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(documents, "SMALLEST", 500)
        patched.setattr(pairs, "ROW_GROUP", 20)
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"the sand in {number} thin bands" * (number % 4) for number in range(200)]
    return write_jsonl(tmp_path_factory.mktemp("source") / "texts.jsonl", texts)


@pytest.fixture(scope="module")
def finished(source: Path, vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "counts"
    continue_counting(source, vocabulary, folder)
    return folder


@pytest.fixture(scope="module")
def unfinished(source: Path, vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unfinished") / "counts"

    def perform_some(task: CountTask | MergeTask) -> tuple[Task, Tally]:
        if isinstance(task, CountTask) and task.shard.index >= SHARDS_BEFORE_THE_STOP:
            raise KeyboardInterrupt
        return perform(task)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(count, "perform", perform_some)
        with pytest.raises(KeyboardInterrupt):
            continue_counting(source, vocabulary, folder)
    assert sorted(path.name[0] for path in (folder / ".counting" / "parts").iterdir()) == ["0", "0", "1"]
    return folder


def continue_counting(source: Path, vocabulary: Vocabulary, folder: Path) -> None:
    with open_engine("local", 1) as engine:
        count_corpus([source], vocabulary, folder, engine=engine)


def answers(folder: Path) -> list[Any]:
    """All that is ever read out of counts."""
    counts = Counts.open(folder)
    lazily = [[column.tolist() for column in counts.predecessors(token)] for token in (0, 150, 299)]
    return [*as_counters(counts), counts.texts, counts.totals(), counts.fingerprint, lazily]


def is_one_line(error: DetokLensError) -> bool:
    return len(str(error).splitlines()) == 1


def damage(path: Path, chance: random.Random) -> str:
    """Flip a bit mostly; cut the end off, swap two stretches or clear one at times. What was done?"""
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content))
    kind = chance.choices(["flip", "cut", "swap", "clear"], [12, 1, 1, 1])[0]
    if kind == "flip":
        content[place] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del content[place:]
    elif kind == "clear":
        content[place : place + 16] = bytes(len(content[place : place + 16]))
    else:
        middle = len(content) // 2
        content = content[middle:] + content[:middle]
    path.write_bytes(content)
    return f"{kind} {path.name} at {place}"


def test_damaged_counts_are_refused_or_right(finished: Path, tmp_path: Path) -> None:
    expected = answers(finished)
    outcomes: Counter[str] = Counter()
    for chance in cases(FEW_FINISHED):
        folder = tmp_path / "counts"
        shutil.copytree(finished, folder)
        done = damage(folder / chance.choice(["bigrams.parquet", "tokens.parquet", "manifest.json"]), chance)
        try:
            found = answers(folder)
        except DetokLensError as error:
            outcomes["refused" if is_one_line(error) else done] += 1
        else:
            outcomes["right" if found == expected else done] += 1
        shutil.rmtree(folder)
    assert set(outcomes) <= {"refused", "right"}
    assert outcomes["refused"] > 0.9 * outcomes.total()


def test_no_number_of_a_manifest_can_be_changed(finished: Path, tmp_path: Path) -> None:
    """By hand as well: every number and every word of it, with the checksum left as it was."""
    folder = tmp_path / "counts"
    shutil.copytree(finished, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    sections = {section: content for section, content in manifest.items() if isinstance(content, dict)}
    for section, name in [(section, name) for section, content in sections.items() for name in content]:
        changed = manifest | {section: manifest[section] | {name: 12345}}
        (folder / "manifest.json").write_text(json.dumps(changed))
        with pytest.raises(DetokLensError, match="checksum is wrong"):
            Counts.open(folder)


def test_damaged_parts_and_plans_are_refused_or_change_nothing(
    finished: Path, unfinished: Path, source: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    expected = folder_bytes(finished)
    outcomes: Counter[str] = Counter()
    names = [str(path.relative_to(unfinished)) for path in sorted(unfinished.rglob("*")) if path.is_file()]
    names = [name for name in names if not name.endswith("lock")]
    for chance in cases(FEW_UNFINISHED):
        folder = tmp_path / "counts"
        shutil.copytree(unfinished, folder)
        path = folder / chance.choice(names)
        done = damage(path, chance)
        outcome = "right"
        try:
            continue_counting(source, vocabulary, folder)
        except DetokLensError as error:
            outcome = "refused" if is_one_line(error) else done
            path.unlink()  # the advice for a part; where the plan is lost its parts are worthless
            continue_counting(source, vocabulary, folder)
        outcomes[outcome if folder_bytes(folder) == expected else done] += 1
        shutil.rmtree(folder)
    assert set(outcomes) == {"refused", "right"}  # the copy of the tokenizer is written anew, whatever is there
