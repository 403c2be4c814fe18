"""GGUF files whose settings hold anything: one line, or the layer that the settings describe."""

from __future__ import annotations

import struct
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import gguf
import numpy as np
import pytest

import detoklens
from detoklens.errors import CheckpointError, DetokLensError
from detoklens.tokens import Vocabulary
from detoklens.weights import gguf_tokenizer
from detoklens.weights.gguf_tokenizer import gguf_vocabulary
from tests.fuzz.budget import cases
from tests.fuzz.memory import bounded_memory
from tests.weights.families.tiny import tiny
from tests.weights.gguf_files import write_gguf

LARGEST_GROWTH = 300_000  # kB
LONGEST_CASE = 20  # seconds of one case on a busy machine; a few ms are usual
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
PIECES = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefgh", "ab", "▁ab", "cd", "abcd"]
BYTES = [*"abcdefghĠ", "ab", "Ġab", "cd"]
MORE: dict[str, dict[str, Any]] = {
    "llama": {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": PIECES,
        "tokenizer.ggml.scores": [-float(rank) for rank in range(len(PIECES))],
        "tokenizer.ggml.token_type": [2, *[6] * 256, *[1] * (len(PIECES) - 257)],
        "llama.rope.scaling.type": "linear",
        "llama.rope.scaling.factor": 2.0,
    },
    "gpt2": {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": BYTES,
        "tokenizer.ggml.merges": ["a b", "Ġ ab", "c d"],
        "tokenizer.ggml.token_type": [1] * (len(BYTES) - 1) + [3],
    },
}
SIZES: dict[str, dict[str, int]] = {
    "llama": {
        "hidden_size": 16,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 8,
        "vocab_size": len(PIECES),
        "num_hidden_layers": 1,
        "max_position_embeddings": 12,
    },
    "gpt2": {"n_embd": 16, "n_head": 4, "vocab_size": len(BYTES), "n_layer": 1, "n_positions": 12},
}
OTHER_NAMES = ("tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_space_prefix", "general.alignment")
OF_A_LAYER = ("expert_count", "vocab_size", "rope.scaling.original_context_length", "rope.scaling.finetuned", "new")


class Parts:
    """A GGUF file taken apart: the bytes of each setting, of the list of tensors, and of the tensors."""

    def __init__(self, path: Path) -> None:
        reader, content = gguf.GGUFReader(path), path.read_bytes()
        fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
        starts = [*(field.offset for field in fields.values()), reader.tensors[0].field.offset]
        self.settings = {name: content[a:b] for name, a, b in zip(fields, starts, starts[1:], strict=False)}
        last = reader.tensors[-1].field
        end = last.offset + sum(part.nbytes for part in last.parts)
        self._n_tensors, self._list, self._data = len(reader.tensors), content[starts[-1] : end], reader.data_offset
        self._tensors = content[self._data :]

    def joined(self, settings: dict[str, bytes]) -> bytes:
        head = b"GGUF" + struct.pack("<IQQ", 3, self._n_tensors, len(settings))
        front = head + b"".join(settings.values()) + self._list
        return front + bytes(-len(front) % 32) + self._tensors


def text(content: str) -> bytes:
    raw = content.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw


def odd_scalar(random: Random, kind: int) -> bytes:
    if kind == STRING:
        return text(
            random.choice(["", "x", "llama", "gpt2", "linear", "\x1b[2J\r\n", "\u202e", "1", "a" * 5000, "nan"])
        )
    form = SCALARS[kind]
    if form in "fd":
        return struct.pack(f"<{form}", random.choice([0.0, -1.0, 1e-30, 3e38, float("nan"), float("inf"), 0.5, 16.0]))
    size = 8 * struct.calcsize(f"<{form}")
    chosen = random.choice([0, 1, 2, 3, 4, 16, 17, 2**31, 2**32 - 1, 2**62, 2**size - 1])
    return (chosen % 2**size).to_bytes(size // 8, "little")


def odd_value(random: Random) -> bytes:
    """A type and a value of it: one, or a list of none, some or many."""
    kind = random.choice([STRING, *SCALARS])
    if random.random() < 0.5:
        return struct.pack("<I", kind) + odd_scalar(random, kind)
    length = random.choice([0, 0, 1, 2, len(BYTES), len(PIECES), 1000])
    inner = random.choice([kind, kind, kind, ARRAY, 13, 99])
    values = b"".join(odd_scalar(random, kind) for _ in range(length))
    return struct.pack("<IIQ", ARRAY, inner, random.choice([length, length, length, length + 1, 2**63])) + values


def mutated(random: Random, architecture: str, parts: Parts) -> tuple[bytes, list[str]]:
    """The file with one to three settings changed, added or dropped, and which."""
    settings = dict(parts.settings)
    names = [*settings, *OTHER_NAMES, *(f"{architecture}.{name}" for name in OF_A_LAYER)]
    changed = random.sample(names, random.choice([1, 1, 1, 2, 3]))
    for name in changed:
        if random.random() < 0.1:
            settings.pop(name, None)
        else:
            settings[name] = text(name) + odd_value(random)
    return parts.joined(settings), changed


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Parts]:
    folder = tmp_path_factory.mktemp("whole")
    return {
        name: Parts(write_gguf(folder / f"{name}.gguf", tiny(name, **sizes), name, more=MORE[name]))
        for name, sizes in SIZES.items()
    }


