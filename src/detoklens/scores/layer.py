"""A checkpoint's first layer: the object that `detoklens.load` returns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from detoklens.errors import RangeError, TokenError, UnsupportedModelError, shown
from detoklens.scores.affinity import Affinity, subtract_mean, token_affinity
from detoklens.scores.block import block_input, block_output
from detoklens.scores.factors import (
    Common,
    Mean,
    Side,
    TokenFactors,
    for_each_head,
    key_head_of,
    key_side,
    project,
    query_side,
    rotated_by_offset,
)
from detoklens.scores.softmax import check_finite_scores
from detoklens.scores.terms import MEANINGS, Terms, kernel, text_terms
from detoklens.scores.token_ids import Numbers, check_range, id_lists, whole_numbers
from detoklens.scores.untrained import impossible_tokens, untrained_tokens
from detoklens.tokens import Vocabulary
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.first_layer import FirstLayer, FoldedLayer, MlpSublayer, Positions, fold
from detoklens.weights.scale import ScaleTable

TokenScale = int | Literal["mean", "bare", "published"]
TokenIds = str | Sequence[int] | Int[np.ndarray, "query"] | Any
"""A text, or its token ids: a list, an array, a tensor of one row, or what a transformers tokenizer returns."""

MOST_KEPT = 1 << 28  # bytes of factors


class Layer:
    """The first attention layer of a checkpoint: its sizes, tokens and terms.

    Arrays are indexed head, query, key. Results are computed on first use and cached.

    Parameters
    ----------
    checkpoint
        The checkpoint that `detoklens.load` has read.
    all_tokens
        Include special and untrained tokens, and those that no text contains, in means, candidates and rankings.

    Examples
    --------
    >>> import detoklens as dl
    >>> layer = dl.load("demo")
    >>> layer.n_heads, layer.vocab_size
    (4, 4096)
    >>> layer.terms("the priest was descending").attention().shape
    (4, 6, 6)
    """

    def __init__(self, checkpoint: Checkpoint, all_tokens: bool = False) -> None:
        self.checkpoint = checkpoint
        self.weights: FirstLayer = checkpoint.first_layer
        self.frequencies: Float[np.ndarray, "token"] | None = None
        self.all_tokens = all_tokens
        self._factors: dict[tuple[str, int], Float[np.ndarray, "token d_head"]] = {}
        self._token_scales: dict[str, Float[np.ndarray, "token"]] = {}

    def __repr__(self) -> str:
        return (
            f"Layer({self.name!r}, n_heads={self.n_heads}, d_head={self.d_head}, d_model={self.d_model}, "
            f"vocab_size={self.vocab_size}, n_positions={self.n_positions})"
        )

    @property
    def name(self) -> str:
        """The model's name: a folder, a file, a hub id or `demo`."""
        return self.checkpoint.name

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out or missing when the checkpoint was read."""
        return self.checkpoint.notes

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the first layer's weights: equal fingerprints give equal numbers."""
        return self.weights.fingerprint()

    @cached_property
    def tokenizer_fingerprint(self) -> str | None:
        """sha256 of the tokenizer; None without one."""
        if not self.has_vocabulary:
            return None
        return hashlib.sha256(self.vocabulary.to_json().encode()).hexdigest()

    @property
    def n_heads(self) -> int:
        """Number of heads."""
        return self.weights.query_weight.shape[1]

    @property
    def d_head(self) -> int:
        """Dimension of a head's queries and keys, d'."""
        return self.weights.query_weight.shape[2]

    @property
    def d_model(self) -> int:
        """Dimension of the residual stream."""
        return self.weights.query_weight.shape[0]

    @property
    def vocab_size(self) -> int:
        """Number of rows of the token embeddings."""
        return len(self.weights.token_embeddings)

    @property
    def n_positions(self) -> int:
        """The longest text in tokens: the rows of the position table, or the config's limit."""
        return self.weights.n_positions

    @property
    def has_vocabulary(self) -> bool:
        """Whether the checkpoint has a tokenizer."""
        return self.checkpoint.vocabulary is not None

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer's vocabulary; an error if the checkpoint has none."""
        if self.checkpoint.vocabulary is None:
            raise TokenError(
                f"{self.name} has no tokenizer; pass token ids, or its tokenizer: load(model, tokenizer=…)"
            )
        return self.checkpoint.vocabulary

    def with_frequencies(self, frequencies: Sequence[float] | np.ndarray) -> Layer:
        """Copy the layer and add token frequencies, by which `mean="frequency"` weights tokens.

        Parameters
        ----------
        frequencies
            A number per token, such as its count.

        Returns
        -------
        Layer
            The copy; it shares the weights.
        """
        other = copy(self)
        other.frequencies = np.asarray(frequencies, np.float64)
        return other

    @property
    def positions(self) -> Positions:
        """Kind of positions: `learned` vectors, `rotary` angles or `alibi` slopes."""
        return self.weights.positions

    @property
    def is_causal(self) -> bool:
        """Whether a token sees only itself and earlier tokens."""
        return self.weights.is_causal

    @cached_property
    def has_biases(self) -> bool:
        """Whether queries, or keys if it matters, have a part that is the same for every token."""
        return not self.common_part(None).is_nothing

    @property
    def term_meanings(self) -> Mapping[str, str]:
        """The meaning of each term; without biases and without a mean, rotary models have only `ee`."""
        return MEANINGS[self.positions]

    @property
    def attention_scale(self) -> float:
        """The factor on scores before the softmax: 1/sqrt(d') in nearly every model."""
        return self.weights.attention_scale

    def token(self, token_id: int) -> str:
        """Return the text of a token.

        Parameters
        ----------
        token_id
            The token's id.

        Returns
        -------
        str
            Its text, or `<id 7>` without a tokenizer.

        Examples
        --------
        >>> import detoklens as dl
        >>> dl.load("demo").token(262)
        ' w'
        """
        self.check(tokens=[token_id])
        return self.vocabulary.text(token_id) if self.has_vocabulary else f"<id {token_id}>"

    def token_id(self, token: str | int) -> int:
        """Return the id of the token with exactly this text.

        Parameters
        ----------
        token
            The text, with its leading space if it has one. An id is returned unchanged.

        Returns
        -------
        int
            The id.

        Raises
        ------
        TokenError
            The text is not a single token (the message shows its pieces), or the model has no such id.

        Examples
        --------
        >>> import detoklens as dl
        >>> layer = dl.load("demo")
        >>> layer.token(layer.token_id("ion"))
        'ion'
        """
        if isinstance(token, str):
            return self.vocabulary.id(token)
        self.check(tokens=[token])
        return int(token)

    @cached_property
    def untrained(self) -> Bool[np.ndarray, "token"]:
        """Tokens that training barely changed (see `untrained_tokens`); none without a tokenizer."""
        return untrained_tokens(self.weights.token_embeddings, self.impossible)

    @cached_property
    def impossible(self) -> Bool[np.ndarray, "token"]:
        """Tokens that no text contains (see `impossible_tokens`); none without a tokenizer."""
        if not self.has_vocabulary:
            return np.zeros(self.vocab_size, bool)
        return impossible_tokens(self.vocabulary, self.vocab_size)

    @cached_property
    def special(self) -> Bool[np.ndarray, "token"]:
        """The tokenizer's special tokens and its unknown token; none without a tokenizer."""
        apart = self.vocabulary.apart if self.has_vocabulary else ()
        return np.isin(np.arange(self.vocab_size), list(apart))

    @cached_property
    def meaningful_tokens(self) -> Int[np.ndarray, "token"]:
        """Ids of the tokens that means, candidates and rankings are about.

        They are neither special nor untrained, and a text can contain them: MiniLM's `[unused80]` was trained for
        some purpose, but occurs in no text. All of them with `all_tokens`.
        """
        if self.all_tokens:
            return np.arange(self.vocab_size)
        kept = ~(self.untrained | self.impossible | self.special)
        return np.flatnonzero(kept) if kept.any() else np.arange(self.vocab_size)

    @cached_property
    def folded(self) -> FoldedLayer:
        """The projections with the norm folded in."""
        return fold(self.weights)

    def token_factors(self, head: int) -> TokenFactors:
        """One head's query and key factors of the whole vocabulary; heads that share keys share the array.

        Queries are kept up to 256 MB: projecting them again takes about a hundredth of the time of their scores.

        Parameters
        ----------
        head
            The head, from 0.

        Returns
        -------
        TokenFactors
            `query` and `key`, each [token, d_head], before the division by σ.
        """
        return TokenFactors(self._factor("query", head), self._factor("key", key_head_of(head, self.weights)))

    def _factor(self, side: Literal["query", "key"], head: int) -> Float[np.ndarray, "token d_head"]:
        factor = self._factors.get((side, head))
        if factor is None:
            projection = self.sides[side == "key"]
            factor = projection.of_vocabulary(self.weights.token_embeddings, self.scales.bare_tokens, head)
            if side == "key" or sum(each.nbytes for each in self._factors.values()) < MOST_KEPT:
                self._factors[side, head] = factor
        return factor

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        """The query and the key projection."""
        return query_side(self.weights, self.folded), key_side(self.weights, self.folded)

    @cached_property
    def scales(self) -> ScaleTable:
        """σ of tokens and positions, their variances and means."""
        return ScaleTable(self.weights)

    def scale(self, position: int | Numbers, token: int | Numbers) -> Float[np.ndarray, "..."]:
        """σ(e_token + p_position), elementwise; `scales` has the means over positions and over tokens.

        Parameters
        ----------
        position
            One or several positions, from 0.
        token
            One or several token ids, broadcast against the positions.

        Returns
        -------
        numpy.ndarray
            σ of each pair.

        Raises
        ------
        RangeError
            The model has no such position or token.

        Examples
        --------
        >>> import detoklens as dl
        >>> dl.load("demo").scale(position=[0, 1, 2], token=7).shape
        (3,)
        """
        positions, tokens = np.broadcast_arrays(np.asarray(position, np.int64), np.asarray(token, np.int64))
        self.check(positions=positions.ravel(), tokens=tokens.ravel())
        return self.scales.at(positions, tokens)

    def token_scale(self, over: TokenScale = "mean") -> Float[np.ndarray, "token"]:
        """One σ per token.

        Parameters
        ----------
        over
            ``"mean"`` for the mean over positions, ``"published"`` for the mean of σ rounded to float16 (as in the
            paper's published code), ``"bare"`` for σ of the embedding alone, or a position.

        Returns
        -------
        numpy.ndarray
            σ by token.

        Raises
        ------
        RangeError
            The model has no such position, or ``"published"`` overflows float16.
        """
        if over == "bare":
            return self.scales.bare_tokens()
        if not isinstance(over, str):
            self.check(positions=[over])
            return self.scales.of_positions(slice(over, over + 1))[0]
        if over not in self._token_scales:
            with np.errstate(over="ignore"):
                found = self.scales.mean_over_positions(np.float16 if over == "published" else None)
            if over == "published" and not np.isfinite(found).all():
                raise RangeError("σ of some tokens is too large for float16, to which `published` rounds; use `mean`")
            self._token_scales[over] = found
        return self._token_scales[over]

    def terms(self, token_ids: TokenIds, mean: Mean = None) -> Terms:
        """Compute the terms of a text that starts at position 0.

        Learned positions have six terms, ALiBi at most three, rotary positions at most four.

        Parameters
        ----------
        token_ids
            A text, or its token ids: a list, an array, a tensor of one row, or what a transformers tokenizer returns.
        mean
            For rotary and ALiBi positions, what is split off as common to all tokens: their biases (None), or the mean
            query and key over the ``"vocabulary"`` (its `meaningful_tokens`), by ``"frequency"`` (for a layer with
            frequencies, such as that of a study with counts), or with an array of weights, one per token.

        Returns
        -------
        Terms
            The terms, their sum and its softmax.

        Raises
        ------
        RangeError
            The text is empty, too long, or has an unknown token id.
        UnsupportedModelError
            `mean` was given for a model with learned positions.

        Examples
        --------
        >>> import detoklens as dl
        >>> terms = dl.load("demo").terms("the priest was descending")
        >>> terms.names
        ('ee', 'pp', 'pe', 'ep', 'e', 'p')
        >>> terms.ee.shape  # head, query, key
        (4, 6, 6)
        """
        ids = self.check_text(token_ids)
        return text_terms(self, ids, self.common_part(mean))

    def kernel(self, offsets: Numbers, mean: Mean = "vocabulary") -> Float[np.ndarray, "head offset"]:
        """The position kernel of rotary and ALiBi positions: the score as a function of i − j alone, not yet scaled.

        Parameters
        ----------
        offsets
            Offsets i − j; negative ones only in bidirectional models.
        mean
            What queries and keys have in common, as in `terms`.

        Returns
        -------
        numpy.ndarray
            The kernel, [head, offset].

        Raises
        ------
        RangeError
            An offset is beyond the model's length.
        UnsupportedModelError
            The model has learned positions.
        """
        if self.positions == "learned":
            raise UnsupportedModelError(
                f"{self.name} has learned positions, which are not a function of the offset; use `terms`"
            )
        asked = whole_numbers(offsets)
        for offset in asked:
            self._check_offset(int(offset))
        return kernel(self.weights, self.common_part(mean), asked)

    def attention_output(self, token_ids: TokenIds) -> Float[np.ndarray, "query d_model"]:
        """What layer 0's attention adds to the residual stream at each position of a text.

        Parameters
        ----------
        token_ids
            A text or its token ids, as in `terms`.

        Returns
        -------
        numpy.ndarray
            The output, [query, d_model].

        Examples
        --------
        >>> import detoklens as dl
        >>> dl.load("demo").attention_output("the priest was descending").shape
        (6, 128)
        """
        return self.head_outputs(token_ids).sum(axis=0) + self.folded.output_bias

    def head_outputs(self, token_ids: TokenIds) -> Float[np.ndarray, "head query d_model"]:
        """Each head's output: (Σ_j α[h,i,j] (x_j / σ_j) W̃_V[h] + b̃_V[h]) W_O[h]; b_O belongs to no head.

        The sum over heads plus b_O is the layer's output, since Σ_j α = 1.

        Parameters
        ----------
        token_ids
            A text or its token ids, as in `terms`.

        Returns
        -------
        numpy.ndarray
            The outputs, [head, query, d_model].
        """
        ids = self.check_text(token_ids)
        positions = np.arange(len(ids))
        inputs = block_input(self.weights, ids, positions) / self.scales.at(positions, ids)[:, None]
        values = for_each_head(project(inputs, self.folded.value_weight), self.weights)
        mixed = self.terms(ids).attention() @ values + for_each_head(self.folded.value_bias[:, None], self.weights)
        return mixed @ self.folded.output_weight

    @cached_property
    def mlp_sublayer(self) -> MlpSublayer:
        """The first block's second norm and MLP, read on first use."""
        return self.checkpoint.read_mlp()

    def block_output(self, token_ids: TokenIds) -> Float[np.ndarray, "query d_model"]:
        """The residual stream after the first block, at each position of a text.

        Parameters
        ----------
        token_ids
            A text or its token ids, as in `terms`.

        Returns
        -------
        numpy.ndarray
            The residual stream, [query, d_model].

        Raises
        ------
        CheckpointError, UnsupportedModelError
            The MLP is missing from the checkpoint or not supported.
        """
        ids = self.check_text(token_ids)
        rest = self.mlp_sublayer  # before the attention is computed: it may be missing
        stream = block_input(self.weights, ids, np.arange(len(ids)))
        return block_output(self.weights, rest, stream, self.attention_output(ids))

    def token_affinity(
        self,
        scale: TokenScale | None = "mean",
        centred: bool = False,
        heads: Sequence[int] | None = None,
        *,
        offset: int = 1,
        mean: Mean = None,
        queries: Sequence[int] | None = None,
    ) -> Affinity:
        """Tᵉᵉ of the whole vocabulary as thin factors.

        Memory and time grow with the number of heads, and are much smaller for a few `queries`.

        Parameters
        ----------
        scale
            σ to divide by, as in `token_scale`; None leaves out the division.
        centred
            Subtract each key's mean over all query tokens.
        heads
            Heads to include; all by default.
        offset
            Offset i − j, for rotary positions.
        mean
            Mean query and key to subtract, as in `terms`.
        queries
            Ids of the query tokens; all by default.

        Returns
        -------
        Affinity
            Query and key factors; their product is the score.

        Raises
        ------
        RangeError
            The model has no such head or offset.
        """
        heads = range(self.n_heads) if heads is None else heads
        self.check(heads=heads)
        if self.positions == "rotary":
            self._check_offset(offset)
        embeddings, bare_scales = self.weights.token_embeddings, self.scales.bare_tokens
        some = None if centred or mean is not None else queries  # a mean is over all queries
        affinity = token_affinity(
            (
                self._factor("query", head)
                if some is None
                else self.sides[0].of_vocabulary(embeddings, bare_scales, head, some)
                for head in heads
            ),
            lambda key_head: self._factor("key", key_head),
            [key_head_of(head, self.weights) for head in heads],
            self._divisors(scale),
            some,
        )
        if mean is not None:
            affinity = affinity.less_means(self.token_shares(mean))
        if self.positions == "rotary":
            for query in affinity.query:
                query[:] = rotated_by_offset(self.weights, query, offset)
        affinity = affinity.centred() if centred else affinity
        if some is None and queries is not None:
            affinity = replace(affinity, query=affinity.query[:, list(queries)])
        return affinity

    def affinity(
        self, token_ids: TokenIds, scale: TokenScale | None = "mean", *, offset: int = 1, mean: Mean = None
    ) -> Float[np.ndarray, "head query key"]:
        """Tᵉᵉ of some query tokens against the whole vocabulary.

        Parameters
        ----------
        token_ids
            Ids of the query tokens.
        scale, offset, mean
            As in `token_affinity`.

        Returns
        -------
        numpy.ndarray
            The scores, [head, query, key].

        Raises
        ------
        RangeError
            The model has no such token or offset.

        Examples
        --------
        >>> import detoklens as dl
        >>> layer = dl.load("demo")
        >>> scores = layer.affinity([layer.token_id("ion")])
        >>> layer.token(int(scores[1, 0].argmax()))  # the best key in head 1
        ' interrupt'
        """
        ids = self._one_text(token_ids)
        self.check(tokens=ids)
        return self.token_affinity(scale, offset=offset, mean=mean, queries=ids.tolist()).scores(np.arange(len(ids)))

    def token_assertion(
        self,
        scale: TokenScale | None = "mean",
        heads: Sequence[int] | None = None,
        *,
        offset: int = 1,
        mean: Mean = None,
    ) -> Float[np.ndarray, "head token"]:
        """Tᵉ of the whole vocabulary: how strongly every query prefers each token.

        Parameters
        ----------
        scale, heads, offset, mean
            As in `token_affinity`.

        Returns
        -------
        numpy.ndarray
            Tᵉ, [head, token].
        """
        heads = list(range(self.n_heads) if heads is None else heads)
        self.check(heads=heads)
        if self.positions == "rotary":
            self._check_offset(offset)
        keys = self.token_keys(scale, mean=mean)
        asking = rotated_by_offset(self.weights, self.common_part(mean).query[heads], offset)
        own = [key_head_of(head, self.weights) for head in heads]
        return check_finite_scores("Tᵉ", np.stack([keys[key] @ query for key, query in zip(own, asking, strict=True)]))

    def token_keys(
        self, scale: TokenScale | None = "mean", *, mean: Mean = None
    ) -> Float[np.ndarray, "key_head token d_head"]:
        """The keys of Tᵉᵉ over the whole vocabulary, without the queries; parameters as in `token_affinity`.

        Parameters
        ----------
        scale, mean
            As in `token_affinity`.

        Returns
        -------
        numpy.ndarray
            Key factors, [key head, token, d_head].
        """
        heads = range(0, self.n_heads, self.weights.heads_per_key)
        keys = self.token_affinity(scale, heads=heads, queries=[0]).shared_key
        if mean is not None:
            shares = self.token_shares(mean)
            for vectors in keys:
                subtract_mean(vectors, shares)
        return keys

    def _divisors(self, scale: TokenScale | None) -> Float[np.ndarray, "token"] | None:
        """σ to divide factors by; None if they are normed already."""
        if self.weights.has_query_key_norms:
            if scale is None:
                raise UnsupportedModelError(
                    f"{self.name} has a norm on queries and keys, so Tᵉᵉ without the division is undefined"
                )
            return None
        return None if scale is None else self.token_scale(scale)

    def common_part(self, mean: Mean) -> Common:
        """What all queries and all keys have in common: their biases, or their means over the vocabulary.

        Parameters
        ----------
        mean
            None for the biases, or a mean as in `terms`.

        Returns
        -------
        Common
            The common query and key of each head.

        Raises
        ------
        UnsupportedModelError
            A mean was given for a model with learned positions.
        """
        if mean is None:
            return Common(*(side.constant for side in self.sides))
        if self.positions == "learned":
            raise UnsupportedModelError(f"{self.name} has learned positions, so no mean can be split off; omit `mean`")
        if isinstance(mean, str) and mean == "vocabulary":
            return self._vocabulary_means
        return self._means(self.token_shares(mean))

    @cached_property
    def _vocabulary_means(self) -> Common:
        return self._means(self.token_shares("vocabulary"))

    def _means(self, shares: Float[np.ndarray, "token"]) -> Common:
        """The weighted mean query and key of the vocabulary, biases included."""
        scales = self.scales.bare_tokens()
        return Common(*(side.mean(self.weights.token_embeddings, scales, shares) for side in self.sides))

    def token_shares(self, mean: Mean) -> Float[np.ndarray, "token"]:
        """Return the weight of each token in a mean.

        Parameters
        ----------
        mean
            The mean, as in `terms`.

        Returns
        -------
        numpy.ndarray
            The weights, which add up to 1. In the mean over the ``"vocabulary"``, special and untrained tokens,
            and those that no text contains, have none.
        """
        if isinstance(mean, str) and mean == "vocabulary":
            mean = np.isin(np.arange(self.vocab_size), self.meaningful_tokens).astype(np.float64)
        if isinstance(mean, str) and mean == "frequency":
            if self.frequencies is None:
                raise RangeError(
                    "mean 'frequency' needs token frequencies: use the layer of a study with counts, "
                    "study(model, counts=…).layer, or layer.with_frequencies(counts.tokens)"
                )
            mean = self.frequencies
        if not isinstance(mean, np.ndarray) or mean.shape != (self.vocab_size,):
            raise RangeError(
                f"mean {shown(mean)} is neither 'vocabulary' nor 'frequency' nor an array of {self.vocab_size} "
                "weights, one per token"
            )
        total = float(mean.sum())
        if not (np.isfinite(total) and total > 0 and (mean >= 0).all()):
            raise RangeError("the weights of a mean must be at least 0, and not all 0")
        return mean.astype(np.float64) / total

    def _check_offset(self, offset: int) -> None:
        first = 0 if self.is_causal else 1 - self.n_positions
        if not first <= offset < self.n_positions:
            raise RangeError(f"offset {offset} does not exist; offsets go from {first} to {self.n_positions - 1}")

    def check(self, *, heads: Numbers = (), positions: Numbers = (), tokens: Numbers = ()) -> None:
        """Raise an error unless the model has all of these.

        Parameters
        ----------
        heads, positions, tokens
            Heads and positions, from 0, and token ids.

        Raises
        ------
        RangeError
            The model lacks one of them.
        """
        check_range("head", heads, self.n_heads)
        check_range("position", positions, self.n_positions)
        check_range("token id", tokens, self.vocab_size)

    def _one_text(self, token_ids: TokenIds) -> Int[np.ndarray, "query"]:
        texts = [self.vocabulary.encode(token_ids)] if isinstance(token_ids, str) else id_lists(token_ids)
        if len(texts) != 1:
            raise RangeError(f"a text must be a string or one list of token ids, not {len(texts)} texts; pass one")
        return np.asarray(texts[0], np.int64)

    def check_text(self, token_ids: TokenIds) -> Int[np.ndarray, "query"]:
        """Encode a text, or check its token ids.

        Parameters
        ----------
        token_ids
            A text or its token ids, as in `terms`.

        Returns
        -------
        numpy.ndarray
            The token ids.

        Raises
        ------
        RangeError
            The text is empty, too long, or has an unknown token id.
        """
        ids = self._one_text(token_ids)
        if not ids.size:
            raise RangeError("a text needs at least one token; pass a text or a list of token ids")
        if len(ids) > self.n_positions:
            raise RangeError(
                f"a text of {len(ids)} tokens is longer than the model's {self.n_positions} positions; shorten it"
            )
        padding = self.weights.padding_token_id
        if padding in ids:
            raise RangeError(f"token id {padding} is padding, which has no position; leave it out")
        self.check(tokens=ids)
        return ids
