"""Measure the memory that one head of a large model needs, on a sharded bfloat16 checkpoint shaped like Llama 3 8B.

    python benchmarks/large_model.py                       128,256 × 4,096 embeddings, 32 layers: writes 1.2 GB
    python benchmarks/large_model.py --vocabulary 20000 --bigrams 100000

The first block's attention and the embeddings hold random numbers. Everything else is a hole in a sparse file (15 GB
long), so reading it would show up as memory. Each question runs in a separate process. Memory is the peak of that
process and its workers together, with shared pages counted once and pages of mapped files included. Targets: `partners`
below 6 GB; AUROC within the machine's memory on two cores.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
import psutil

HEAD = 3
WRITTEN_AT_ONCE = 1 << 24
PAUSE = 0.2  # seconds between memory samples

Shapes = dict[str, tuple[int, ...]]


def first_tensors(options: argparse.Namespace) -> Shapes:
    """The tensors that one head of layer 0 needs."""
    return {"model.embed_tokens.weight": (options.vocabulary, options.width)} | attention(options, 0)


def attention(options: argparse.Namespace, layer: int) -> Shapes:
    prefix, d = f"model.layers.{layer}.", options.width
    keys = d // options.heads * options.key_heads
    rows = {"q": d, "k": keys, "v": keys, "o": d}
    projections = {f"{prefix}self_attn.{name}_proj.weight": (size, d) for name, size in rows.items()}
    return projections | {f"{prefix}input_layernorm.weight": (d,)}


def rest(options: argparse.Namespace, layer: int) -> Shapes:
    prefix, d, inner = f"model.layers.{layer}.", options.width, options.inner
    shapes = {"gate": (inner, d), "up": (inner, d), "down": (d, inner)}
    mlp = {f"{prefix}mlp.{name}_proj.weight": shape for name, shape in shapes.items()}
    return mlp | {f"{prefix}post_attention_layernorm.weight": (d,)}


def write_shard(path: Path, shapes: Shapes, filled: Shapes) -> None:
    """Write a bfloat16 safetensors file; `filled` tensors are random, the others take no disk space."""
    header, end = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + 2 * prod(shape)]}
        end += 2 * prod(shape)
    text = json.dumps(header).encode()
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in filled:
            file.seek(8 + len(text) + header[name]["data_offsets"][0])
            write_random(file, prod(shapes[name]), random)
        file.truncate(8 + len(text) + end)


def write_random(file: BinaryIO, numbers: int, random: np.random.Generator) -> None:
    """Random bfloat16 bits: magnitude between 1/64 and 1/32, random sign."""
    for begin in range(0, numbers, WRITTEN_AT_ONCE):
        bits = random.integers(0, 1 << 16, min(WRITTEN_AT_ONCE, numbers - begin), np.uint16)
        file.write(((bits & 0x807F) | 0x3C80).tobytes())


def write_checkpoint(folder: Path, options: argparse.Namespace) -> float:
    """Write the checkpoint and return its length in GB."""
    first, shards = first_tensors(options), {}
    n_shards = min(4, options.layers)
    for shard in range(n_shards):
        layers = range(shard, options.layers, n_shards)
        shards[shard] = {
            name: size for layer in layers for name, size in (attention(options, layer) | rest(options, layer)).items()
        }
    shards[0] = first | shards[0]
    names = {shard: f"model-{shard + 1:05}-of-{n_shards:05}.safetensors" for shard in shards}
    for shard, shapes in shards.items():
        write_shard(folder / names[shard], shapes, first if shard == 0 else {})
    weight_map = {name: names[shard] for shard, shapes in shards.items() for name in shapes}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(config(options)))
    return sum(2 * prod(shape) for shapes in shards.values() for shape in shapes.values()) / 1e9


def config(options: argparse.Namespace) -> dict[str, object]:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return {
        "model_type": "llama",
        "hidden_size": options.width,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.key_heads,
        "intermediate_size": options.inner,
        "num_hidden_layers": options.layers,
        "vocab_size": options.vocabulary,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 5e5,
        "rope_scaling": scaling | {"original_max_position_embeddings": 8192},
    }


def ask(question: str, folder: str, options: argparse.Namespace) -> None:
    """Ask for one head's partners or AUROC; runs in a separate process."""
    import detoklens
    from report import random_counts

    if question == "partners":
        answer = detoklens.study(folder).ask(detoklens.Partners([7], heads=[HEAD % options.heads], top=10))
    else:
        counts = random_counts(np.random.default_rng(0), options.vocabulary, options.bigrams)
        queries = [*range(min(options.queries, options.vocabulary))]
        asked = detoklens.Auroc(tokens=queries, heads=[HEAD % options.heads])
        answer = detoklens.study(folder, counts=counts, workers=options.workers).ask(asked)
    print(answer.sentence)


def measured(arguments: list[str]) -> tuple[float, float, str]:
    """Elapsed seconds, peak GB of the process and its workers together, and its output."""
    begun, most = time.monotonic(), 0.0
    with subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            most = max(most, memory_of(process.pid))
            time.sleep(PAUSE)
        printed = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.monotonic() - begun, most / 1e9, printed.strip()


def memory_of(pid: int) -> float:
    """Bytes of a process and its children; a shared page is divided among its users."""
    total = 0.0
    try:
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            total += process.memory_full_info().pss
    except psutil.Error:
        return total
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"vocabulary": 128_256, "width": 4096, "heads": 32, "key-heads": 8, "inner": 14_336, "layers": 32}
    for name, size in (sizes | {"bigrams": 2_000_000, "queries": 4096, "workers": 2}).items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--ask", nargs=2, metavar=("QUESTION", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        ask(*options.ask, options)
        return
    with tempfile.TemporaryDirectory() as name:
        length = write_checkpoint(Path(name), options)
        print(f"a checkpoint of {length:.1f} GB in bfloat16", flush=True)
        for question in ("partners", "auroc"):
            seconds, memory, printed = measured([*sys.argv[1:], "--ask", question, name])
            print(f"{question} of one head: {memory:.2f} GB peak, {seconds:.0f} s; {printed}", flush=True)


if __name__ == "__main__":
    main()
