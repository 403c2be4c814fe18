"""A `pytorch_model.bin` is a pickle: only torch's weights-only loader opens it, and only where torch is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from detoklens.errors import CheckpointError, MissingExtraError
from detoklens.weights.sources import StateDict

PICKLE_FILE = "pytorch_model.bin"


def read_pickle(folder: Path) -> StateDict:
    """The tensors of pytorch_model.bin, read by torch in its mode that runs no code."""
    path = folder / PICKLE_FILE
    if find_spec("torch") is None:
        raise MissingExtraError(
            f"{path} is a pickle and is not opened without torch: convert it with "
            f"`pip install torch transformers` and `AutoModel.from_pretrained(...).save_pretrained(...)`, "
            "or `pip install 'detoklens[verify]'`"
        )
    import torch

    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises many kinds, among them RuntimeError and UnpicklingError
        raise CheckpointError(
            f"{path}: torch's weights-only loader refuses it ({type(error).__name__}); "
            "it is damaged, in a legacy format, or holds more than tensors: convert it to safetensors"
        ) from error
    return StateDict(tensors, str(path))
