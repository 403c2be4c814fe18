"""Twins: words in pieces and the token that is the whole word, the conditions they are read in, and ranks.

Words. A split is c → (a, b) with text(a) + text(b) = text(c): the tokenizer's own merge, or, where it has none, the
longest first piece whose rest is a token, too. A longer chain splits the first piece again, so the last piece stays the
same: (a, b), (a₁, a₂, b), (a₁₁, a₁₂, a₂, b).

Conditions. [BOS, p₁, …, p_k] is compared with [BOS, c] for all candidates c, at the last position of each. With nothing
else in the text, layer 0 is a closed form of these few tokens. Each condition changes one thing:

    null          the first piece is another word's         last_piece    [BOS, p_k] alone
    first_piece   [BOS, p₁] alone                           additive      what the sum of its pieces would give
    cut_L0Hh      head h's attention from the last piece to the pieces before it is 0, not renormalised
    without_t     the scores without term t                 only_t        the scores of term t alone

Ranks.

1. Each side (words in pieces; candidates) is standardised per dimension by its own mean and standard deviation and
   clipped at ±5. Otherwise a few huge dimensions and the difference between two positions would dominate.
2. The twin's rank among all candidates by cosine is 1 + the number of nearer ones + ties with a smaller index.
3. Over words: median rank, shares of rank 1 and of the first ten, mean reciprocal rank, and the geometric mean of the
   ratio to the first condition's rank. Intervals resample words, identically for all conditions.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CheckpointError
from detoklens.kernels import product
from detoklens.kernels.ranking import rank_rows
from detoklens.measures.chance import Interval, medians, over_words
from detoklens.measures.ranking import BLOCK_BYTES, HeadScores
from detoklens.measures.words import exchange_within, split_words
from detoklens.parallel import thread_map
from detoklens.scores.block import LastPlace, block_output, last_place, stream_after_attention
from detoklens.scores.factors import Common
from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary
from detoklens.weights.first_layer import MlpSublayer
from detoklens.wording import head_name

Splits = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Chains:
    """Words in the same number of pieces, and the token that is the whole word (the twin)."""

    pieces: Int[np.ndarray, "chain piece"]
    whole: Int[np.ndarray, "chain"]

    def __len__(self) -> int:
        return len(self.whole)

    def only(self, rows: Int[np.ndarray, "row"]) -> Chains:
        return Chains(self.pieces[rows], self.whole[rows])

    def sample(self, size: int, seed: int) -> Chains:
        """At most `size` words, drawn without replacement, in order of token id."""
        if len(self) <= size:
            return self
        drawn = np.random.default_rng(seed).choice(len(self), size, replace=False)
        return self.only(np.sort(drawn))


def merge_splits(vocabulary: Vocabulary) -> dict[int, tuple[int, int]]:
    """Each merged token's pieces by its first merge; some tokenizers list several."""
    splits: dict[int, tuple[int, int]] = {}
    for left, right, merged in vocabulary.merges():
        splits.setdefault(merged, (left, right))
    return splits


def text_splits(vocabulary: Vocabulary) -> dict[int, tuple[int, int]]:
    """Each token's longest first piece whose rest is a continuation token (`##ing`)."""
    mark = getattr(vocabulary.tokenizer.model, "continuing_subword_prefix", None) or ""
    ids = {vocabulary.raw(token): token for token in range(vocabulary.size) if token not in vocabulary.apart}
    splits: dict[int, tuple[int, int]] = {}
    for raw, token in ids.items():
        for end in range(len(raw) - 1, len(mark) if raw.startswith(mark) else 0, -1):
            if raw[:end] in ids and mark + raw[end:] in ids:
                splits[token] = ids[raw[:end]], ids[mark + raw[end:]]
                break
    return splits


def word_tokens(vocabulary: Vocabulary, tokens: Iterable[int]) -> list[int]:
    """The tokens of letters and combining marks, such as Indic vowels, with or without a leading space."""
    texts = {token: vocabulary.text(token).removeprefix(" ") for token in tokens}
    return [
        token for token, text in texts.items() if text and all(unicodedata.category(each)[0] in "LM" for each in text)
    ]


