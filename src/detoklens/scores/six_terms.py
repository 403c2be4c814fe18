"""The six terms of one text, from the folded layer (see `terms` for the equations), and what heads write."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from detoklens.scores.factors import for_each_head, project
from detoklens.scores.terms import MEANINGS, Term, Terms
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.folding import FoldedLayer


def six_terms(
    layer: FirstLayer,
    folded: FoldedLayer,
    token_ids: Int[np.ndarray, "query"],
    scales: Float[np.ndarray, "query"],
) -> Terms:
    """All six terms for a text whose first token stands at position 0; `scales` is σ of each of its places."""
    tokens = layer.token_embeddings[token_ids] / scales[:, None]
    positions = layer.position_embeddings[: len(token_ids)] / scales[:, None]
    query_token, query_position = (
        project(tokens, folded.query_weight),
        project(positions, folded.query_weight),
    )
    key_token, key_position = project(tokens, folded.key_weight), project(positions, folded.key_weight)
    parts: dict[str, np.ndarray] = {
        Term.EE: query_token @ key_token.transpose(0, 2, 1),
        Term.PP: query_position @ key_position.transpose(0, 2, 1),
        Term.PE: query_position @ key_token.transpose(0, 2, 1),
        Term.EP: query_token @ key_position.transpose(0, 2, 1),
        Term.E: np.einsum("hk,hjk->hj", folded.query_bias, key_token),
        Term.P: np.einsum("hk,hjk->hj", folded.query_bias, key_position),
    }
    return Terms(parts, layer.attention_scale, layer.is_causal, layer.window, layer.softcap, MEANINGS["learned"])


def head_outputs(
    layer: FirstLayer,
    folded: FoldedLayer,
    inputs: Float[np.ndarray, "query d_model"],
    attention: Float[np.ndarray, "head query key"],
) -> Float[np.ndarray, "head query d_model"]:
    """What each head writes: (Σ_j α[h,i,j] (x_j / σ_j) W̃_V[h] + b̃_V[h]) W_O[h]; `inputs` are the x / σ.

    The sum over heads plus b_O is the layer's output Σ_h Σ_j α (x_j / σ_j) W_VO + b_VO, since Σ_j α = 1.
    """
    values = for_each_head(project(inputs, folded.value_weight), layer)
    mixed = attention @ values + for_each_head(folded.value_bias[:, None], layer)
    return mixed @ folded.output_weight
