"""Does a run learn, continue exactly from its last state, and refuse to continue as another?"""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from export import export
from failure import RecipeError
from run import FIRST_SNAPSHOT, Run, snapshot_due
from settings import Budget, Settings, learning_rate
from sharing import Team
from streams import open_streams
from tests.training.conftest import TRAINING, Script
from writing import only_writer

SMALL = ("--layers", 1, "--width", 12, "--heads", 3, "--context", 16, "--windows", 4, "--warmup-steps", 5)


def small(data: Path) -> Settings:
    summary = json.loads((data / "stream.json").read_text(encoding="utf-8"))
    sizes = {name: summary[name] for name in ("tokenizer", "vocabulary", "train_tokens")}
    return Settings(
        **sizes, layers=1, width=12, heads=3, context=16, windows=4, processes=1, learning_rate=0.01,
        warmup_steps=5, decay_share=0.3, weight_decay=0.1, seed=3,
    )  # fmt: skip


def start(data: Path, out: Path, settings: Settings, steps: int = 40) -> Run:
    train, heldout, _ = open_streams(data, settings.context)
    out.mkdir(exist_ok=True)
    return Run(settings, Budget(steps * settings.tokens_per_step, math.inf), train, heldout, out)


def advance(run: Run, steps: int) -> None:
    for _ in range(steps):
        run.advance(Team(1), run.progress())


def test_the_loss_falls(data: Path, tmp_path: Path) -> None:
    run = start(data, tmp_path, small(data), 150)
    before = run.held_out_loss()
    advance(run, 150)
    assert before == pytest.approx(math.log(300), abs=0.1)
    assert run.held_out_loss() < before - 1.5


def test_a_continued_run_ends_with_the_same_weights(data: Path, tmp_path: Path) -> None:
    straight = start(data, tmp_path / "straight", small(data))
    advance(straight, 40)
    broken = start(data, tmp_path / "broken", small(data))
    advance(broken, 25)
    broken.save()
    assert not broken.unsaved
    advance(broken, 3)  # lost when the process dies
    continued = start(data, tmp_path / "broken", small(data))
    assert continued.step == 25
    assert continued.seconds >= broken.saved_at[1] - 1
    advance(continued, 15)
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, continued.model.state_dict()[name]), name


def test_another_seed_is_another_run(data: Path, tmp_path: Path) -> None:
    runs = [start(data, tmp_path / str(seed), replace(small(data), seed=seed)) for seed in (0, 1)]
    assert not torch.equal(runs[0].model.wte.weight, runs[1].model.wte.weight)


def test_other_settings_are_refused_in_one_line_that_names_them(data: Path, tmp_path: Path, script: Script) -> None:
    first = script("train", data, "--out", tmp_path / "run", *SMALL, "--tokens", 128)
    assert first.returncode == 0, first.stderr
    kept = (tmp_path / "run" / "state.pt").read_bytes()
    ended = script("train", data, "--out", tmp_path / "run", *SMALL, "--tokens", 256, "--seed", 9, "--heads", 4)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "heads 3 there, 4 now; seed 0 there, 9 now" in ended.stderr
    assert (tmp_path / "run" / "state.pt").read_bytes() == kept


def test_a_larger_budget_continues_the_run_and_the_log(data: Path, tmp_path: Path, script: Script) -> None:
    for tokens in (128, 256):
        ended = script("train", data, "--out", tmp_path, *SMALL, "--tokens", tokens)
        assert ended.returncode == 0, ended.stderr
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [entry["tokens"] for entry in log] == [0, 128, 256]
    assert log[0]["train_loss"] is None
    assert all(entry["held_out_loss"] > 0 and entry["tokens_per_second"] >= 0 for entry in log)
    assert log[1]["train_loss"] > 0


def test_a_run_asked_to_stop_saves_and_can_go_on(data: Path, tmp_path: Path, script: Script) -> None:
    command = [sys.executable, str(TRAINING / "train.py"), str(data), "--out", str(tmp_path), *map(str, SMALL)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the first line of the log: it has begun
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGTERM)
        last = json.loads(process.stdout.readlines()[-1])
    assert process.returncode == 0
    assert last["tokens"] > 0
    more = last["tokens"] + 128
    assert script("train", data, "--out", tmp_path, *SMALL, "--tokens", more).returncode == 0


