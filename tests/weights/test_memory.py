"""A checkpoint of several GB costs the memory of its first layer: measured on a sparse sharded file."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest

VOCABULARY, WIDTH, POSITIONS = 100_000, 1024, 512
OTHER_LAYERS_GB = 4

FIRST_LAYER = {
    "transformer.wte.weight": (VOCABULARY, WIDTH),
    "transformer.wpe.weight": (POSITIONS, WIDTH),
    "transformer.h.0.ln_1.weight": (WIDTH,),
    "transformer.h.0.ln_1.bias": (WIDTH,),
    "transformer.h.0.attn.c_attn.weight": (WIDTH, 3 * WIDTH),
    "transformer.h.0.attn.c_attn.bias": (3 * WIDTH,),
    "transformer.h.0.attn.c_proj.weight": (WIDTH, WIDTH),
    "transformer.h.0.attn.c_proj.bias": (WIDTH,),
}
OTHERS = {f"transformer.h.{layer}.mlp.c_fc.weight": (WIDTH, 256 * WIDTH) for layer in range(1, OTHER_LAYERS_GB + 1)}

MEASURE = """
import sys
import detoklens
layer = detoklens.load(sys.argv[1])
assert layer.vocab_size == {vocabulary}
# not ru_maxrss, which a child inherits from the process that started it
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024)
"""


def size_of(shapes: dict[str, tuple[int, ...]], width: int = 4) -> int:
    return width * sum(prod(shape) for shape in shapes.values())


def write_sparse(path: Path, shapes: dict[str, tuple[int, ...]], dtype: str = "F32") -> None:
    """A valid safetensors file of zeros that takes no room on disk."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + size_of({name: shape}, {"F32": 4, "BF16": 2}[dtype])
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read in Linux's units")
def test_loading_a_huge_sharded_checkpoint_stays_small(tmp_path):
    shards = {"model-00001-of-00002.safetensors": FIRST_LAYER, "model-00002-of-00002.safetensors": OTHERS}
    for shard, shapes in shards.items():
        write_sparse(tmp_path / shard, shapes)
    weight_map = {name: shard for shard, shapes in shards.items() for name in shapes}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    config = {"model_type": "gpt2", "n_embd": WIDTH, "n_head": 16, "layer_norm_epsilon": 1e-5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert size_of(OTHERS) > 4e9

    code = MEASURE.format(vocabulary=VOCABULARY)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1.5 * size_of(FIRST_LAYER) + 200e6


ROWS, LLAMA_WIDTH, KEYS, INNER = 24_000, 4096, 1024, 14_336  # Llama 3 8B with a fifth of its vocabulary


def llama_block(number: int) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """The tensors of a block's attention, and those of its rest."""
    prefix, d = f"model.layers.{number}.", LLAMA_WIDTH
    rows = {"q": d, "k": KEYS, "v": KEYS, "o": d}
    attention = {f"{prefix}self_attn.{name}_proj.weight": (size, d) for name, size in rows.items()}
    rest = {f"{prefix}mlp.{name}_proj.weight": (INNER, d) for name in ("gate", "up")}
    return (
        attention | {f"{prefix}input_layernorm.weight": (d,)},
        rest | {f"{prefix}mlp.down_proj.weight": (d, INNER), f"{prefix}post_attention_layernorm.weight": (d,)},
    )


MEASURE_ONE_HEAD = """
import sys
import detoklens
layer = detoklens.load(sys.argv[1])
assert layer.token_affinity(heads=[5], mean="vocabulary").scores(__import__("numpy").array([7])).shape == (1, 1, ROWS)
assert layer.kernel([1, 2]).shape == (32, 2)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read in Linux's units")
def test_one_head_of_a_llama_costs_little_more_than_its_embeddings(tmp_path):
    """bfloat16 on disk, four bytes in memory, and neither a second copy of the table nor the MLP."""
    attention, rest = llama_block(0)
    first = {"model.embed_tokens.weight": (ROWS, LLAMA_WIDTH)} | attention
    others = {name: shape for number in range(1, 32) for part in llama_block(number) for name, shape in part.items()}
    shards = {"model-00001-of-00002.safetensors": first | rest, "model-00002-of-00002.safetensors": others}
    for shard, shapes in shards.items():
        write_sparse(tmp_path / shard, shapes, "BF16")
    weight_map = {name: shard for shard, shapes in shards.items() for name in shapes}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    sizes = {"hidden_size": LLAMA_WIDTH, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": ROWS}
    config = sizes | {"model_type": "llama", "intermediate_size": INNER, "rms_norm_eps": 1e-5, "rope_theta": 5e5}
    (tmp_path / "config.json").write_text(json.dumps(config))

    code = MEASURE_ONE_HEAD.replace("ROWS", str(ROWS))
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < size_of(first) + 1.2e9
