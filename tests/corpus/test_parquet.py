"""Parquet files that are small on disk and large in memory, and those whose columns have no proper name."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from detoklens.corpus.documents import read_documents
from detoklens.corpus.inputs import describe
from detoklens.corpus.parquet import BrokenHeader, largest_page
from detoklens.corpus.reading import ROWS, TextColumn
from detoklens.errors import CorpusError

MB = 1 << 20
TEXT = "the " * MB  # 4 MB

ENCODINGS: dict[str, dict[str, Any]] = {
    "dictionary": {"dictionary_pagesize_limit": 1 << 30},
    "plain": {"use_dictionary": False},
    "delta": {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    "delta length": {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
}


def write(path: Path, texts: list[str], encoding: str, **options: Any) -> Path:
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), path, **ENCODINGS[encoding], **options)
    return path


def chunk(path: Path) -> Any:
    return pq.read_metadata(path).row_group(0).column(1)


PEAK = """
import re, sys
from pathlib import Path
import pyarrow.parquet
from detoklens.corpus.inputs import describe
from detoklens.corpus.reading import TextColumn

def peak():  # kB; what getrusage says begins with the peak of the process that started this one
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

path, longest = describe(sys.argv[1], sys.argv[1]), int(sys.argv[2])
before = peak()
print(sum(len(text) for text in TextColumn(path, "text").values(0, 1, longest)))
print((peak() - before) >> 10)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="NOT TESTED: no peak memory without /proc")
@pytest.mark.parametrize("encoding", ["dictionary", "delta"])
def test_rows_that_share_one_long_text_are_read_one_by_one(encoding: str, tmp_path: Path) -> None:
    """64 rows of 4 MB in a file of a few kB: 256 MB at once, twice over, where they are decoded together."""
    path = write(tmp_path / "t.parquet", [TEXT] * 64, encoding, compression="zstd")
    assert path.stat().st_size < 10_000
    done = subprocess.run([sys.executable, "-c", PEAK, path, str(5 * MB)], capture_output=True, text=True, check=True)
    length, peak = map(int, done.stdout.split())
    assert length == 64 * len(TEXT)
    assert peak < 80  # MB: the page, its rows one by one, and their copies


@pytest.mark.parametrize("encoding", ["plain", "delta length"])
def test_a_page_that_does_not_fit_is_refused(encoding: str, tmp_path: Path) -> None:
    path = str(write(tmp_path / "t.parquet", [TEXT] * 64, encoding, compression="zstd"))
    with pytest.raises(CorpusError, match=r"t\.parquet: has pages of 256 MB, too large for the memory limit"):
        next(TextColumn(describe(path, path), "text").values(0, 1, 5 * MB))
    assert next(TextColumn(describe(path, path), "text").values(0, 1, 65 * MB)) == TEXT.encode()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_largest_page_is_found(encoding: str, version: str, tmp_path: Path) -> None:
    texts = [f"{number:05d}" * 20 for number in range(5000)]
    options = {"data_page_version": version, "data_page_size": 10_000, "write_batch_size": 50, "compression": "gzip"}
    column = chunk(write(tmp_path / "t.parquet", texts, encoding, **options))
    largest = largest_page(str(tmp_path / "t.parquet"), column)
    if encoding == "dictionary":  # one page of every text with its length
        assert largest == 5000 * (100 + 4)
    else:
        assert 4_000 < largest < 20_000 < column.total_uncompressed_size
    single = write(tmp_path / "single.parquet", ["the sand"], encoding, data_page_version=version)
    assert 10 <= largest_page(str(single), chunk(single)) < chunk(single).total_uncompressed_size


def test_ordinary_files_are_read_many_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    iter_batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda file, rows, **more: (asked.append(rows), iter_batches(file, rows, **more))[1],
    )
    texts = [f"the sand {number} " * 50 for number in range(3000)]
    for encoding in ENCODINGS:
        path = str(write(tmp_path / "t.parquet", texts, encoding, row_group_size=2000))
        assert list(TextColumn(describe(path, path), "text").values(0, 2, 64 * MB)) == [text.encode() for text in texts]
    asked = [rows for rows in asked if rows != 1]  # nothing is read by one that asks for one row
    assert len(asked) == 8
    assert min(asked) > ROWS // 2


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x00",
        b"\x15",
        b"\x15\x00\x15\x02",
        b"\x15" + b"\xff" * 12,
        b"\x1c" * 5000,
        b"\x19\x00",
        b"\x15\x00\x15\x03\x15\x02\x00",
    ],
)
def test_bytes_that_are_no_header_are_refused(header: bytes, tmp_path: Path) -> None:
    class Column:
        dictionary_page_offset, data_page_offset, total_compressed_size = None, 0, 100

    (tmp_path / "t.parquet").write_bytes(header)
    with pytest.raises(BrokenHeader):
        largest_page(str(tmp_path / "t.parquet"), Column)


@pytest.mark.parametrize(("columns", "renamed"), [(["text"], b"text"), (["text", "body"], b"body")])
def test_a_column_name_that_is_no_utf8_is_one_line(columns: list[str], renamed: bytes, tmp_path: Path) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({name: ["the sand"] for name in columns}), file, store_schema=False)
    (tmp_path / "t.parquet").write_bytes(file.getvalue().replace(renamed, renamed[:2] + b"\xff" + renamed[3:]))
    with pytest.raises(CorpusError, match=r"t\.parquet: a column name is not valid UTF-8; rename"):
        list(read_documents([tmp_path / "t.parquet"]))


def test_a_footer_that_contradicts_itself_does_not_end_the_process(tmp_path: Path) -> None:
    """The column becomes a required one, while its statistics still tell empty rows from others."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": ["the sand"] * 3}), path, store_schema=False)
    optional, required = b"\x25\x02\x18\x04text", b"\x25\x00\x18\x04text"
    assert path.read_bytes().count(optional) == 1
    path.write_bytes(path.read_bytes().replace(optional, required))
    code = f"from detoklens.corpus.documents import read_documents; print(list(read_documents([{str(path)!r}])))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "CorpusError" in done.stderr.splitlines()[-1]


def test_a_row_group_without_rows_is_passed_over(tmp_path: Path) -> None:
    with pq.ParquetWriter(tmp_path / "t.parquet", pa.schema([("text", pa.string())])) as writer:
        for texts in (["a"], [], ["b"]):
            writer.write_table(pa.table({"text": pa.array(texts, pa.string())}))
    assert pq.read_metadata(tmp_path / "t.parquet").num_row_groups == 3
    assert list(read_documents([tmp_path / "t.parquet"])) == ["a", "b"]
