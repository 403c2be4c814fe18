"""A training run: its progress and its training step."""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch

from model import GPT2, initialise
from settings import Budget, Settings, learning_rate
from sharing import Team
from state import load_state, save_snapshot, save_state
from streams import Stream

GRADIENT_NORM = 1.0
MOMENTS = (0.9, 0.98)
HELD_OUT_WINDOWS = 128
FIRST_SNAPSHOT = 1 << 18  # tokens; then at every doubling


class Run:
    """A run: model, optimizer, text and progress."""

    def __init__(self, settings: Settings, budget: Budget, train: Stream, heldout: Stream, out: Path) -> None:
        self.settings, self.budget, self.out = settings, budget, out
        self.train, self.heldout = train, heldout
        self.model = GPT2(settings.shape)
        initialise(self.model, settings.seed)
        self.optimizer = optimizer_of(self.model, settings.weight_decay)
        self.step, seconds = 0, 0.0
        if (out / "state.pt").exists():
            state = load_state(out / "state.pt", settings, self.model, self.optimizer)
            self.step, seconds = int(state["step"]), state["seconds"]
        self.started = time.monotonic() - seconds
        self.losses: list[float] = []
        self.saved_at = (self.tokens, self.seconds)

    @property
    def tokens(self) -> int:
        return self.step * self.settings.tokens_per_step

    @property
    def seconds(self) -> float:
        """Elapsed seconds, including earlier sessions."""
        return time.monotonic() - self.started

    @property
    def unsaved(self) -> bool:
        return bool(self.losses)

    def seconds_since_save(self) -> float:
        return self.seconds - self.saved_at[1]

    def progress(self) -> float:
        """The fraction of the budget that is used up."""
        return self.budget.progress(self.tokens, self.seconds)

    def advance(self, team: Team, progress: float) -> None:
        """Take one AdamW step on this process's share of the windows."""
        key = (self.settings.seed, self.step, team.rank)
        ids, targets = self.train.random_windows(self.settings.windows // team.size, key)
        loss = self.model.loss(ids, targets)
        loss.backward()
        self.losses.append(team.average(loss, self.model.parameters()))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), GRADIENT_NORM)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, self.step, progress)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        before = self.tokens
        self.step += 1
        if team.leads and snapshot_due(before, self.tokens):
            save_snapshot(self.out / "snapshots", self.model, self.tokens)

    @torch.no_grad()
    def held_out_loss(self) -> float:
        ids, targets = self.heldout.even_windows(HELD_OUT_WINDOWS)
        parts = list(zip(ids.split(8), targets.split(8), strict=True))
        return sum(float(self.model.loss(*part)) for part in parts) / len(parts)

    def save(self) -> None:
        """Save the state and append a line to the log: tokens, losses, time, speed."""
        if self.step == 0:
            save_snapshot(self.out / "snapshots", self.model, 0)
        state = {"step": self.step, "seconds": self.seconds}
        save_state(self.out / "state.pt", self.settings, self.model, self.optimizer, state)
        line = json.dumps(self._log_entry())
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(line + "\n")
        print(line, flush=True)
        self.losses = []
        self.saved_at = (self.tokens, self.seconds)

    def _log_entry(self) -> dict[str, float | None]:
        tokens, seconds = self.saved_at
        speed = (self.tokens - tokens) / (self.seconds - seconds)
        return {
            "tokens": self.tokens,
            "train_loss": round(sum(self.losses) / len(self.losses), 4) if self.losses else None,
            "held_out_loss": round(self.held_out_loss(), 4),
            "seconds": round(self.seconds, 1),
            "tokens_per_second": round(speed),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
        }


def optimizer_of(model: GPT2, weight_decay: float) -> torch.optim.AdamW:
    """AdamW without weight decay on gains and biases."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=MOMENTS, fused=True)


def snapshot_due(before: int, after: int) -> bool:
    """Whether this step passed the first snapshot's token count or one of its doublings."""
    return (before // FIRST_SNAPSHOT).bit_length() < (after // FIRST_SNAPSHOT).bit_length()
