"""Counts as an object: from a folder or from arrays, by suffix, for the right tokenizer only."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import detoklens
from detoklens.corpus import pairs
from detoklens.corpus.count import count_corpus
from detoklens.corpus.counts import Counts
from detoklens.corpus.counts_folder import file_hash, json_text
from detoklens.corpus.pairs import Run, row_groups, write_bigrams
from detoklens.engines import open_engine
from detoklens.errors import CountsError, TokenError
from detoklens.tokens import Vocabulary
from tests.corpus.plain_counting import (
    as_counters,
    edit_sealed,
    plain_counts,
    without_special_parsing,
    write_jsonl,
)

TEXTS = ["the sand in the thin band", "and the sand", "", "zebra", "in in in"]


@pytest.fixture(scope="module")
def folder(small_vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts whose few pairs lie in many row groups."""
    place = tmp_path_factory.mktemp("counts")
    with pytest.MonkeyPatch.context() as patched, open_engine("local", 1) as engine:
        patched.setattr(pairs, "ROW_GROUP", 4)
        count_corpus([write_jsonl(place / "t.jsonl", TEXTS)], small_vocabulary, place / "counts", engine=engine)
    return place / "counts"


def test_the_public_name_is_this_class() -> None:
    assert detoklens.Counts is Counts


def test_counts_say_what_they_hold(folder: Path, small_vocabulary: Vocabulary) -> None:
    tokens, bigrams = plain_counts(TEXTS, without_special_parsing(small_vocabulary))
    size = small_vocabulary.size
    assert repr(Counts.open(folder)) == (
        f"Counts of {sum(tokens.values())} tokens in {len(TEXTS)} documents: {len(bigrams)} distinct bigrams, "
        f"a vocabulary of {size}, in {folder}"
    )
    made = Counts.from_arrays(np.array([1200, 34]), np.array([0, 1]), np.array([1, 1]), np.array([5, 6]))
    assert repr(made) == "Counts of 1,234 tokens: 2 distinct bigrams, a vocabulary of 2, in memory"


def test_files_have_the_documented_columns(folder: Path) -> None:
    bigrams, tokens = pq.ParquetFile(folder / "bigrams.parquet"), pq.ParquetFile(folder / "tokens.parquet")
    assert bigrams.schema_arrow.names == ["suffix", "prefix", "count"]
    assert tokens.schema_arrow.names == ["token", "count", "text"]
    rows = bigrams.read().to_pylist()
    assert [(row["suffix"], row["prefix"]) for row in rows] == sorted((row["suffix"], row["prefix"]) for row in rows)
    group = bigrams.metadata.row_group(0)
    assert {group.column(column).compression for column in range(3)} == {"ZSTD"}
    assert "DELTA_BINARY_PACKED" in group.column(0).encodings
    assert "DELTA_BINARY_PACKED" in group.column(1).encodings
    assert bigrams.metadata.num_row_groups > 3


def test_rows_are_by_suffix(folder: Path, small_vocabulary: Vocabulary) -> None:
    counts = Counts.open(folder)
    _, bigrams = plain_counts(TEXTS, without_special_parsing(small_vocabulary))
    assert counts.bigrams.indptr[0] == 0
    assert counts.bigrams.indptr[-1] == len(bigrams)
    for token in range(counts.vocabulary_size):
        before = {prefix: count for (suffix, prefix), count in bigrams.items() if suffix == token}
        lazily = Counts.open(folder).predecessors(token)
        loaded = counts.predecessors(token)
        for found in (lazily, loaded):
            assert dict(zip(found.prefixes.tolist(), found.counts.tolist(), strict=True)) == before
            assert found.prefixes.tolist() == sorted(before)


def test_the_predecessors_of_one_token_are_read_without_the_others(folder: Path) -> None:
    counts = Counts.open(folder)
    counts.predecessors(int(np.argmax(counts.tokens)))
    assert "bigrams" not in vars(counts)


def test_array_types(folder: Path) -> None:
    counts = Counts.open(folder)
    assert counts.tokens.dtype == counts.bigrams.counts.dtype == counts.bigrams.indptr.dtype == np.int64
    assert counts.bigrams.prefixes.dtype == np.uint32


