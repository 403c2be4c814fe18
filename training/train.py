"""Train a small GPT-2 on the tokenized text; run it again with the same settings to resume.

    python training/train.py DATA --out RUN --layers 3 --minutes 100

DATA is the folder written by tokenise.py. RUN receives state.pt (the last state), log.jsonl and snapshots/ (first
layers).
"""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
from pathlib import Path

import torch

from failure import run_as_command
from run import Run
from settings import Budget, Settings
from sharing import Team, is_follower
from streams import open_streams
from writing import only_writer


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with train.bin, heldout.bin, stream.json")
    parser.add_argument("--out", type=Path, required=True, help="output folder of the run")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--windows", type=int, default=8, help="windows per step, across all processes")
    parser.add_argument("--processes", type=int, default=1, help="number of single-threaded processes")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--warmup-steps", type=int, default=200)
    parser.add_argument("--decay-share", type=float, default=0.3, help="fraction of the budget for the final decay")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=float, default=math.inf, help="stop after this many tokens")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this many minutes")
    parser.add_argument("--save-seconds", type=float, default=150, help="seconds between saves")
    return parser.parse_args()


def settings_of(options: argparse.Namespace, summary: dict[str, object]) -> Settings:
    """Settings from the command line and the summary of the tokenized text."""
    asked = {**vars(options), **summary}
    settings = Settings(**{name: asked[name] for name in Settings.__dataclass_fields__})
    settings.check()
    return settings


def train(run: Run, team: Team, save_seconds: float) -> None:
    """Train until the budget is used up or a signal arrives; only the first process writes files."""
    asked_to_stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: asked_to_stop.append(received))
    if team.leads and run.step == 0:
        run.save()
    while True:
        progress, stop = team.follow(run.progress(), bool(asked_to_stop))
        if stop or progress >= 1:
            break
        run.advance(team, progress)
        if team.leads and run.seconds_since_save() >= save_seconds:
            run.save()
    if team.leads and run.unsaved:
        run.save()


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    train_stream, heldout_stream, summary = open_streams(options.data, options.context)
    settings = settings_of(options, summary)
    budget = Budget(options.tokens, options.minutes)
    with contextlib.nullcontext() if is_follower() else only_writer(options.out):
        run = Run(settings, budget, train_stream, heldout_stream, options.out)
        team = Team(options.processes)
        train(run, team, options.save_seconds)
        team.part()


if __name__ == "__main__":
    run_as_command(main)
