"""Vectors are computed once for all questions about a model; damaged ones are never believed, half ones never there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import detoklens
from detoklens.errors import UnsupportedModelError
from detoklens.model import vector_cache as keeping
from detoklens.model.first_blocks import open_blocks
from detoklens.model.vector_cache import cached_vectors, describe_vectors
from detoklens.parallel import Runner
from detoklens.questions.auroc.deeper import cached_inputs
from detoklens.questions.texts import beginning_of
from detoklens.writing import cache_folder
from tests.model.test_first_blocks import LLAMA
from tests.questions.rotary_model import write_folder
from tests.weights.families.tiny import saved, tiny
from tests.weights.gguf_files import write_gguf

AUROC = detoklens.Auroc(layer=1, tokens=[300], truth="merges", controls=False, bootstrap=0)
LAYERS = detoklens.Layers(up_to=2)
SHAPE = (5, 3)
VALUES = np.arange(15, dtype=np.float32).reshape(SHAPE)
KILLED = """
import os, signal
from pathlib import Path
import numpy as np
from detoklens.model.vector_cache import cached_vectors

Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
cached_vectors({"layer": 1}, (5, 3), lambda: np.zeros((5, 3), np.float32), print)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DETOKLENS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / keeping.FOLDER


class Asking:
    """Asks for vectors, and remembers how often they were computed and what was said."""

    def __init__(self, values: np.ndarray = VALUES) -> None:
        self.values, self.computed, self.said = values, 0, []

    def __call__(self, **described: object) -> np.ndarray:
        return cached_vectors(described or {"layer": 1}, self.values.shape, self._compute, self.said.append)

    def _compute(self) -> np.ndarray:
        self.computed += 1
        return self.values


def test_what_was_computed_is_found_again_bit_by_bit(folder):
    values = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    values[0, 0], values[1, 1] = -0.0, np.nan
    asking = Asking(values)
    for found in (asking(), asking()):
        assert found.dtype == np.float32
        assert found.tobytes() == values.tobytes()
    assert (asking.computed, asking.said) == (1, [])
    assert len(list(folder.iterdir())) == 1


def test_other_vectors_are_not_taken_for_these(folder):
    asking = Asking()
    for described in ({"layer": 1, "beginning": (0,)}, {"layer": 2, "beginning": (0,)}, {"layer": 1, "beginning": ()}):
        asking(**described)
    Asking(VALUES[:4])(layer=1, beginning=(0,))
    assert asking.computed == 3
    assert len(list(folder.iterdir())) == 4


def test_a_file_under_the_name_of_another_is_not_believed(folder):
    Asking()(layer=1)
    (one,) = folder.iterdir()
    Asking(VALUES + 1)(layer=2)
    (other,) = set(folder.iterdir()) - {one}
    one.write_bytes(other.read_bytes())
    asking = Asking()
    np.testing.assert_array_equal(asking(layer=1), VALUES)
    assert asking.said == [f"{one} is damaged; computing its vectors again"]


@pytest.mark.parametrize("damage", ["a bit", "cut off", "empty", "longer", "no line"])
def test_a_damaged_file_is_noticed_and_written_anew(folder, damage):
    asking = Asking()
    asking()
    (path,) = folder.iterdir()
    content = path.read_bytes()
    changed = {
        "a bit": content[:-7] + bytes([content[-7] ^ 1]) + content[-6:],
        "cut off": content[:-1],
        "empty": b"",
        "longer": content + b"\0",
        "no line": bytes(len(content)),
    }
    path.write_bytes(changed[damage])
    np.testing.assert_array_equal(asking(), VALUES)
    assert asking.said == [f"{path} is damaged; computing its vectors again"]
    assert asking.computed == 2
    assert path.read_bytes() == content


