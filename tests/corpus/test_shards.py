"""Shards share out a corpus: every document in one of them, of even size, whatever the files are."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.corpus import documents
from detoklens.corpus.documents import Shard, cut_into_shards
from detoklens.corpus.inputs import find_inputs
from detoklens.corpus.reading import ReadingOptions, Tally, read_texts
from tests.corpus.plain_counting import write_jsonl

READING = ReadingOptions(document_per_line=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    folder = tmp_path_factory.mktemp("corpus")
    texts = [f"text number {number} {'x' * (number % 50)}" for number in range(400)]
    write_jsonl(folder / "a.jsonl", texts[:200])
    pq.write_table(pa.table({"text": texts[200:300]}), folder / "b.parquet", row_group_size=7)
    (folder / "c.txt").write_text("\n".join(texts[300:390]))
    for number, text in enumerate(texts[390:]):
        (folder / f"d{number}.txt").write_text(text)
    return folder, [text.encode() for text in texts]


def texts_of(cut: Sequence[Shard]) -> list[bytes]:
    pieces = [piece for shard in cut for piece in shard.pieces]
    return [text for piece in pieces for _, text in read_texts(piece, READING, Tally(), 1 << 20)]


@given(target=st.integers(50, 30_000), limit=st.none() | st.integers(0, 450))
def test_shards_share_out_the_documents(corpus: tuple[Path, list[bytes]], target: int, limit: int | None) -> None:
    folder, texts = corpus
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(documents, "SMALLEST", target)
        patched.setattr(documents, "LARGEST", target)
        cut = cut_into_shards(find_inputs([folder]), READING, limit)
    assert texts_of(cut) == texts[:limit]
    assert [shard.index for shard in cut] == list(range(len(cut)))


def test_many_small_files_make_few_shards_and_a_large_one_makes_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "SMALLEST", 10_000)
    for number in range(300):
        (tmp_path / f"{number:03}.txt").write_text("x" * 100)
    cut = cut_into_shards(find_inputs([tmp_path]), ReadingOptions())
    assert [len(shard.pieces) for shard in cut] == [100, 100, 100]
    large = write_jsonl(tmp_path / "large.jsonl", ["y" * 1000] * 300)
    assert len(cut_into_shards(find_inputs([large]), ReadingOptions())) > 25


def test_shards_of_a_large_corpus_grow_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SMALLEST", 10)
    monkeypatch.setattr(documents, "LARGEST", 1000)
    path = write_jsonl(tmp_path / "large.jsonl", ["y" * 90] * 2000)
    assert max(shard.size for shard in cut_into_shards(find_inputs([path]), ReadingOptions())) == 1000
