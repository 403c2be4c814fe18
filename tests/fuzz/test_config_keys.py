"""Every config key that a Spec reads or ignores, changed: the same attention as transformers, or a refusal."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from transformers import CONFIG_MAPPING

import detoklens
from detoklens.errors import DetokLensError
from detoklens.model.verify import run_real_layer
from detoklens.weights.families import SPEC_OF, spec_of
from detoklens.weights.spec import RotaryPositions, Window
from tests.fuzz.budget import cases, has_time
from tests.verification.test_every_family import SETTINGS
from tests.weights.families.tiny import saved, tiny

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5]
ABSENT = object()
VALUES = [ABSENT, None, True, False, 0, 1, 2, 3, 4, 0.5, 7.0, "gelu", []]
ROPE = [
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 15},
    {"rope_type": "default", "rope_theta": 50.0},
    {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5},
]
SPECIFIC: dict[str, list[Any]] = {
    "rope_parameters": ROPE,
    "rope_scaling": ROPE,
    "layer_types": [["full_attention"] * 2, ["sliding_attention"] * 2, ["full_attention", "sliding_attention"]],
    "attention_types": [[[["local"], 2]], [[["global"], 2]]],
    "attn_config": [{"softmax_scale": 0.3}, {"alibi": False}, {"clip_qkv": 1.0}],
    "position_embedding_type": ["absolute", "relative_key"],
}
ROPE_KEYS = {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"}
OLD_KEYS = {"position_embedding_type", "sliding_window_pattern"}
"""Keys that older versions of transformers read, and published configs have."""


def known_to_transformers(model_type: str) -> set[str]:
    """Config attributes, their aliases, and every word of the code that reads the config."""
    config = CONFIG_MAPPING[model_type]
    modeling = importlib.import_module(config.__module__.replace(".configuration_", ".modeling_"))
    words = {
        word
        for module in (inspect.getmodule(config), modeling)
        for word in re.findall(r"\w+", inspect.getsource(module))
    }
    return words | set(vars(config())) | set(config.attribute_map)


@pytest.mark.parametrize("model_type", SPEC_OF)
def test_transformers_knows_every_key_that_a_spec_reads(model_type: str) -> None:
    spec = SPEC_OF[model_type]
    rope = ROPE_KEYS if isinstance(spec.positions, RotaryPositions) else set()
    assert spec.read_keys <= known_to_transformers(model_type) | OLD_KEYS | rope


@pytest.mark.parametrize("model_type", sorted(set(SPEC_OF) - {"electra"}))  # whose default sizes are refused
def test_an_absent_key_means_what_it_means_to_transformers(model_type: str) -> None:
    spec, stated = SPEC_OF[model_type], CONFIG_MAPPING[model_type]().to_dict()
    bare = spec_of({"model_type": model_type, spec.width[0]: stated[spec.width[0]]})
    full = spec_of({key: value for key, value in stated.items() if key in spec.read_keys or key == "model_type"})
    for name in ("window", "attention_scale", "input_norm"):
        assert getattr(bare, name) == getattr(full, name), name
    for setting in spec.settings:
        assert setting.default == stated[setting.key], setting
    for key, values in (*spec.accepted.items(), *spec.mlp_accepted.items()):
        assert stated.get(key, values[0]) in values, key
    if isinstance(spec.key_heads, str):
        assert (spec.default_key_heads or stated[spec.heads[0]]) == stated[spec.key_heads]
    if isinstance(spec.window, Window):
        assert spec.window.default == stated["sliding_window"]
    if isinstance(spec.epsilon, str) and spec.default_epsilon is not None:
        assert spec.default_epsilon == stated[spec.epsilon]
    if spec.default_longest is not None:
        assert spec.default_longest == stated.get(spec.longest[0], spec.default_longest)
    if spec.default_head_size is not None:
        assert spec.default_head_size == stated[spec.head_size]
    if spec.mlp is not None and spec.mlp.activation is not None:
        known = spec.mlp.activations
        assert known[spec.mlp.default_activation] == known[stated[spec.mlp.activation]]


class Folders:
    """A tiny checkpoint of each model type, built when it is first needed."""

    def __init__(self, root: Path) -> None:
        self._root, self._configs = root, {}

    def with_config(self, model_type: str, key: str, value: Any) -> Path:
        folder = self._root / model_type
        if model_type not in self._configs:
            saved(tiny(model_type, **SETTINGS[model_type]), folder)
            self._configs[model_type] = json.loads((folder / "config.json").read_text())
        config = dict(self._configs[model_type])
        config.pop(key, None)
        if value is not ABSENT:
            config[key] = value
        (folder / "config.json").write_text(json.dumps(config))
        return folder


def difference(folder: Path) -> float | None:
    """How far our attention is from transformers'; None if either refuses the checkpoint."""
    try:
        layer = detoklens.load(folder, dtype="float64")
        ours = layer.terms(IDS).attention()
        theirs = run_real_layer(folder, layer.checkpoint.config, IDS, "float64").attention
    except DetokLensError:
        return None
    return float(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else np.inf


PAIRS = [(name, key) for name, spec in SPEC_OF.items() for key in sorted(spec.read_keys | spec.ignored)]
Random(0).shuffle(PAIRS)
FEW = 100


def test_a_changed_key_gives_the_attention_of_transformers_or_is_refused(tmp_path: Path) -> None:
    """Some pairs of model type and key; each at least once in `make fuzz`, with a value by chance."""
    folders, outcomes = Folders(tmp_path), Counter[str]()
    for number, random in enumerate(cases(len(PAIRS) if has_time() else FEW)):
        model_type, key = PAIRS[number % len(PAIRS)]
        value = random.choice(VALUES + SPECIFIC.get(key, []) * 3)
        found = difference(folders.with_config(model_type, key, value))
        assert found is None or found < 1e-9, f"case {number}: {model_type}, {key} = {value}: {found}"
        outcomes["refused" if found is None else "the same attention"] += 1
    tried = min(outcomes.total(), len(PAIRS))
    sys.stdout.write(f"{tried} of {len(PAIRS)} pairs of {len(SPEC_OF)} model types and their keys: {dict(outcomes)}\n")


def differing(model_type: str, root: Path, keys: Iterable[str] = ()) -> list[str]:
    """Every key of one model type, or some of them, with every value: the settings that differ from transformers."""
    folders, spec = Folders(root), SPEC_OF[model_type]
    found = []
    for key in keys or sorted(spec.read_keys | spec.ignored):
        for value in VALUES + SPECIFIC.get(key, []):
            distance = difference(folders.with_config(model_type, key, value))
            if distance is not None and not distance < 1e-9:
                found.append(f"{key} = {'absent' if value is ABSENT else repr(value)}: {distance:.2g}")
    return found


def test_a_key_that_is_wrongly_ignored_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert differing("llama", tmp_path, ["rms_norm_eps"]) == []
    wrong = replace(SPEC_OF["llama"], epsilon=1e-6, ignored=frozenset({"rms_norm_eps"}))
    monkeypatch.setitem(SPEC_OF, "llama", wrong)
    assert "rms_norm_eps = 0.5" in " ".join(differing("llama", tmp_path, ["rms_norm_eps"]))


@pytest.mark.parametrize(
    ("model_type", "key", "value", "is_read"),
    [
        ("opt", "scale_embedding", True, False),  # transformers ignores it
        ("opt", "scale_embedding", False, True),
        ("biogpt", "scale_embedding", False, True),
        ("biogpt", "word_embed_proj_dim", 7, False),
        ("mixtral", "rope_parameters", ABSENT, True),  # the base is 1,000,000 by default
        ("mixtral", "rms_norm_eps", ABSENT, True),
        ("phi3", "rope_scaling", ROPE[2], False),
        ("gpt_neox", "rope_theta", 50.0, True),  # transformers reads rotary_emb_base
        ("llama", "partial_rotary_factor", 0.5, False),
    ],
)
def test_keys_that_once_differed(tmp_path: Path, model_type: str, key: str, value: Any, is_read: bool) -> None:
    found = difference(Folders(tmp_path).with_config(model_type, key, value))
    assert (found is not None) == is_read
    assert found is None or found < 1e-9


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        sys.exit("\n".join(differing(sys.argv[1], Path(folder))) or 0)