def test_a_run_has_one_trainer_at_a_time(data: Path, tmp_path: Path, script: Script) -> None:
    with only_writer(tmp_path):
        ended = script("train", data, "--out", tmp_path, *SMALL, "--tokens", 64)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "is being trained by another process" in ended.stderr
    assert not (tmp_path / "state.pt").exists()
    assert script("train", data, "--out", tmp_path, *SMALL, "--tokens", 64).returncode == 0


def test_two_processes_share_one_model(data: Path, tmp_path: Path) -> None:
    options = ("--out", tmp_path, *SMALL, "--tokens", 256, "--processes", 2)
    subprocess.run([sys.executable, TRAINING / "train.py", data, *map(str, options)], check=True, timeout=120)
    alone = start(data, tmp_path / "alone", replace(small(data), seed=0, learning_rate=2e-3), 4)
    for step in range(4):
        parts = [alone.train.random_windows(2, (0, step, rank)) for rank in (0, 1)]
        ids, targets = (torch.cat(pair) for pair in zip(*parts, strict=True))
        alone.train.random_windows = lambda *_, both=(ids, targets): both  # type: ignore[method-assign]
        advance(alone, 1)
        del alone.train.random_windows
    log = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(log[-1])["train_loss"] == pytest.approx(sum(alone.losses) / 4, abs=1e-4)
    shared = torch.load(tmp_path / "state.pt", weights_only=True)["model"]
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(shared[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("options", "complaint"), [
    (("--width", 13), "not a multiple of --heads"),
    (("--processes", 3), "not a multiple of --processes"),
])  # fmt: skip
def test_impossible_settings_are_refused(
    data: Path, tmp_path: Path, script: Script, options: tuple, complaint: str
) -> None:
    ended = script("train", data, "--out", tmp_path / "run", *SMALL, "--tokens", 1, *options)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert complaint in ended.stderr


def test_the_rate_warms_up_stays_and_falls_to_zero(data: Path) -> None:
    settings = replace(small(data), learning_rate=0.5, warmup_steps=10, decay_share=0.25)
    assert learning_rate(settings, 0, 0.0) == pytest.approx(0.05)
    assert learning_rate(settings, 10, 0.1) == learning_rate(settings, 10**6, 0.75) == 0.5
    assert learning_rate(settings, 10**6, 0.875) == pytest.approx(0.25)
    assert learning_rate(settings, 10**6, 1.2) == 0.0


def test_whichever_budget_is_used_up_first_counts() -> None:
    assert Budget(100, math.inf).progress(50, 1e9) == 0.5
    assert Budget(math.inf, 2).progress(10**9, 90) == 0.75
    assert Budget(100, 2).progress(50, 90) == 0.75


def test_snapshots_come_at_every_doubling() -> None:
    steps = range(0, 9 * FIRST_SNAPSHOT, 3000)
    passed = [after for before, after in itertools.pairwise(steps) if snapshot_due(before, after)]
    assert [round(tokens / FIRST_SNAPSHOT) for tokens in passed] == [1, 2, 4, 8]
    assert all(tokens >= FIRST_SNAPSHOT for tokens in passed)


def test_a_snapshot_is_the_first_layer_alone(data: Path, tmp_path: Path) -> None:
    run = start(data, tmp_path / "run", replace(small(data), layers=2))
    run.save()
    untrained = {name: value.clone() for name, value in run.model.state_dict().items()}
    advance(run, 5)
    run.save()
    export(tmp_path / "run", data / "tokenizer.json", tmp_path / "out", [0])
    stored = load_file(tmp_path / "out" / "snapshots" / "0" / "model.safetensors")
    first_layer = ("wte", "wpe", "h.0.ln_1", "h.0.attn")
    expected = {f"transformer.{name}" for name in untrained if name.startswith(first_layer)}
    assert set(stored) == expected
    for name, value in stored.items():
        assert torch.equal(value, untrained[name.removeprefix("transformer.")].half())
    trained = load_file(tmp_path / "out" / "checkpoint" / "model.safetensors")
    assert set(trained) == {f"transformer.{name}" for name in untrained}
    assert not torch.equal(trained["transformer.wte.weight"], stored["transformer.wte.weight"])


def test_an_export_that_cannot_be_made_says_why(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"state\.pt is missing"):
        export(tmp_path / "nowhere", data / "tokenizer.json", tmp_path / "out", [])
    start(data, tmp_path / "run", small(data)).save()
    with pytest.raises(RecipeError, match=r"no snapshot after \[7\] tokens; it has snapshots after \[0\]"):
        export(tmp_path / "run", data / "tokenizer.json", tmp_path / "out", [7])
    assert not (tmp_path / "out").exists()
