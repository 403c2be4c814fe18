"""What is a document? Every kind of file gives the same texts, and what is wrong with one is named or skipped."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from detoklens.corpus import documents, reading
from detoklens.corpus.documents import read_documents
from detoklens.corpus.inputs import find_inputs
from detoklens.corpus.reading import ReadingOptions, Tally
from detoklens.errors import CorpusError
from tests.corpus.plain_counting import located_texts

TEXTS = ["first", "", "with\nlines\r\n", "🤦🏽‍♂️ é", "last"]
SKIPPING = ReadingOptions(skip_bad=True)


def texts_of(*inputs: Path | str, reading: ReadingOptions | None = None, **rest: object) -> list[str]:
    return list(read_documents(inputs, reading, **rest))  # type: ignore[arg-type]


def json_lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"id": 1, "text": text}, ensure_ascii=False) + "\n" for text in texts).encode()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def write_parquet(path: Path, texts: list[str | None], kind: pa.DataType | None = None, **options: object) -> Path:
    pq.write_table(pa.table({"text": pa.array(texts, kind or pa.string())}), path, **options)
    return path


@pytest.mark.parametrize(
    ("name", "compress"),
    [
        ("t.jsonl", bytes),
        ("t.jsonl.gz", gzip.compress),
        ("t.jsonl.zst", zstandard.compress),
        ("T.JSONL.GZ", gzip.compress),
    ],
)
def test_json_lines_plain_or_compressed(name: str, compress: object, tmp_path: Path) -> None:
    path = write(tmp_path / name, compress(json_lines(TEXTS)))  # type: ignore[operator]
    assert texts_of(path) == TEXTS


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_compressed_files_of_several_members_are_read_to_the_end(compress: object, tmp_path: Path) -> None:
    name = "t.jsonl.gz" if compress is gzip.compress else "t.jsonl.zst"
    content = compress(json_lines(TEXTS[:2])) + compress(json_lines(TEXTS[2:]))  # type: ignore[operator]
    assert texts_of(write(tmp_path / name, content)) == TEXTS


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet_columns_of_any_text_type(kind: pa.DataType, tmp_path: Path) -> None:
    assert texts_of(write_parquet(tmp_path / "t.parquet", TEXTS, kind, row_group_size=2)) == TEXTS


def test_parquet_with_columns_before_the_text(tmp_path: Path) -> None:
    table = pa.table({"about": [{"a": 1, "b": "x"}] * 5, "tags": [["u"]] * 5, "text": TEXTS})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    assert texts_of(tmp_path / "t.parquet") == TEXTS


def test_a_text_file_is_one_document_or_one_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "\ufeffone\r\n\n two \nthree".encode())
    assert texts_of(path) == ["one\r\n\n two \nthree"]
    assert texts_of(path, reading=ReadingOptions(document_per_line=True)) == ["one", " two ", "three"]


def test_documents_say_where_they_are_from(tmp_path: Path) -> None:
    lines = write(tmp_path / "a.jsonl", b'\n{"text": "x"}\n\n{"text": "y"}\n')
    text = write(tmp_path / "b.txt", b"z")
    assert located_texts([tmp_path]) == [(f"{lines}, line 2", "x"), (f"{lines}, line 4", "y"), (str(text), "z")]


def test_pieces_of_a_file_number_its_lines_and_rows_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "SMALLEST", 30)
    path = write(tmp_path / "a.jsonl", json_lines([f"text {number}" for number in range(40)]))
    table = write_parquet(tmp_path / "b.parquet", [f"text {number}" for number in range(20)], row_group_size=3)
    expected = [(f"{path}, line {number + 1}", f"text {number}") for number in range(40)]
    expected += [(f"{table}, row {number + 1}", f"text {number}") for number in range(20)]
    assert located_texts([tmp_path]) == expected
    assert len(documents.cut_into_shards(find_inputs([path]), ReadingOptions())) > 10


def test_another_field_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", b'{"content": "x"}\n')
    assert texts_of(path, reading=ReadingOptions(text_field="content")) == ["x"]


@pytest.mark.parametrize("limit", range(7))
def test_a_limit_takes_the_first_documents(limit: int, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", json_lines(TEXTS[:3]))
    write_parquet(tmp_path / "b.parquet", TEXTS[3:])
    assert [text for _, text in located_texts([tmp_path], limit)] == TEXTS[:limit]


def test_undecodable_bytes_are_replaced_and_counted(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"fine \xef\xbf\xbd")
    write(tmp_path / "b.txt", b"\xff\xfe caf\xe9 \xef\xbf\xbd")
    write(tmp_path / "c.jsonl", b'{"text": "\xe9"}\n{"text": "\\ud83d \\udc00"}\n')
    write_parquet(tmp_path / "d.parquet", [b"\x80", b"fine"], pa.binary())  # type: ignore[list-item]
    tally = Tally()
    expected = ["fine \ufffd", "\ufffd\ufffd caf\ufffd \ufffd", "\ufffd", "\ufffd \ufffd", "\ufffd", "fine"]
    assert texts_of(tmp_path, tally=tally) == expected
    assert (tally.replaced_characters, tally.documents_with_replacements) == (3 + 1 + 2 + 1, 4)
    assert tally.documents == 6


BAD_LINES = {
    b'{"text": "x"': "broken JSON",
    b"not json": "broken JSON",
    b'{"content": "x"}': "no field 'text'; it has 'content'",
    b'["x"]': "no field 'text' in a JSON list",
    b'{"text": null}': "holds NoneType, not text",
    b'{"text": 3}': "holds int, not text",
    b"[" * 100_000: "broken JSON",
}


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.items(), ids=range(len(BAD_LINES)))
def test_a_bad_line_is_named_or_skipped(line: bytes, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", json_lines(["one"]) + b"\n" + line + b"\n" + json_lines(["two"]))
    with pytest.raises(CorpusError) as error:
        texts_of(path)
    assert f"{path}, line 3: " in str(error.value)
    assert reason in str(error.value)
    assert "with skip_bad=True" in str(error.value)
    assert "\n" not in str(error.value)
    tally = Tally()
    assert texts_of(path, reading=SKIPPING, tally=tally) == ["one", "two"]
    assert tally.skipped_records == 1
    assert reason in tally.first_skipped[0]


def test_a_null_row_is_named_or_skipped(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", ["one", None, "two"])
    with pytest.raises(CorpusError, match="row 2: 'text' is null"):
        texts_of(path)
    assert texts_of(path, reading=SKIPPING) == ["one", "two"]


@pytest.mark.parametrize(("name", "compress"), [("t.jsonl.gz", gzip.compress), ("t.jsonl.zst", zstandard.compress)])
def test_a_truncated_file_is_named_and_its_whole_lines_can_be_kept(
    name: str, compress: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK", 4096)
    many = [f"document {number} {number**9}" for number in range(10_000)]
    content = compress(json_lines(many))  # type: ignore[operator]
    path = write(tmp_path / name, content[: len(content) * 2 // 3])
    with pytest.raises(CorpusError, match="breaks off") as error:
        texts_of(path)
    assert str(path) in str(error.value)
    tally = Tally()
    kept = texts_of(path, reading=SKIPPING, tally=tally)
    assert 0 < len(kept) < len(many)
    assert kept == many[: len(kept)]
    assert tally.skipped_records == 1


@pytest.mark.parametrize("chunk", [1000, 1 << 20])
@pytest.mark.parametrize(("name", "compress"), [("t.jsonl.gz", gzip.compress), ("t.jsonl.zst", zstandard.compress)])
def test_nothing_that_stands_before_a_break_is_lost(
    name: str, compress: object, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last bytes of both formats are checksums or the end mark: all the text stands before them."""
    monkeypatch.setattr(reading, "CHUNK", chunk)
    many = [f"document {number} {number**9}" for number in range(200)]
    path = write(tmp_path / name, compress(json_lines(many))[:-2])  # type: ignore[operator]
    whole = write(tmp_path / "u.jsonl", json_lines(["after it"]))
    tally = Tally()
    kept = texts_of(path, reading=SKIPPING, tally=tally)
    assert kept == many[: len(kept)]
    assert tally.skipped_records == 1
    if name.endswith(".gz"):
        assert kept == many
    cut = documents.cut_into_shards(find_inputs([path, whole]), SKIPPING, limit_documents=len(kept) + 1)
    pieces = [piece for shard in cut for piece in shard.pieces]
    assert [piece.file.name for piece in pieces] == [str(path), str(whole)], "a broken file must not use up the limit"


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.jsonl.zst", "t.txt.gz"])
def test_a_file_that_is_not_compressed_at_all_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="breaks off"):
        texts_of(write(tmp_path / name, b'{"text": "plain"}\n'))


