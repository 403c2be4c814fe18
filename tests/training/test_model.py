"""Is the trained model transformers' GPT-2, and is its blocked loss the cross-entropy?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

from export import config_of, write_checkpoint
from model import BLOCK, GPT2, Shape, initialise

SHAPES = st.builds(
    lambda vocabulary, context, per_head, heads, layers: Shape(vocabulary, context, per_head * heads, heads, layers),
    st.integers(5, 70),
    st.integers(2, 20),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 3),
)


def lively(shape: Shape, seed: int) -> GPT2:
    """A model with no gain at 1 and no bias at 0."""
    model = GPT2(shape)
    initialise(model, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


def reference_of(model: GPT2) -> GPT2LMHeadModel:
    reference = GPT2LMHeadModel(GPT2Config(**config_of(model.shape, 0))).float().eval()
    named = {f"transformer.{name}": value for name, value in model.state_dict().items()}
    missing, unexpected = reference.load_state_dict(named, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    return reference


@settings(max_examples=25, deadline=None)
@given(SHAPES, st.integers(0, 1000))
def test_logits_are_those_of_transformers(shape: Shape, seed: int) -> None:
    model = lively(shape, seed).double()
    reference = reference_of(model.float()).double()
    ids = torch.randint(0, shape.vocabulary, (3, shape.context), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        torch.testing.assert_close(model.double().logits(ids), reference(ids).logits, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("positions", [3, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
def test_the_blocked_loss_and_its_gradients_are_the_cross_entropys(positions: int) -> None:
    model = lively(Shape(23, positions, 6, 3, 1), 5).double()
    ids, targets = torch.randint(0, 23, (2, 1, positions), generator=torch.Generator().manual_seed(1))
    blocked = model.loss(ids, targets)
    (3 * blocked).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    plain = functional.cross_entropy(model.logits(ids)[0], targets[0])
    (3 * plain).backward()
    torch.testing.assert_close(blocked, plain)
    torch.testing.assert_close(gradients, [parameter.grad for parameter in model.parameters()])


def test_large_logits_do_not_overflow() -> None:
    model = lively(Shape(11, 4, 6, 3, 1), 5)
    with torch.no_grad():
        model.ln_f.weight *= 1e4
    ids = torch.tensor([[1, 2, 3, 4]])
    expected = functional.cross_entropy(model.logits(ids)[0], ids[0])
    torch.testing.assert_close(model.loss(ids, ids), expected)


def test_a_model_starts_as_gpt2_does_and_as_its_seed_says() -> None:
    model, same, other = (GPT2(Shape(500, 64, 48, 3, 2)) for _ in range(3))
    for each, seed in ((model, 1), (same, 1), (other, 2)):
        initialise(each, seed)
    assert torch.equal(model.wte.weight, same.wte.weight)
    assert not torch.equal(model.wte.weight, other.wte.weight)
    assert model.wte.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.h[1].mlp.c_proj.weight.std().item() == pytest.approx(0.02 / 2, rel=0.05)
    assert not model.h[0].attn.c_attn.bias.any()


def test_the_exported_folder_loads_as_the_same_model(data: Path, tmp_path: Path) -> None:
    model = lively(Shape(300, 16, 12, 3, 2), 7)
    write_checkpoint(tmp_path / "out", model.state_dict(), model.shape, data / "tokenizer.json", 123)
    loaded, report = GPT2LMHeadModel.from_pretrained(tmp_path / "out", dtype=torch.float32, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    rounded = GPT2(model.shape)
    rounded.load_state_dict({name: value.half().float() for name, value in model.state_dict().items()})
    ids = torch.arange(16)[None] * 3
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, rounded.logits(ids), rtol=1e-4, atol=1e-4)
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.float16}
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["eos_token_id"] == 0
    assert not list(tmp_path.glob("*.part"))
