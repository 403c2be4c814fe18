"""Damaged and hostile checkpoints: one line, or the very numbers that config.json and the undamaged weights say."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import detoklens
from detoklens.errors import DetokLensError
from detoklens.weights.first_layer import FirstLayer
from tests.fuzz.budget import cases
from tests.fuzz.damage import as_json, changed_json, cut_or_doubled, deeply_nested, flipped
from tests.fuzz.memory import bounded_memory
from tests.layers import assert_same_layer, gpt2_config, gpt2_tensors, random_first_layer

LARGEST_GROWTH = 300_000  # kB that a fuzzer may add to the process: the checkpoint has 30 kB, its config at most 10 MB
LAYER = random_first_layer()
SECOND = random_first_layer(seed=1)
CONFIG = gpt2_config(LAYER, attn_pdrop=0.1, activation_function="gelu_new", task_specific_params={"text": {"n": [1]}})
TENSORS = gpt2_tensors(LAYER) | {
    name.replace("h.0.", "h.1."): values for name, values in gpt2_tensors(SECOND).items() if ".h.0." in name
}


@pytest.fixture(autouse=True)
def memory_is_bounded():
    with bounded_memory(LARGEST_GROWTH):
        yield


def check(folder: Path, number: int, expected: FirstLayer | None) -> bool:
    """Is it read? Then as expected; a refusal is one line, and anything else a finding."""
    try:
        found = detoklens.load(folder, dtype="float64").weights
    except DetokLensError:
        return False
    except BaseException as error:
        raise AssertionError(f"case {number}: {type(error).__name__}: {str(error)[:500]}") from error
    assert expected is not None, f"case {number} was read"
    assert_same_layer(found, expected)
    return True


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "config.json").write_bytes(as_json(CONFIG))
    return tmp_path


def test_damaged_safetensors_headers(folder):
    """Numbers carry no checksum in this format, so all but them is damaged."""
    save_file(TENSORS, folder / "model.safetensors", {"format": "pt"})
    whole = (folder / "model.safetensors").read_bytes()
    assert check(folder, -1, LAYER)
    length = 8 + struct.unpack("<Q", whole[:8])[0]
    for number, random in enumerate(cases(700)):
        (folder / "model.safetensors").write_bytes(damaged_header(random, whole[:length], whole[length:]))
        check(folder, number, LAYER)


def damaged_header(random: Random, header: bytes, data: bytes) -> bytes:
    match random.randrange(6):
        case 0:
            new = as_json(changed_json(random, json.loads(header[8:]), random.choice([1, 1, 3])))
        case 1:
            new = deeply_nested(random, header[8:], random.choice([b'"F64"', b"[23,12]", b'"pt"']))
        case 2:
            new = cut_or_doubled(random, header[8:])
        case 3:
            return cut_or_doubled(random, header + data)
        case _:
            return flipped(random, header, random.choice([1, 1, 2, 5])) + data
    return struct.pack("<Q", len(new)) + new + data


def test_damaged_pickles(folder):
    """Every byte is under a checksum, so any is damaged, the tensors' too."""
    path = folder / "pytorch_model.bin"
    torch.save({name: torch.from_numpy(values) for name, values in TENSORS.items()}, path)
    whole = path.read_bytes()
    assert check(folder, -1, LAYER)
    for number, random in enumerate(cases(700)):
        flips = random.choice([1, 1, 2, 20])
        path.write_bytes(flipped(random, whole, flips) if random.random() < 0.8 else cut_or_doubled(random, whole))
        check(folder, number, LAYER)


def test_damaged_configs(folder):
    save_file(TENSORS, folder / "model.safetensors")
    for number, random in enumerate(cases(700)):
        content = damaged_config(random)
        (folder / "config.json").write_bytes(content)
        check(folder, number, as_stated(content))


def damaged_config(random: Random) -> bytes:
    match random.randrange(5):
        case 0:
            return cut_or_doubled(random, as_json(CONFIG))
        case 1:
            return deeply_nested(random, as_json(CONFIG), random.choice([b"null", b"0.1", b'"gelu_new"', b"12"]))
        case 2:
            return flipped(random, as_json(CONFIG), random.choice([1, 1, 3]))
        case _:
            return as_json(changed_json(random, CONFIG, random.choice([1, 1, 3])))


def as_stated(content: bytes) -> FirstLayer | None:
    """The layer of these weights as a config says it: with its heads, ε and scale; None for nonsense."""
    try:
        config: dict[str, Any] = json.loads(content)
        heads, epsilon = config["n_head"], float(config["layer_norm_epsilon"])
        assert (config["model_type"], config["n_embd"]) == ("gpt2", 12)
        per_head = (heads, 12 // heads)
    except (ValueError, KeyError, TypeError, AssertionError, ZeroDivisionError, OverflowError, RecursionError):
        return None
    if type(heads) is not int or heads < 1 or 12 % heads:
        return None
    return replace(
        LAYER,
        **{
            name: getattr(LAYER, name).reshape(12, *per_head) for name in ("query_weight", "key_weight", "value_weight")
        },
        **{name: getattr(LAYER, name).reshape(per_head) for name in ("query_bias", "key_bias", "value_bias")},
        output_weight=LAYER.output_weight.reshape(*per_head, 12),
        norm_epsilon=epsilon,
        attention_scale=per_head[1] ** -0.5 if config.get("scale_attn_weights", True) else 1.0,
    )


def test_damaged_indices(folder):
    names = sorted(TENSORS)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, held in shards.items():
        save_file({name: np.ascontiguousarray(TENSORS[name]) for name in held}, folder / shard)
    index = {"metadata": {"total_size": 1}, "weight_map": {name: shard for shard in shards for name in shards[shard]}}
    for number, random in enumerate(cases(200)):
        changed = random.random() < 0.5
        content = as_json(changed_json(random, index, 2)) if changed else flipped(random, as_json(index), 1)
        (folder / "model.safetensors.index.json").write_bytes(content)
        check(folder, number, LAYER)