def test_most_frequent_predecessors_come_first(folder: Path, small_vocabulary: Vocabulary) -> None:
    counts = Counts.open(folder)
    the = counts.token_id(" the")
    assert the == small_vocabulary.id(" the")
    rows = counts.most_frequent_predecessors(small_vocabulary.id("in"), 10)
    assert rows["prefix"] == [" ", "th"]
    assert rows["count"].tolist() == [3, 1]
    assert rows["share"].tolist() == [0.75, 0.25]
    rows = counts.most_frequent_predecessors(small_vocabulary.id(" "), 2)
    assert rows["rank"].tolist() == [1, 2]
    assert rows["count"].tolist() == sorted(rows["count"].tolist(), reverse=True)
    assert rows["share"].sum() <= 1


def test_a_token_without_predecessors_has_none(folder: Path, small_vocabulary: Vocabulary) -> None:
    rows = Counts.open(folder).most_frequent_predecessors(small_vocabulary.id("q"), 5)
    assert [len(column) for column in rows.values()] == [0] * 5


def test_counts_from_arrays_are_those_of_the_folder(folder: Path) -> None:
    opened = Counts.open(folder)
    order = np.random.default_rng(1).permutation(len(opened.bigrams.prefixes))
    made = Counts.from_arrays(
        opened.tokens, opened.bigrams.suffixes[order], opened.bigrams.prefixes[order], opened.bigrams.counts[order]
    )
    assert as_counters(made) == as_counters(opened)
    np.testing.assert_array_equal(made.bigrams.indptr, opened.bigrams.indptr)
    again = Counts.from_arrays(opened.tokens, opened.bigrams.suffixes, opened.bigrams.prefixes, opened.bigrams.counts)
    assert made.fingerprint == again.fingerprint
    other = Counts.from_arrays(
        opened.tokens, opened.bigrams.suffixes, opened.bigrams.prefixes, opened.bigrams.counts + 1
    )
    assert made.fingerprint != other.fingerprint


def test_another_tokenizer_is_refused(folder: Path, small_vocabulary: Vocabulary) -> None:
    Counts.open(folder, small_vocabulary.fingerprint).check(small_vocabulary.fingerprint)
    with pytest.raises(CountsError, match="made with another tokenizer"):
        Counts.open(folder, "0" * 64)


@pytest.mark.parametrize("token", [-1, 300])
def test_a_token_that_is_not_there_is_refused(folder: Path, token: int) -> None:
    with pytest.raises(TokenError, match="ids go from 0 to 299"):
        Counts.open(folder).predecessors(token)
    with pytest.raises(TokenError, match="not a single token"):
        Counts.open(folder).token_id("sapiens")


def copied(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def test_damaged_counts_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CountsError, match="no such folder"):
        Counts.open(tmp_path / "nowhere")
    with pytest.raises(CountsError, match=r"no manifest\.json"):
        Counts.open(tmp_path)
    short = copied(folder, tmp_path / "short")
    (short / "bigrams.parquet").write_bytes(b"PAR1")
    with pytest.raises(CountsError, match=r"bigrams\.parquet: 4 bytes long instead of"):
        Counts.open(short)
    missing = copied(folder, tmp_path / "missing")
    (missing / "tokens.parquet").unlink()
    with pytest.raises(CountsError, match=r"tokens\.parquet: missing"):
        Counts.open(missing)
    garbled = copied(folder, tmp_path / "garbled")
    size = (garbled / "tokens.parquet").stat().st_size
    (garbled / "tokens.parquet").write_bytes(bytes(size))
    with pytest.raises(CountsError, match=r"tokens\.parquet: damaged"):
        Counts.open(garbled)


