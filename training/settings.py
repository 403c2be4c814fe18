"""Settings of a run, and the check that a resumed run has the same ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from failure import RecipeError
from model import Shape


@dataclass(frozen=True)
class Settings:
    """Everything that determines the weights except the budget, which may change when a run is resumed."""

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
        """Raise a RecipeError for invalid settings."""
        if self.width % self.heads:
            raise RecipeError(f"--width {self.width} is not a multiple of --heads {self.heads}")
        if self.windows % self.processes:
            raise RecipeError(f"--windows {self.windows} is not a multiple of --processes {self.processes}")


def refuse_other(saved: Settings, now: Settings, where: object) -> None:
    """Raise a RecipeError that names every setting that differs, with both values."""
    there, here = asdict(saved), asdict(now)
    differing = [f"{name} {there[name]} there, {here[name]} now" for name in here if there[name] != here[name]]
    if differing:
        raise RecipeError(
            f"{where} was trained with other settings ({'; '.join(differing)}); "
            "pass the same settings to resume, or another --out to start a new run"
        )


@dataclass(frozen=True)
class Budget:
    """Limits of a run; it ends at whichever is reached first."""

    tokens: float
    minutes: float

    def progress(self, tokens: int, seconds: float) -> float:
        """The fraction of the budget that is used up."""
        return max(tokens / self.tokens, seconds / (60 * self.minutes))


def learning_rate(settings: Settings, step: int, progress: float) -> float:
    """The learning rate: linear warm-up, a plateau, then linear decay to zero over the last part of the budget.

    Because of the plateau, a run can be shortened or extended by changing only its budget.
    """
    warm = min(1.0, (step + 1) / settings.warmup_steps)
    cool = min(1.0, max(0.0, (1.0 - progress) / settings.decay_share))
    return settings.learning_rate * warm * cool