def listed_tokens(vocabulary: Vocabulary, words: Iterable[str]) -> list[int]:
    """The words of a list that are single tokens after a space."""
    split = split_words(vocabulary, words)
    return [word.token_ids[0] for word in split if len(word.token_ids) == 1 and word.apart.isdisjoint(word.token_ids)]


def chains(splits: Splits, wholes: Iterable[int], pieces: int) -> Chains:
    """The words among `wholes` that split into this many pieces, in order of token id."""
    found = {whole: _split(splits, whole, pieces) for whole in sorted(set(wholes))}
    kept = [(whole, *chain) for whole, chain in found.items() if chain is not None]
    rows = np.array(kept, np.int64).reshape(-1, pieces + 1)
    return Chains(rows[:, 1:], rows[:, 0])


def _split(splits: Splits, whole: int, pieces: int) -> tuple[int, ...] | None:
    chain: tuple[int, ...] = (whole,)
    while len(chain) < pieces:
        if chain[0] not in splits:
            return None
        chain = (*splits[chain[0]], *chain[1:])
    return chain


CLIP = 5.0  # standard deviations
PARTNERS = 16  # words that the additive control averages over
WORDS_AT_ONCE = 256  # in the additive control: at most 4,096 texts, 64 MB at a width of 4,096

Place = TypeVar("Place")


