"""transformers' GPT-2 with a given first layer, and its attention logits: the oracle of the property tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from detoklens.weights.first_layer import FirstLayer
from tests.layers import gpt2_config, gpt2_tensors

if TYPE_CHECKING:
    from transformers import GPT2Model


def real_gpt2(layer: FirstLayer, dtype: torch.dtype = torch.float64, **config: Any) -> GPT2Model:
    """A one-layer GPT2Model holding these weights; whatever is not part of the first attention stays random."""
    from transformers import GPT2Config, GPT2Model  # takes seconds, which collecting tests should not

    settings = {name: value for name, value in gpt2_config(layer, **config).items() if name != "model_type"}
    model = GPT2Model(GPT2Config(**settings, attn_implementation="eager")).to(dtype).eval()
    tensors = {name: torch.from_numpy(values.copy()).to(dtype) for name, values in gpt2_tensors(layer, "").items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert all(".mlp." in name or "ln_" in name for name in missing)
    return model


def real_logits(model: GPT2Model, ids: list[int]) -> np.ndarray:
    """q · k of the real model's layer 0, with the key bias and before any division: [head, query, key]."""
    with torch.no_grad():
        states = model.wte(torch.tensor(ids)) + model.wpe(torch.arange(len(ids)))
        block = model.h[0]
        query, key, _ = block.attn.c_attn(block.ln_1(states)).split(model.config.n_embd, dim=-1)
        shape = (len(ids), model.config.n_head, -1)
        return (query.reshape(shape).transpose(0, 1) @ key.reshape(shape).permute(1, 2, 0)).numpy()


def real_attention_and_output(model: GPT2Model, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The real model's layer-0 attention [head, query, key] and what its attention writes [query, d_model]."""
    caught: dict[str, Any] = {}
    hook = model.h[0].attn.register_forward_hook(lambda _module, _inputs, outputs: caught.update(outputs=outputs))
    with torch.no_grad():
        model(torch.tensor([ids]))
    hook.remove()
    output, attention = caught["outputs"][:2]
    return attention[0].numpy(), output[0].numpy()
