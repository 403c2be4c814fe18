"""A GPT-2 with the same parameter names as transformers' GPT2LMHeadModel and no dropout.

It is reimplemented because a small model spends half its time in the output layer: the loss is computed and
differentiated in blocks of positions, so the full logits (tokens x vocabulary) are never in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-5
BLOCK = 256  # positions per block of logits: 4 MB at 4,096 tokens
INITIAL_SPREAD = 0.02


@dataclass(frozen=True)
class Shape:
    """Model size."""

    vocabulary: int
    context: int
    width: int
    heads: int
    layers: int


class Projection(nn.Module):
    """x W + b with W stored [in, out], as GPT-2's checkpoints do."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.c_attn = Projection(shape.width, 3 * shape.width)
        self.c_proj = Projection(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        windows, length, width = x.shape
        packed = self.c_attn(x).view(windows, length, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).reshape(windows, length, width))


class Feedforward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.c_fc = Projection(shape.width, 4 * shape.width)
        self.c_proj = Projection(4 * shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.width, eps=EPSILON)
        self.attn = Attention(shape)
        self.ln_2 = nn.LayerNorm(shape.width, eps=EPSILON)
        self.mlp = Feedforward(shape)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.wte = nn.Embedding(shape.vocabulary, shape.width)
        self.wpe = nn.Embedding(shape.context, shape.width)
        self.h = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.ln_f = nn.LayerNorm(shape.width, eps=EPSILON)

    def forward(self, ids: Tensor) -> Tensor:
        """The final vector of each position; its dot products with the token embeddings are the logits."""
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x)

    def logits(self, ids: Tensor) -> Tensor:
        return self(ids) @ self.wte.weight.T

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the next token, in nats."""
        final = self(ids).reshape(-1, self.shape.width)
        return _BlockedCrossEntropy.apply(final, self.wte.weight, targets.reshape(-1))


def initialise(model: GPT2, seed: int) -> None:
    """Initialize like GPT-2: normal with std 0.02, output projections divided by sqrt(2 layers), biases 0."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            shrink = (2 * model.shape.layers) ** -0.5 if name.endswith("c_proj.weight") else 1.0
            nn.init.normal_(parameter, std=INITIAL_SPREAD * shrink, generator=generator)


class _BlockedCrossEntropy(torch.autograd.Function):
    """mean_n (logsumexp_t(x_n·w_t) − x_n·w_target); its gradient, (softmax − onehot) / N, in the same pass.

    Every step is in place: with 4,096 logits per position, a copy costs as much as the exponentials.
    """

    @staticmethod
    def forward(ctx, x: Tensor, w: Tensor, targets: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        needs = any(ctx.needs_input_grad)
        dx, dw = (torch.empty_like(x), torch.zeros_like(w)) if needs else (None, None)
        total = x.new_zeros(())
        for start in range(0, len(x), BLOCK):
            rows, wanted = x[start : start + BLOCK], targets[start : start + BLOCK, None]
            logits = rows @ w.T
            logits -= logits.amax(1, keepdim=True)
            total -= logits.gather(1, wanted).sum()
            residual = logits.exp_()
            norm = residual.sum(1, keepdim=True)
            total += norm.log().sum()
            if needs:
                residual /= norm
                residual.scatter_add_(1, wanted, residual.new_full(wanted.shape, -1.0))
                torch.mm(residual, w, out=dx[start : start + BLOCK])
                dw.addmm_(residual.T, rows)
        ctx.gradients = (dx, dw, len(x))
        return total / len(x)

    @staticmethod
    def backward(ctx, upstream: Tensor):  # type: ignore[no-untyped-def]
        dx, dw, count = ctx.gradients
        return dx * (upstream / count), dw * (upstream / count), None