@pytest.mark.parametrize("content", [b"", b"PAR1 no", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_file_that_is_no_parquet_is_named(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"t\.parquet: not a complete parquet file"):
        texts_of(write(tmp_path / "t.parquet", content))


def test_a_damaged_parquet_page_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", [f"text {number}" for number in range(5000)], compression="zstd")
    content = bytearray(path.read_bytes())
    content[100:4000] = bytes(3900)
    path.write_bytes(content)
    with pytest.raises(CorpusError, match="a damaged parquet file"):
        texts_of(path)


def test_a_missing_column_is_named_with_those_there(tmp_path: Path) -> None:
    pq.write_table(pa.table({"url": ["u"], "body": ["b"]}), tmp_path / "t.parquet")
    with pytest.raises(
        CorpusError, match=r"no column 'text'; it has url, body; pass text_field='body' \(text is also in url\)"
    ):
        texts_of(tmp_path / "t.parquet")


def test_a_missing_field_is_named_with_the_longest_text(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", b'{"id": 1, "title": "A title", "prose": "Some longer text"}')
    with pytest.raises(
        CorpusError, match=r"no field 'text'.*: pass text_field='prose' \(text is also in title\), or skip such"
    ):
        texts_of(path)


def test_a_column_that_is_no_text_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "t.parquet")
    with pytest.raises(CorpusError, match="holds int64, not text"):
        texts_of(tmp_path / "t.parquet")
