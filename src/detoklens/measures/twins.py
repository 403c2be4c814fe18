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
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CheckpointError
from detoklens.kernels import product
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
    rows = []
    for whole in sorted(set(wholes)):
        chain: tuple[int, ...] = (whole,)
        while len(chain) < pieces and chain[0] in splits:
            chain = (*splits[chain[0]], *chain[1:])
        if len(chain) == pieces:
            rows.append((whole, *chain))
    found = np.array(rows, np.int64).reshape(-1, pieces + 1)
    return Chains(found[:, 1:], found[:, 0])


CLIP = 5.0  # standard deviations
RANKED_AT_ONCE = 100 * product.QUERIES  # words: 4 MB at a width of 1,536
PARTNERS = 16  # words that the additive control averages over
WORDS_AT_ONCE = 256  # in the additive control: at most 4,096 texts, 64 MB at a width of 4,096


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
        self, vectors: Float[np.ndarray, "word dimension"], twins: Int[np.ndarray, "word"], threads: int = 1
    ) -> Int[np.ndarray, "word"]:
        """The rank of each word's twin, given by its index among the candidates."""
        return self.ranks_by_direction(standardised(vectors), twins, threads)

    def ranks_by_direction(
        self, directions: Float[np.ndarray, "word dimension"], twins: Int[np.ndarray, "word"], threads: int = 1
    ) -> Int[np.ndarray, "word"]:
        """The same for float32 vectors that are already standardised."""
        ranks = np.empty(len(twins), np.int64)
        step = min(RANKED_AT_ONCE, -(-len(twins) // (product.QUERIES * threads)) * product.QUERIES)

        def rank(begin: int) -> None:
            block = slice(begin, begin + step)
            panels = product.query_panels(directions[block])
            product.rank_keys(panels, self.scores.keys, self.scores.n_keys, twins[block], ranks[block])

        list(thread_map(rank, range(0, len(twins), max(1, step)), threads))
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


def partner_texts(
    pieces: Int[np.ndarray, "word piece"], partners: Int[np.ndarray, "word partner"], at_once: int = WORDS_AT_ONCE
) -> list[tuple[Int[np.ndarray, "row"], Int[np.ndarray, "row partner piece"]]]:
    """The texts (a, b_k), then (a_k, b), in batches of words; words that share a piece are adjacent."""
    own = np.broadcast_to(pieces[:, None], (*partners.shape, pieces.shape[1]))
    theirs = pieces[partners]
    with_first = np.concatenate([own[..., :1], theirs[..., 1:]], axis=2)
    with_rest = np.concatenate([theirs[..., :1], own[..., 1:]], axis=2)
    sides = (with_first, np.argsort(pieces[:, 0], kind="stable")), (with_rest, np.lexsort(pieces[:, 1:].T))
    return [
        (rows, texts[rows])
        for texts, order in sides
        for rows in (order[begin : begin + at_once] for begin in range(0, len(order), at_once))
    ]


def mean_over_partners(
    texts: Int[np.ndarray, "row partner piece"],
    vectors: Callable[[Int[np.ndarray, "text piece"]], Float[np.ndarray, "*place text dimension"]],
) -> Float[np.ndarray, "*place row dimension"]:
    """The mean vector over partners at each place; each text is computed once."""
    unique, inverse = np.unique(texts.reshape(-1, texts.shape[2]), axis=0, return_inverse=True)
    return vectors(unique)[..., inverse.reshape(texts.shape[:2]), :].mean(axis=-2)


def add_means(
    whole: Float[np.ndarray, "*place word dimension"],
    partners: Int[np.ndarray, "word partner"],
    means: Iterable[tuple[Int[np.ndarray, "row"], Float[np.ndarray, "*place row dimension"]]],
) -> Float[np.ndarray, "*place word dimension"]:
    """The additive control x̂(a, b) = mean_k x(a, b_k) + mean_k x(a_k, b) − mean_k x(a_k, b_k).

    This is a bag of pieces: each piece's mean effect without their interaction. `whole` contains x(a, b) of every word,
    `means` the results of `mean_over_partners` for each of `partner_texts`.
    """
    total = np.stack([-whole[..., some, :].mean(axis=-2) for some in partners], axis=-2)
    for rows, mean in means:
        total[..., rows, :] += mean
    return total


RANK_MEASURES = ("median_rank", "first", "first_ten", "mean_reciprocal_rank", "rank_lost", "rank_ratio")


def rank_measures(
    ranks: Int[np.ndarray, "condition word"], resamples: int = 1000, seed: int = 0
) -> dict[str, Interval]:
    """The measures of each condition by name; the last two compare with the first condition, for the same words."""
    n_words, logarithms = ranks.shape[1], np.log(ranks)
    per_word = [ranks == 1, ranks <= 10, 1 / ranks, logarithms - logarithms[:1]]

    def measures(times: Float[np.ndarray, "resample word"]) -> Float[np.ndarray, "resample measure condition"]:
        middle = np.stack([medians(row, times) for row in ranks], axis=1)
        first, first_ten, reciprocal, logarithm = (times @ each.T / n_words for each in per_word)
        lost, ratio = middle - middle[:, :1], np.exp(logarithm)
        return np.stack([middle, first, first_ten, reciprocal, lost, ratio], axis=1)

    found = over_words(measures, n_words, resamples, seed)
    return {name: Interval(*ends) for name, *ends in zip(RANK_MEASURES, *found, strict=True)}


def median_ranks(ranks: Int[np.ndarray, "row word"], resamples: int = 1000, seed: int = 0) -> Interval:
    """The median rank of each row."""
    return over_words(
        lambda times: np.stack([medians(row, times) for row in ranks], axis=1), ranks.shape[1], resamples, seed
    )


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


ROWS = 1024  # texts per block
ROW_BYTES = 8 << 20  # of an array of the MLP; where it is wide, a block has fewer texts
ATTENTION, BLOCK = "attention", "block"

Look = Callable[[LastPlace], Float[np.ndarray, "head text key"]]
"""The attention of the last position in one condition."""
Pieces = Int[np.ndarray, "word piece"]
Rows = Float[np.ndarray, "text d_model"]


def control_pieces(words: Pieces, null: Pieces) -> dict[str, Pieces]:
    """The pieces of the unchanged words and of the controls that are texts themselves."""
    return {"whole": words, "null": null, "last_piece": words[:, -1:], "first_piece": words[:, :1]}


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
    def texts_of_block(self) -> int:
        """The number of texts whose vectors are computed together."""
        width = self.layer.d_model if self.rest is None else self.rest.feed_forward.up_weight.shape[1]
        return max(1, min(ROWS, ROW_BYTES // (width * self.layer.weights.token_embeddings.itemsize)))

    @property
    def places(self) -> tuple[str, ...]:
        return (ATTENTION,) if self.rest is None else (ATTENTION, BLOCK)

    def vectors(
        self,
        pieces: Pieces,
        place: str,
        look: Look = LastPlace.attention,
        threads: int = 1,
        empty: int = 0,
        kept: dict[int, LastPlace] | None = None,
    ) -> Rows:
        """The residual stream at the last position of every text, after the attention or after the block.

        `empty` rows of zeros follow. `kept` stores the parts that don't depend on `look`, for other looks at the same
        texts.
        """
        weights, rows = self.layer.weights, self.texts_of_block
        shape = len(pieces) + empty, weights.token_embeddings.shape[1]
        found = np.zeros(shape, weights.token_embeddings.dtype)

        def fill(begin: int) -> None:
            some = pieces[begin : begin + rows]
            with np.errstate(over="ignore", invalid="ignore"):  # `standardised` refuses what overflows
                seen = None if kept is None else kept.get(begin)
                if seen is None:
                    before = np.tile(np.asarray(self.beginning, np.int64), (len(some), 1))
                    seen = last_place(self.layer, np.concatenate([before, some], axis=1), self.common)
                    if kept is not None:
                        kept[begin] = seen
                written = seen.attention_output(look(seen))
                if place == ATTENTION or self.rest is None:
                    states = stream_after_attention(weights, self.rest, seen.stream, written)
                else:
                    states = block_output(weights, self.rest, seen.stream, written)
                found[begin : begin + len(some)] = states

        list(thread_map(fill, range(0, len(pieces), rows), threads))
        return found

    def additive(self, pieces: Pieces, partners: Int[np.ndarray, "word partner"], place: str, threads: int = 1) -> Rows:
        """The vectors of the additive control."""
        vectors = partial(self.vectors, place=place, threads=threads)
        means = ((rows, mean_over_partners(texts, vectors)) for rows, texts in partner_texts(pieces, partners))
        return add_means(vectors(pieces), partners, means)

    def candidates(self, token_ids: Int[np.ndarray, "candidate"], place: str, threads: int = 1) -> Candidates:
        """The tokens that the twin is ranked among, each as a whole word."""
        empty = -len(token_ids) % product.keys_of_panel(np.dtype(np.float32))
        return Candidates.in_place(
            self.vectors(token_ids[:, None], place, threads=threads, empty=empty), len(token_ids)
        )

    @property
    def candidate_bytes(self) -> int:
        """Memory of one candidate: float32 ones are ranked in place, others are copied for it, and once more packed."""
        embeddings = self.layer.weights.token_embeddings
        itemsize = embeddings.itemsize
        return embeddings.shape[1] * (itemsize if itemsize == 4 else itemsize + 2 * 4)

    def ablation_bytes(self, words: int, pieces: int) -> int:
        """Memory of the last positions that the ablations of these words share, with those of their null."""
        weights, n_keys = self.layer.weights, len(self.beginning) + pieces
        n_heads, key_heads, d_head = weights.query_weight.shape[1], *weights.key_weight.shape[1:]
        scores = len(self.layer.term_meanings) * n_heads * n_keys
        numbers = self.layer.d_model + scores + key_heads * n_keys * d_head
        return 2 * words * numbers * weights.token_embeddings.itemsize

    def ablations(self, heads: Sequence[int]) -> dict[str, Look]:
        """Each head's attention to earlier pieces cut, each term left out, each term alone.

        Scores are added in the order of the terms, which determines their last bits.
        """
        terms, before = [str(term) for term in self.layer.term_meanings], slice(len(self.beginning), -1)

        def cut(head: int) -> Look:
            return lambda seen: seen.attention_cut(head, before)

        def by(some: Sequence[str]) -> Look:
            return lambda seen: seen.attention(some)

        return {
            **{f"cut_{head_name(head)}": cut(head) for head in heads},
            **{f"without_{term}": by([other for other in terms if other != term]) for term in terms},
            **{f"only_{term}": by([term]) for term in terms},
        }
