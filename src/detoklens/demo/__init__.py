"""`demo`, the small trained model that is bundled with the package.

Its folder also holds the bigram counts of its training text, documents sampled from the model itself, and earlier
snapshots of its first layer; MODEL_CARD.md describes its intended use and limits.
"""

from __future__ import annotations

from pathlib import Path

from detoklens.errors import CheckpointError

NAME = "demo"
FOLDER = Path(__file__).parent

CHECKPOINT = FOLDER / "checkpoint"
COUNTS = FOLDER / "counts"
DOCUMENTS = FOLDER / "documents.jsonl.zst"
SNAPSHOTS = FOLDER / "snapshots"
TRAINING_TOKENS = 22_405_120  # seen by the final model: see MODEL_CARD.md


def snapshots() -> dict[str, Path]:
    """Folders of earlier first layers by name, `demo@0` first; the number is that of training tokens so far."""
    folders = sorted(SNAPSHOTS.iterdir(), key=lambda folder: int(folder.name)) if SNAPSHOTS.is_dir() else []
    return {f"{NAME}@{folder.name}": folder for folder in folders}


def is_demo(model: str) -> bool:
    """Whether this names the bundled model or one of its snapshots, which share its tokenizer and counts."""
    return model == NAME or model.startswith(f"{NAME}@")


def training_tokens(model: str) -> int | None:
    """The number of tokens that the demo model or a snapshot was trained on; None for any other name."""
    if model == NAME:
        return TRAINING_TOKENS
    return int(model.removeprefix(f"{NAME}@")) if model in snapshots() else None


def folder_of(model: str) -> Path | None:
    """The folder of `demo` or of one of its snapshots; None for any other name."""
    folders = {NAME: CHECKPOINT, **snapshots()}
    if model not in folders and is_demo(model):
        raise CheckpointError(f"unknown snapshot {model}; choose {', '.join(folders)}")
    return folders.get(model)
