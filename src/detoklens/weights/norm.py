"""The norms that models have: LayerNorm, RMSNorm, or none.

LayerNorm:  (x − mean x) / sqrt(Var x + ε) · γ + β          RMSNorm:  x / sqrt(mean x² + ε) · γ
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

NormKind = Literal["layer", "rms", "none"]


@dataclass(frozen=True)
class Norm:
    """One norm with its numbers; a gain that a checkpoint stores as 1 + w is the whole gain here."""

    kind: NormKind
    gain: Float[np.ndarray, "d_norm"]
    bias: Float[np.ndarray, "d_norm"] | None
    epsilon: float

    def __call__(self, vectors: Float[np.ndarray, "*rows d_norm"]) -> Float[np.ndarray, "*rows d_norm"]:
        if self.kind == "none":
            return vectors
        centred = vectors - vectors.mean(axis=-1, keepdims=True) if self.kind == "layer" else vectors
        scale = np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + vectors.dtype.type(self.epsilon))
        normed = centred / scale * self.gain
        return normed if self.bias is None else normed + self.bias
