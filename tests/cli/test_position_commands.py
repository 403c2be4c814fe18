"""`detoklens positions`, `shape` and `variance` as a user meets them."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import polars as pl
import pytest

from detoklens.corpus.count import count_corpus
from detoklens.corpus.counts import Counts
from detoklens.demo import COUNTS
from detoklens.engines import open_engine
from detoklens.loading import load
from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.positions.question import Positions
from detoklens.questions.shape import Shape
from detoklens.questions.study import Study, study
from detoklens.questions.variance import Variance
from detoklens.tables.files import MARK, read_stored
from detoklens.tokens import Vocabulary
from tests.command_line import call, refuse, run
from tests.layers import random_first_layer, write_gpt2
from tests.spelled import LINES, write_spelled

COMMANDS = ("positions", "shape", "variance")
WRITTEN = {
    "positions": {"positions"},
    "shape": {"shape", "waves", "reach"},
    "variance": {"position_variance", "switch", "undertrained", "trained_range", "last_queries"},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_spelled(tmp_path_factory.mktemp("spelled"))


def counted(folder: Path, tokenizer: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("\n".join(LINES), encoding="utf-8")
    with open_engine("local", 1) as engine:
        count_corpus([folder / "text.txt"], Vocabulary.from_folder(tokenizer), folder / "counts", engine=engine)
    return folder / "counts"


def tables(model: Path, question: Question) -> dict[str, pl.DataFrame]:
    return dict(Study(load(model)).ask(question).tables)


def test_positions_prints_what_python_finds(model: Path) -> None:
    printed = run("positions", model, "--query-positions", "4,10", "--heads", "1", "--band", "0.8", "--format", "csv")
    expected = tables(model, Positions([4, 10], band=0.8, heads=[1]))["positions"]
    assert printed.stdout == expected.write_csv()


def test_shape_and_waves_print_what_python_finds(model: Path) -> None:
    found = tables(model, Shape([4, 10], average="mean-of-ratio"))
    options = ("--query-positions", "4,10", "--average", "mean-of-ratio", "--format", "csv")
    assert run("shape", model, *options).stdout == found["shape"].write_csv()
    assert run("shape", model, *options, "--table", "waves").stdout == found["waves"].write_csv()


@pytest.mark.parametrize("table", sorted(WRITTEN["variance"]))
def test_variance_prints_what_python_finds(model: Path, table: str) -> None:
    printed = run("variance", model, "--table", table, "--format", "csv").stdout
    assert printed == tables(model, Variance())[table].write_csv()


@pytest.mark.parametrize("command", COMMANDS)
def test_out_writes_every_table_with_its_provenance(model: Path, tmp_path: Path, command: str) -> None:
    result = run(command, model, "--out", tmp_path / "made", "--format", "json")
    assert json.loads(result.stdout)["rows"]
    assert {path.stem for path in (tmp_path / "made").iterdir()} == WRITTEN[command]
    provenance = json.loads(read_stored(next((tmp_path / "made").glob("*.parquet"))).metadata[MARK])
    assert provenance["command"] == command
    assert provenance["options"]["average"] == "ratio-of-mean"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_table_for_eyes_has_every_head(model: Path, command: str) -> None:
    shown = run(command, model).stdout
    rows = [line.split() for line in shown.splitlines() if line[:1].isspace() and line.split()]
    assert {"0", "1", "2"} <= {row[0] for row in rows}


def test_frequency_weights_come_from_the_counts(model: Path, tmp_path: Path) -> None:
    counts = counted(tmp_path, model)
    options = ("--query-positions", "9", "--format", "csv")
    weighted = run(
        "positions", model, *options, "--weights", "frequency", "--counts", counts, "--out", tmp_path / "made"
    )
    expected = study(model, counts=counts).ask(Positions([9], weights="frequency")).tables["positions"]
    assert weighted.stdout == expected.write_csv()
    assert weighted.stdout != run("positions", model, *options).stdout
    provenance = json.loads(read_stored(tmp_path / "made" / "positions.parquet").metadata[MARK])
    assert provenance["counts_fingerprint"] == Counts.open(counts).fingerprint


def test_the_demos_own_counts_weight_it_only_where_asked() -> None:
    layer, counts = load("demo"), Counts.open(COUNTS)
    even, by_frequency = Shape([9]), Shape([9], weights="frequency")
    options = ("--query-positions", "9", "--format", "csv")
    assert run("shape", "demo", *options).stdout == Study(layer).ask(even).tables["shape"].write_csv()
    weighted = Study(layer, counts).ask(by_frequency).tables["shape"]
    assert run("shape", "demo", *options, "--weights", "frequency").stdout == weighted.write_csv()


@pytest.mark.parametrize("command", COMMANDS)
def test_counts_that_do_not_fit_are_refused(model: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "other").mkdir()
    other = write_spelled(tmp_path / "other", vocab_size=300)
    counts = counted(tmp_path, other)
    assert "tokenizer" in refuse(command, model, "--weights", "frequency", "--counts", counts)
    line = refuse(command, model, "--weights", "frequency")
    assert line.startswith("detoklens: weights by frequency need corpus counts; add --counts COUNTS")


@pytest.mark.parametrize("command", COMMANDS)
def test_counts_that_decide_nothing_are_noted_and_change_nothing(model: Path, tmp_path: Path, command: str) -> None:
    counts = counted(tmp_path, model)
    vain = run(command, model, "--counts", counts, "--format", "csv")
    assert vain.stdout == run(command, model, "--format", "csv").stdout
    assert "--counts is ignored with these options" in vain.stderr
    asked = run(command, model, "--counts", counts, "--weights", "frequency", "--format", "csv")
    assert "has no part" not in asked.stderr


@pytest.mark.parametrize("command", ["positions", "shape"])
def test_bad_input_is_one_line_and_writes_nothing(model: Path, tmp_path: Path, command: str) -> None:
    out = ("--out", tmp_path / "out")
    line = refuse(command, model, "--query-positions", "5,11", *out)
    assert line == "detoklens: position 11 does not exist; positions go from 0 to 10"
    assert "head 3 does not exist" in refuse(command, model, "--heads", "3", *out)
    wrong = call(command, model, "--query-positions", "ten", *out)
    assert wrong.exit_code == 2
    assert "'ten' is not a list of query positions" in wrong.stderr
    assert not (tmp_path / "out").exists()


def test_a_band_must_be_a_share(model: Path) -> None:
    assert "such as 0.95, not 95.0" in refuse("positions", model, "--band", "95")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_tiny_model_without_tokenizer_is_answered(tmp_path: Path, command: str) -> None:
    write_gpt2(tmp_path, random_first_layer(n_heads=1, n_positions=4, dtype="float32"))
    assert pl.read_csv(StringIO(run(command, tmp_path, "--format", "csv").stdout)).height >= 3
    run(command, tmp_path)


def test_whisper_looks_like_the_paper_says(whisper_folder: Path) -> None:
    """Real trained weights: a previous-token head, lines, a wave of about 221 positions, and a switch at position 0."""
    asked = Study(load(whisper_folder))
    shapes = asked.ask(Shape([437])).tables["shape"]
    assert shapes.filter(pl.col("r_squared") >= 0.9)["head"].to_list() == [1, 2, 3, 4, 5]
    assert shapes.filter("linear")["head"].to_list() == [3, 4, 5], "random walks come near the others"
    assert shapes.filter(pl.col("wave_share") >= 0.5)["head"].to_list() == [0, 1, 3, 4, 5]
    assert shapes.filter("sinusoidal")["head"].to_list() == [3], "the others are no more of a wave than random walks"
    assert shapes["class"][2] == "previous token"
    assert shapes["period"][3] == pytest.approx(221.2, abs=0.5)
    found = asked.ask(Variance()).tables
    assert found["position_variance"].filter("outlier")["position"].to_list() == [0, 224]
    assert (found["switch"]["by_scale"] > 0).all()
    assert not found["undertrained"]["undertrained"].any()


def test_a_named_table_is_shown_alone(model: Path) -> None:
    shown = run("variance", model, "--table", "undertrained").stdout
    assert "Deviation of the last query position" in shown
    assert "which positions stand out" not in shown
    wrong = call("shape", model, "--table", "switch")
    assert wrong.exit_code == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_the_sentence_is_on_stderr_and_figures_are_drawn(model: Path, tmp_path: Path, command: str) -> None:
    shown = run(command, model, "--figure", tmp_path / "first.svg", "--width", "column")
    answer = Study(load(model)).ask(QUESTIONS[command]())
    assert answer.sentence in shown.stderr
    assert b"<svg" in (tmp_path / "first.svg").read_bytes()
    for spec in answer.figures.values():
        run(command, model, "--figure", tmp_path / f"{spec.name}.svg", "--figure-name", spec.name)
        assert spec.title.encode() in (tmp_path / f"{spec.name}.svg").read_bytes()
