"""Export the trained model and its first-layer snapshots in Hugging Face layout.

    python training/export.py RUN DATA/tokenizer.json OUT --snapshots 0 1048576

OUT/checkpoint loads with `GPT2LMHeadModel.from_pretrained`. OUT/snapshots/<tokens> has the same layout, but contains
only the token and position embeddings and the first layer's attention.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from failure import RecipeError, run_as_command
from model import EPSILON, INITIAL_SPREAD, Shape
from state import read_state
from tokenizer import END_OF_TEXT


def config_of(shape: Shape, end_of_text: int) -> dict[str, object]:
    """The config.json that transformers needs to load the model."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": shape.vocabulary,
        "n_positions": shape.context,
        "n_embd": shape.width,
        "n_layer": shape.layers,
        "n_head": shape.heads,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": EPSILON,
        "initializer_range": INITIAL_SPREAD,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "scale_attn_weights": True,
        "tie_word_embeddings": True,
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "torch_dtype": "float16",
    }


def write_checkpoint(folder: Path, tensors: Mapping[str, Tensor], shape: Shape, tokenizer: Path, tokens: int) -> None:
    """Write config.json, model.safetensors (float16) and tokenizer.json to a folder, atomically."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    stored = {f"transformer.{name}": value.to(torch.float16).contiguous() for name, value in tensors.items()}
    save_file(stored, part / "model.safetensors", metadata={"format": "pt", "tokens_seen": str(tokens)})
    (part / "model.safetensors").chmod(0o644)  # safetensors makes the file readable by its owner only
    end = Tokenizer.from_file(str(tokenizer)).token_to_id(END_OF_TEXT)
    config = json.dumps(config_of(shape, end), indent=2)
    (part / "config.json").write_text(config + "\n", encoding="utf-8")
    shutil.copyfile(tokenizer, part / "tokenizer.json")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def export(run: Path, tokenizer: Path, out: Path, snapshots: list[int]) -> None:
    """Export the last state as OUT/checkpoint, and the given snapshots."""
    settings, state = read_state(run / "state.pt")
    missing = [tokens for tokens in snapshots if not (run / "snapshots" / f"{tokens}.safetensors").is_file()]
    if missing:
        kept = sorted(int(path.stem) for path in (run / "snapshots").glob("*.safetensors"))
        raise RecipeError(f"{run} has no snapshot after {missing} tokens; it has snapshots after {kept}")
    tokens = int(state["run"]["step"]) * settings.tokens_per_step
    write_checkpoint(out / "checkpoint", state["model"], settings.shape, tokenizer, tokens)
    for tokens in snapshots:
        tensors = load_file(run / "snapshots" / f"{tokens}.safetensors")
        first_layer = Shape(**{**vars(settings.shape), "layers": 1})
        write_checkpoint(out / "snapshots" / str(tokens), tensors, first_layer, tokenizer, tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder written by train.py")
    parser.add_argument("tokenizer", type=Path, help="the run's tokenizer.json")
    parser.add_argument("out", type=Path, help="output folder")
    parser.add_argument("--snapshots", nargs="*", type=int, default=[], help="token counts of the snapshots to export")
    options = parser.parse_args()
    export(options.run, options.tokenizer, options.out, options.snapshots)
    print(f"{options.out / 'checkpoint'} and {len(options.snapshots)} snapshots")


if __name__ == "__main__":
    run_as_command(main)
