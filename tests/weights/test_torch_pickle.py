"""Pickles that are no plain state dict: one line each, nothing large is read, nothing taken for what it is not."""

from __future__ import annotations

import resource
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import detoklens
from detoklens.errors import CheckpointError
from detoklens.weights.sources import PICKLE_FILE
from tests.layers import assert_same_layer, gpt2_config, gpt2_tensors, random_first_layer, write_gpt2

LAYER = random_first_layer()
TENSORS = {name: torch.from_numpy(values) for name, values in gpt2_tensors(LAYER).items()}
NEEDED = "transformer.wte.weight"
PLAIN = TENSORS[NEEDED]


@pytest.fixture
def folder(tmp_path) -> Path:
    write_gpt2(tmp_path, LAYER)
    (tmp_path / "model.safetensors").unlink()
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        detoklens.load(folder)
    return str(caught.value)


@pytest.mark.parametrize("held", [[PLAIN], 3, None, PLAIN, "text", {1: PLAIN}], ids=lambda held: type(held).__name__)
def test_what_has_no_names_is_refused(folder, held):
    torch.save(held, folder / PICKLE_FILE)
    assert "not a dict of tensors; save the model's state_dict()" in refusal(folder)


def test_a_state_dict_inside_something_else_is_missed(folder):
    torch.save({"model": TENSORS}, folder / PICKLE_FILE)
    assert "is missing; the checkpoint may be incomplete" in refusal(folder)


def odd_tensors() -> list[tuple[str, object]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            ("stored as int8", PLAIN.to(torch.int8)),
            ("stored as bool", PLAIN > 0),
            ("stored as complex64", PLAIN.to(torch.complex64)),
            ("stored as float8_e4m3fn", PLAIN.to(torch.float8_e4m3fn)),
            ("stored as qint8", torch.quantize_per_tensor(PLAIN.float(), 0.1, 0, torch.qint8)),
            ("sparse or nested", PLAIN.to_sparse()),
            ("sparse or nested", PLAIN.to_sparse_csr()),
            ("sparse or nested", torch.nested.nested_tensor([PLAIN, PLAIN])),
            ("without numbers (on the device meta)", PLAIN.to("meta")),
            ("not a tensor but of type dict", {"weight": PLAIN}),
            ("not a tensor but of type int", 3),
        ]


@pytest.mark.parametrize(("said", "tensor"), odd_tensors())
def test_tensors_of_other_kinds_are_refused(folder, said, tensor):
    torch.save(TENSORS | {NEEDED: tensor}, folder / PICKLE_FILE)
    message = refusal(folder)
    assert f"tensor {NEEDED!r} is {said}" in message
    assert "accepted are plain tensors of float64, float32, float16, bfloat16" in message


def test_what_is_not_needed_may_be_anything(folder):
    torch.save(TENSORS | {"steps": 3, "transformer.h.0.attn.bias": PLAIN > 0}, folder / PICKLE_FILE)
    assert_same_layer(detoklens.load(folder, dtype="float64").weights, LAYER)


def test_views_are_read_by_what_they_show(folder):
    """Transposed, with a sign to be resolved, as parameters: the same numbers."""
    negated = torch.view_as_complex(torch.stack([PLAIN, -PLAIN], -1)).conj().imag
    for tensor in (PLAIN.T.contiguous().T, negated, torch.nn.Parameter(PLAIN)):
        torch.save(TENSORS | {NEEDED: tensor}, folder / PICKLE_FILE)
        assert_same_layer(detoklens.load(folder, dtype="float64").weights, LAYER)


def test_a_small_file_does_not_ask_for_60_gigabytes(folder):
    rows, width = 1_250_000_000, PLAIN.shape[1]
    torch.save(TENSORS | {NEEDED: torch.zeros(1, width).expand(rows, width)}, folder / PICKLE_FILE)
    assert (folder / PICKLE_FILE).stat().st_size < 20_000
    (folder / "config.json").write_text(str(gpt2_config(LAYER, vocab_size=rows)).replace("'", '"').replace("None", "0"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "but fewer numbers are stored" in refusal(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def repack(path: Path, compression: int, changed: dict[str, bytes]) -> None:
    """The archive packed anew, some members with other content."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, changed.get(name.partition("/")[2], content))


def test_a_compressed_archive_is_not_unpacked(folder):
    torch.save(TENSORS, folder / PICKLE_FILE)
    repack(folder / PICKLE_FILE, zipfile.ZIP_DEFLATED, {"data.pkl": b"\0" * 100_000_000})
    assert "compressed, unlike torch's archives" in refusal(folder)


def test_a_pickle_larger_than_any_description_is_not_read(folder):
    torch.save(TENSORS, folder / PICKLE_FILE)
    repack(folder / PICKLE_FILE, zipfile.ZIP_STORED, {"data.pkl": b"\x80\x02" + b"]0" * 10_000_000 + b"N."})
    assert "too much data besides the tensors" in refusal(folder)


def test_a_file_of_the_older_format_is_said(folder):
    torch.save(TENSORS, folder / PICKLE_FILE, _use_new_zipfile_serialization=False)
    assert "in the format before torch 1.6: convert it to safetensors" in refusal(folder)


def test_no_single_bit_of_the_description_changes_a_number_silently(folder):
    """torch looks at no checksum: of these flips some would exchange two tensors or read one from another place."""
    torch.save(TENSORS, folder / PICKLE_FILE)
    whole = (folder / PICKLE_FILE).read_bytes()
    with zipfile.ZipFile(folder / PICKLE_FILE) as archive:
        pickled = archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
    start = whole.index(pickled)
    for place in range(start, start + len(pickled), 3):
        (folder / PICKLE_FILE).write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        assert "not a complete torch archive" in refusal(folder)


def test_a_file_without_checksums_is_read(folder):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(TENSORS, folder / PICKLE_FILE)
    finally:
        torch.serialization.set_crc32_options(True)
    assert_same_layer(detoklens.load(folder, dtype="float64").weights, LAYER)


def test_a_model_in_memory_is_looked_at_alike():
    class Model:
        config = gpt2_config(LAYER)

        def state_dict(self) -> dict[str, np.ndarray]:
            return gpt2_tensors(LAYER) | {NEEDED: np.ones((23, 12), np.int8)}

    with pytest.raises(CheckpointError, match=f"tensor '{NEEDED}' is stored as int8"):
        detoklens.load(Model())


def test_a_needed_tensor_with_a_flipped_bit_fails_its_checksum(folder):
    torch.save(TENSORS, folder / PICKLE_FILE)
    whole = (folder / PICKLE_FILE).read_bytes()
    place = whole.index(PLAIN.numpy().tobytes()) + 8
    (folder / PICKLE_FILE).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert f"tensor {NEEDED!r} fails its checksum" in refusal(folder)