def read(path: Path) -> detoklens.Layer:
    """Load it and ask it something of everything that its settings decide."""
    layer = detoklens.load(path)
    assert np.isfinite(layer.weights.token_embeddings).all()
    assert np.isfinite(layer.terms([0]).attention()).all()
    if layer.has_vocabulary:
        assert isinstance(layer.vocabulary, Vocabulary)
        assert all(0 <= token < layer.vocabulary.size for token in layer.vocabulary.encode("ab cd"))
        assert len(layer.vocabulary.texts()) == layer.vocabulary.size
    return layer


def is_without_effect(name: str) -> bool:
    return name.startswith("tokenizer.") or name.endswith(("block_count", ".finetuned", ".original_context_length"))


def test_settings_of_any_type_are_one_line_or_what_they_say(tmp_path, whole, capfd):
    path, outcomes = tmp_path / "m.gguf", Counter[str]()
    expected = {}
    for architecture, parts in whole.items():
        path.write_bytes(parts.joined(parts.settings))
        expected[architecture] = read(path).weights
    with bounded_memory(LARGEST_GROWTH):
        for number, random in enumerate(cases(400)):
            architecture = random.choice(list(whole))
            content, changed = mutated(random, architecture, whole[architecture])
            path.write_bytes(content)
            begun = time.process_time()
            try:
                found = read(path)
                outcomes["read"] += 1
                if all(map(is_without_effect, changed)):
                    rows = found.vocab_size
                    np.testing.assert_array_equal(
                        found.weights.token_embeddings, expected[architecture].token_embeddings[:rows]
                    )
                    np.testing.assert_array_equal(found.weights.query_weight, expected[architecture].query_weight)
            except DetokLensError as error:
                outcomes["refused" if len(str(error).splitlines()) == 1 else f"case {number}"] += 1
            except BaseException as error:
                raise AssertionError(f"case {number}, {changed}: {type(error).__name__}: {str(error)[:500]}") from error
            assert time.process_time() - begun < LONGEST_CASE, f"case {number}, {changed}"
    assert "panicked" not in capfd.readouterr().err
    sys.stdout.write(f"{dict(outcomes)}\n")
    assert set(outcomes) == {"read", "refused"}


@pytest.mark.parametrize(
    "name", ["general.architecture", "attention.key_length", "rope.dimension_count", "embedding_length"]
)
@pytest.mark.parametrize("value", [struct.pack("<IIQ", ARRAY, 4, 0), struct.pack("<IIQII", ARRAY, 4, 2, 4, 4)], ids=len)
def test_a_list_where_one_value_belongs_is_refused_by_name(tmp_path, whole, name, value):
    full = name if name.startswith("general.") else f"llama.{name}"
    (tmp_path / "m.gguf").write_bytes(whole["llama"].joined(whole["llama"].settings | {full: text(full) + value}))
    with pytest.raises(DetokLensError, match=rf"m\.gguf: the setting '{full}' must be (text|a whole number)"):
        detoklens.load(tmp_path / "m.gguf")


def test_merges_of_a_token_of_two_megabytes_are_refused_at_once():
    settings = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "a" * 2_000_000]}
    with pytest.raises(
        CheckpointError, match="its longest token has 2,000,000 characters: too many to look for merges"
    ):
        gguf_vocabulary(settings)


def test_more_merges_than_fit_into_memory_are_refused(monkeypatch):
    monkeypatch.setattr(gguf_tokenizer, "MOST_MERGES", 3)
    tokens = ["a" * length for length in range(1, 5)]
    with pytest.raises(CheckpointError, match="its tokens have more than 3 merges"):
        gguf_vocabulary({"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens})