def standardised(
    vectors: Float[np.ndarray, "row dimension"], into: Float[np.ndarray, "row dimension"] | None = None
) -> Float[np.ndarray, "row dimension"]:
    """Rows of length 1 in float32, after centring, scaling and clipping each dimension; constant ones become 0.

    `into` may be the vectors themselves.
    """
    rows = max(1, BLOCK_BYTES // (8 * max(1, vectors.shape[1])))
    blocks = [slice(begin, begin + rows) for begin in range(0, len(vectors), rows)]
    with np.errstate(over="ignore", invalid="ignore"):
        mean = vectors.mean(axis=0, dtype=np.float64)
        squares = np.zeros((1, vectors.shape[1]))
        for block in blocks:  # `std` would copy all vectors to float64
            squares = np.add.reduce(np.concatenate([squares, (vectors[block] - mean) ** 2]), axis=0, keepdims=True)
        deviation = np.sqrt(squares[0] / max(1, len(vectors)))
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
        raise CheckpointError(
            f"the residual stream is not finite in {vectors.dtype}: the model's numbers overflow their type; check the "
            'checkpoint, or load it with dtype="float64"'
        )
    per_unit = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    directions = np.empty(vectors.shape, np.float32) if into is None else into
    for block in blocks:
        clipped = np.clip((vectors[block] - mean) * per_unit, -CLIP, CLIP)
        length = np.sqrt(np.einsum("rd,rd->r", clipped, clipped))
        directions[block] = clipped / np.where(length > 0, length, 1.0)[:, None]
    return directions


@dataclass(frozen=True)
class Candidates:
    """All tokens that the twin is ranked among, standardised among themselves."""

    scores: HeadScores

    @classmethod
    def of(cls, vectors: Float[np.ndarray, "candidate dimension"]) -> Candidates:
        return cls(HeadScores.of(standardised(vectors)))

    @classmethod
    def in_place(cls, vectors: Float[np.ndarray, "row dimension"], n: int) -> Candidates:
        """The first n vectors, in the memory of float32 ones; the others fill the last panel."""
        if vectors.dtype != np.float32:
            return cls.of(vectors[:n])
        standardised(vectors[:n], into=vectors[:n])
        return cls(HeadScores(product.key_panels(vectors, overwrite=True), n))

    def ranks(
        self,
        vectors: Float[np.ndarray, "word dimension"],
        twins: Int[np.ndarray, "word"],
        threads: int = 1,
    ) -> Int[np.ndarray, "word"]:
        """The rank of each word's twin, given by its index among the candidates."""
        return self.ranks_by_direction(standardised(vectors), twins, threads)

    def ranks_by_direction(
        self,
        directions: Float[np.ndarray, "word dimension"],
        twins: Int[np.ndarray, "word"],
        threads: int = 1,
    ) -> Int[np.ndarray, "word"]:
        """The same for float32 vectors that are already standardised."""
        ranks = np.empty(len(twins), np.int64)
        step = max(1, BLOCK_BYTES // (4 * max(1, self.scores.n_keys)))

        def rank(begin: int) -> None:
            block = slice(begin, begin + step)
            rank_rows(self.scores.rows(directions[block]), twins[block], ranks[block])

        list(thread_map(rank, range(0, len(twins), step), threads))
        return ranks


def exchanged_first(
    pieces: Int[np.ndarray, "word piece"], seed: int, classes: Sequence[Int[np.ndarray, "word"]] = ()
) -> Int[np.ndarray, "word piece"]:
    """The null: every word with the first piece of another word of its class."""
    return np.concatenate([exchange_within(pieces[:, 0], classes, seed)[:, None], pieces[:, 1:]], axis=1)


def partner_words(pieces: Int[np.ndarray, "word piece"], seed: int) -> Int[np.ndarray, "word partner"] | None:
    """The partners of each word in the additive control: the first 16 that differ in first piece and in rest.

    All words use the same random order, so they share most texts. None if a word has fewer than 16.
    """
    order = np.random.default_rng(seed).permutation(len(pieces))
    first = pieces[:, 0]
    rest = np.unique(pieces[:, 1:], axis=0, return_inverse=True)[1].ravel()
    partners = np.empty((len(pieces), PARTNERS), np.int64)
    for word in range(len(pieces)):
        others = order[(first[order] != first[word]) & (rest[order] != rest[word])]
        if len(others) < PARTNERS:
            return None
        partners[word] = others[:PARTNERS]
    return partners


PartnerTexts = tuple[Int[np.ndarray, "row"], Int[np.ndarray, "row partner piece"]]


def partner_texts(
    pieces: Int[np.ndarray, "word piece"], partners: Int[np.ndarray, "word partner"], at_once: int = WORDS_AT_ONCE
) -> list[PartnerTexts]:
    """The texts (a, b_k), then (a_k, b), in batches of words; words that share a piece are adjacent."""
    shape = (*partners.shape, -1)
    first, rest = pieces[:, None, :1], pieces[:, None, 1:]
    own_first = np.concatenate([np.broadcast_to(first, (*partners.shape, 1)), pieces[partners, 1:]], axis=2)
    own_rest = np.concatenate([pieces[partners, :1], np.broadcast_to(rest, (*shape[:2], rest.shape[2]))], axis=2)
    sides = (own_first, np.argsort(pieces[:, 0], kind="stable")), (own_rest, np.lexsort(pieces[:, 1:].T))
    return [
        (rows, texts[rows])
        for texts, order in sides
        for rows in (order[begin : begin + at_once] for begin in range(0, len(order), at_once))
    ]


def mean_over_partners(
    texts: Int[np.ndarray, "row partner piece"],
    vectors: Callable[[Int[np.ndarray, "text piece"]], Mapping[Place, Float[np.ndarray, "text dimension"]]],
) -> dict[Place, Float[np.ndarray, "row dimension"]]:
    """The mean vector over partners at each place; each text is computed once."""
    unique, inverse = np.unique(texts.reshape(-1, texts.shape[2]), axis=0, return_inverse=True)
    inverse = inverse.reshape(texts.shape[:2])
    return {place: rows[inverse].mean(axis=1) for place, rows in vectors(unique).items()}


def add_means(
    whole: Float[np.ndarray, "word dimension"],
    partners: Int[np.ndarray, "word partner"],
    means: Sequence[tuple[Int[np.ndarray, "row"], Float[np.ndarray, "row dimension"]]],
) -> Float[np.ndarray, "word dimension"]:
    """The additive control x̂(a, b) = mean_k x(a, b_k) + mean_k x(a_k, b) − mean_k x(a_k, b_k).

    This is a bag of pieces: each piece's mean effect without their interaction. `whole` contains x(a, b) of every word,
    `means` the results of `mean_over_partners` for each of `partner_texts`.
    """
    total = np.stack([-whole[some].mean(axis=0) for some in partners])
    for rows, mean in means:
        total[rows] += mean
    return total


RANK_MEASURES = ("median_rank", "first", "first_ten", "mean_reciprocal_rank", "rank_lost", "rank_ratio")


def rank_measures(
    ranks: Int[np.ndarray, "condition word"], resamples: int = 1000, seed: int = 0
) -> dict[str, Interval]:
    """The measures of each condition by name; the last two compare with the first condition, for the same words."""
    logarithms = np.log(ranks)
    means = [ranks == 1, ranks <= 10, 1 / ranks, logarithms - logarithms[:1]]

    def all_measures(times: Float[np.ndarray, "resample word"]) -> Float[np.ndarray, "resample row"]:
        middle = np.stack([medians(row, times) for row in ranks], axis=1)
        first, first_ten, reciprocal, logarithm = (times @ each.T / ranks.shape[1] for each in means)
        measures = [middle, first, first_ten, reciprocal, middle - middle[:, :1], np.exp(logarithm)]
        return np.concatenate(measures, axis=1)

    found = over_words(all_measures, ranks.shape[1], resamples, seed)
    split = (np.split(each, len(RANK_MEASURES)) for each in found)
    return {name: Interval(*ends) for name, *ends in zip(RANK_MEASURES, *split, strict=True)}


def geometric_means(ratios: Float[np.ndarray, "row word"], resamples: int = 1000, seed: int = 0) -> Interval:
    """The geometric mean of each row."""
    logarithms, n_words = np.log(ratios), ratios.shape[1]
    found = over_words(lambda times: times @ logarithms.T / n_words, n_words, resamples, seed)
    return Interval(*map(np.exp, found))


def shares_lost(
    lost: Float[np.ndarray, "row word"],
    gains: Float[np.ndarray, "control word"],
    resamples: int = 1000,
    seed: int = 0,
    behind: int | None = None,
) -> Interval:
    """The share of the smallest gain that each row loses; all arguments are logarithms of rank ratios per word.

    With `behind`, how much less than that row each row loses, for the same words. NaN without a gain; no interval if a
    resample has none.
    """

    def shares(times: Float[np.ndarray, "resample word"]) -> Float[np.ndarray, "resample row"]:
        gain = (times @ gains.T).min(axis=1, keepdims=True)
        found = np.divide(times @ lost.T, gain, out=np.full((len(times), len(lost)), np.nan), where=gain > 0)
        return found if behind is None else found[:, behind, None] - found

    return over_words(shares, lost.shape[1], resamples, seed)


ROWS = 1024  # texts per block: with four tokens and a width of 4,096, an array takes 64 MB
ATTENTION, BLOCK = "attention", "block"

Look = Callable[[LastPlace], Float[np.ndarray, "head text key"]]
Rows = Float[np.ndarray, "text d_model"]


@dataclass(frozen=True)
class Condition:
    """A name, the pieces of the texts, and the attention of the last position."""

    name: str
    pieces: Int[np.ndarray, "word piece"]
    look: Look = LastPlace.attention
    partners: Int[np.ndarray, "word partner"] | None = None
    """Partners of the additive control; None for all other conditions."""
    null: Int[np.ndarray, "word piece"] | None = None
    """The null's pieces, if the same ablation is applied to the null."""


@dataclass(frozen=True)
class ClosedWorld:
    """The first layer on texts of a BOS token, if there is one, and a few pieces."""

    layer: Layer
    beginning: tuple[int, ...]
    rest: MlpSublayer | None
    """The MLP of the block; None if unsupported, so only vectors after the attention are known."""
    common: Common
    """The common part of queries and keys, by which terms are split (see `scores.terms`)."""

    @classmethod
    def of(cls, layer: Layer, beginning: tuple[int, ...], rest: MlpSublayer | None) -> ClosedWorld:
        """Without learned positions, terms are split by the mean query and key of the vocabulary."""
        return cls(layer, beginning, rest, layer.common_part(None if layer.positions == "learned" else "vocabulary"))

    @property
    def places(self) -> tuple[str, ...]:
        return (ATTENTION,) if self.rest is None else (ATTENTION, BLOCK)

    def vectors(
        self, pieces: Int[np.ndarray, "word piece"], look: Look = LastPlace.attention, threads: int = 1, empty: int = 0
    ) -> dict[str, Rows]:
        """The residual stream at the last position of every text, after the attention and after the block.

        `empty` rows of zeros follow.
        """
        weights = self.layer.weights
        shape = len(pieces) + empty, weights.token_embeddings.shape[1]
        found = {place: np.zeros(shape, weights.token_embeddings.dtype) for place in self.places}

        def fill(begin: int) -> None:
            block = slice(begin, min(begin + ROWS, len(pieces)))
            with np.errstate(over="ignore", invalid="ignore"):  # `standardised` refuses what overflows
                seen = last_place(self.layer, self._texts(pieces[block]), self.common)
                written = seen.attention_output(look(seen))
                found[ATTENTION][block] = stream_after_attention(weights, self.rest, seen.stream, written)
                if self.rest is not None:
                    found[BLOCK][block] = block_output(weights, self.rest, seen.stream, written)

        list(thread_map(fill, range(0, len(pieces), ROWS), threads))
        return found

    def condition_vectors(self, condition: Condition, threads: int = 1) -> dict[str, Rows]:
        """The vectors of a condition's words, after the attention and after the block."""
        pieces, partners = condition.pieces, condition.partners
        found = self.vectors(pieces, condition.look, threads)
        if partners is None:
            return found
        texts = partner_texts(pieces, partners)
        means = [
            (rows, mean_over_partners(some, lambda unique: self.vectors(unique, condition.look, threads)))
            for rows, some in texts
        ]
        return {
            place: add_means(found[place], partners, [(rows, mean[place]) for rows, mean in means])
            for place in self.places
        }

    def _texts(self, pieces: Int[np.ndarray, "word piece"]) -> Int[np.ndarray, "word token"]:
        beginning = np.tile(np.asarray(self.beginning, np.int64), (len(pieces), 1))
        return np.concatenate([beginning, pieces], axis=1)

    def candidates(self, token_ids: Int[np.ndarray, "candidate"], threads: int = 1) -> dict[str, Candidates]:
        """The tokens that the twin is ranked among, each as a whole word."""
        empty = -len(token_ids) % product.keys_of_panel(np.dtype(np.float32))
        vectors = self.vectors(token_ids[:, None], threads=threads, empty=empty)
        return {place: Candidates.in_place(vectors.pop(place), len(token_ids)) for place in self.places}

    def words_changed(
        self, words: Chains, null: Int[np.ndarray, "word piece"], partners: Int[np.ndarray, "word partner"] | None
    ) -> list[Condition]:
        """The unchanged words, then the controls; no additive one without partners."""
        pieces = words.pieces
        additive = [] if partners is None else [Condition("additive", pieces, partners=partners)]
        return [
            Condition("whole", pieces),
            Condition("null", null),
            Condition("last_piece", pieces[:, -1:]),
            Condition("first_piece", pieces[:, :1]),
            *additive,
        ]

    def layer_changed(
        self, words: Chains, heads: Sequence[int], null: Int[np.ndarray, "word piece"]
    ) -> list[Condition]:
        """Each head's attention cut and each term left out, for words and their null; each term alone."""
        pieces, terms = words.pieces, [str(term) for term in self.layer.term_meanings]
        before = slice(len(self.beginning), -1)
        cuts = {f"cut_{head_name(head)}": _cut(head, before) for head in heads}
        without = {f"without_{term}": _by([other for other in terms if other != term]) for term in terms}
        return [
            *(Condition(name, pieces, look, null=null) for name, look in (cuts | without).items()),
            *(Condition(f"only_{term}", pieces, _by([term])) for term in terms),
        ]


def _cut(head: int, places: slice) -> Look:
    return lambda seen: seen.attention_cut(head, places)


def _by(terms: Sequence[str]) -> Look:
    """Scores are added in this order, which determines their last bits."""
    return lambda seen: seen.attention(terms)