def rehashed(folder: Path, name: str, **totals: int) -> None:
    """The manifest as a forger would leave it."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["files"][name] = file_hash(folder / name)
        manifest["totals"] |= totals

    edit_sealed(folder / "manifest.json", change)


def test_ids_outside_the_vocabulary_are_refused(folder: Path, tmp_path: Path) -> None:
    for column in ("suffix", "prefix"):
        forged = copied(folder, tmp_path / column)
        table = pq.read_table(forged / "bigrams.parquet")
        ids = table[column].to_numpy().copy()
        ids[-1] = 300
        table = table.set_column(table.schema.names.index(column), column, [ids])
        pq.write_table(table, forged / "bigrams.parquet")
        rehashed(forged, "bigrams.parquet")
        with pytest.raises(CountsError, match="bigrams of token 300, but ids go from 0 to 299"):
            _ = Counts.open(forged).bigrams
    few = copied(folder, tmp_path / "few")
    pq.write_table(pq.read_table(few / "tokens.parquet").slice(0, 5), few / "tokens.parquet")
    rehashed(few, "tokens.parquet")
    with pytest.raises(CountsError, match="5 rows, not one for each token"):
        Counts.open(few)


MANIFESTS = {
    "can't be read as JSON": "{",
    "not a manifest of counts": "{}",
    r"\[\] is not an object": "[]",
    "incomplete": json_text({"format": "detoklens counts", "format_version": 2}),
    "nested too deeply": '{"format":' * 100_000,
    r"as JSON \(nested too deeply\)": "[" * 100_000,
    "format 99": '{"format": "detoklens counts", "format_version": 99}',
}


@pytest.mark.parametrize(("message", "content"), MANIFESTS.items())
def test_a_manifest_that_is_none_is_refused(message: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(CountsError, match=message):
        Counts.open(tmp_path)


FORGED = {
    "tokens, but the manifest says": ("tokens.parquet", "count"),
    "bigrams, but the manifest says": ("bigrams.parquet", "count"),
}


@pytest.mark.parametrize(("message", "where"), FORGED.items())
def test_files_that_contradict_the_totals_are_refused(
    message: str, where: tuple[str, str], folder: Path, tmp_path: Path
) -> None:
    name, column = where
    forged = copied(folder, tmp_path / "forged")
    table = pq.read_table(forged / name)
    numbers = table[column].to_numpy().copy()
    numbers[np.argmax(numbers)] += 1
    pq.write_table(table.set_column(table.schema.names.index(column), column, [numbers]), forged / name)
    rehashed(forged, name)
    with pytest.raises(CountsError, match=message):
        _ = Counts.open(forged).bigrams


def test_a_file_of_other_columns_is_refused(folder: Path, tmp_path: Path) -> None:
    for name in ("tokens.parquet", "bigrams.parquet"):
        forged = copied(folder, tmp_path / name)
        pq.write_table(pq.read_table(forged / name).rename_columns(["a", "b", "c"]), forged / name)
        rehashed(forged, name)
        with pytest.raises(CountsError, match="columns differ from"):
            _ = Counts.open(forged).bigrams


@pytest.mark.parametrize(
    ("change", "is_refused"),
    [
        ({}, False),
        ({"bigrams": 0}, True),
        ({"tokens": 1 << 40}, True),
        ({"documents_with_tokens": 5}, True),
        ({"documents": 6}, False),
    ],
)
def test_totals_that_contradict_each_other_are_refused(
    change: dict[str, int], is_refused: bool, folder: Path, tmp_path: Path
) -> None:
    forged = copied(folder, tmp_path / "forged")
    edit_sealed(forged / "manifest.json", lambda manifest: manifest["totals"].update(change))
    if is_refused:
        with pytest.raises(CountsError, match=r"manifest\.json: \d+ bigrams, but \d+ tokens in \d+ documents have"):
            Counts.open(forged)
    else:
        Counts.open(forged)


def test_counts_of_the_first_format_are_refused(folder: Path, tmp_path: Path) -> None:
    old = copied(folder, tmp_path / "old")
    edit_sealed(old / "manifest.json", lambda manifest: manifest.update(format_version=1))
    with pytest.raises(CountsError, match=r"counts format 1 is not supported \(expected 2\); count again"):
        Counts.open(old)


def test_the_manifest_says_what_was_counted_and_not_how(folder: Path, small_vocabulary: Vocabulary) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["tokenizer"] == {"fingerprint": small_vocabulary.fingerprint, "vocabulary_size": 300}
    assert manifest["totals"]["documents"] == 5
    assert manifest["totals"]["text_bytes"] == sum(len(text) for text in TEXTS)
    assert manifest["tokenized_with"] in manifest["versions"]
    assert {"detoklens", "numpy", "pyarrow", "tokenizers"} <= set(manifest["versions"])
    assert set(manifest) == {
        "format", "format_version", "inputs", "tokenizer", "options", "versions", "tokenized_with",
        "not_gigatoken_because", "tokenizing_takes", "totals", "files", "checksum",
    }  # fmt: skip


def test_opening_needs_no_compiler(folder: Path) -> None:
    code = f"import sys, detoklens; detoklens.Counts.open({str(folder)!r}).bigrams; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_row_groups_depend_on_the_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "ROW_GROUP", 10)
    keys = np.arange(95, dtype=np.uint32)
    contents = set()
    for size in (1, 7, 10, 95):
        runs = (
            Run(keys[place : place + size], 1 + np.arange(95)[place : place + size]) for place in range(0, 95, size)
        )
        assert write_bigrams(tmp_path / "b.parquet", row_groups(runs), 20) == (95, 95 * 96 // 2)
        assert pq.read_metadata(tmp_path / "b.parquet").num_row_groups == 10
        contents.add((tmp_path / "b.parquet").read_bytes())
    assert len(contents) == 1
