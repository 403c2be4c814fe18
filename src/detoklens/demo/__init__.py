"""`demo`, the small trained model that is bundled with the package.

Its folder also holds the bigram counts of its training text, documents sampled from the model itself, and earlier
snapshots of its first layer; MODEL_CARD.md describes its intended use and limits.
"""

from __future__ import annotations

from pathlib import Path

NAME = "demo"
FOLDER = Path(__file__).parent

CHECKPOINT = FOLDER / "checkpoint"
COUNTS = FOLDER / "counts"
DOCUMENTS = FOLDER / "documents.jsonl.zst"
SNAPSHOTS = FOLDER / "snapshots"


def snapshots() -> dict[str, Path]:
    """Folders of earlier first layers by name, `demo@0` first; the number is that of training tokens so far."""
    folders = sorted(SNAPSHOTS.iterdir(), key=lambda folder: int(folder.name)) if SNAPSHOTS.is_dir() else []
    return {f"{NAME}@{folder.name}": folder for folder in folders}


def is_demo(model: str) -> bool:
    """Whether this names the bundled model or one of its snapshots, which share its tokenizer and counts."""
    return model == NAME or model.startswith(f"{NAME}@")


def folder_of(model: str) -> Path | None:
    """The folder of `demo` or of one of its snapshots; None for any other name."""
    return CHECKPOINT if model == NAME else snapshots().get(model)
