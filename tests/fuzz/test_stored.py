"""Damaged and hostile answers, report folders, parts and caches: refused in one line or computed again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest

from detoklens.errors import OutputError
from detoklens.figures.save import XML_DECLARATION
from detoklens.model.vector_cache import cached_vectors
from detoklens.questions.answer import Answer
from detoklens.questions.base import Question
from detoklens.questions.heatmap import Heatmap
from detoklens.questions.partners import Partners
from detoklens.questions.positions.question import Positions
from detoklens.questions.shape import Shape
from detoklens.questions.store import Store, read_answer
from detoklens.questions.study import Study, compare
from detoklens.questions.variance import Variance
from detoklens.report.drawing import FORMATS, PHONE, Drawing, draw_all
from detoklens.tables.files import (
    ABOUT,
    DIGEST_SIZE,
    MARK,
    NO_DIGEST,
    TABLE,
    DamagedTableError,
    Parts,
    StoredTable,
    _place_of_digest,
    read_stored,
    sealed,
)
from tests.fuzz.budget import cases
from tests.fuzz.damage import as_json, changed_json, damaged, deeply_nested, flipped
from tests.layers import random_layer

FLIPS, HOSTILE, DRAWN = 200, 200, 0.03  # cases, and the share whose figure is drawn, which takes a second
QUESTIONS: list[Question] = [Positions(), Shape(), Heatmap(tokens=5), Partners([3, 7], top=4), Variance()]


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(random_layer(vocab_size=30, dtype="float32"))


@pytest.fixture(scope="module")
def answers(study: Study, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Answer]:
    """Each answer in its own folder."""
    found = {}
    for question in QUESTIONS:
        folder = tmp_path_factory.mktemp(question.name())
        found[folder] = study.ask(question, folder)
    other = Study(random_layer(vocab_size=30, dtype="float32", seed=1))
    folder = tmp_path_factory.mktemp("comparison")
    found[folder] = compare({"one": study, "two": other}, Shape())
    found[folder].write(folder)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def resealed(content: bytes) -> bytes:
    """A damaged file with a checksum that is right again."""
    place = _place_of_digest(content)
    if place is None:
        return content
    blank = content[: place.start] + NO_DIGEST + content[place.stop :]
    return blank[: place.start] + hashlib.sha256(blank).hexdigest().encode() + blank[place.stop :]


def test_a_damaged_answer_is_never_read(answers: dict[Path, Answer], tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for chance in cases(FLIPS):
        source = chance.choice(list(answers))
        folder = tmp_path / "answer"
        shutil.copytree(source, folder)
        path = chance.choice(sorted(folder.glob("*.parquet")))
        content = path.read_bytes()
        found = damaged(chance, content)
        path.write_bytes(found)
        try:
            answer = read_answer(folder)
        except OutputError as error:
            outcomes["refused" if len(str(error).splitlines()) == 1 else "several lines"] += 1
        else:
            same = found == content and answer == answers[source]
            outcomes["unchanged" if same else f"believed: {path.name}"] += 1
        shutil.rmtree(folder)
    sys.stdout.write(f"{dict(outcomes)}\n")
    assert set(outcomes) <= {"refused", "unchanged"}, outcomes
    assert outcomes["refused"] >= 0.97 * outcomes.total()


def test_a_damaged_table_of_a_report_is_computed_again(
    answers: dict[Path, Answer], study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its CSV file too; the folder, which belongs to a report, then has the same bytes again."""
    outcomes: Counter[str] = Counter()
    for chance in cases(FLIPS):
        source = chance.choice(list(answers))
        folder = tmp_path / "tables"
        shutil.copytree(source, folder)
        path, answer, store = chance.choice(sorted(folder.iterdir())), answers[source], Store(folder, claimed=True)
        content = path.read_bytes()
        path.write_bytes(damaged(chance, content))
        caplog.clear()
        believed = store.find(answer.question, answer.provenance) is not None
        told = [record.getMessage() for record in caplog.records]
        if believed and path.read_bytes() == content:
            outcomes["unchanged"] += 1
        else:
            noted = told and "; computing it again" in told[0]
            outcomes["believed" if believed else "noted" if noted else "silent"] += 1
        store.keep(answer)
        assert contents(folder) == contents(source)
        shutil.rmtree(folder)
    sys.stdout.write(f"{dict(outcomes)}\n")
    assert set(outcomes) <= {"noted", "unchanged"}, outcomes
    assert outcomes["noted"] >= 0.97 * outcomes.total()


def test_a_cut_off_table_is_overwritten_in_a_report_only(answers: dict[Path, Answer], tmp_path: Path) -> None:
    """Elsewhere nothing shows that the file is ours; another parquet file is left alone everywhere."""
    folder, answer = next(iter(answers.items()))
    name = next(folder.glob("*.parquet")).name
    for content in (b"", (folder / name).read_bytes()[:100]):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OutputError, match="was not written by detoklens"):
            Store(tmp_path).keep(answer)
        Store(tmp_path, claimed=True).keep(answer)
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    pl.DataFrame({"mine": [1]}).write_parquet(tmp_path / name)
    with pytest.raises(OutputError, match="was not written by detoklens"):
        Store(tmp_path, claimed=True).keep(answer)


