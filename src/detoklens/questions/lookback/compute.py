"""How much higher does a query score the previous token than earlier ones, and why?

For a query token t (at position i, if positions are learned), with f the unigram distribution and P(·|t) the corpus
distribution of the token before t, in nats:

    A = q(t) · E_{u ~ P(·|t)}  k(u, 1)            its own predecessors are there
    N = q(t) · E_{u ~ P(·|t')} k(u, 1)            those of the other tokens t' of its class and frequency bin
    B = q(t) · E_{u ~ f}       k(u, 1)            any token is there
    R = q(t) · mean_{δ = 2 … 15} E_{u ~ f} k(u, δ)

    lift = A − R = (B − R) + (N − B) + (A − N)    position + class + lexical

k(u, δ) is the key of u at offset δ. q and k are sums of factors, and the product of a query factor and a key factor is
a score term, so every part splits exactly into terms. N needs no sampling: it is the mean of A over t', in closed form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from detoklens.corpus.counts import Bigrams
from detoklens.measures.chance import Interval, interval, resampled
from detoklens.measures.documents import DocumentFactors, DocumentTerms, Rules, TokenIds, in_blocks
from detoklens.measures.frequency import spearman
from detoklens.parallel import Arrays, Runner
from detoklens.scores.factors import Common, Factor, Mean, Side, rotated_by_offset
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import softcapped, softmax
from detoklens.scores.terms import ScoreTerm, kernel, terms_present

PARTS = ("position", "class", "lexical")
CLASSES = ("C", "W", "F")
FARTHEST = 15  # offset
FEWEST = 5  # tokens of C and of W in a frequency bin that is used
ROWS_PER_CLASS = 32  # query places of a class in one document, evenly spread
RESAMPLES = 1000

PerToken = Float[np.ndarray, "token"]
Factors = Mapping[Factor, np.ndarray]
"""Vectors by factor: one for each token, or one for all tokens."""


@dataclass(frozen=True)
class QueryTokens:
    """The query tokens with a class, the frequency bin of each, and the tokens before (or after) it."""

    ids: Int[np.ndarray, "token"]
    labels: np.ndarray
    bins: Int[np.ndarray, "token"]
    neighbours: csr_array
    """[token, vocabulary]: the distribution of the neighbouring token."""

    @classmethod
    def of(
        cls,
        labels: np.ndarray,
        counts: Int[np.ndarray, "vocabulary"],
        bigrams: Bigrams,
        ahead: bool = False,
        also: Bool[np.ndarray, "vocabulary"] | None = None,
    ) -> QueryTokens:
        """The labelled tokens, and those that are `also` wanted; frequency bins are octaves of counts."""
        wanted = labels != "" if also is None else also | (labels != "")
        ids, shape = np.flatnonzero(wanted), (len(counts), len(counts))
        pairs = csr_array((bigrams.counts.astype(np.float64), bigrams.prefixes.astype(np.int64), bigrams.indptr), shape)
        rows = (pairs.T.tocsr() if ahead else pairs)[ids]
        rows.data /= np.repeat(np.maximum(rows.sum(axis=1), 1), np.diff(rows.indptr))
        return cls(ids, labels[ids], np.log2(np.maximum(counts[ids], 1)).astype(np.int64), rows)

    @cached_property
    def groups(self) -> Int[np.ndarray, "token"]:
        """A number for each token's class and frequency bin."""
        return np.unique(4 * self.bins + np.searchsorted(["", *sorted(CLASSES)], self.labels), return_inverse=True)[1]

    @cached_property
    def weights(self) -> dict[int, float]:
        """The frequency bins with enough tokens of C and W, each with its weight: the size of its smaller class."""
        sizes = np.array([np.bincount(self.bins[self.labels == label], minlength=64) for label in "CW"]).min(axis=0)
        used = np.flatnonzero(sizes >= FEWEST)
        return dict(zip(used.tolist(), (sizes[used] / max(1, sizes[used].sum())).tolist(), strict=True))

    def members(self, label: str, number: int) -> Int[np.ndarray, "member"]:
        return np.flatnonzero((self.labels == label) & (self.bins == number))

    def matched(self, label: str) -> PerToken:
        """Weights of the mean over a class, matched in frequency: they add up to 1, or to 0 without tokens."""
        weights = np.zeros(len(self.ids))
        for number, weight in self.weights.items():
            members = self.members(label, number)
            weights[members] = weight / len(members) if len(members) > 1 else 0.0  # alone, a token has no class part
        return weights / (weights.sum() or 1.0)

    @cached_property
    def contrast(self) -> PerToken:
        """Weights of the matched difference C − W."""
        return self.matched("C") - self.matched("W")

    def mean_of_others(self, vectors: Float[np.ndarray, "token d"]) -> Float[np.ndarray, "token d"]:
        """The mean over the other tokens of a token's class and bin; NaN for a token that is alone."""
        sizes = np.bincount(self.groups).astype(np.float64)
        member = csr_array((np.ones(len(self.groups)), (self.groups, np.arange(len(self.groups)))))
        sizes[sizes == 1] = np.nan
        return np.asarray(((member @ vectors)[self.groups] - vectors) / (sizes - 1)[self.groups, None])


