"""Published token ids and bigram counts: the counts are those of `count` on the same documents, or nothing is written."""

import csv
import gzip
import json
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from detoklens.cli.app import app
from detoklens.corpus import token_files
from detoklens.corpus.count import count_corpus, import_counts
from detoklens.corpus.counts import Counts
from detoklens.corpus.token_files import ImportOptions
from detoklens.engines import open_engine
from detoklens.errors import DetokLensError, OutputError
from tests.corpus.conftest import byte_level_vocabulary
from tests.corpus.plain_counting import as_counters, folder_bytes, write_jsonl
from tests.weights.hub.server import HubServer, Repository
from tests.weights.hub.tiny_model import use_endpoint

TEXTS = [
    "the nation and the end",
    "",
    "a",
    "in the and the you",
    "the\n\nend",
    "the nation and the nation",
    "",
    "naïve",
]
VOCABULARY = byte_level_vocabulary(300)
SEPARATOR = max(number for token, number in VOCABULARY.tokenizer.get_vocab().items() if token.startswith("unmet"))
Documents = Sequence[Sequence[int]]
Written = tuple[Path, ImportOptions]


def flat(documents: Documents, dtype: str, between: Sequence[int] = ()) -> np.ndarray:
    return np.array([token for document in documents for token in (*document, *between)], dtype)


def write_npy(folder: Path, documents: Documents) -> Written:
    np.save(folder / "tokens.npy", flat(documents, "uint16", [SEPARATOR]))
    return folder / "tokens.npy", ImportOptions(separator=SEPARATOR)


def write_bin(folder: Path, documents: Documents) -> Written:
    flat(documents, "<u4", [SEPARATOR]).tofile(folder / "tokens.bin")
    return folder / "tokens.bin", ImportOptions(separator=SEPARATOR, dtype="uint32")


def write_olmo(folder: Path, documents: Documents) -> Written:
    """A headerless memory map, and the bounds of its documents with their names."""
    flat(documents, "<u2").tofile(folder / "part-0.npy")
    ends = np.cumsum([0, *map(len, documents)]).tolist()
    with gzip.open(folder / "part-0.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows((*bounds, f'doc "{n}", x') for n, bounds in enumerate(pairwise(ends)))
    return folder / "part-0.npy", ImportOptions(dtype="uint16")


def write_megatron(folder: Path, documents: Documents, code: int = 8) -> Written:
    """Each document is cut into two sequences, as by sentences."""
    sequences = [part for document in documents for part in (document[:2], document[2:])]
    dtype = np.dtype(token_files.MEGATRON_TYPES[code])
    flat(sequences, dtype.name).tofile(folder / "data.bin")
    sizes = np.array([len(sequence) for sequence in sequences], "<i4")
    pointers = (np.cumsum(sizes) - sizes).astype("<i8") * dtype.itemsize
    firsts = np.arange(0, len(sequences) + 1, 2, "<i8")
    head = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, code, len(sizes), len(firsts))
    (folder / "data.idx").write_bytes(head + sizes.tobytes() + pointers.tobytes() + firsts.tobytes())
    return folder / "data.bin", ImportOptions()


def write_megatron_32(folder: Path, documents: Documents) -> Written:
    return write_megatron(folder, documents, 4)


def write_infini_gram(folder: Path, documents: Documents) -> Written:
    rows = [token for document in documents for token in (0xFFFF, *document)]
    np.array(rows, "<u2").tofile(folder / "tokenized.0")
    return folder / "tokenized.0", ImportOptions(dtype="uint16" if rows[:2] == [0xFFFF] * 2 else None)


def write_parquet(folder: Path, documents: Documents) -> Written:
    table = pa.table({"input_ids": pa.array(documents, pa.list_(pa.int32())), "other": ["x"] * len(documents)})
    pq.write_table(table, folder / "rows.parquet", row_group_size=3)
    return folder / "rows.parquet", ImportOptions()


def write_arrow(folder: Path, documents: Documents) -> Written:
    table = pa.table({"token_ids": pa.array(documents, pa.large_list(pa.int64()))})
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table, max_chunksize=2)
    return folder / "data-00000-of-00001.arrow", ImportOptions(ids_field="token_ids")


