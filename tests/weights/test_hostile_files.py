"""Checkpoints from strangers: damaged, hostile or pickled files are refused in one line, and no code of theirs runs."""

from __future__ import annotations

import json
import pickle
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import detoklens
from detoklens.errors import CheckpointError, MissingExtraError
from detoklens.weights import sources
from tests.layers import assert_same_layer, gpt2_tensors, random_first_layer, write_gpt2


def test_a_missing_tensor_is_named(tmp_path):
    write_gpt2(tmp_path, random_first_layer())
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["transformer.h.0.ln_1.bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tensor 'transformer.h.0.ln_1.bias' is missing"):
        detoklens.load(tmp_path)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_inf_are_said(tmp_path, bad):
    first_layer = random_first_layer()
    embeddings = first_layer.token_embeddings.copy()
    embeddings[5, 2] = bad
    write_gpt2(tmp_path, replace(first_layer, token_embeddings=embeddings))
    with pytest.raises(CheckpointError, match=r"tensor 'transformer.wte.weight' holds NaN or Inf"):
        detoklens.load(tmp_path)


def with_header(entry: dict[str, object], data: bytes = b"\0" * 64) -> bytes:
    header = json.dumps({"transformer.wte.weight": entry}).encode()
    return struct.pack("<Q", len(header)) + header + data


HOSTILE_FILES = {
    "empty": b"",
    "short": b"\x08\0\0",
    "no header": struct.pack("<Q", 10**9) + b"{}",
    "endless header": struct.pack("<Q", 2**63) + b"{}" * 100,
    "not JSON": struct.pack("<Q", 4) + b"{{{{",
    "a list": struct.pack("<Q", 2) + b"[]",
    "deep JSON": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "past the end": with_header({"dtype": "F32", "shape": [100], "data_offsets": [0, 400]}),
    "backwards": with_header({"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}),
    "negative": with_header({"dtype": "F32", "shape": [1], "data_offsets": [-8, -4]}),
    "shape lies": with_header({"dtype": "F32", "shape": [1000], "data_offsets": [0, 4]}),
    "negative shape": with_header({"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}),
    "no offsets": with_header({"dtype": "F32", "shape": [1]}),
    "a hole": with_header({"dtype": "F32", "shape": [15], "data_offsets": [4, 64]}),
    "bytes of no tensor": with_header({"dtype": "F32", "shape": [15], "data_offsets": [0, 60]}),
    "true as size": with_header({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}),
}


@pytest.mark.parametrize("what", HOSTILE_FILES)
def test_corrupt_and_hostile_safetensors_are_refused_in_one_line(tmp_path, what):
    write_gpt2(tmp_path, random_first_layer())
    (tmp_path / "model.safetensors").write_bytes(HOSTILE_FILES[what])
    with pytest.raises(CheckpointError) as caught:
        detoklens.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert "download it again" in str(caught.value) or "download the file again" in str(caught.value)


def test_one_bit_does_not_put_another_layer_in_the_place_of_the_first(tmp_path):
    """Of two tensors of one name the parser would keep the last."""
    write_gpt2(tmp_path, random_first_layer())
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["transformer.h.1.ln_1.weight"] = np.ones_like(tensors["transformer.h.0.ln_1.weight"])
    save_file(tensors, tmp_path / "model.safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole.replace(b"transformer.h.1.ln_1", b"transformer.h.0.ln_1"))
    with pytest.raises(CheckpointError, match=r"the name 'transformer\.h\.0\.ln_1\.weight' occurs twice"):
        detoklens.load(tmp_path)


def test_tensors_that_share_bytes_are_refused(tmp_path):
    write_gpt2(tmp_path, random_first_layer())
    places = {name: [0, 32] for name in ("transformer.wte.weight", "transformer.wpe.weight")}
    header = {name: {"dtype": "F32", "shape": [8], "data_offsets": place} for name, place in places.items()}
    encoded = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(encoded)) + encoded + b"\0" * 32)
    with pytest.raises(CheckpointError, match=r"the one before it ends at .*; the file is corrupt, download it again"):
        detoklens.load(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    write_gpt2(tmp_path, random_first_layer())
    (tmp_path / "model.safetensors").rename(tmp_path / "a.safetensors")
    save_file({"transformer.wte.weight": np.zeros((23, 12))}, tmp_path / "b.safetensors")
    shards = {"one": "a.safetensors", "other": "b.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(CheckpointError, match=r"'transformer\.wte\.weight' is in a\.safetensors and in b\.safetensors"):
        detoklens.load(tmp_path)


def test_every_truncation_of_a_file_is_refused(tmp_path):
    write_gpt2(tmp_path, random_first_layer(n_heads=1, d_head=2, vocab_size=2, n_positions=1))
    whole = (tmp_path / "model.safetensors").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "model.safetensors").write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            detoklens.load(tmp_path)


def test_integers_where_weights_should_be_are_refused(tmp_path):
    write_gpt2(tmp_path, random_first_layer())
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["transformer.wte.weight"] = tensors["transformer.wte.weight"].astype(np.int8)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"is stored as I8; accepted are F64, F32, F16, BF16"):
        detoklens.load(tmp_path)


def test_a_torch_checkpoint_is_read_by_the_weights_only_loader(tmp_path):
    first_layer = random_first_layer()
    write_gpt2(tmp_path, first_layer)
    (tmp_path / "model.safetensors").unlink()
    tensors = {name: torch.from_numpy(values) for name, values in gpt2_tensors(first_layer).items()}
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    assert_same_layer(detoklens.load(tmp_path, dtype="float64").weights, first_layer)


class Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_hostile_pickle_runs_no_code(tmp_path):
    write_gpt2(tmp_path, random_first_layer())
    (tmp_path / "model.safetensors").unlink()
    hostile = {"transformer.wte.weight": Bomb(tmp_path / "exploded")}
    torch.save(hostile, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="weights-only loader refuses it"):
        detoklens.load(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(hostile))
    with pytest.raises(CheckpointError, match="not a complete torch archive"):
        detoklens.load(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_without_torch_a_pickle_is_not_opened(tmp_path, monkeypatch):
    write_gpt2(tmp_path, random_first_layer())
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="convert it with") as caught:
        detoklens.load(tmp_path)
    assert "\n" not in str(caught.value)