def test_without_a_place_vectors_are_computed_and_that_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DETOKLENS_CACHE", str(tmp_path / "file"))
    asking = Asking()
    for number in (1, 2):
        np.testing.assert_array_equal(asking(), VALUES)
        assert asking.computed == number
    assert "vectors are not cached: " in asking.said[0]
    assert asking.said[0].endswith("set DETOKLENS_CACHE to another folder")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("DETOKLENS_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    asking = Asking()
    asking()
    assert asking.said == ["vectors are not cached without a home folder; set DETOKLENS_CACHE to a folder for them"]
    monkeypatch.setenv("DETOKLENS_CACHE", "")
    asking = Asking()
    asking()
    assert (asking.computed, asking.said) == (1, []), "that nothing is kept was asked for"


def test_the_folder_is_that_of_the_users_caches(tmp_path, monkeypatch):
    monkeypatch.delenv("DETOKLENS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("vectors") == tmp_path / "detoklens" / "vectors"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder("vectors") == tmp_path / ".cache" / "detoklens" / "vectors"


def test_a_disk_that_is_full_leaves_nothing(folder, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keeping, "_first_line", full)
    asking = Asking()
    np.testing.assert_array_equal(asking(), VALUES)
    assert "No space left on device" in asking.said[0]
    assert list(folder.iterdir()) == []


def test_more_than_there_is_room_for_is_not_kept(folder, monkeypatch):
    usage = keeping.shutil.disk_usage(folder.parent.parent)
    monkeypatch.setattr(keeping.shutil, "disk_usage", lambda _place: usage._replace(free=2 * VALUES.nbytes - 1))
    asking = Asking()
    asking()
    assert "are more than half of the disk's free space" in asking.said[0]
    monkeypatch.setattr(keeping, "MOST_BYTES", VALUES.nbytes - 1)
    asking()
    assert asking.said[0].endswith("set DETOKLENS_CACHE to another folder")
    assert asking.said[1].endswith("exceed the cache's limit of 0 GB"), "another folder would be no help"
    assert not list(folder.glob("*"))


def test_those_that_were_not_asked_for_the_longest_go(folder, monkeypatch):
    asking = Asking()
    asking(layer=1)
    (path,) = folder.iterdir()
    monkeypatch.setattr(keeping, "MOST_BYTES", 3 * path.stat().st_size)
    asking(layer=2)
    asking(layer=3)
    for seconds, kept in enumerate(sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime_ns)):
        os.utime(kept, (seconds, seconds))
    asking(layer=1)  # asked for again
    asking(layer=4)
    before = asking.computed
    for layer in (1, 3, 4):
        asking(layer=layer)
    assert asking.computed == before == 4
    asking(layer=2)
    assert asking.computed == 5


def test_older_ones_that_stay_are_not_said_to_be_these(folder, monkeypatch):
    def forbidden(_path: Path, missing_ok: bool) -> None:
        raise PermissionError(13, "Permission denied")

    asking = Asking()
    asking(layer=1)
    monkeypatch.setattr(keeping, "MOST_BYTES", VALUES.nbytes)
    monkeypatch.setattr(Path, "unlink", forbidden)
    asking(layer=2)
    assert asking.said == [f"older cached vectors can't be removed: Permission denied ({folder}); remove them by hand"]
    asking(layer=2)
    assert asking.computed == 2, "they were kept"


def test_many_at_once_leave_whole_files_only(folder):
    def ask(number: int) -> None:
        np.testing.assert_array_equal(Asking()(layer=number % 3), VALUES)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(60)))
    assert len(list(folder.iterdir())) == 3
    asking = Asking()
    for layer in range(3):
        asking(layer=layer)
    assert (asking.computed, asking.said) == (0, [])


def test_what_was_killed_while_it_wrote_leaves_nothing_half(folder):
    done = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not list(folder.glob(f"*{keeping.SUFFIX}"))
    assert list(folder.glob(".*.partial")), "what the kill left"
    asking = Asking()
    np.testing.assert_array_equal(asking(layer=2), VALUES)
    assert (asking.computed, asking.said) == (1, [])
    assert [path.suffix for path in folder.iterdir()] == [keeping.SUFFIX]


def test_what_decides_is_told_apart(tmp_path):
    one = detoklens.load(saved(tiny("llama", **LLAMA), tmp_path / "one")).checkpoint
    other = detoklens.load(saved(tiny("llama", seed=1, **LLAMA), tmp_path / "other")).checkpoint
    again = detoklens.load(tmp_path / "one").checkpoint
    turned = replace(one, config=one.config | {"hidden_act": "relu"})
    described = [
        describe_vectors(checkpoint, layer, beginning, dtype)
        for checkpoint, layer, beginning, dtype in [
            (one, 1, (1,), "float32"),
            (other, 1, (1,), "float32"),
            (turned, 1, (1,), "float32"),
            (one, 2, (1,), "float32"),
            (one, 1, (2,), "float32"),
            (one, 1, (), "float32"),
            (one, 1, (1,), "float64"),
        ]
    ]
    assert all(described[0] != each for each in described[1:])
    assert describe_vectors(again, 1, (1,), "float32") == described[0]


