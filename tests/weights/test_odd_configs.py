"""config.json from strangers: any key and value is refused in one short line, or read as it is meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import detoklens
from detoklens.errors import LONGEST_MESSAGE, DetokLensError
from tests.layers import gpt2_config, random_first_layer, write_gpt2


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_gpt2(tmp_path, random_first_layer())


def refusal(folder: Path, text: str) -> str:
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(DetokLensError) as caught:
        detoklens.load(folder)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) <= LONGEST_MESSAGE
    return message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rope_\x1b[2J\nscaling", 1),
        ("rope_scaling", "\x1b]0;owned\x07"),
        ("rope_scaling" + "g" * 1_000_000 + "_norm", 1),
        ("rope_scaling", "x" * 50_000_000),
        ("n_embd", ["x" * 1000] * 1000),
        ("model_type", "\u202e" * 5000),
        ("layer_norm_epsilon", {"\r": "\x9b31m"}),
        ("scale_attn_weights", [[[[[["deep"] * 99] * 99]]]]),
    ],
    ids=lambda value: None if isinstance(value, int) else f"{str(value)[:20]!r}",
)
def test_keys_and_values_are_quoted_in_one_short_line(folder, name, value):
    refusal(folder, json.dumps(gpt2_config(random_first_layer()) | {name: value}))


def test_a_value_as_deep_as_can_be_parsed_is_one_line(folder):
    """What the parser takes at one depth of the stack, writing it out at another would not."""
    config = json.dumps(gpt2_config(random_first_layer()))
    for depth in range(900, 1000):
        refusal(folder, config.replace("{", f'{{"rope_scaling": {"[" * depth}{"]" * depth}, ', 1))


@pytest.mark.parametrize(
    ("name", "alias", "value"),
    [
        ("n_head", "num_attention_heads", 4),
        ("n_embd", "hidden_size", 24),
        ("n_positions", "max_position_embeddings", 5),
    ],
)
def test_two_names_of_one_size_must_agree(folder, name, alias, value):
    """transformers takes the one that comes last: four heads where three were meant are other heads."""
    config = gpt2_config(random_first_layer())
    line = refusal(folder, json.dumps(config | {alias: value}))
    assert f"contradicts itself: {name} = {config[name]}, {alias} = {value} mean the same" in line
    (folder / "config.json").write_text(json.dumps(config | {alias: config[name]}))
    assert detoklens.load(folder).n_heads == 3


def test_a_name_that_stands_twice_is_refused(folder):
    config = json.dumps(gpt2_config(random_first_layer()))
    assert "the name 'n_head' occurs twice" in refusal(folder, config.replace("{", '{"n_head": 4, ', 1))


def test_a_config_of_many_megabytes_is_not_parsed(folder):
    assert "12,000,002 bytes is too large for a config" in refusal(folder, "[" + "{}," * 4_000_000 + "]")
