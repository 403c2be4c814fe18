"""MODEL@REVISION, ranges of training steps, and counts and answers on the hub."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import detoklens as dl
from detoklens import demo
from detoklens.errors import DetokLensError
from detoklens.loading import expand_revisions
from detoklens.questions.base import ReportEntry
from tests.command_line import call
from tests.weights.hub.server import COMMIT, HubServer, Repository
from tests.weights.hub.tiny_model import go_offline

PYTHIA = "someone/pythia"
STEPS = ["step0", "step1", "step2", "step512", "step1000", "step2000", "step10000", "step143000"]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def commit(number: int) -> str:
    return f"{number:040x}"


@pytest.fixture
def steps(hub: HubServer) -> HubServer:
    """A model of the demo's architecture whose revisions are the demo's snapshots, over and over."""
    whole, early = files_of(demo.CHECKPOINT), [files_of(folder) for folder in demo.snapshots().values()]
    others = ("step-best", "step1000-old", "refs/convert")
    branches = {
        name: Repository({**whole, **early[number % len(early)]}, commit(number + 1))
        for number, name in enumerate([*reversed(STEPS), *others])
    }
    hub.repositories[PYTHIA] = Repository(whole, COMMIT, branches=branches)
    return hub


def test_a_revision_is_part_of_the_name(steps: HubServer) -> None:
    layer = dl.load(f"{PYTHIA}@step1000")
    assert layer.name == f"{PYTHIA}@step1000"
    assert layer.fingerprint == dl.load(PYTHIA, revision="step1000").fingerprint
    assert layer.fingerprint != dl.load(PYTHIA).fingerprint == dl.load("demo").fingerprint
    assert layer.fingerprint in {dl.load(name).fingerprint for name in demo.snapshots()}
    assert dl.load(f"{PYTHIA}@{COMMIT}").fingerprint == dl.load("demo").fingerprint
    assert dl.load_vocabulary(f"{PYTHIA}@step1").fingerprint == dl.load_vocabulary("demo").fingerprint
    assert dl.study(f"{PYTHIA}@step1").command(dl.Shape()) == f"detoklens shape {PYTHIA}@step1"


def test_a_revision_that_does_not_exist(steps: HubServer) -> None:
    for name, said in [
        (f"{PYTHIA}@step3", "has no revision 'step3'"),
        ("someone/nothing@step3", "no model 'someone/nothing'"),
        (f"{PYTHIA}@../x", "is not a revision"),
        ("demo@7", "unknown snapshot demo@7; choose demo, demo@0"),
    ]:
        with pytest.raises(DetokLensError, match=said):
            dl.load(name)
    with pytest.raises(DetokLensError, match="names revision step1, but revision=step2 was passed; pass only one"):
        dl.load(f"{PYTHIA}@step1", revision="step2")


def test_a_local_folder_may_have_the_sign_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "my@model"
    folder.symlink_to(demo.CHECKPOINT, target_is_directory=True)
    assert dl.load(folder).fingerprint == dl.load("demo").fingerprint


def test_a_range_lists_what_exists_in_the_order_of_numbers(steps: HubServer) -> None:
    found = expand_revisions(f"{PYTHIA}@step1..step10000")
    assert found == [f"{PYTHIA}@{name}" for name in STEPS[1:-1]]
    assert expand_revisions(f"{PYTHIA}@step143000..step0") == [f"{PYTHIA}@{name}" for name in STEPS]
    assert [name.rpartition("@")[2] for name in expand_revisions(f"{PYTHIA}@step0..step143000:3")] == [
        "step0",
        "step1000",
        "step143000",
    ]
    assert expand_revisions(f"{PYTHIA}@step1") == [f"{PYTHIA}@step1"]
    assert expand_revisions("../folder") == ["../folder"]


def test_names_with_several_numbers(steps: HubServer) -> None:
    names = [
        "stage1-step1000-tokens5B",
        "stage1-step20000-tokens84B",
        "stage1-step3000-tokens13B",
        "stage2-step1-tokens9B",
    ]
    model = steps.repositories[PYTHIA]
    model.branches = dict.fromkeys(names, model)
    found = expand_revisions(f"{PYTHIA}@{names[0]}..{names[1]}")
    assert found == [f"{PYTHIA}@{name}" for name in (names[0], names[2], names[1])]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (f"{PYTHIA}@step3..step1000", "no revision 'step3'.* go from step0 to step143000"),
        (f"{PYTHIA}@step0..step3", "no revision 'step3'"),
        (f"{PYTHIA}@alpha..omega", "no revision 'alpha'.*see its branches"),
        (f"{PYTHIA}@step0..step2:4", "there are 3 such revisions; take 2 to 3, not 4"),
        (f"{PYTHIA}@step0..step2:1", "take 2 to 3, not 1"),
        ("someone/nothing@a1..a2", "no model 'someone/nothing'"),
    ],
)
def test_a_range_that_can_not_be_taken(steps: HubServer, asked: str, said: str) -> None:
    with pytest.raises(DetokLensError, match=said) as caught:
        expand_revisions(asked)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"[]", b'{"branches": 3}', b'{"branches": [{}]}', b'{"branches": [{"name": "../x"}]}', b"{"]
)
def test_a_hostile_list_of_revisions(steps: HubServer, body: bytes) -> None:
    def fault(request, answer) -> None:
        if request.path.endswith("/refs"):
            answer.body = body
            answer.headers["Content-Length"] = str(len(body))

    steps.fault = fault
    with pytest.raises(DetokLensError, match="unusable answer"):
        expand_revisions(f"{PYTHIA}@step0..step2")


def test_offline_the_cached_revisions_are_listed(steps: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("step1", "step512"):
        dl.load(f"{PYTHIA}@{name}")
    go_offline(monkeypatch)
    assert expand_revisions(f"{PYTHIA}@step1..step512") == [f"{PYTHIA}@step1", f"{PYTHIA}@step512"]


def test_training_steps_are_compared(steps: HubServer) -> None:
    compared = dl.compare(f"{PYTHIA}@step0..step2", dl.Shape())
    assert compared.labels == ("step0", "step1", "step2")
    assert dl.compare("demo@0..4194304", dl.Shape()).labels == ("0", "1048576", "4194304")


def test_the_command_line_takes_a_range(steps: HubServer, tmp_path: Path) -> None:
    from detoklens.cli.compare import labelled_models

    assert labelled_models([f"{PYTHIA}@step0..step2", f"end={PYTHIA}"]) == {
        "pythia@step0": f"{PYTHIA}@step0",
        "pythia@step1": f"{PYTHIA}@step1",
        "pythia@step2": f"{PYTHIA}@step2",
        "end": PYTHIA,
    }
    assert list(labelled_models([f"mine={PYTHIA}@step0..step1"])) == ["mine@step0", "mine@step1"]
    done = call("partners", f"{PYTHIA}@step1", "ion", "--top", "1")
    assert done.exit_code == 0, done.stderr


@pytest.mark.usefixtures("only_svg")
def test_the_command_compares_a_range(steps: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = [ReportEntry(dl.Partners(["ion"], top=2), compared=True)]
    monkeypatch.setattr("detoklens.report.folder.report_entries", lambda study, layers: one)
    done = call("compare", f"{PYTHIA}@step0..step143000:3", "--workers", "1", "--out", tmp_path / "steps")
    assert done.exit_code == 0, done.stderr
    found = pl.read_parquet(tmp_path / "steps" / "tables" / "partners.parquet")
    assert found["model"].unique(maintain_order=True).to_list() == [
        "pythia@step0",
        "pythia@step1000",
        "pythia@step143000",
    ]


def test_the_real_model_is_that_of_the_revision(steps: HubServer) -> None:
    done = call("verify", f"{PYTHIA}@step512", "--length", "5")
    assert done.exit_code == 0, done.stderr
    assert f"{PYTHIA}@step512: decomposition against the real first layer" in done.stdout
    steps.repositories[PYTHIA].branches["step7"] = steps.repositories[PYTHIA]
    done = call("layers", f"{PYTHIA}@step7", "--up-to", "1", "--triples", "20", "--bootstrap", "0", "--format", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["model"] == f"{PYTHIA}@step7"


@pytest.fixture
def shared(hub: HubServer, tmp_path: Path) -> HubServer:
    """A dataset with counts at its top and an answer in a folder."""
    dl.study("demo", workers=1).ask(dl.Shape()).write(tmp_path / "answer")
    answer = {f"answers/shape/{name}": content for name, content in files_of(tmp_path / "answer").items()}
    files = {**files_of(demo.COUNTS), **answer, "README.md": b"# Counts", "deep/manifest.json": b"{"}
    hub.repositories["datasets/someone/counts"] = Repository(files, COMMIT, branches={"old": Repository({}, commit(7))})
    return hub


def test_counts_by_hub_id(shared: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    study = dl.study("demo", counts="hf:someone/counts", workers=1)
    assert study.counts.fingerprint == dl.study("demo").counts.fingerprint
    assert not shared.asked_for("README.md")
    assert "--counts hf:someone/counts" in study.command(dl.Frequency())
    first = len(shared.requests)
    go_offline(monkeypatch)
    assert dl.Counts.open("hf:someone/counts").fingerprint == study.counts.fingerprint
    assert dl.Counts.open(f"hf:someone/counts@{COMMIT}").fingerprint == study.counts.fingerprint
    assert len(shared.requests) == first


def test_the_command_line_takes_counts_by_hub_id(shared: HubServer) -> None:
    done = call("frequency", "demo", "--counts", "hf:someone/counts", "--format", "json")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == call("frequency", "demo", "--format", "json").stdout


def test_an_answer_by_hub_id(shared: HubServer) -> None:
    answer = dl.read_answer("hf:someone/counts/answers/shape")
    assert answer == dl.study("demo").ask(dl.Shape())


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("hf:someone", "'hf:someone' is not a folder on the hub; write hf:USER/NAME"),
        ("hf:someone/counts/../x", "is not a folder on the hub"),
        ("hf:someone/counts@../x", "is not a folder on the hub"),
        ("hf:someone/nothing", "no dataset 'someone/nothing'"),
        ("hf:someone/counts@never", "no revision 'never'"),
        ("hf:someone/counts@old", "has no .json or .parquet file on the hub"),
        ("hf:someone/counts/deep", "deep"),
        ("hf:someone/counts/answers/shape", "no manifest.json"),
    ],
)
def test_counts_that_are_not_there(shared: HubServer, place: str, said: str) -> None:
    with pytest.raises(DetokLensError, match=said) as caught:
        dl.Counts.open(place)
    assert "\n" not in str(caught.value)


def test_offline_without_a_copy(shared: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    go_offline(monkeypatch)
    with pytest.raises(DetokLensError, match="not in the hub's cache and HF_HUB_OFFLINE is set"):
        dl.Counts.open("hf:someone/counts")


def test_a_changed_file_of_counts_is_refused(shared: HubServer) -> None:
    files = shared.repositories["datasets/someone/counts"].files
    files["tokens.parquet"] = files["tokens.parquet"][:-1] + bytes([files["tokens.parquet"][-1] ^ 1])
    with pytest.raises(DetokLensError):
        dl.Counts.open("hf:someone/counts")