def change_description(chance: Random, stored: dict[str, str], frame: pl.DataFrame) -> pl.DataFrame:
    key = chance.choice([ABOUT, ABOUT, MARK])
    stored[key] = as_json(changed_json(chance, json.loads(stored[key]), 1 + chance.randrange(3))).decode(
        "utf-8", "replace"
    )
    return frame


def nest_description(chance: Random, stored: dict[str, str], frame: pl.DataFrame) -> pl.DataFrame:
    key = chance.choice([ABOUT, MARK])
    stored[key] = deeply_nested(chance, stored[key].encode(), chance.choice([b"[]", b"null", b"{"])).decode()
    return frame


def change_words(chance: Random, stored: dict[str, str], frame: pl.DataFrame) -> pl.DataFrame:
    """Escape sequences wherever the description has text, which is allowed to be anything."""
    described = json.loads(stored[ABOUT])
    described |= {"model": "\x1b[2J\u202e\ud800", "command": "\x1b]0;x\x07", "notes": ["\x9b31m"]}
    stored[ABOUT] = json.dumps(described)
    return frame


def change_metadata(chance: Random, stored: dict[str, str], frame: pl.DataFrame) -> pl.DataFrame:
    key = chance.choice([ABOUT, MARK, TABLE])
    stored[key] = chance.choice(["", "{}", "[]", "null", "{", "\x00", "x" * 10_000, '{"format": 2}'])
    return frame


def change_columns(chance: Random, stored: dict[str, str], frame: pl.DataFrame) -> pl.DataFrame:
    column = chance.choice(frame.columns)
    return chance.choice(
        [
            lambda: frame.drop(column),
            lambda: frame.rename({column: f"{column}\x1b"}),
            lambda: frame.with_columns(pl.lit("x").alias(column)),
            lambda: frame.with_columns(pl.lit(None).alias(column)),
            lambda: frame.with_columns(pl.lit(1).alias("another")),
            lambda: frame.clear(),
            lambda: frame.select(pl.struct(pl.all()).alias(column)),
        ]
    )()


def change_values(chance: Random, stored: dict[str, str], frame: pl.DataFrame) -> pl.DataFrame:
    """Values of the right type that no model has, in one row or in all."""
    column, row = chance.choice(frame.columns), chance.randrange(max(1, len(frame)))
    kind = frame.schema[column]
    odd = (
        [float("nan"), float("inf"), -1e30, 5.0]
        if kind.is_float()
        else ["", "\x1b[2J", "x" * 10_000]
        if kind == pl.String
        else [True, False]
        if kind == pl.Boolean
        else [0, -1, 2**31 - 1]
    )
    value = pl.lit(chance.choice([None, *odd]), dtype=kind)
    chosen = pl.int_range(pl.len()) == row if chance.random() < 0.5 else pl.lit(True)
    return frame.with_columns(pl.when(chosen).then(value).otherwise(pl.col(column)).alias(column))


CHANGES: list[Callable[[Random, dict[str, str], pl.DataFrame], pl.DataFrame]] = [
    change_description,
    nest_description,
    change_words,
    change_metadata,
    change_columns,
    change_values,
    change_values,
]


def test_a_hostile_answer_with_a_right_checksum_is_one_line_or_shown_safely(
    answers: dict[Path, Answer], tmp_path: Path
) -> None:
    outcomes: Counter[str] = Counter()
    for chance in cases(HOSTILE):
        folder = tmp_path / "answer"
        shutil.copytree(chance.choice(list(answers)), folder)
        path = chance.choice(sorted(folder.glob("*.parquet")))
        stored = read_stored(path)
        assert stored is not None
        metadata = {name: stored.metadata[name] for name in (MARK, ABOUT, TABLE)}
        change = chance.choice(CHANGES)
        path.write_bytes(sealed(change(chance, metadata, stored.frame()), metadata))
        outcomes[f"{change.__name__}: {outcome_of_reading(folder, drawn=chance.random() < DRAWN)}"] += 1
        shutil.rmtree(folder)
    sys.stdout.write(f"{dict(outcomes)}\n")
    assert not [each for each in outcomes if each.endswith("unsafe")], outcomes
    assert outcomes["change_words: shown"]


def outcome_of_reading(folder: Path, drawn: bool = False) -> str:
    try:
        answer = read_answer(folder)
        said = [str(answer).replace("\n", ""), repr(answer), repr(answer.verdict)]
        if drawn:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert answer._repr_html_()
    except OutputError as error:
        return "refused" if str(error).isprintable() else "unsafe"
    return ("drawn" if drawn else "shown") if all(each.isprintable() for each in said) else "unsafe"


