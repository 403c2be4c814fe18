"""A checkpoint of several GB costs the memory of its first layer: measured on a sparse sharded file."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
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


def size_of(shapes: dict[str, tuple[int, ...]]) -> int:
    return 4 * sum(shape[0] * (shape[1] if len(shape) == 2 else 1) for shape in shapes.values())


def write_sparse(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """A valid safetensors file of zeros that takes no room on disk."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + size_of({name: shape})
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
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
