"""Whatever the memory, the batches and the shape of a shard: wherever runs are put away, no bigram is lost."""

import errno
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.corpus import pairs as spills
from detoklens.corpus.documents import Shard
from detoklens.corpus.inputs import describe
from detoklens.corpus.pairs import Run, Spills, add_parts, read_runs, write_part
from detoklens.corpus.reading import Piece, ReadingOptions, Tally
from detoklens.corpus.tasks import CountTask
from detoklens.errors import OutputError
from detoklens.tokens import Vocabulary
from tests.corpus.conftest import seven_token_vocabulary
from tests.corpus.plain_counting import plain_counts, without_special_parsing, write_jsonl
from tests.corpus.spill_stages import STAGES, noted_stages

MEMORIES = [int(2_000 * 1.12**step) for step in range(44)]  # from a few dozen keys to all


@pytest.fixture(scope="module")
def tokenizers(small_vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("tokenizers")
    for size, vocabulary in ((7, seven_token_vocabulary()), (300, small_vocabulary)):
        (folder / f"{size}.json").write_text(vocabulary.to_json(), encoding="utf-8")
    return {size: folder / f"{size}.json" for size in (7, 300)}


def counted(folder: Path, pieces: list[list[str]], tokenizer: Path, size: int, batch: int, memory: int) -> Path:
    """The part of a shard of one file for each piece."""
    files = [str(write_jsonl(folder / f"{number}.jsonl", texts)) for number, texts in enumerate(pieces)]
    shard = Shard(0, tuple(Piece(describe(file, file)) for file in files), 0)
    target = folder / "part.arrow"
    CountTask(shard, target, size, memory, tokenizer, "tokenizers", False, ReadingOptions(), batch).run()
    assert sorted(folder.glob("*.arrow*")) == [target]
    return target


def pairs_of(part: Path, size: int) -> Counter[tuple[int, int]]:
    keys = np.concatenate([run.keys for run in read_runs(part)] or [np.zeros(0, np.uint32)])
    counts = np.concatenate([run.counts for run in read_runs(part)] or [np.zeros(0, np.int64)])
    assert np.all(keys[1:] > keys[:-1])
    return Counter({divmod(int(key), size): int(count) for key, count in zip(keys, counts, strict=True)})


@pytest.mark.parametrize("batch", [1, 300, 10_000])
def test_spills_at_every_stage_give_the_same_counts(
    batch: int,
    small_vocabulary: Vocabulary,
    tokenizers: dict[int, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("detoklens.corpus.tasks.longest_document", lambda memory: 1 << 20)
    chance = random.Random(4)
    texts = ["".join(map(chr, chance.choices(range(32, 127), k=chance.randrange(90)))) for _ in range(40)]
    tokens, bigrams = plain_counts(texts, without_special_parsing(small_vocabulary))
    with noted_stages() as seen:
        for memory in MEMORIES:
            part = counted(tmp_path, [texts[:30], [], texts[30:]], tokenizers[300], 300, batch, memory)
            assert pairs_of(part, 300) == bigrams
            assert add_parts([part])[1].sum() == tokens.total()
    assert set(seen) == STAGES


@pytest.mark.parametrize("size", [7, 300])
def test_no_memory_batch_or_shape_of_a_shard_loses_a_bigram(size: int, tokenizers: dict[int, Path]) -> None:
    vocabulary = Vocabulary.from_json(tokenizers[size].read_text(encoding="utf-8"))
    tokenizer = without_special_parsing(vocabulary)
    text = st.text("ab", max_size=60) | st.text(st.characters(codec="ascii"), max_size=60) | st.just("")

    @settings(max_examples=150)
    @given(
        pieces=st.lists(st.lists(text, max_size=12), max_size=4),
        batch=st.sampled_from([1, 17, 200, 5_000]),
        memory=st.integers(1_500, 20_000),
        fan=st.integers(2, 4),
    )
    def check(pieces: list[list[str]], batch: int, memory: int, fan: int) -> None:
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
            patched.setattr(spills, "FAN", fan)
            patched.setattr("detoklens.corpus.tasks.longest_document", lambda memory: 1 << 20)
            part = counted(Path(folder), pieces, tokenizers[size], size, batch, memory)
            tokens, bigrams = plain_counts([text for texts in pieces for text in texts], tokenizer)
            assert pairs_of(part, size) == bigrams
            _, counted_tokens, tally = add_parts([part])
            assert Counter({int(t): int(counted_tokens[t]) for t in np.flatnonzero(counted_tokens)}) == tokens
            assert tally.bigrams == bigrams.total()

    check()


@pytest.mark.parametrize("runs", [1, 3, 4, 15, 16, 17, 64, 100])
def test_however_many_runs_are_put_away_few_files_are_open(
    runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged: list[int] = []
    merge = spills.merged_runs
    monkeypatch.setattr(spills, "FAN", 4)
    monkeypatch.setattr(spills, "merged_runs", lambda files: (merged.append(len(files)), merge(files))[1])
    keys = np.dtype(np.uint32)
    with Spills(tmp_path / "part", keys) as files:
        for number in range(runs):
            files.put_away(Run(np.array([number, 1000], np.uint32), np.array([1, 2])))
        stream = files.merged_with(Run(np.array([1000], np.uint32), np.array([5])))
        tally = Tally(tokens=4, documents_with_tokens=4 - 3 * runs - 5)
        write_part(tmp_path / "part", stream, keys, np.array([4]), tally)
        assert len(list(tmp_path.iterdir())) <= 5
    assert max(merged) <= 4
    assert list(tmp_path.iterdir()) == [tmp_path / "part"]
    expected = Counter({(0, number): 1 for number in range(runs)}) + Counter({(0, 1000): 2 * runs + 5})
    assert pairs_of(tmp_path / "part", 10_000) == expected


def test_an_error_on_the_way_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with Spills(tmp_path / "part", np.dtype(np.uint32)) as files:
            files.put_away(Run(np.array([1], np.uint32), np.array([1])))
            assert len(list(tmp_path.iterdir())) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    def full() -> Iterator[Run]:
        yield Run(np.array([1], np.uint32), np.array([1]))
        raise OSError(errno.ENOSPC, "no")

    def fail() -> None:
        with Spills(tmp_path / "part", np.dtype(np.uint32)) as files:
            files._add(0, full())

    with pytest.raises(OutputError, match="No space left on device; finished parts are kept"):
        fail()
    assert list(tmp_path.iterdir()) == []
