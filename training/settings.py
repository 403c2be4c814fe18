"""Which settings make a run what it is, and may a run continue with the settings it is now given?"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from failure import RecipeError
from model import Shape


@dataclass(frozen=True)
class Settings:
    """All that decides the weights, beside the budgets (which may grow or shrink when a run is continued)."""

    tokenizer: str
    vocabulary: int
    train_tokens: int
    layers: int
    width: int
    heads: int
    context: int
    windows: int
    processes: int
    learning_rate: float
    warmup_steps: int
    decay_share: float
    weight_decay: float
    seed: int

    @property
    def shape(self) -> Shape:
        return Shape(self.vocabulary, self.context, self.width, self.heads, self.layers)

    @property
    def tokens_per_step(self) -> int:
        return self.windows * self.context

    def check(self) -> None:
        """Can these settings be trained with at all?"""
        if self.width % self.heads:
            raise RecipeError(f"--width {self.width} is not a multiple of --heads {self.heads}")
        if self.windows % self.processes:
            raise RecipeError(f"--windows {self.windows} is not a multiple of --processes {self.processes}")


def refuse_other(saved: Settings, now: Settings, where: object) -> None:
    """Is the saved run the same run? Any setting that differs is named, with both values."""
    there, here = asdict(saved), asdict(now)
    differing = [f"{name} {there[name]} there, {here[name]} now" for name in here if there[name] != here[name]]
    if differing:
        raise RecipeError(
            f"{where} was trained with other settings ({'; '.join(differing)}); "
            "give it the same ones to continue, or another --out to start anew"
        )


@dataclass(frozen=True)
class Budget:
    """How long may the run go on? Whichever is used up first ends it."""

    tokens: float
    minutes: float

    def progress(self, tokens: int, seconds: float) -> float:
        """Which share of the budget is used up?"""
        return max(tokens / self.tokens, seconds / (60 * self.minutes))


def learning_rate(settings: Settings, step: int, progress: float) -> float:
    """How large is the step? Linear warm-up, a plateau, then a straight line to zero over the last share.

    The plateau lets a run be cut short or prolonged: only the budget's end moves.
    """
    warm = min(1.0, (step + 1) / settings.warmup_steps)
    cool = min(1.0, max(0.0, (1.0 - progress) / settings.decay_share))
    return settings.learning_rate * warm * cool