def test_how_it_is_computed_is_told_apart(tmp_path, monkeypatch):
    import torch
    from transformers import LlamaModel

    class Another(LlamaModel):
        pass

    model = tiny("llama", **LLAMA)
    other = Another(model.config)
    other.load_state_dict(model.state_dict())
    one, another = (describe_vectors(detoklens.load(each).checkpoint, 1, (1,), "float32") for each in (model, other))
    assert one != another
    assert detoklens.study(model).provenance(LAYERS) != detoklens.study(other).provenance(LAYERS)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert describe_vectors(detoklens.load(model).checkpoint, 1, (1,), "float32") != one
    of_a_file = describe_vectors(
        detoklens.load(write_gguf(tmp_path / "m.gguf", model, "llama")).checkpoint, 1, (1,), "float32"
    )
    assert of_a_file["computed_with"]["gguf"] == version("gguf")


def test_a_class_of_ones_own_has_its_own_vectors(folder, monkeypatch):
    """The same tensors and the same config: only the class says that it computes otherwise."""
    from transformers import LlamaModel

    class Doubled(LlamaModel):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.layers[0].register_forward_hook(lambda _block, _given, output: output * 2)

    model = tiny("llama", **LLAMA)
    doubled = Doubled(model.config)
    doubled.load_state_dict(model.state_dict())
    said: list[str] = []
    plain, other, again = (inputs_of(each, said) for each in (model, doubled, model))
    np.testing.assert_allclose(other, 2 * plain, rtol=1e-6)
    np.testing.assert_array_equal(again, plain)
    assert len(list(folder.iterdir())) == 1
    (note,) = (each for each in said if "kept" in each)
    assert "Doubled is not a transformers class" in note
    monkeypatch.setenv("DETOKLENS_CACHE", "")
    inputs_of(doubled, said)
    assert sum("kept" in each or "cached" in each for each in said) == 1, "that nothing is kept was asked for"


def inputs_of(model: Any, said: list[str]) -> np.ndarray:
    layer = detoklens.load(model)
    beginning = beginning_of(layer, said.append)
    decided = describe_vectors(layer.checkpoint, 1, beginning, "float32")
    blocks = open_blocks(layer.checkpoint, 2, layer.n_heads)
    return cached_inputs(blocks, layer, 1, beginning, Runner(say=said.append), decided)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_model_that_is_changed_while_it_is_asked_leaves_nothing(folder, tmp_path, monkeypatch, moment):
    """Whether its blocks are loaded before or after it is written anew: its vectors may be of either state."""
    place = write_folder(tmp_path / "model")

    def opened(checkpoint: Any, *given: Any) -> Any:
        blocks = open_blocks(checkpoint, *given) if moment == "after" else None
        write_folder(place, seed=1)
        return blocks or open_blocks(checkpoint, *given)

    monkeypatch.setattr("detoklens.model.first_blocks.open_blocks", opened)
    study = detoklens.study(place, text=["Once upon a time there was a little girl. " * 8], workers=1)
    with suppress(UnsupportedModelError):  # the attention that is read is not that of the real block
        study.ask(AUROC)
    assert list(folder.glob("*")) == []
    assert any("the model changed during the run" in note for note in study.notes)
    monkeypatch.undo()
    monkeypatch.setenv("DETOKLENS_CACHE", str(folder.parent))
    study.ask(AUROC)
    assert len(list(folder.glob("*"))) == 1


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_a_config_that_is_changed_is_told_apart(tmp_path, kind):
    """The one that transformers reads decides, not the one that was read before."""
    model = tiny("llama", **LLAMA)
    place = saved(model, tmp_path / "model")
    checkpoint = detoklens.load(place if kind == "folder" else model).checkpoint
    before = describe_vectors(checkpoint, 1, (1,), "float32")
    model.config.hidden_act = "relu"
    if kind == "folder":
        model.config.save_pretrained(place)
    assert describe_vectors(checkpoint, 1, (1,), "float32") != before
