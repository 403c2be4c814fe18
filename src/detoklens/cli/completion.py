"""Shell completion of models, questions, heads and tokens, from what is on this machine; nothing is downloaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from detoklens import demo
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.parameters import Parameter, choices_of

MOST = 60  # suggestions at a time
HEAD_COUNTS = ("n_head", "num_attention_heads", "num_heads", "decoder_attention_heads", "n_heads")


def completion_of(setting: Parameter) -> Callable[..., Sequence[Any]] | None:
    """The function that completes a parameter's values, if there is one."""
    if setting.name in ("model", "models", "tokenizer"):
        return complete_model
    if setting.name == "question":
        return complete_question
    if setting.name == "heads":
        return complete_heads
    sequences = [choice for choice in choices_of(setting.kind) if get_origin(choice) is Sequence]
    takes_tokens = setting.name == "tokens" and any(str in choices_of(get_args(each)[0]) for each in sequences)
    return complete_tokens if takes_tokens else None


def complete_model(incomplete: str) -> list[str]:
    """The demo, local folders and GGUF files, and cached hub models with their cached revisions."""
    label, equals, typed = incomplete.rpartition("=")
    names = [demo.NAME, *demo.snapshots(), *_cached_models(typed), *_local(typed)]
    return [f"{label}{equals}{name}" for name in names if name.startswith(typed)][:MOST]


def complete_question(incomplete: str) -> list[str]:
    """Names of questions."""
    return [name for name in QUESTIONS if name.startswith(incomplete)]


def _local(typed: str) -> list[str]:
    parent = typed.rpartition("/")[0]
    with suppress(OSError):
        inside = sorted(Path(f"{parent}/" if parent or typed.startswith("/") else ".").iterdir())
        shown = [path for path in inside if not path.name.startswith(".")]
        folders = [f"{path}" if (path / "config.json").is_file() else f"{path}/" for path in shown if path.is_dir()]
        return folders + [str(path) for path in shown if path.suffix == ".gguf"]
    return []


def _cached_models(typed: str) -> list[str]:
    """Hub models in huggingface_hub's cache, found by its layout: importing it would take longer than the rest."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    found = []
    for folder in sorted(Path(os.environ.get("HF_HUB_CACHE") or home / "hub").glob("models--*")):
        name = folder.name.removeprefix("models--").replace("--", "/")
        revisions = sorted(path.name for path in (folder / "refs").glob("*"))
        found += [name] if "@" not in typed else [f"{name}@{revision}" for revision in revisions]
    return found


def complete_heads(ctx: typer.Context, incomplete: str) -> list[str]:
    """The model's heads; after a comma, those that are not named yet."""
    from detoklens.weights.checkpoint import find_folder, locate, read_config
    from detoklens.weights.gguf_file import GGUFFile

    before, comma, typed = incomplete.rpartition(",")
    with suppress(Exception):  # a missing or invalid model completes nothing
        folder = find_folder(locate(_model_of(ctx)))
        config = GGUFFile(folder).config if folder.is_file() else read_config(folder)
        number = next(config[key] for key in HEAD_COUNTS if isinstance(config.get(key), int))
        free = [str(head) for head in range(number) if str(head) not in before.split(",")]
        return [f"{before}{comma}{head}" for head in free if head.startswith(typed)]
    return []


def complete_tokens(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The shortest tokens that begin like this; those with a leading space after a quote and a space."""
    from detoklens.loading import load_vocabulary

    with suppress(Exception):
        fitting = [
            (len(text), text, token)
            for token, text in enumerate(load_vocabulary(_model_of(ctx)).texts())
            if text.startswith(incomplete) and text.isprintable() and text.startswith(" ") == incomplete.startswith(" ")
        ]
        return [(text, f"token {token}") for _, text, token in sorted(fitting)[:MOST]]
    return []


def _model_of(ctx: typer.Context) -> str:
    os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported
    return str(ctx.params.get("model") or demo.NAME)
