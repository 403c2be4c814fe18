"""Damaged and hostile parquet files: one line or documents, in bounded memory; never a traceback."""

import io
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from detoklens.corpus import documents
from detoklens.corpus.documents import cut_into_shards, read_documents
from detoklens.corpus.inputs import find_inputs
from detoklens.corpus.reading import ReadingOptions, Tally, read_texts
from detoklens.errors import CorpusError
from tests.fuzz.budget import cases

FEW = 800
LONGEST = 2 << 20
MOST_MEMORY = 200  # MB above what it was: the largest page that is taken is 8 MB
STATUS = Path("/proc/self/status")


def ordinary_file(chance: random.Random) -> bytes:
    """Some texts in any of the ways a writer may choose."""
    texts = ["".join(chance.choices("ab é🤦\n", k=chance.randrange(40))) for _ in range(chance.randrange(1, 60))]
    columns: dict[str, Any] = {"id": range(len(texts)), "text": texts, "nested": [{"a": 1, "b": [2]}] * len(texts)}
    if chance.random() < 0.2:
        columns["text"] = pa.array(texts).dictionary_encode()
    names = chance.sample(list(columns), k=3)
    file = io.BytesIO()
    pq.write_table(
        pa.table({name: columns[name] for name in names}),
        file,
        compression=chance.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
        data_page_version=chance.choice(["1.0", "2.0"]),
        row_group_size=chance.choice([5, 1000]),
        write_page_index=chance.random() < 0.5,
        write_page_checksum=chance.random() < 0.5,
        store_schema=chance.random() < 0.5,
        **chance.choice(
            [
                {"use_dictionary": True},
                {"use_dictionary": False},
                {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
                {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
            ]
        ),
    )
    return file.getvalue()


def damaged(content: bytes, chance: random.Random) -> bytes:
    """One to three bits flipped, a stretch cleared or doubled, the end cut off; in the footer as often as before it."""
    changed = bytearray(content)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for _ in range(chance.choice([1, 1, 3])):
        low, high = chance.choice([(0, footer), (footer, len(content))])
        place = chance.randrange(low, high)
        kind = chance.choices(["flip", "clear", "double", "cut"], [10, 1, 1, 1])[0]
        if kind == "flip" and place < len(changed):
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == "clear":
            changed[place : place + 4] = b"\xff" * len(changed[place : place + 4])
        elif kind == "double":
            changed[place:place] = changed[place : place + 20]
        elif kind == "cut":
            del changed[place:]
    return bytes(changed)


def read(path: Path) -> list[bytes]:
    options = ReadingOptions()
    pieces = [piece for shard in cut_into_shards(find_inputs([path]), options) for piece in shard.pieces]
    return [text for piece in pieces for _, text in read_texts(piece, options, Tally(), LONGEST)]


def memory(line: str) -> int:
    """MB of this process: VmRSS now, VmHWM at most since the last call of `forget_peak`."""
    found = re.search(rf"{line}:\s+(\d+)", STATUS.read_text())
    assert found is not None
    return int(found[1]) >> 10


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@pytest.mark.skipif(not STATUS.exists(), reason="NOT TESTED: no peak memory without /proc")
def test_a_damaged_file_is_one_line_or_documents_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    outcomes: Counter[str] = Counter()
    forget_peak()
    before = memory("VmRSS")
    for number, chance in enumerate(cases(FEW)):
        content = ordinary_file(chance)
        path.write_bytes(damaged(content, chance))
        try:
            texts = read(path)
            outcomes["documents" if all(text.decode() is not None for text in texts) else f"case {number}"] += 1
        except CorpusError as error:
            outcomes["refused" if len(str(error).splitlines()) == 1 else f"case {number}"] += 1
    assert set(outcomes) == {"refused", "documents"}
    assert memory("VmHWM") - before < MOST_MEMORY


def test_no_flipped_bit_of_a_page_with_a_checksum_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    texts = [f"the sand in {number}" for number in range(50)]
    plainly = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    pq.write_table(pa.table({"text": texts}), path, write_page_checksum=True, **plainly)
    content = path.read_bytes()
    first, last = content.index(texts[0].encode()), content.index(texts[-1].encode())
    assert read(path) == [text.encode() for text in texts]
    for chance in cases(50):
        changed = bytearray(content)
        changed[chance.randrange(first, last)] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(CorpusError, match="damaged parquet file"):
            read(path)


def test_documents_for_a_question_have_the_bound_of_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the memory, shared by as many workers as counting has: 2 MB where the whole quarter allows 64."""
    monkeypatch.setattr(documents, "default_memory", lambda: 1 << 30)
    monkeypatch.setattr(documents, "available_cores", lambda: 32)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": ["short", "a" * (3 << 20)]}), path, use_dictionary=False)
    with pytest.raises(CorpusError, match=r"t\.parquet: has a document of more than 2 MB"):
        list(read_documents([path]))
    pq.write_table(pa.table({"text": ["short", "a" * (9 << 20)]}), path, use_dictionary=False)
    with pytest.raises(CorpusError, match=r"t\.parquet: has pages of 9 MB, too large for the memory limit"):
        list(read_documents([path]))