class Draws:
    """The random draws of the bootstrap and the label permutations, shared by all heads."""

    def __init__(self, tokens: QueryTokens, n_permutations: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.tokens, self.n = tokens, n_permutations
        self.resampled = np.zeros((RESAMPLES, len(tokens.ids)), np.float32)
        """Weights of C − W in each resample, drawn within class and bin."""
        self.called: list[tuple[float, Int[np.ndarray, "member"], Float[np.ndarray, "draw member"], int]] = []
        """For each bin: its weight, its tokens of C and W, which of them each draw calls C, and how many."""
        for number, weight in tokens.weights.items():
            both = [tokens.members(label, number) for label in "CW"]
            for members, sign in zip(both, (1, -1), strict=True):
                n = len(members)
                times = random.multinomial(n, np.full(n, 1 / n), RESAMPLES)
                self.resampled[:, members] = times * (sign * weight / n)
            sizes = [len(members) for members in both]
            ones = np.tile(np.arange(sum(sizes)) < sizes[0], (n_permutations, 1))
            called = random.permuted(ones, axis=1).astype(np.float32)
            self.called.append((weight, np.concatenate(both), called, sizes[0]))

    def estimate(self, values: Float[np.ndarray, "*row token"]) -> Interval:
        """The matched difference C − W of each row, with the middle 95 % of its resamples."""
        known = np.nan_to_num(values)  # unknown are tokens alone in their class and bin, which have no weight
        samples = known.astype(np.float32) @ self.resampled.T
        return interval(known @ self.tokens.contrast, np.moveaxis(samples, -1, 0))

    def sums(self, values: Float[np.ndarray, "token d"]) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each bin and draw, the sum over tokens called C and the sum over those called W."""
        found = []
        for _, members, called, _ in self.called:
            chosen = called @ values[members].astype(np.float32)
            found.append((chosen, values[members].sum(axis=0) - chosen))
        return found

    def label_null(
        self, scores: Float[np.ndarray, "abr token"], together: Float[np.ndarray, "bin class draw"]
    ) -> Float[np.ndarray, "part_or_total draw"]:
        """C − W of each part and of the total under permuted labels, which change every token's N as well.

        `scores` are A, B and R. `together` is Q · S for each bin and class, Q and S the summed queries and keys of its
        tokens: the sum of N over a class of n tokens is (Q · S − Σ A) / (n − 1).
        """
        total = np.zeros((len(PARTS) + 1, self.n))
        for (weight, members, _, n_c), sums, products in zip(self.called, self.sums(scores.T), together, strict=True):
            sizes = (n_c, len(members) - n_c)
            for sign, size, each, product in zip((1, -1), sizes, sums, products, strict=True):
                a, b, r = each.T
                n = (product - a) / (size - 1)
                total += sign * weight / size * np.stack([b - r, n - b, a - n, a - r])
        return total


@dataclass(frozen=True)
class Lifts:
    """The lifts of some heads in nats, and what their controls need; a column is a part or, last, their total."""

    terms: tuple[ScoreTerm, ...]
    parts: Float[np.ndarray, "head part term token"]
    total: Float[np.ndarray, "head token"]
    """A − R, also of a token alone in its class and bin, whose class and lexical parts are NaN."""
    over_self: Float[np.ndarray, "head term token"]
    """B − S, where S is the query's score for itself."""
    by_place: Float[np.ndarray, "head place part"]
    """C − W of each part at each query position."""
    matrices: Float[np.ndarray, "head column d_head d_head"]
    """M = Σ w q(t)ᵀ k(t): C − W is its trace, and ⟨O, M⟩ if O rotates all queries."""
    label_null: Float[np.ndarray, "head column draw"]

    @property
    def by_token(self) -> Float[np.ndarray, "head column token"]:
        """Position, class and lexical part, and the lift, of every token; unknown parts are 0."""
        return np.nan_to_num(np.concatenate([self.parts.sum(axis=2), self.total[:, None]], axis=1))

    @property
    def against_self(self) -> Float[np.ndarray, "head position_or_total token"]:
        """Position part and total with the query's own key in place of the earlier ones; the other parts stay."""
        position = self.over_self.sum(axis=1)
        return np.stack([position, self.total + (self.over_self - self.parts[:, 0]).sum(axis=1)], axis=1)


def lifts_of(
    layer: Layer,
    tokens: QueryTokens,
    frequencies: Float[np.ndarray, "vocabulary"],
    heads: Sequence[int],
    runner: Runner,
    *,
    positions: Sequence[int] = (),
    mean: Mean = None,
    draws: Draws | None = None,
    ahead: bool = False,
) -> Lifts:
    """The lifts of some heads, averaged over query positions if positions are learned; no label null without draws."""
    weights, common, sign = layer.weights, layer.common_part(mean), -1 if ahead else 1
    unigram, per_key = frequencies / frequencies.sum(), weights.heads_per_key
    places: list[_LearnedPlace] | list[_OffsetPlace] = (
        [_LearnedPlace(layer, tokens, unigram, sign, position) for position in positions]
        if len(positions)
        else [_OffsetPlace(layer, tokens, unigram, sign, common)]
    )
    terms = terms_present(layer.positions, common)

    def projected(side: Side, head: int, ids: np.ndarray | slice) -> Float[np.ndarray, "token d_head"]:
        """Queries or keys of some tokens before the division by σ and the bias, or after the query-key norm."""
        scales = layer.scales.bare_tokens()[ids]
        return side.of_vocabulary(weights.token_embeddings[ids], lambda: scales, head).astype(np.float64)

    def of_key_head(own: int) -> dict[int, _HeadSums]:
        some = [head for head in heads if head // per_key == own]
        table = projected(layer.sides[1], own, slice(None))
        queries = {head: projected(layer.sides[0], head, tokens.ids) for head in some}
        sums = {head: _HeadSums(layer, tokens, terms, len(places), draws) for head in some}
        for place in places:
            keys = place.keys(table, own)
            others = {
                factor: tokens.mean_of_others(each) if each.ndim == 2 else each for factor, each in keys["A"].items()
            }
            for head in some:
                distances = {name: _distance(layer, common, head, name, sign) for name in "ANBRS"}
                sums[head].add(place.queries(queries[head], head), {**keys, "N": others}, distances)
        return sums

    found: dict[int, _HeadSums] = {}
    for sums in runner.map(of_key_head, sorted({head // per_key for head in heads})):
        found |= sums
    finished = [found[head].finished() for head in heads]
    return Lifts(terms, **{name: np.stack([each[name] for each in finished]) for name in finished[0]})


def _distance(layer: Layer, common: Common, head: int, score: str, sign: int) -> float:
    """ALiBi's term in one of the scores: the same for every token."""
    if layer.positions != "alibi":
        return 0.0
    offsets = {"R": np.arange(2, FARTHEST + 1), "S": np.zeros(1, np.int64)}.get(score, np.ones(1, np.int64))
    return float(kernel(layer.weights, common, sign * offsets)[head].astype(np.float64).mean())


class _HeadSums:
    """Sums over query positions of one head's scores and of what its controls need."""

    def __init__(
        self, layer: Layer, tokens: QueryTokens, terms: Sequence[ScoreTerm], n_places: int, draws: Draws | None
    ) -> None:
        self.tokens, self.terms, self.draws = tokens, terms, draws
        self.n_places, self.unit = n_places, layer.attention_scale / n_places
        self.scores = {name: np.zeros((len(terms), len(tokens.ids))) for name in "ANBRS"}
        self.matrices = np.zeros((len(PARTS) + 1, layer.d_head, layer.d_head))
        self.by_place: list[np.ndarray] = []
        self.together = np.zeros(()) if draws is None else np.zeros((len(draws.called), 2, draws.n))
        """Q · S of each bin, class and draw; see `Draws.label_null`."""

    def add(self, queries: Factors, keys: Mapping[str, Factors], distances: Mapping[str, float]) -> None:
        """Add the scores at one query position."""
        for name, factors in keys.items():
            for row, term in enumerate(self.terms):
                is_distance = term.query is Factor.DISTANCE
                product = distances[name] if is_distance else (queries[term.query] * factors[term.key]).sum(axis=-1)
                self.scores[name][row] += self.unit * product
        query, used = reduce(np.add, queries.values()), self.tokens.contrast != 0
        a, n, b, r = (self.unit * reduce(np.add, keys[name].values()) for name in "ANBR")
        weighted = (query * self.tokens.contrast[:, None])[used].T
        steps = b - r, n[used] - b, a[used] - n[used], a[used] - r
        found = np.stack([weighted @ np.broadcast_to(step, (weighted.shape[1], query.shape[1])) for step in steps])
        self.matrices += found
        self.by_place.append(self.n_places * np.trace(found[:-1], axis1=1, axis2=2))
        if self.draws is not None:
            pairs = zip(self.draws.sums(query), self.draws.sums(a), strict=True)
            self.together += [[np.sum(q * s, axis=1) for q, s in zip(*each, strict=True)] for each in pairs]

    def finished(self) -> Arrays:
        a, n, b, r, s = (self.scores[name] for name in "ANBRS")
        no_draws = np.zeros((len(PARTS) + 1, 0))
        return {
            "parts": np.stack([b - r, n - b, a - n]),
            "total": (a - r).sum(axis=0),
            "over_self": b - s,
            "by_place": np.stack(self.by_place),
            "matrices": self.matrices,
            "label_null": no_draws
            if self.draws is None
            else self.draws.label_null(np.stack([a, b, r]).sum(axis=1), self.together),
        }


@dataclass(frozen=True)
class _OffsetPlace:
    """Rotary and ALiBi positions: a token has one query and one key, and an offset rotates them or not."""

    layer: Layer
    tokens: QueryTokens
    unigram: Float[np.ndarray, "vocabulary"]
    sign: int
    common: Common

    def _own_part(self, projected: np.ndarray, side: int, head: int, ids: np.ndarray | slice) -> np.ndarray:
        """A token's query or key minus what all tokens have in common, in place: Llama 3's keys take 131 MB."""
        if self.layer.sides[side].norm is None:
            projected /= self.layer.scales.bare_tokens()[ids, None]
            projected += self.layer.sides[side].bias[head]
        projected -= self.common[side][head]
        return projected

    def queries(self, projected: Float[np.ndarray, "token d_head"], head: int) -> Factors:
        common = Factor.COMMON if self.layer.positions == "rotary" else Factor.CONSTANT
        own = self._own_part(projected, 0, head, self.tokens.ids)
        return {Factor.TOKEN: own, common: self.common.query[head].astype(np.float64)}

    def keys(self, table: Float[np.ndarray, "vocabulary d_head"], own: int) -> Mapping[str, Factors]:
        keys, common = self._own_part(table, 1, own, slice(None)), self.common.key[own].astype(np.float64)
        anywhere, near, far = self.unigram @ keys, (1,), tuple(range(2, FARTHEST + 1))
        seen = {
            "A": (self.tokens.neighbours @ keys, near),
            "B": (anywhere, near),
            "R": (anywhere, far),
            "S": (keys[self.tokens.ids], (0,)),
        }
        if self.layer.positions == "alibi":
            return {name: {Factor.TOKEN: vectors} for name, (vectors, _) in seen.items()}
        return {
            name: {Factor.TOKEN: self._turned(vectors, offsets), Factor.COMMON: self._turned(common, offsets)}
            for name, (vectors, offsets) in seen.items()
        }

    def _turned(self, keys: np.ndarray, offsets: Sequence[int]) -> np.ndarray:
        """Mean over offsets of R_δ k, so that its product with an unrotated query is the score."""
        turned = [rotated_by_offset(self.layer.weights, keys, -self.sign * offset) for offset in offsets]
        return np.asarray(np.mean(turned, axis=0))


class _LearnedPlace:
    """Learned positions: queries at one position i, keys at i − 1 … i − 15 (or after i), σ of each token at each."""

    def __init__(
        self,
        layer: Layer,
        tokens: QueryTokens,
        unigram: Float[np.ndarray, "vocabulary"],
        sign: int,
        position: int,
    ) -> None:
        self.tokens, self.unigram, self.sides = tokens, unigram, layer.sides
        positions = position - sign * np.arange(FARTHEST + 1)
        first = int(positions.min())
        scales = layer.scales.of_positions(slice(first, first + FARTHEST + 1))
        self.inverse = 1 / scales[positions - first].astype(np.float64)  # [offset, vocabulary]
        self.vectors = layer.weights.position_embeddings[positions].astype(np.float64)

    def queries(self, projected: Float[np.ndarray, "token d_head"], head: int) -> Factors:
        side, column = self.sides[0], self.inverse[0, self.tokens.ids, None]
        return {
            Factor.TOKEN: projected * column,
            Factor.POSITION: self.vectors[0] @ side.weight[head] * column,
            Factor.CONSTANT: side.bias[head].astype(np.float64),
        }

    def keys(self, table: Float[np.ndarray, "vocabulary d_head"], own: int) -> Mapping[str, Factors]:
        tokens, unigram = self.tokens, self.unigram
        near, far, column = self.inverse[1], self.inverse[2:], self.inverse[0, tokens.ids, None]
        places = self.vectors @ self.sides[1].weight[own].astype(np.float64)
        seen = {
            "A": (tokens.neighbours @ (table * near[:, None]), (tokens.neighbours @ near)[:, None] * places[1]),
            "B": ((unigram * near) @ table, (unigram @ near) * places[1]),
            "R": ((unigram * far.mean(axis=0)) @ table, (far @ unigram) @ places[2:] / len(far)),
            "S": (table[tokens.ids] * column, places[0] * column),
        }
        return {name: {Factor.TOKEN: token, Factor.POSITION: place} for name, (token, place) in seen.items()}


def random_alignments(
    matrices: Float[np.ndarray, "*row d_head d_head"], draws: int, seed: int
) -> Float[np.ndarray, "*row draw"]:
    """⟨O, M⟩ for rotations O drawn evenly, the same for all rows: C − W if queries were turned at random against keys.

    Norms and spectra of queries and keys are unchanged; only the learned relation between the two is lost. Under
    Gaussian random weights O changes nothing but the draw, so the control is exact there, for any embeddings.
    """
    random, d_head = np.random.default_rng(seed), matrices.shape[-1]
    flat, found = matrices.reshape(-1, d_head * d_head), []
    for _ in range(draws):
        rotation, upper = np.linalg.qr(random.normal(size=(d_head, d_head)))
        found.append(flat @ (rotation * np.sign(np.diag(upper))).ravel())
    return np.stack(found, axis=-1).reshape(*matrices.shape[:-2], draws)


@dataclass(frozen=True)
class TextLookback:
    """Attention to the previous token on text, whole (first) and without each term; sums over query places."""

    removed: tuple[str, ...]
    sums: Float[np.ndarray, "document head removed class"]
    places: Int[np.ndarray, "document class"]
    token_sums: Float[np.ndarray, "head vocabulary"]
    token_places: Int[np.ndarray, "vocabulary"]

    def estimates(self, seed: int) -> tuple[Interval, Interval]:
        """Mean attention [head, removed, class] and C − W of it, each with its interval over documents."""
        random, n = np.random.default_rng(seed), len(self.sums)
        times = np.concatenate([np.ones((1, n)), random.multinomial(n, np.full(n, 1 / n), RESAMPLES)])
        with np.errstate(invalid="ignore"):
            means = np.tensordot(times, self.sums, 1) / (times @ self.places)[:, None, None, :]
        found = np.concatenate([means, means[..., :1] - means[..., 1:2]], axis=-1)
        missing = np.append(~self.places.any(axis=0), False)  # classes without a place; C and W have some
        known = interval(found[0], np.where(missing, 0.0, found[1:]), skip_undefined=True)
        whole = [np.where(missing, np.nan, each) for each in known]
        return Interval(*(each[..., :-1] for each in whole)), Interval(*(each[..., -1] for each in whole))


def text_lookback(
    layer: Layer, documents: Sequence[TokenIds], labels: np.ndarray, heads: list[int], mean: Mean, runner: Runner
) -> TextLookback | None:
    """Measure attention to the previous token in documents; None if C or W has no query place from position 16 on."""
    rows = [_query_places(labels[ids]) for ids in documents]
    kept = [ids for ids, places in zip(documents, rows, strict=True) if len(places)]
    if not {"C", "W"} <= {label for ids, places in zip(documents, rows, strict=True) for label in labels[ids[places]]}:
        return None
    blocks = in_blocks(kept)
    terms = DocumentTerms(layer, heads, kept, mean)
    rules = terms.rules

    def compute(number: int) -> Arrays:
        size = len(blocks[number])
        sums = np.zeros((size, len(heads), 1 + len(rules.terms), len(CLASSES)))
        places, token_sums = np.zeros((size, len(CLASSES)), np.int64), np.zeros((len(heads), layer.vocab_size))
        token_places = np.zeros(layer.vocab_size, np.int64)
        for document, (ids, factors) in enumerate(zip(blocks[number], terms.factors(blocks[number]), strict=True)):
            queries = _query_places(labels[ids])
            attention = _on_previous(factors, rules, queries)
            belongs = labels[ids[queries], None] == np.array(CLASSES)
            sums[document] = attention @ belongs
            places[document] = belongs.sum(axis=0)
            np.add.at(token_places, ids[queries], 1)
            for head in range(len(heads)):
                np.add.at(token_sums[head], ids[queries], attention[head, 0])
        return {"sums": sums, "places": places, "token_sums": token_sums, "token_places": token_places}

    found = list(runner.under("text").run(compute, len(blocks)))
    return TextLookback(
        ("none", *rules.terms),
        np.concatenate([each["sums"] for each in found]),
        np.concatenate([each["places"] for each in found]),
        np.sum([each["token_sums"] for each in found], axis=0),
        np.sum([each["token_places"] for each in found], axis=0),
    )


def _query_places(labels: np.ndarray) -> Int[np.ndarray, "row"]:
    """From position 16 on, up to ROWS_PER_CLASS places of each class, evenly spread, in order."""
    chosen = []
    for label in CLASSES:
        places = np.flatnonzero(labels == label)
        places = places[places > FARTHEST]
        if len(places) > ROWS_PER_CLASS:
            places = places[np.linspace(0, len(places) - 1, ROWS_PER_CLASS).round().astype(np.int64)]
        chosen.append(places)
    return np.sort(np.concatenate(chosen))


def _on_previous(
    factors: DocumentFactors, rules: Rules, queries: Int[np.ndarray, "row"]
) -> Float[np.ndarray, "head removed row"]:
    """Attention of some queries to the token before them, whole and without each term."""
    n_heads, n_keys = factors.n_heads, factors.n_tokens
    begins, ends = rules.seen(queries, n_keys)
    columns = np.arange(n_keys)
    hidden = (columns < begins[:, None]) | (columns >= ends[:, None])
    found = np.empty((n_heads, 1 + len(rules.terms), len(queries)))
    unit = factors.dtype.type(rules.attention_scale)
    for head in range(n_heads):
        terms = [scores[:, :n_keys] for scores in factors.of_head(head, queries, n_keys, unit).terms()]
        whole = sum(terms)
        scores = softcapped(np.stack([whole, *(whole - terms[each] for each in rules.terms.values())]), rules.softcap)
        np.copyto(scores, -np.inf, where=hidden)
        found[head] = softmax(scores)[:, np.arange(len(queries)), queries - 1]
    return found


def correlation_with_interval(
    pairs: Float[np.ndarray, "token two"], resamples: int, seed: int
) -> tuple[float, float, float]:
    """Spearman's correlation of the two columns and its 95 % interval over rows; NaN where it is undefined."""
    value = spearman(*pairs.T) if len(pairs) else None
    if value is None or len(pairs) < FEWEST:
        return np.nan if value is None else value, np.nan, np.nan
    sorts = [np.unique(column, return_inverse=True, return_counts=True)[1:] for column in pairs.T]
    samples = []
    for times in resampled(len(pairs), resamples, seed):
        ranks = []
        for places, sizes in sorts:
            starts = np.cumsum(sizes) - sizes
            counts = np.add.reduceat(times[:, np.argsort(places, kind="stable")], starts, axis=1)
            ranks.append((np.cumsum(counts, axis=1) - (counts - 1) / 2)[:, places] - (len(pairs) + 1) / 2)
        one, other, both = (np.sum(times * x * y, axis=1) for x, y in ((ranks[0],) * 2, (ranks[1],) * 2, ranks))
        with np.errstate(invalid="ignore"):  # a constant column has no correlation
            samples.append(both / np.sqrt(one * other))
    found = interval(np.array([value]), np.concatenate(samples)[:, None], skip_undefined=True)
    return value, float(found.low[0]), float(found.high[0])
