"""In every condition the block's output is that of transformers with the same intervention by hooks, to 1e-9.

The real softmax is hooked: a link is cut in its weights, a term is taken from its logits. What stands at the last place
of [BOS, p₁, …, p_k] after the real attention and the real block is compared with the closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import detoklens
from detoklens.measures.twins import ClosedWorld, control_pieces, exchanged_first
from detoklens.model.first_blocks import in_double_precision, load_blocks
from detoklens.scores.block import LastPlace
from detoklens.scores.layer import Layer
from detoklens.weights.families import spec_of
from tests.weights.families.test_alibi import bloom
from tests.weights.families.test_bert import SIZES as BERT
from tests.weights.families.test_gemma import SIZES as GEMMA
from tests.weights.families.test_gpt_neox import SIZES as NEOX
from tests.weights.families.test_llama import SIZES as LLAMA
from tests.weights.families.tiny import tiny

GPT2 = {"n_embd": 15, "n_head": 3, "n_layer": 1, "n_positions": 9, "vocab_size": 29, "layer_norm_epsilon": 0.02}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 0}
MODELS = {
    "gpt2": lambda: tiny("gpt2", **GPT2),
    "llama": lambda: tiny("llama", **LLAMA, attention_bias=True),
    "qwen3": lambda: tiny("qwen3", **LLAMA),
    "gpt_neox": lambda: tiny("gpt_neox", **NEOX, rotary_pct=0.5),
    "bloom": lambda: bloom(3),
    "bert": lambda: tiny("bert", **BERT),
    "gemma2": lambda: tiny("gemma2", **GEMMA, attn_logit_softcapping=None, sliding_window=3),
}
WORDS = {2: [[7, 3], [11, 7]], 4: [[7, 3, 9, 4], [11, 7, 2, 7]]}
CASES = [*((family, 2) for family in MODELS), ("gpt2", 4), ("llama", 4), ("gemma2", 4)]
BOS = 1

Edit = Callable[[torch.Tensor], torch.Tensor]


class Real:
    """transformers' own first layer in float64, its softmax edited before and after."""

    def __init__(self, model: Any, layer: Layer) -> None:
        place = spec_of(layer.checkpoint.config)
        self.model = load_blocks(model, 1, torch.float64).model
        self.caught: dict[str, torch.Tensor] = {}
        block = self.model.get_submodule(place.blocks)[0]
        block.register_forward_hook(self._catch("block"))
        block.get_submodule(place.projections.modules[-1]).register_forward_hook(self._catch("attention"))

    def _catch(self, name: str) -> Any:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            found = output[0] if isinstance(output, tuple) else output
            self.caught[name] = found.reshape(-1, found.shape[-1])[-1]

        return hook

    def last_place(self, ids: list[int], logits: Edit, weights: Edit) -> dict[str, np.ndarray]:
        softmax, inside = torch.nn.functional.softmax, []

        def edited(scores: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
            if inside:  # torch's function calls itself by its name
                return softmax(scores, *arguments, **named)
            inside.append(True)
            found = weights(softmax(logits(scores), *arguments, **named))
            inside.clear()
            return found

        with pytest.MonkeyPatch.context() as patch, torch.no_grad():
            patch.setattr(torch.nn.functional, "softmax", edited)
            self.model(torch.tensor([ids]))
        return {name: found.numpy() for name, found in self.caught.items()}


def edits(layer: Layer, ids: list[int], condition: str) -> tuple[Edit, Edit]:
    """What the condition does to the real model's logits and attention weights."""
    kind, _, what = condition.partition("_")
    if kind == "cut":
        head = int(what.removeprefix("L0H"))

        def cut(attention: torch.Tensor) -> torch.Tensor:
            attention = attention.clone()
            attention[:, head, -1, 1:-1] = 0
            return attention

        return torch.clone, cut
    if kind not in ("without", "only"):
        return torch.clone, torch.clone
    terms = layer.terms(ids, mean=None if layer.positions == "learned" else "vocabulary")
    taken = [name for name in terms.names if (name == what) == (kind == "without")]
    part = torch.from_numpy(sum(terms.full(name) for name in taken) * layer.attention_scale)
    return lambda scores: scores - part, torch.clone


@pytest.mark.parametrize(("family", "pieces"), CASES)
def test_every_condition_equals_the_real_model_with_the_same_intervention(family, pieces):
    model = MODELS[family]()
    layer = detoklens.load(model, dtype="float64")
    world = ClosedWorld.of(layer, (BOS,), layer.mlp_sublayer)
    words = np.array(WORDS[pieces])
    texts = control_pieces(words, exchanged_first(words, seed=0))
    conditions = {name: (some, LastPlace.attention) for name, some in texts.items()}
    conditions |= {name: (words, look) for name, look in world.ablations(range(layer.n_heads)).items()}
    assert list(conditions) == names(layer)
    kept: dict[int, LastPlace] = {}
    with in_double_precision():
        real = Real(model, layer)
        for name, (some, look) in conditions.items():
            ours = {
                place: world.vectors(some, place, look, kept=kept if some is words else None) for place in world.places
            }
            for row, chain in enumerate(some.tolist()):
                theirs = real.last_place([BOS, *chain], *edits(layer, [BOS, *chain], name))
                assert_close(ours["block"][row], theirs["block"], name)
                if has_plain_stream(layer):
                    stream = stream_of(layer, chain[-1], len(chain))
                    assert_close(ours["attention"][row], stream + theirs["attention"], name)
    (seen,) = kept.values()
    arrays = (seen.stream, seen.values, *seen.parts.values())
    assert world.ablation_bytes(len(words), words.shape[1]) == 2 * sum(array.nbytes for array in arrays)


def has_plain_stream(layer: Layer) -> bool:
    """Whether the stream between attention and MLP is what entered and what the attention wrote, with no norm."""
    return layer.mlp_sublayer.attention_norm is None and not layer.weights.norm_enters_stream


def stream_of(layer: Layer, token: int, place: int) -> np.ndarray:
    stream = layer.weights.token_embeddings[token]
    return stream + layer.weights.position_embeddings[place] if layer.positions == "learned" else stream


def names(layer: Layer) -> list[str]:
    terms = list(layer.term_meanings)
    heads = [f"cut_L0H{head}" for head in range(layer.n_heads)]
    by_term = [f"{kind}_{term}" for kind in ("without", "only") for term in terms]
    return ["whole", "null", "last_piece", "first_piece", *heads, *by_term]


def assert_close(ours: np.ndarray, theirs: np.ndarray, condition: str) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * max(1, np.abs(theirs).max()), err_msg=condition)