def test_what_polars_can_not_read_is_one_line_and_nothing_else(
    answers: dict[Path, Answer], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bits flipped by somebody who makes the checksum anew: polars panics at some, and says so on descriptor 2."""
    for chance in cases(HOSTILE):
        folder = tmp_path / "answer"
        shutil.copytree(chance.choice(list(answers)), folder)
        path = chance.choice(sorted(folder.glob("*.parquet")))
        path.write_bytes(resealed(flipped(chance, path.read_bytes(), 1 + chance.randrange(3))))
        assert outcome_of_reading(folder) != "unsafe"
        shutil.rmtree(folder)
    assert capfd.readouterr().err == ""


def test_a_page_that_says_it_has_a_negative_number_of_values_is_one_line() -> None:
    """polars reserves memory for as many as the number has without its sign, and ends the process."""
    content = sealed(pl.DataFrame({"x": [None, *map(float, range(99))]}), {})
    changed = content.replace(b"\x2c\x15\xc8\x01", b"\x2c\x15\xc9\x01", 1)  # 100 values, zigzag in a varint
    assert changed != content
    with pytest.raises(DamagedTableError, match="number of values"):
        StoredTable(Path("x.parquet"), changed, {}).frame()


def test_a_pipe_or_a_folder_among_answers_is_passed_over(answers: dict[Path, Answer], tmp_path: Path) -> None:
    folder, answer = next(iter(answers.items()))
    shutil.copytree(folder, tmp_path / "answer")
    os.mkfifo(tmp_path / "answer" / "a.parquet")
    (tmp_path / "answer" / "b.parquet").mkdir()
    assert read_answer(tmp_path / "answer") == answer


def test_a_damaged_part_is_never_loaded(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts")
    parts.save(0, {"values": np.arange(20.0), "names": np.array(["a", "b"])})
    path = tmp_path / "parts" / "0.npz"
    content = path.read_bytes()
    for chance in cases(FLIPS):
        path.write_bytes(found := damaged(chance, content))
        assert found == content or parts.load(0) is None
    path.write_bytes(content)
    assert parts.load(0) is not None


def test_a_hostile_part_is_computed_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its checksum was made anew, so only numpy notices."""
    parts = Parts(tmp_path / "parts")
    parts.save(0, {"values": np.arange(20.0)})
    path, array = tmp_path / "parts" / "0.npz", BytesIO()
    np.save(array, np.arange(3))
    content = path.read_bytes()[DIGEST_SIZE:]
    unreadable = (b"", b"junk", array.getvalue(), content[:-30], content.replace(b"(20,)", b"(9\xff,)"))
    for junk in (*unreadable, content.replace(b"<f8", b"|O8")):
        path.write_bytes(hashlib.sha256(junk).digest() + junk)
        caplog.clear()
        assert parts.load(0) is None
        assert caplog.messages == [f"detoklens: {path} is damaged; computing it again"]


def test_a_damaged_figure_is_drawn_again(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Shape.figures[0]
    drawings = [Drawing(spec, name, name, {}) for name in ("one", "two", "three")]
    files = {ending: f"{XML_DECLARATION}<svg>{ending}</svg>".encode() for ending in (*FORMATS, PHONE)}
    monkeypatch.setattr(
        "detoklens.report.drawing.draw_files", lambda drawing, **_: {} if drawing.name == "two" else files
    )
    draw_all(drawings, tmp_path, "page")
    before = contents(tmp_path)
    for chance in cases(FLIPS):
        path = tmp_path / chance.choice(list(before))
        path.write_bytes(flipped(chance, before[path.name], 1))
        pictures = draw_all(drawings, tmp_path, "page")
        assert list(pictures) == ["one", "three"]
        assert pictures["one"].svg == "<svg>svg</svg>"
        assert contents(tmp_path) == before


def test_damaged_and_foreign_cache_files_are_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETOKLENS_CACHE", str(tmp_path))
    values, computed, said = np.arange(12, dtype=np.float32).reshape(4, 3), [], []

    def asked() -> np.ndarray:
        return cached_vectors({"layer": 1}, (4, 3), lambda: computed.append(1) or values, said.append)

    asked()
    (path,) = (tmp_path / "vectors").iterdir()
    content = path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    for number, chance in enumerate(cases(FLIPS), start=2):
        path.write_bytes(flipped(chance, content, 1))
        np.testing.assert_array_equal(asked(), values)
        assert len(computed) == number
        assert path.read_bytes() == content
    before = len(computed)
    asked()
    assert len(computed) == before, "a whole file of this user is used"
    path.chmod(0o622)
    asked()
    assert (len(computed), path.stat().st_mode & 0o777) == (before + 1, 0o600)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    asked()
    assert len(computed) == before + 2
    assert not path.is_symlink()
    path.unlink()
    os.mkfifo(path)
    asked()
    assert (len(computed), path.is_file()) == (before + 3, True)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    asked()
    assert len(computed) == before + 4
    assert all("computing its vectors again" in line for line in said)
