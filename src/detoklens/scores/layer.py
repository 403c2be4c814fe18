"""One checkpoint's first layer, ready to be asked: the object that `detoklens.load` returns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import RangeError, TokenError
from detoklens.scores.affinity import Affinity, token_affinity
from detoklens.scores.factors import Factors, factorise
from detoklens.scores.six_terms import head_outputs, six_terms
from detoklens.scores.terms import Terms
from detoklens.tokens import Vocabulary
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.folding import FoldedLayer, fold
from detoklens.weights.scale import ScaleTable

TokenScale = int | Literal["mean", "bare", "published"]
Numbers = Sequence[int] | Int[np.ndarray, "..."]
TokenIds = Sequence[int] | Int[np.ndarray, "query"]


class Layer:
    """The first attention layer of a checkpoint: its sizes, its tokens, its terms.

    Arrays go head, query, key. Nothing is computed before it is asked for; what is asked for once is kept.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.weights: FirstLayer = checkpoint.first_layer

    def __repr__(self) -> str:
        return (
            f"Layer({self.name!r}, n_heads={self.n_heads}, d_head={self.d_head}, d_model={self.d_model}, "
            f"vocab_size={self.vocab_size}, n_positions={self.n_positions})"
        )

    @property
    def name(self) -> str:
        return self.checkpoint.name

    @property
    def notes(self) -> tuple[str, ...]:
        """What reading the checkpoint left out or did without."""
        return self.checkpoint.notes

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the first layer's weights: two checkpoints with the same one give the same numbers."""
        return self.weights.fingerprint()

    @property
    def n_heads(self) -> int:
        return self.weights.query_weight.shape[1]

    @property
    def d_head(self) -> int:
        return self.weights.query_weight.shape[2]

    @property
    def d_model(self) -> int:
        return self.weights.query_weight.shape[0]

    @property
    def vocab_size(self) -> int:
        return len(self.weights.token_embeddings)

    @property
    def n_positions(self) -> int:
        return len(self.weights.position_embeddings)

    @property
    def attention_scale(self) -> float:
        """What scores are multiplied by before the softmax: 1/sqrt(d') in nearly every model."""
        return self.weights.attention_scale

    @property
    def has_vocabulary(self) -> bool:
        return self.checkpoint.vocabulary is not None

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer's vocabulary; an error where the checkpoint came without one."""
        if self.checkpoint.vocabulary is None:
            raise TokenError(
                f"{self.name} has no tokenizer: give token ids, or put its tokenizer.json beside the weights"
            )
        return self.checkpoint.vocabulary

    def token(self, token_id: int) -> str:
        """The text of a token; `<id 7>` where the checkpoint has no tokenizer."""
        self.check_tokens([token_id])
        return self.vocabulary.text(token_id) if self.has_vocabulary else f"<id {token_id}>"

    def token_id(self, text: str) -> int:
        """The id of the token that is exactly this text; an error that shows the pieces where it is several."""
        return self.vocabulary.id(text)

    @cached_property
    def folded(self) -> FoldedLayer:
        """The projections with LayerNorm folded in."""
        return fold(self.weights)

    @cached_property
    def factors(self) -> Factors:
        """The thin query and key factors of the whole vocabulary and of all positions."""
        return factorise(self.weights, self.folded)

    @cached_property
    def scales(self) -> ScaleTable:
        """σ of tokens and positions, their variances and means."""
        return ScaleTable(self.weights)

    def scale(self, position: int | Numbers, token: int | Numbers) -> Float[np.ndarray, "..."]:
        """σ(e_token + p_position), elementwise; `scales` has the means over positions and over tokens."""
        positions, tokens = np.broadcast_arrays(np.asarray(position, np.int64), np.asarray(token, np.int64))
        self.check_positions(positions.ravel())
        self.check_tokens(tokens.ravel())
        return self.scales.at(positions, tokens)

    @cached_property
    def _mean_token_scale(self) -> Float[np.ndarray, "token"]:
        return self.scales.mean_over_positions()

    @cached_property
    def _published_token_scale(self) -> Float[np.ndarray, "token"]:
        with np.errstate(over="ignore"):
            scales = self.scales.mean_over_positions(np.float16)
        if not np.isfinite(scales).all():
            raise RangeError("σ of some tokens is too large for float16, to which `published` rounds; take the mean")
        return scales

    def token_scale(self, over: TokenScale = "mean") -> Float[np.ndarray, "token"]:
        """One σ per token: its mean over positions, σ of the bare embedding, or σ at one position.

        `published` is the mean as the paper's published code has it, of σ rounded to float16.
        """
        if over == "mean":
            return self._mean_token_scale
        if over == "published":
            return self._published_token_scale
        if over == "bare":
            return self.scales.bare_tokens()
        self.check_positions([over])
        return self.scales.of_positions(slice(over, over + 1))[0]

    def terms(self, token_ids: TokenIds) -> Terms:
        """The six terms of a text, its first token at position 0."""
        ids = self.check_text(token_ids)
        return six_terms(self.weights, self.folded, ids, self._text_scales(ids))

    def attention_output(self, token_ids: TokenIds) -> Float[np.ndarray, "query d_model"]:
        """What layer 0's attention adds to the residual stream at each place of a text."""
        return self.head_outputs(token_ids).sum(axis=0) + self.folded.output_bias

    def head_outputs(self, token_ids: TokenIds) -> Float[np.ndarray, "head query d_model"]:
        """What each head of layer 0 writes, with its share of the value bias; b_O belongs to no head."""
        ids = self.check_text(token_ids)
        scales = self._text_scales(ids)
        attention = six_terms(self.weights, self.folded, ids, scales).attention()
        return head_outputs(self.weights, self.folded, ids, scales, attention)

    def token_affinity(self, scale: TokenScale | None = "mean", centred: bool = False) -> Affinity:
        """T^ee of the whole vocabulary as thin factors; scale=None leaves the division by σ out."""
        affinity = token_affinity(self.factors, None if scale is None else self.token_scale(scale))
        return affinity.centred() if centred else affinity

    def affinity(self, token_ids: TokenIds, scale: TokenScale | None = "mean") -> Float[np.ndarray, "head query key"]:
        """T^ee of these query tokens against the whole vocabulary."""
        ids = whole_numbers(token_ids)
        self.check_tokens(ids)
        return self.token_affinity(scale).scores(ids)

    def check_tokens(self, token_ids: Numbers) -> None:
        check_range("token id", token_ids, self.vocab_size)

    def check_positions(self, positions: Numbers) -> None:
        check_range("position", positions, self.n_positions)

    def check_heads(self, heads: Sequence[int]) -> None:
        check_range("head", heads, self.n_heads)

    def check_text(self, token_ids: TokenIds) -> Int[np.ndarray, "query"]:
        """The ids as an array, if they are a text that the model can read."""
        ids = whole_numbers(token_ids)
        if ids.ndim != 1 or not ids.size:
            raise RangeError("a text needs at least one token; give a list of token ids")
        if len(ids) > self.n_positions:
            raise RangeError(f"a text of {len(ids)} tokens is longer than the {self.n_positions} positions; shorten it")
        self.check_tokens(ids)
        return ids

    def _text_scales(self, ids: Int[np.ndarray, "query"]) -> Float[np.ndarray, "query"]:
        return self.scales.at(np.arange(len(ids)), ids)


def whole_numbers(token_ids: Any) -> Int[np.ndarray, "..."]:
    """Token ids as an array; text and fractions are refused rather than rounded."""
    ids = np.asarray(token_ids)
    if ids.size and ids.dtype.kind not in "iu":
        raise TokenError(f"token ids are whole numbers, not {ids.dtype}; `layer.vocabulary.encode(text)` gives them")
    return ids.astype(np.int64)


def check_range(what: str, values: Numbers, size: int) -> None:
    """Refuse numbers that name nothing: below 0, or not below the size."""
    wrong = [int(value) for value in values if not 0 <= value < size]
    if wrong:
        raise RangeError(f"{what} {wrong[0]} does not exist; {what}s go from 0 to {size - 1}")