FORMATS = [
    write_npy, write_bin, write_olmo, write_megatron, write_megatron_32, write_infini_gram, write_parquet, write_arrow
]  # fmt: skip
DOCUMENTS = st.lists(st.lists(st.integers(0, 9), max_size=9), min_size=1, max_size=12).filter(any)


def counted_plainly(documents: Documents) -> tuple[Counter[int], Counter[tuple[int, int]]]:
    tokens, bigrams = Counter[int](), Counter[tuple[int, int]]()
    for document in documents:
        tokens.update(document)
        bigrams.update(zip(document[1:], document[:-1], strict=True))
    return tokens, bigrams


def imported(source: Path, out: Path, options: ImportOptions, workers: int = 1, engine: str = "local") -> Counts:
    with open_engine(engine, workers) as running:
        return import_counts(source, VOCABULARY, out, **asdict(options), engine=running)


@pytest.mark.parametrize("write", FORMATS)
@settings(max_examples=25)
@given(documents=DOCUMENTS, shard=st.integers(4, 40), block=st.integers(8, 80))
def test_wherever_a_file_is_cut_nothing_is_lost(
    write: Callable[[Path, Documents], Written], documents: Documents, shard: int, block: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr("detoklens.corpus.documents.SMALLEST", shard)
        patched.setattr(token_files, "ROWS_AT_ONCE", 2)
        source, options = write(Path(name), documents)
        if source.suffix != ".parquet":  # whose pages have a least size
            patched.setattr("detoklens.corpus.tasks.longest_document", lambda memory: block)
        counts = imported(source, Path(name, "out"), options)
        assert as_counters(counts) == counted_plainly(documents)
        totals = counts.manifest["totals"]
        assert totals["documents_with_tokens"] == sum(map(bool, documents))
        if write not in (write_npy, write_bin):  # a separator more or less does not tell an empty document
            assert totals["documents"] == len(documents)
        assert counts.manifest["source"]["pairs_may_cross_documents"] is False


@pytest.fixture(scope="module")
def of_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    with open_engine("local", 1) as engine:
        count_corpus([write_jsonl(folder / "t.jsonl", TEXTS)], VOCABULARY, folder / "counts", engine=engine)
    return folder / "counts"


@pytest.mark.parametrize("write", FORMATS)
def test_the_files_are_those_of_counting_the_text(
    write: Callable[[Path, Documents], Written], of_text: Path, tmp_path: Path
) -> None:
    source, options = write(tmp_path, [VOCABULARY.encode(text) for text in TEXTS])
    counts = imported(source, tmp_path / "out", options)
    for name in ("bigrams.parquet", "tokens.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (of_text / name).read_bytes()
    assert counts.manifest["inputs"][0]["path"] == str(source)
    assert counts.totals()["megabytes"] == [None]
    assert folder_bytes(tmp_path / "out").keys() == {"bigrams.parquet", "tokens.parquet", "manifest.json"}


@settings(max_examples=12)
@given(texts=st.lists(st.sampled_from(TEXTS) | st.text("then di\n", max_size=30), min_size=1, max_size=8))
def test_any_texts_are_counted_alike_in_every_format(texts: list[str]) -> None:
    documents = [VOCABULARY.encode(text) for text in texts]
    if max(map(len, documents)) < 2:
        return
    with tempfile.TemporaryDirectory() as name, open_engine("local", 1) as engine:
        folder = Path(name)
        counted = count_corpus([write_jsonl(folder / "t.jsonl", texts)], VOCABULARY, folder / "counts", engine=engine)
        for write in FORMATS:
            (part := folder / write.__name__).mkdir()
            source, options = write(part, documents)
            imported(source, part / "out", options)
            for file in ("bigrams.parquet", "tokens.parquet"):
                assert (part / "out" / file).read_bytes() == (folder / "counts" / file).read_bytes(), write.__name__
        _, bigrams = as_counters(counted)
        suffixes, prefixes = zip(*bigrams, strict=True)
        write_table(folder / "table.parquet", id0=list(prefixes), id1=list(suffixes), count=list(bigrams.values()))
        imported(folder / "table.parquet", folder / "of-table", ImportOptions())
        assert (folder / "of-table/bigrams.parquet").read_bytes() == (folder / "counts/bigrams.parquet").read_bytes()


@pytest.mark.parametrize(("engine", "workers"), [("local", 2), ("ray", 2)])
def test_engines_and_workers_change_no_byte(
    engine: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "ray":
        pytest.importorskip("ray", reason="Ray is not installed: importing on Ray is NOT TESTED")
    monkeypatch.setattr("detoklens.corpus.documents.SMALLEST", 64)
    source, options = write_megatron(tmp_path, [VOCABULARY.encode(text) for text in TEXTS * 20])
    imported(source, tmp_path / "one", options)
    imported(source, tmp_path / "many", options, workers, engine)
    assert folder_bytes(tmp_path / "one") == folder_bytes(tmp_path / "many")


@given(documents=DOCUMENTS, rows=st.integers(1, 4))
@settings(max_examples=25)
def test_a_table_of_bigrams_is_added_up(documents: Documents, rows: int) -> None:
    """A pair may stand in several rows, as in tables that were made in parts."""
    _, bigrams = counted_plainly(documents)
    if not bigrams:
        return
    listed = [(prefix, suffix, 1) for (suffix, prefix), count in bigrams.items() for _ in range(min(count, 2))]
    listed += [(prefix, suffix, count - 2) for (suffix, prefix), count in bigrams.items() if count > 2]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr("detoklens.corpus.documents.SMALLEST", 16)
        first, second, counts = map(list, zip(*listed, strict=True))
        table = pa.table(
            {"text": ["x"] * len(first), "id1": second, "id0": first, "count": pa.array(counts, pa.uint32())}
        )
        pq.write_table(table, f"{name}/bigrams.parquet", row_group_size=rows)
        found = imported(Path(name, "bigrams.parquet"), Path(name, "out"), ImportOptions())
        tokens = Counter[int]()
        for (suffix, _), count in bigrams.items():
            tokens[suffix] += count
        assert as_counters(found) == (tokens, bigrams)
        assert found.manifest["source"] == {
            "kind": "bigram table",
            "pairs_may_cross_documents": True,
            "token_counts": "as the second token of a bigram",
        }


def test_bigrams_with_the_separator_are_left_out(tmp_path: Path) -> None:
    write_table(
        tmp_path / "t.parquet", id0=[1, SEPARATOR, 2, SEPARATOR], id1=[2, 1, SEPARATOR, SEPARATOR], count=[5, 6, 7, 8]
    )
    counts = imported(tmp_path / "t.parquet", tmp_path / "out", ImportOptions(separator=SEPARATOR))
    assert as_counters(counts) == (Counter({2: 5}), Counter({(2, 1): 5}))
    assert counts.manifest["source"]["pairs_may_cross_documents"] is False


def test_without_bounds_pairs_may_cross_documents(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.array([1, 2, 1, 2], np.int64))
    counts = imported(tmp_path / "ids.npy", tmp_path / "out", ImportOptions())
    assert as_counters(counts) == (Counter({1: 2, 2: 2}), Counter({(2, 1): 2, (1, 2): 1}))
    assert counts.manifest["source"]["pairs_may_cross_documents"] is True
    assert counts.manifest["totals"]["documents"] == 1
    packed = imported(*_packed(tmp_path))
    assert packed.manifest["source"]["pairs_may_cross_documents"] is True


def _packed(folder: Path) -> tuple[Path, Path, ImportOptions]:
    source, _ = write_parquet(folder, [[1, 2, SEPARATOR, 3]])
    return source, folder / "packed", ImportOptions(packed=True)


def test_rows_are_cut_at_the_separator_too(tmp_path: Path) -> None:
    source, _ = write_parquet(tmp_path, [[1, 2, SEPARATOR, 3], [SEPARATOR], [4, SEPARATOR, SEPARATOR, 5, 6]])
    counts = imported(source, tmp_path / "out", ImportOptions(packed=True, separator=SEPARATOR))
    assert as_counters(counts)[1] == Counter({(2, 1): 1, (6, 5): 1})
    assert counts.manifest["source"]["pairs_may_cross_documents"] is False
    assert counts.manifest["totals"]["documents_with_tokens"] == 4


def test_what_was_interrupted_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detoklens.corpus.documents.SMALLEST", 64)
    source, options = write_npy(tmp_path, [VOCABULARY.encode(text) for text in TEXTS * 20])
    imported(source, tmp_path / "whole", options)
    read, calls = token_files._read_block, []

    def breaking(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(token_files, "_read_block", breaking)
    with pytest.raises(KeyboardInterrupt):
        imported(source, tmp_path / "out", options)
    before = len(calls)
    assert (tmp_path / "out" / ".counting").is_dir()
    with pytest.raises(OutputError, match="option separator was"):
        imported(source, tmp_path / "out", ImportOptions(separator=1))
    imported(source, tmp_path / "out", options)
    assert len(calls) - before < before + 60
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "whole")


def test_counts_of_text_are_not_mixed_with_imported_ones(tmp_path: Path) -> None:
    source, options = write_npy(tmp_path, [[1, 2]])
    imported(source, tmp_path / "out", options)
    with open_engine("local", 1) as engine, pytest.raises(OutputError, match="holds counts made with different"):
        count_corpus([write_jsonl(tmp_path / "t.jsonl", TEXTS)], VOCABULARY, tmp_path / "out", engine=engine)


def write_table(path: Path, **columns: list[object]) -> None:
    pq.write_table(pa.table(columns), path)


def damaged(
    write: Callable[[Path, Documents], Written], name: str, change: Callable[[bytes], bytes]
) -> Callable[[Path], Written]:
    def make(folder: Path) -> Written:
        written = write(folder, [[1, 2, 3], [4, 5]])
        (folder / name).write_bytes(change((folder / name).read_bytes()))
        return written

    return make


def table_of(
    name: str = "t.parquet", options: ImportOptions | None = None, **columns: list[object]
) -> Callable[[Path], Written]:
    def make(folder: Path) -> Written:
        write_table(folder / name, **columns)
        return folder / name, options or ImportOptions()

    return make


def array_of(array: np.ndarray, options: ImportOptions | None = None, name: str = "a.npy") -> Callable[[Path], Written]:
    def make(folder: Path) -> Written:
        if name.endswith(".npy"):
            np.save(folder / name, array)
        else:
            array.tofile(folder / name)
        return folder / name, options or ImportOptions()

    return make


def bounds_of(*rows: str) -> Callable[[Path], Written]:
    def make(folder: Path) -> Written:
        written = write_olmo(folder, [[1, 2, 3], [4, 5]])
        (folder / "part-0.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
        return written

    return make


RAW, RAW32 = ImportOptions(dtype="uint16"), ImportOptions(dtype="uint32")
BAD = {
    "ids beyond the vocabulary": (array_of(np.array([1, 300], np.uint16)), "token id 300 is not in"),
    "negative ids": (array_of(np.array([1, -1])), "token id -1 is not in"),
    "a matrix": (array_of(np.zeros((2, 2), np.uint16)), "of shape (2, 2)"),
    "floats": (array_of(np.zeros(3)), "holds float64"),
    "another dtype than the header's": (array_of(np.zeros(3, np.uint16), ImportOptions(dtype="uint32")), "not uint32"),
    "no dtype": (array_of(np.zeros(3, np.uint16), name="a.bin"), "pass dtype=uint16 or uint32"),
    "an odd length": (array_of(np.zeros(3, np.uint8), RAW, "a.bin"), "3 bytes are not a whole number"),
    "an unknown dtype": (array_of(np.zeros(3, np.uint8), ImportOptions(dtype="int8"), "a.bin"), "pass uint16 or uint32"),
    "a separator beyond the dtype": (array_of(np.zeros(3, np.uint8), ImportOptions(separator=256)), "can't hold"),
    "llm.c": (array_of(np.array([20240520, 1], np.int32), RAW, "a.bin"), "llm.c"),
    "a cut .npy": (damaged(write_npy, "tokens.npy", lambda raw: raw[:-2]), "another length"),
    "a damaged .npy": (damaged(write_npy, "tokens.npy", lambda raw: raw[:10] + b"\x00" * 40), "damaged .npy"),
    "no tokens": (array_of(np.zeros(0, np.uint16)), "has no tokens"),
    "bounds beyond the file": (bounds_of("0,3,a", "3,9,b"), "don't cover, in order"),
    "bounds with a gap": (bounds_of("0,2,a", "3,5,b"), "don't cover, in order"),
    "bounds of words": (bounds_of("0,3,a", "x,5,b"), "not rows of start,end"),
    "bounds that are not compressed": (damaged(write_olmo, "part-0.csv.gz", lambda raw: b"0,5"), "not rows of start,end"),
    "bounds that break off": (damaged(write_olmo, "part-0.csv.gz", lambda raw: raw[:-9]), "not rows of start,end"),
    "an index of another kind": (damaged(write_megatron, "data.idx", lambda raw: b"x" + raw[1:]), "not a Megatron index"),
    "an empty index": (damaged(write_megatron, "data.idx", lambda raw: b""), "not a Megatron index"),
    "an index that breaks off": (damaged(write_megatron, "data.idx", lambda raw: raw[:-1]), "bytes long instead of"),
    "an index of floats": (damaged(write_megatron, "data.idx", lambda raw: raw[:17] + b"\x07" + raw[18:]), "ids of type 7"),
    "another dtype than the index's": (lambda folder: (write_megatron(folder, [[1]])[0], RAW32), "not uint32; omit dtype"),
    "an index of other data": (damaged(write_megatron, "data.bin", lambda raw: raw[:-2]), "doesn't describe"),
    "documents out of order": (damaged(write_megatron, "data.idx", lambda raw: raw[:-8] + b"\x01" + bytes(7)), "don't cover"),
    "no separator first": (damaged(write_infini_gram, "tokenized.0", lambda raw: raw[2:]), "doesn't start with"),
    "16 or 32 bits": (damaged(write_infini_gram, "tokenized.0", lambda raw: b"\xff\xff" + raw), "pass dtype=uint16"),
    "a cut .parquet": (damaged(write_parquet, "rows.parquet", lambda raw: raw[:-9]), "not a complete parquet file"),
    "no such column": (table_of(ids=[[1]]), "neither a column 'input_ids' nor id0, id1 and count, only ids"),
    "a column of texts": (table_of(input_ids=["x"]), "not lists of integers"),
    "lists of floats": (table_of(input_ids=[[1.0]]), "not lists of integers"),
    "a null row": (table_of(input_ids=[[1], None]), "is null in a row"),
    "a null id": (table_of(input_ids=[[1, None]]), "is null"),
    "bigrams of floats": (table_of(id0=[1], id1=[2], count=[1.5]), "'count' holds double"),
    "a count of 0": (table_of(id0=[1], id1=[2], count=[0]), "a count of 0"),
    "counts too large": (table_of(id0=[1] * 3, id1=[2] * 3, count=[2**61] * 3), "less than 2^62"),
    "a null count": (table_of(id0=[1], id1=[2], count=pa.array([None], pa.int64())), "is null"),
    "bigrams of other ids": (table_of(id0=[1], id1=[300], count=[1]), "token id 300 is not in"),
    "a cut .arrow": (damaged(write_arrow, "data-00000-of-00001.arrow", lambda raw: raw[:40]), "not a whole Arrow file"),
    "an .arrow of zeros": (damaged(write_arrow, "data-00000-of-00001.arrow", lambda raw: bytes(200)), "not a whole Arrow"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_clear_line_and_nothing_is_written(case: str, tmp_path: Path) -> None:
    make, message = BAD[case]
    source, options = make(tmp_path)
    with pytest.raises(DetokLensError) as error:
        imported(source, tmp_path / "out", options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_save_to_disk_is_read(of_text: Path, tmp_path: Path) -> None:
    """`datasets` writes streams of Arrow batches next to JSON files, one folder per split."""
    documents = [VOCABULARY.encode(text) for text in TEXTS]
    saved = tmp_path / "saved" / "train"
    saved.mkdir(parents=True)
    schema = pa.schema({"input_ids": pa.list_(pa.int32()), "attention_mask": pa.list_(pa.int8())})
    for number, rows in enumerate((documents[:3], documents[3:])):
        table = pa.table([rows, [[1] * len(row) for row in rows]], schema)
        with pa.ipc.new_stream(saved / f"data-{number:05}-of-00002.arrow", schema) as out:
            out.write_table(table, max_chunksize=2)
    files = [{"filename": f"data-{number:05}-of-00002.arrow"} for number in range(2)]
    (saved / "state.json").write_text(json.dumps({"_data_files": files, "_split": "train"}))
    (saved / "dataset_info.json").write_text("{}")
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    counts = imported(tmp_path / "saved", tmp_path / "out", ImportOptions())
    assert (tmp_path / "out" / "bigrams.parquet").read_bytes() == (of_text / "bigrams.parquet").read_bytes()
    assert counts.manifest["source"]["kind"] == "rows of ids"


@pytest.mark.parametrize("write", [write_parquet, write_megatron, write_olmo])
def test_a_dataset_of_the_hub_is_read_with_what_belongs_to_it(
    write: Callable[[Path, Documents], Written], of_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").mkdir()
    source, options = write(tmp_path / "made", [VOCABULARY.encode(text) for text in TEXTS])
    files = {f"data/{path.name}": path.read_bytes() for path in (tmp_path / "made").iterdir()}
    with HubServer() as server:
        server.repositories["datasets/org/ids"] = Repository({"README.md": b"about", **files})
        server.repositories["datasets/org/bad"] = Repository({f"data/{source.name}": b"x"})
        use_endpoint(monkeypatch, server.endpoint, tmp_path)
        monkeypatch.chdir(tmp_path)
        counts = imported(Path("org/ids"), tmp_path / "out", options)
        with pytest.raises(DetokLensError) as error:
            imported(Path("org/bad"), tmp_path / "bad", options)
    assert (tmp_path / "out" / "bigrams.parquet").read_bytes() == (of_text / "bigrams.parquet").read_bytes()
    assert counts.manifest["inputs"][0]["path"] == f"org/ids/data/{source.name}"
    assert str(error.value).startswith("org/bad/data/")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "bad").exists()


def test_files_of_two_kinds_are_not_added_up(tmp_path: Path) -> None:
    write_npy(tmp_path, [[1, 2]])
    write_parquet(tmp_path, [[1, 2]])
    with pytest.raises(DetokLensError, match="several kinds"):
        imported(tmp_path, tmp_path / "out", ImportOptions())


@settings(max_examples=60)
@given(
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), min_size=1, max_size=3),
    which=st.integers(0, 3),
)
def test_damage_is_refused_or_changes_ids_only(flips: list[tuple[int, int]], which: int) -> None:
    """Never a crash of the process, nor an error of another kind."""
    write = (write_megatron, write_arrow, write_parquet, write_olmo)[which]
    names = ("data.idx", "data-00000-of-00001.arrow", "rows.parquet", "part-0.csv.gz")
    with tempfile.TemporaryDirectory() as name:
        source, options = write(Path(name), [[1, 2, 3], [4, 5], [6]])
        path = Path(name, names[which])
        raw = bytearray(path.read_bytes())
        for place, bit in flips:
            raw[place % len(raw)] ^= 1 << bit
        path.write_bytes(raw)
        try:
            total = imported(source, Path(name, "out"), options).tokens.sum()
        except DetokLensError as error:
            total = len(str(error).splitlines())
        assert total > 0


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.json").write_text(VOCABULARY.to_json())
    source, _ = write_npy(tmp_path, [[1, 2, 3], [4, 5]])
    arguments = ["counts", "import", str(source), "--tokenizer", str(tmp_path / "model"), "--workers", "1", "--out"]
    separated = [*arguments, str(tmp_path / "out"), "--separator", str(SEPARATOR), "--format", "csv"]
    shown = CliRunner().invoke(app, separated)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[1] == "2,,5,5,3,3,0,0"
    assert "separates documents" not in shown.stderr
    wrong = CliRunner().invoke(app, [*arguments, str(tmp_path / "wrong"), "--separator", "9"])
    assert "1 document in 1 file: check that token 9 separates documents" in wrong.stderr
    crossing = CliRunner().invoke(app, [*arguments, str(tmp_path / "crossing")])
    assert "bigrams may cross documents" in crossing.stderr
