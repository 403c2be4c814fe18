"""The claims of the paper, each with the rule that judges it on a model.

A claim about GPT-2 small's own numbers, heads or tokens is judged on GPT-2 small only; for other models the number is
shown where there is one. A claim about the mechanism is judged on every model that has what it speaks of, by a rule
that its text states. "Nearly every head" is at least 80 % of them, "most heads" more than half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import polars as pl

from detoklens.errors import CorpusError, MissingError, RangeError, TokenError
from detoklens.measures.frequency import spearman
from detoklens.measures.heatmap import draw_tokens, drawn_scores, identical_tokens
from detoklens.measures.ranking import pair_ranks
from detoklens.questions.attention.question import Attention
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.contributions.question import Contributions
from detoklens.questions.frequency.question import Frequency
from detoklens.questions.positions.question import Positions
from detoklens.questions.shape.question import Shape
from detoklens.questions.variance.question import Variance
from detoklens.scores.softmax import softmax
from detoklens.tables.schema import HEAD, JOINED, KEY_TOKEN, QUERY_TOKEN, RANK, SCORE, Column, Schema
from detoklens.wording import head_name, listed_some, term_symbol

if TYPE_CHECKING:
    from detoklens.questions.answer import Answer
    from detoklens.questions.base import Question
    from detoklens.questions.study import Study
    from detoklens.scores.layer import Layer

Outcome = Literal["agrees", "differs", "not applicable"]
Source = Literal["paper", "authors' files"]
NEARLY_EVERY, MOST = 0.8, 0.5
NEAR = 15  # tokens that count as nearby
SAME_TOKEN, DETOKENIZING = 1, 7  # the two heads that the paper shows
NAMED = 4
DOCUMENTS, TOKENS, BIGRAMS = 8_013_769, 9.03e9, 137e6

PAPER_CLAIMS = Schema(
    "paper_claims",
    "The paper's claims and what this model shows",
    (
        Column("where", "String", "section, figure or table of the paper"),
        Column("claim", "String", "the claim, with the rule that judges it"),
        Column("verdict", "String", "agrees, differs or not applicable"),
        Column("found", "String", "what this model shows; null if it can't be computed"),
        Column("paper", "String", "what the paper, or the source, says"),
        Column("why", "String", "why it differs or does not apply, or a remark"),
        Column("number", "Float64", "the number found, where the claim has one"),
        Column("paper_number", "Float64", "the source's number"),
        Column("source", "String", "the paper's text, or the authors' published files and notebook"),
        Column("command", "String", "the question that gives the evidence"),
    ),
)

PAPER_RANKS = Schema(
    "paper_ranks",
    "Ranks of the paper's Table 1",
    (
        HEAD,
        QUERY_TOKEN,
        KEY_TOKEN,
        JOINED,
        Column("paper_rank", "Int32", "rank in the paper"),
        RANK,
        Column("difference", "Int32", "rank minus paper_rank; null if the model lacks the token or head"),
        SCORE,
    ),
)

# Table 1: (head, rank, key) by query. Where a sequence that the paper prints contradicts its key, the key counts.
TABLE_1 = {
    "yo": ((3, 1, "Tok"), (3, 2, " Tok"), (4, 6, "Tok"), (7, 1, "Tok")),
    " Korea": ((4, 1, " North"), (7, 1, " North"), (7, 2, "North"), (7, 3, " South"), (7, 4, "South")),
    " Obama": (
        (1, 3, " Barack"), (1, 8, "President"), (4, 3, " Barack"), (5, 5, " Barack"), (7, 2, " President"),
        (7, 3, " Michelle"),
    ),
    " Einstein": ((7, 1, " Albert"), (7, 2, "Albert")),
    " Jackson": (
        (7, 1, " Michael"), (7, 2, " Peter"), (7, 3, "Michael"), (7, 4, " Jesse"), (7, 5, "Peter"), (7, 6, " Janet"),
    ),
    " chloride": (
        (7, 1, " aluminum"), (7, 3, " copper"), (7, 6, " vinyl"), (7, 7, " sodium"), (7, 8, " platinum"),
        (10, 2, " potassium"), (10, 3, " sodium"),
    ),
    " century": ((3, 1, " 19"), (3, 7, " nineteenth"), (7, 1, " 21"), (7, 6, " twentieth")),
}  # fmt: skip
PAPER_TABLE = tuple((head, query, key, rank) for query, rows in TABLE_1.items() for head, rank, key in rows)

# torch.manual_seed(42); torch.randint(0, 50257, (100,)): the tokens of the authors' heatmaps
AUTHORS_SAMPLE = (
    11486, 31563, 6140, 17682, 13134, 22911, 20243, 43382, 18369, 45413, 15311, 43463, 41719, 22475, 24320, 38446,
    16968, 20582, 47240, 49338, 7686, 47136, 28857, 3697, 30919, 39757, 26019, 27807, 39021, 24161, 38411, 990, 28475,
    46682, 36568, 44593, 2841, 46086, 23416, 14331, 50170, 7618, 7880, 2603, 35445, 11354, 15730, 33050, 39118, 11726,
    10113, 16030, 6922, 11694, 25964, 49817, 40076, 29911, 32945, 28978, 41826, 6907, 279, 35317, 15807, 31380, 41936,
    32080, 49857, 32995, 35332, 36480, 15960, 24005, 3369, 10285, 30665, 2821, 23503, 38004, 19961, 18281, 43167, 45475,
    42516, 38035, 29919, 3588, 18000, 45772, 10444, 12426, 42899, 43008, 2776, 35755, 45464, 35984, 34032, 1832,
)  # fmt: skip
# the authors' published AUROC of each head, and attention from position 500 in head 7
AUTHORS_AUROC = (0.732, 0.404, 0.549, 0.634, 0.694, 0.286, 0.793, 0.876, 0.445, 0.401, 0.615, 0.806)
AUTHORS_MASSES = {"first": 0.000, "far": 0.007, "recent": 0.830, "self": 0.164}
# the authors' notebook: Tᵉᵉ of the query `iens` in head 7, with its bigram counts
AUTHORS_SCORES = {"Al": (41.4377, 2513), " sap": (41.0090, 9408), " Al": (38.2491, 0), " Sap": (29.0794, 1117)}
AUTHORS_SMALLEST = (" TY", -42.4261)


class Inapplicable(Exception):
    """A claim can't be judged on this model with these inputs, and why."""


class Finding(NamedTuple):
    """What a model shows of a claim; `agrees` is None if the claim can't be judged."""

    found: str
    agrees: bool | None = None
    why: str = ""
    number: float | None = None


@dataclass(frozen=True)
class Claim:
    """A claim, where the paper makes it, what it says there, and the rule that judges it."""

    where: str
    text: str
    says: str
    judge: Callable[[Evidence], Finding]
    command: str
    number: float | None = None
    source: Source = "paper"


CLAIMS: list[Claim] = []


def claim(where: str, text: str, says: str, command: str, **more: Any) -> Callable[..., Any]:
    """Add a claim with the decorated rule."""

    def add(judge: Callable[[Evidence], Finding]) -> Callable[[Evidence], Finding]:
        CLAIMS.append(Claim(where, text, says, judge, command, **more))
        return judge

    return add


class Evidence:
    """The answers that claims are judged by, asked when first needed."""

    def __init__(self, study: Study) -> None:
        self.study, self.layer = study, study.layer
        self._answers: dict[str, Answer] = {}

    def answer(self, question: Question) -> Answer:
        """An answer; inapplicable without its inputs."""
        name = repr(question)
        if name not in self._answers:
            try:
                self._answers[name] = self.study.ask(question)
            except MissingError as error:
                raise Inapplicable(MISSING[error.need]) from error
            except (CorpusError, RangeError, TokenError) as error:
                raise Inapplicable(str(error)) from error
        return self._answers[name]

    def ask(self, question: Question) -> Mapping[str, pl.DataFrame]:
        """The tables of an answer."""
        return self.answer(question).tables

    @cached_property
    def is_gpt2(self) -> bool:
        return is_gpt2_small(self.layer)

    def of_gpt2(self) -> None:
        """Continue with GPT-2 small only."""
        if not self.is_gpt2:
            raise Inapplicable(ABOUT_GPT2)

    def learned(self) -> None:
        """Continue with learned positions only."""
        if self.layer.positions != "learned":
            raise Inapplicable(
                f"it needs learned position embeddings, and this model has {KINDS[self.layer.positions]}"
            )

    def token(self, text: str) -> int:
        try:
            return self.layer.token_id(text)
        except TokenError as error:
            raise Inapplicable(f"the vocabulary has no token {text!r}") from error

    @cached_property
    def sampled(self) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
        """The authors' 100 tokens if the vocabulary is GPT-2's, else 100 random ones, and Tᵉᵉ between them by head."""
        size = min(len(AUTHORS_SAMPLE), self.layer.vocab_size)
        drawn = np.array(AUTHORS_SAMPLE) if self.is_gpt2 else draw_tokens(self.layer.vocab_size, size, self.study.seed)
        affinity = self.layer.token_affinity("mean")
        return drawn, identical_tokens(affinity, drawn, drawn_scores(affinity, drawn))

    def scores_of(self, query: str) -> np.ndarray:
        """Tᵉᵉ of a query token in head 7 with every key, with σ as the authors' code has it."""
        affinity = self.layer.token_affinity("published", heads=[DETOKENIZING])
        return affinity.scores(np.array([self.token(query)]))[0, 0]

    @cached_property
    def shape(self) -> pl.DataFrame:
        return self.ask(Shape())["shape"].sort("head")

    def shape_from(self, place: int) -> pl.DataFrame:
        """The shape from one of the default query positions: 0, 1 and 2 are the paper's 50, 500 and 1000."""
        queries = self.shape["query_position"].unique().sort()
        return self.shape.filter(query_position=queries[min(place, len(queries) - 1)])

    def curve(self, quantity: str, place: int = 1) -> pl.DataFrame:
        """A position term from one of the default query positions, with LayerNorm."""
        self.learned()
        rows = self.ask(Positions())["positions"].filter(quantity=quantity, layer_norm=True)
        queries = rows["query_position"].unique().sort()
        return rows.filter(query_position=queries[min(place, len(queries) - 1)])


MISSING = {
    "counts": "it needs corpus counts: pass --counts",
    "text": "it needs text: pass --text",
    "vocabulary": "it needs a tokenizer",
    "position_table": "it needs learned position embeddings",
    "causal": "it needs causal attention",
}
KINDS = {"rotary": "rotary positions", "alibi": "ALiBi"}
ABOUT_GPT2 = "a number, head or token of GPT-2 small"
OTHER_CORPUS = "depends on the corpus: the paper counted OpenWebText"


def is_gpt2_small(layer: Layer) -> bool:
    """Whether this is the paper's model, by its sizes and, with a tokenizer, by a word of its vocabulary."""
    sizes = (layer.n_heads, layer.d_head, layer.d_model, layer.n_positions, layer.vocab_size)
    is_sized = sizes == (12, 64, 768, 1024, 50257) and layer.positions == "learned"
    return is_sized and (not layer.has_vocabulary or layer.vocabulary.encode(" sapiens") == [31841, 10465])


def judged(study: Study, claims: Sequence[Claim] = CLAIMS) -> pl.DataFrame:
    """One row per claim, as PAPER_CLAIMS."""
    evidence, rows = Evidence(study), []
    for each in claims:
        try:
            found = each.judge(evidence)
        except Inapplicable as reason:
            found = Finding("", None, str(reason))
        verdict: Outcome = "not applicable" if found.agrees is None else "agrees" if found.agrees else "differs"
        row = (each.where, each.text, verdict, found.found or None, each.says, found.why or None, found.number)
        rows.append((*row, each.number, each.source, each.command))
    schema = {column.name: column.polars_type for column in PAPER_CLAIMS.columns}
    return PAPER_CLAIMS.conform(pl.DataFrame(rows, schema=schema, orient="row"))


def paper_ranks(layer: Layer) -> pl.DataFrame | None:
    """The paper's rank and ours for every row of Table 1; None if the model has none of its tokens and heads."""

    def known(text: str) -> int | None:
        try:
            return layer.token_id(text)
        except TokenError:
            return None

    ids = [(known(query), known(key)) for _, query, key, _ in PAPER_TABLE]
    places = [n for n, pair in enumerate(ids) if None not in pair and PAPER_TABLE[n][0] < layer.n_heads]
    if not places or layer.positions != "learned":
        return None
    queries, keys = np.array([ids[place] for place in places], dtype=np.int64).T
    found_ranks, found_scores = pair_ranks(layer.token_affinity("mean"), queries, keys[None])
    ranks: list[int | None] = [None] * len(PAPER_TABLE)
    scores: list[float | None] = [None] * len(PAPER_TABLE)
    for column, place in enumerate(places):
        ranks[place] = int(found_ranks[0, PAPER_TABLE[place][0], column])
        scores[place] = float(found_scores[0, PAPER_TABLE[place][0], column])
    heads, query_tokens, key_tokens, paper = zip(*PAPER_TABLE, strict=True)
    return PAPER_RANKS.frame(
        {
            "head": heads,
            "query_token": query_tokens,
            "key_token": key_tokens,
            "joined": [key + query for key, query in zip(key_tokens, query_tokens, strict=True)],
            "paper_rank": paper,
            "rank": ranks,
            "difference": [None if rank is None else rank - given for rank, given in zip(ranks, paper, strict=True)],
            "score": scores,
        }
    )


def of_heads(which: Sequence[bool] | pl.Series, share: float, why: str = "") -> Finding:
    """Whether a claim holds in at least this share of heads; the others are named."""
    holds = [bool(each) for each in which]
    others = [head_name(head) for head, each in enumerate(holds) if not each]
    named = f"not in {listed_some(others, NAMED)}" if 0 < len(others) < len(holds) else ""
    remark = "; ".join(part for part in (named, why) if part)
    enough = sum(holds) >= share * len(holds) if share > MOST else sum(holds) > share * len(holds)
    return Finding(f"{sum(holds)} of {len(holds)} heads", enough, remark, float(sum(holds)))


def span(values: pl.Series, digits: int = 2) -> str:
    """`0.10 to 0.37`."""
    low, high = (
        f"{value:.{digits}f}".replace("-", "−") for value in (values.to_numpy().min(), values.to_numpy().max())
    )
    return f"{low} to {high}"


def interval(values: np.ndarray) -> str:
    """`−47, 127`."""
    return f"{values.min():.0f}, {values.max():.0f}".replace("-", "−")


def of_number(found: float | None, paper: float, tolerance: float, digits: int = 2, why: str = "") -> Finding:
    """Whether a number is the paper's, up to a tolerance."""
    if found is None or np.isnan(found):
        raise Inapplicable("it is undefined here")
    return Finding(f"{found:.{digits}f}", abs(found - paper) <= tolerance, why, float(found))


# --- section 3: the decomposition


@claim("§ 3.5, eq. 11", "the terms add up to the attention: largest difference below 1e-4", "exact", "explain")
def _terms_add_up(e: Evidence) -> Finding:
    e.learned()
    layer, weights = e.layer, e.layer.weights
    if weights.norm_kind != "layer" or weights.softcap is not None or weights.window is not None:
        raise Inapplicable("checked for plain LayerNorm and softmax; detoklens verify compares with transformers")
    length = min(32, layer.n_positions)
    ids = np.random.default_rng(e.study.seed).integers(0, layer.vocab_size, length)
    if weights.padding_token_id is not None:
        ids[ids == weights.padding_token_id] = (weights.padding_token_id + 1) % layer.vocab_size
    x = weights.token_embeddings[ids].astype(np.float64) + weights.position_embeddings[:length]
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + weights.norm_epsilon)
    x = x * weights.norm_gain + weights.norm_bias
    query = np.einsum("id,dhk->hik", x, weights.query_weight) + weights.query_bias[:, None]
    key = np.einsum("id,dhk->hik", x, weights.key_weight) + weights.key_bias[:, None]
    scores = query @ np.repeat(key, weights.heads_per_key, axis=0).transpose(0, 2, 1) * layer.attention_scale
    attention = layer.terms(ids).attention()
    visible = [slice(row + 1) if layer.is_causal else slice(None) for row in range(length)]
    gap = max(
        float(np.abs(softmax(scores[:, row, keys]) - attention[:, row, keys]).max()) for row, keys in enumerate(visible)
    )
    return Finding(f"{gap:.1g}", gap < 1e-4, "in attention, computed directly with the key bias", gap)


@claim("§ 3.4", "the key bias has no effect on attention", "meaningless", "explain")
def _key_bias(e: Evidence) -> Finding:
    bias = e.layer.weights.key_bias
    if not bias.any():
        raise Inapplicable("the model has no key bias")
    if e.layer.positions == "rotary":
        return Finding("it has one", False, "rotary positions turn the key bias with the key, so it does not cancel")
    return Finding("none", True, "it adds the same to all keys of a query, which the softmax cancels")


# --- section 4: token terms


def _rank_of(e: Evidence, key: str, head: int) -> int:
    e.of_gpt2()
    query, wanted = (np.array([e.token(text)]) for text in ("iens", key))
    ranks, _ = pair_ranks(e.layer.token_affinity("mean", heads=[head]), query, wanted[None])
    return int(ranks[0, 0, 0])


@claim("§ 4.1, Fig. 2A", "for `iens`, ` sap` has the largest Tᵉᵉ in L0H4", "rank 1", "partners", number=1)
def _sap_in_four(e: Evidence) -> Finding:
    rank = _rank_of(e, " sap", 4)
    return Finding(f"rank {rank}", rank == 1, "", rank)


@claim("§ 4.1, Fig. 2A", "for `iens`, ` sap` and `Al` have the two largest Tᵉᵉ in L0H7", "ranks 1 and 2", "partners")
def _sap_in_seven(e: Evidence) -> Finding:
    ranks = [_rank_of(e, key, DETOKENIZING) for key in (" sap", "Al")]
    why = "the caption puts ` sap` first, the authors' notebook `Al`"
    return Finding(f"ranks {ranks[0]} and {ranks[1]}", sorted(ranks) == [1, 2], why, ranks[0])


@claim("Table 1", "34 ranks of preceding tokens: at least 32 within 1 of the paper's", "34 ranks", "paper", number=34)
def _table_1(e: Evidence) -> Finding:
    ranks = paper_ranks(e.layer)
    if ranks is None:
        raise Inapplicable("the model has none of its tokens and heads")
    known = ranks["difference"].drop_nulls()
    same, near = int((known == 0).sum()), int((known.abs() <= 1).sum())
    found = f"{same} of {len(known)} equal, {near} within 1"
    return Finding(found, near >= 32 if e.is_gpt2 else None, "" if e.is_gpt2 else ABOUT_GPT2, near)


@claim(
    "§ 4.2, Fig. 2B",
    "some heads have a diagonal (self-match of at least 2 standard deviations), some do not",
    "two kinds",
    "heatmap",
)
def _two_kinds(e: Evidence) -> Finding:
    matching = e.sampled[1]["self_match"] >= 2
    return Finding(
        f"{matching.sum()} of {len(matching)} heads have one", 0 < matching.sum() < len(matching), "", matching.sum()
    )


for _head, _low, _high, _note in (
    (SAME_TOKEN, -47, 127, "§ 5.4 gives (−50, 100)"),
    (DETOKENIZING, -35, 31, ""),
):

    @claim(
        "§ 4.2, Fig. 2B",
        f"range of Tᵉᵉ over the authors' 100 tokens in {head_name(_head)}, ends within 2",
        f"({_low}, {_high})".replace("-", "−"),
        "heatmap",
    )
    def _range(e: Evidence, head: int = _head, ends: tuple[int, int] = (_low, _high), note: str = _note) -> Finding:
        e.of_gpt2()
        found = [float(e.sampled[1][name][head]) for name in ("minimum", "maximum")]
        near = all(abs(one - other) <= 2 for one, other in zip(found, ends, strict=True))
        return Finding(f"({interval(np.array(found))})", near, note)


@claim("§ 4.2, Fig. 2B", "L0H1 has a clear diagonal and L0H7 has none", "L0H1 only", "heatmap")
def _diagonals(e: Evidence) -> Finding:
    e.of_gpt2()
    one, seven = (float(e.sampled[1]["self_match"][head]) for head in (SAME_TOKEN, DETOKENIZING))
    return Finding(f"self-match {one:.1f} and {seven:.1f}", one >= 2 > seven, "", one)


for _key, (_score, _count) in AUTHORS_SCORES.items():

    @claim(
        "notebook",
        f"Tᵉᵉ of `iens` and `{_key}` in L0H7, published σ, within 0.05",
        f"{_score:.4f}",
        "partners",
        number=_score,
        source="authors' files",
    )
    def _notebook_score(e: Evidence, key: str = _key, score: float = _score) -> Finding:
        e.of_gpt2()
        return of_number(float(e.scores_of("iens")[e.token(key)]), score, 0.05, 4)

    @claim(
        "notebook",
        f"bigram count of `{_key}` and `iens`, within 1 %",
        f"{_count:,}",
        "auroc",
        number=_count,
        source="authors' files",
    )
    def _notebook_count(e: Evidence, key: str = _key, count: int = _count) -> Finding:
        e.of_gpt2()
        if e.study.counts is None:
            raise Inapplicable(MISSING["counts"])
        keys, counts = e.study.counts.predecessors(e.token("iens"))
        found = int(counts[keys == e.token(key)].sum())
        return Finding(f"{found:,}", abs(found - count) <= 0.01 * count, OTHER_CORPUS, found)


@claim(
    "notebook",
    "smallest Tᵉᵉ of `iens` in L0H7, published σ, within 0.05",
    "` TY`, −42.4261",
    "partners",
    number=AUTHORS_SMALLEST[1],
    source="authors' files",
)
def _notebook_smallest(e: Evidence) -> Finding:
    e.of_gpt2()
    scores = e.scores_of("iens")
    lowest = int(scores.argmin())
    near = lowest == e.token(AUTHORS_SMALLEST[0]) and abs(float(scores.min()) - AUTHORS_SMALLEST[1]) <= 0.05
    return Finding(f"`{e.layer.token(lowest)}`, {scores.min():.4f}".replace("-", "−"), near, "", float(scores.min()))


@claim("§ 4.2, Fig. 2C", "AUROC of `iens` in L0H7, within 0.02", "0.90", "auroc", number=0.90, source="authors' files")
def _roc(e: Evidence) -> Finding:
    e.of_gpt2()
    tokens = [e.token("iens")]
    by_token = e.ask(Auroc(tokens=tokens, heads=[DETOKENIZING], controls=False))["auroc_by_token"]
    return of_number(by_token["auroc"][0], 0.90, 0.02, 2, OTHER_CORPUS)


@claim("§ 4.2, Fig. 2D", "some head ranks frequent bigrams high: lexical beyond its controls", "several heads", "auroc")
def _some_head(e: Evidence) -> Finding:
    verdict = e.answer(Auroc(pieces=True)).verdict
    if verdict is None or verdict.value == "untestable":
        raise Inapplicable("untestable: " + ("no verdict" if verdict is None else verdict.reason))
    return Finding(listed_some(verdict.heads, NAMED) or "no head", bool(verdict), verdict.reason, len(verdict.heads))


@claim("§ 4.2, Fig. 2D", "L0H7 has the largest mean AUROC", "L0H7", "auroc", number=DETOKENIZING)
def _largest_auroc(e: Evidence) -> Finding:
    e.of_gpt2()
    best = e.ask(Auroc())["auroc_by_head"].sort("all", descending=True).row(0, named=True)
    return Finding(f"{head_name(best['head'])} ({best['all']:.3f})", best["head"] == DETOKENIZING, "", best["head"])


@claim(
    "§ 4.2, Fig. 2D",
    "mean AUROC of the 12 heads: largest difference at most 0.03",
    ".286 to .876",
    "auroc",
    source="authors' files",
)
def _all_aurocs(e: Evidence) -> Finding:
    e.of_gpt2()
    found = e.ask(Auroc())["auroc_by_head"].sort("head")["all"].to_numpy()
    gap = float(np.abs(found - AUTHORS_AUROC).max())
    return Finding(f"largest difference {gap:.3f}", gap <= 0.03, OTHER_CORPUS, gap)


@claim(
    "§ 4.2",
    "heads with a diagonal detokenize less: rank correlation of self-match and AUROC below −0.5",
    "less likely",
    "heads",
)
def _diagonal_heads(e: Evidence) -> Finding:
    by_head = e.ask(Auroc(pieces=True))["auroc_by_head"].sort("head")
    if e.layer.n_heads < 8 or by_head["seen"].null_count():
        raise Inapplicable("it needs at least eight heads with an AUROC")
    found = spearman(e.sampled[1]["self_match"], np.argsort(np.argsort(by_head["seen"].to_numpy())))
    if found is None:
        raise Inapplicable("it is undefined here")
    return Finding(f"ρ {found:+.2f}".replace("-", "−"), found < -0.5, "over heads", found)


for _what, _number, _tolerance in (
    ("documents counted", DOCUMENTS, 0.01),
    ("tokens counted", TOKENS, 0.01),
    ("distinct bigrams counted", BIGRAMS, 0.01),
):

    @claim("OpenWebText", f"{_what}, within 1 %", f"{_number:,.0f}", "count", number=_number, source="authors' files")
    def _corpus(e: Evidence, what: str = _what, number: float = _number, tolerance: float = _tolerance) -> Finding:
        e.of_gpt2()
        counts = e.study.counts
        if counts is None:
            raise Inapplicable(MISSING["counts"])
        totals = counts.manifest.get("totals", {})
        kind = what.split()[-2]
        found = totals.get({"bigrams": "distinct_bigrams"}.get(kind, kind))
        if found is None:
            raise Inapplicable("the counts do not say")
        return Finding(f"{found:,.0f}", abs(found - number) <= tolerance * number, OTHER_CORPUS, float(found))


# --- section 5: position terms


@claim(
    "§ 5.1, Fig. 3A", "Tᵖ rises along the keys in nearly every head: rank correlation at least 0.9", "monotone", "shape"
)
def _rising(e: Evidence) -> Finding:
    e.learned()
    known = e.shape_from(2)["monotone"]
    if known.null_count() == len(known):
        raise Inapplicable("Tᵖ is constant: there is no query bias")
    falling = [head_name(head) for head, value in enumerate(known) if value is not None and value <= -0.9]
    return of_heads(
        known.fill_null(0) >= 0.9, NEARLY_EVERY, f"falls in {listed_some(falling, NAMED)}" if falling else ""
    )


@claim("§ 5.1, Fig. 3A", "Tᵖ is a line in nearly every head: R² at least 0.9, above random walks", "linear", "shape")
def _lines(e: Evidence) -> Finding:
    e.learned()
    known = e.shape_from(2)["linear"]
    if known.null_count() == len(known):
        raise Inapplicable("too few positions, or Tᵖ is constant")
    return of_heads(known.fill_null(False), NEARLY_EVERY)


@claim(
    "§ 5.2, Fig. 3B",
    "Tᵖᵖ is a wave in most heads: half of its power in one wave, above random walks",
    "undulating",
    "shape",
)
def _waves(e: Evidence) -> Finding:
    e.learned()
    known = e.shape_from(2).select("sinusoidal", "period", "wave_share")
    if known["sinusoidal"].null_count() == len(known):
        raise Inapplicable("fewer than 48 keys or 1.5 periods are in view")
    found = known.filter("sinusoidal")
    said = ""
    if len(found):
        said = f"periods of {span(found['period'], 0)} positions"
    return of_heads(known["sinusoidal"].fill_null(False), MOST, said)


def _near_is_higher(e: Evidence, quantity: str) -> Finding:
    """Heads whose mean over the last 15 keys exceeds the mean over the others, from the middle query position."""
    rows = e.curve(quantity)
    query = rows["query_position"][0]
    near = pl.col("key_position") > query - NEAR
    means = (
        rows.filter(pl.col("key_position") <= query)
        .group_by("head")
        .agg(near=pl.col("mean").filter(near).mean(), far=pl.col("mean").filter(~near).mean())
    )
    return of_heads(
        means.sort("head").select(pl.col("near") > pl.col("far")).to_series().fill_null(False), NEARLY_EVERY
    )


@claim(
    "§ 5.2, Fig. 3B",
    "Tᵖᵖ is higher on the last 15 tokens than elsewhere in nearly every head",
    "close tokens",
    "positions",
)
def _pp_near(e: Evidence) -> Finding:
    return _near_is_higher(e, "pp")


@claim(
    "§ 5.3, Fig. 3C",
    "Tᵖ + Tᵖᵖ is higher on the last 15 tokens than elsewhere in nearly every head",
    "nearby",
    "positions",
)
def _sum_near(e: Evidence) -> Finding:
    return _near_is_higher(e, "p+pp")


@claim(
    "§ 5.3, Fig. 3D",
    "by position alone, most heads attend to the last 15 tokens: more than half of the softmax",
    "concentrated on nearby tokens",
    "shape",
)
def _local(e: Evidence) -> Finding:
    there = e.shape_from(1)
    holds = there["last_15"] > 0.5
    local = [head_name(head) for head, near in enumerate(holds) if near]
    found = of_heads(holds, MOST)
    return found._replace(
        why=f"from position {there['query_position'][0]}; only {listed_some(local, NAMED)}" if local else ""
    )


@claim("§ 5.3, Fig. 3D", "L0H1 and L0H7 by position alone: more than half on the last 15 tokens", "both", "shape")
def _local_heads(e: Evidence) -> Finding:
    e.of_gpt2()
    one, seven = (float(e.shape_from(1)["last_15"][head]) for head in (SAME_TOKEN, DETOKENIZING))
    return Finding(f"{one:.2f} and {seven:.2f}", min(one, seven) > 0.5, "", seven)


@claim(
    "§ 5.3, Fig. 3D",
    "the softmax suppresses the wave: total variation without it at most 0.1 in most heads",
    "almost entirely",
    "shape",
)
def _suppressed(e: Evidence) -> Finding:
    e.learned()
    there = e.shape_from(2)
    known = there["wave_effect"].drop_nulls()
    if known.is_empty():
        raise Inapplicable("fewer than 1.5 periods of the wave are in view")
    why = f"from position {there['query_position'][0]}, {len(known)} of {len(there)} heads"
    return Finding(span(known), bool((known <= 0.1).sum() > len(known) / 2), why, float(known.to_numpy().max()))


@claim("§ 5.4, Fig. 3B", "Tᵖᵖ of L0H1 lies in (−40, 0) across positions, ends within 10", "(−40, 0)", "positions")
def _narrow(e: Evidence) -> Finding:
    e.of_gpt2()
    pp, both = (e.curve(quantity).filter(head=SAME_TOKEN)["mean"].to_numpy() for quantity in ("pp", "p+pp"))
    why = f"Tᵖ + Tᵖᵖ, the paper's Figure 3C, lies in ({interval(both)})"
    return Finding(f"({interval(pp)})", abs(pp.min() + 40) <= 10 and abs(pp.max()) <= 10, why, float(pp.min()))


def _agreement(e: Evidence, head: int) -> dict[str, Any]:
    e.of_gpt2()
    rows = e.ask(Attention(prepend_bos=False))["attention_agreement"].filter(head=head)
    queries = rows["query_position"].unique().sort()
    return rows.filter(query_position=queries[len(queries) // 2]).row(0, named=True)


@claim(
    "§ 5.4, Fig. 3E", "on text, L0H7 attends as positions predict: total variation at most 0.15", "similar", "attention"
)
def _as_predicted(e: Evidence) -> Finding:
    found = _agreement(e, DETOKENIZING)["total_variation"]
    return Finding(f"{found:.2f}", found <= 0.15, "", found)


@claim("§ 5.4, Fig. 3E", "on text, L0H1 attends mostly to itself: more than half", "predominantly", "attention")
def _to_itself(e: Evidence) -> Finding:
    found = _agreement(e, SAME_TOKEN)["measured_self"]
    return Finding(f"{found:.2f}", found > 0.5, "", found)


@claim(
    "§ 5.4, Fig. 3E",
    "L0H7 from 500 on [0 | 1–484 | 485–499 | itself], each within 0.03",
    ".000 .007 .830 .164",
    "attention",
    source="authors' files",
)
def _masses(e: Evidence) -> Finding:
    row = _agreement(e, DETOKENIZING)
    found = {region: row[f"measured_{region}"] for region in AUTHORS_MASSES}
    near = all(abs(found[region] - value) <= 0.03 for region, value in AUTHORS_MASSES.items())
    return Finding(" ".join(f"{value:.3f}" for value in found.values()), near, OTHER_CORPUS, found["recent"])


# --- section 6: the other terms, LayerNorm and the ends of the position table


@claim(
    "§ 6.1, Fig. 4",
    "ee, p and pp contribute most, then e, then pe and ep (mean over heads)",
    "ee p pp > e > pe ep",
    "contributions",
)
def _contributions(e: Evidence) -> Finding:
    bos = e.study.layer.has_vocabulary and not e.study.texts.given and e.is_gpt2  # as in the authors' code
    by_head = e.ask(Contributions(prepend_bos=True if bos else None))["contributions_by_head"]
    if by_head["term"].n_unique() < 6:
        raise Inapplicable("the model has fewer than six terms")
    means = by_head.group_by("term").agg(pl.col("kl").mean()).sort("kl", descending=True)
    order, kl = means["term"].to_list(), dict(means.iter_rows())
    agrees = set(order[:3]) == {"ee", "p", "pp"} and order[3] == "e"
    return Finding(" ".join(order), agrees, f"largest: {term_symbol(order[0])}, {kl[order[0]]:.2f} nats", kl[order[0]])


def _frequency(e: Evidence) -> Mapping[str, pl.DataFrame]:
    if e.study.counts is None:
        raise Inapplicable(MISSING["counts"])
    return e.ask(Frequency())


for _head, _number in ((DETOKENIZING, -0.68), (SAME_TOKEN, -0.31)):

    @claim(
        "§ 6.2, Fig. 5",
        f"Spearman of Tᵉ with frequency in {head_name(_head)}, within 0.03",
        f"{_number}".replace("-", "−"),
        "frequency",
        number=_number,
    )
    def _assertion(e: Evidence, head: int = _head, number: float = _number) -> Finding:
        e.of_gpt2()
        found = _frequency(e)["frequency_by_head"].filter(head=head)["spearman"][0]
        return of_number(found, number, 0.03, 2, OTHER_CORPUS)


@claim(
    "§ 6.2, Fig. 5",
    "several heads' Tᵉ has a high correlation with frequency: |ρ| at least 0.5 in two or more",
    "several heads",
    "frequency",
)
def _several(e: Evidence) -> Finding:
    known = _frequency(e)["frequency_by_head"].drop_nulls("spearman").sort("head")
    if known.is_empty():
        raise Inapplicable("Tᵉ is constant: there is no query bias")
    high = known.filter(pl.col("spearman").abs() >= 0.5)["head"]
    return Finding(f"{len(high)} of {len(known)} heads", len(high) >= 2, f"ρ from {span(known['spearman'])}", len(high))


@claim(
    "§ 6.3, Fig. 6",
    "rare tokens have a high variance: Spearman of Var(e) with frequency below −0.3",
    "−0.63",
    "frequency",
    number=-0.63,
)
def _rare(e: Evidence) -> Finding:
    found = _frequency(e)["embedding_variance"]["spearman"][0]
    if found is None:
        raise Inapplicable("it is undefined here")
    return Finding(f"{found:.2f}".replace("-", "−"), found < -0.3, OTHER_CORPUS if e.is_gpt2 else "", found)


@claim("§ 6.3", "variance of the token norms, within 0.005 in GPT-2 small", "0.19", "frequency", number=0.19)
def _norms(e: Evidence) -> Finding:
    found = e.ask(Frequency())["embedding_variance"]["norm_variance"][0]
    agrees = abs(found - 0.19) <= 0.005 if e.is_gpt2 else None
    return Finding(f"{found:.3f}", agrees, "" if e.is_gpt2 else ABOUT_GPT2, found)


@claim(
    "§ 6.3", "LayerNorm equalizes the norms: their variance falls to less than a twentieth", "0.19 to 0.00", "frequency"
)
def _equalized(e: Evidence) -> Finding:
    row = e.ask(Frequency())["embedding_variance"].row(0, named=True)
    before, after = row["norm_variance"], row["divided_norm_variance"]
    if after is None or not before:
        raise Inapplicable("it is undefined here")
    return Finding(f"{before:.3f} to {after:.3f}", after < before / 20, "", after)


@claim("§ 6.3", "Var(e) is at least ten times the mean |Cov(e, p)|", "46 times", "frequency", number=46)
def _covariance(e: Evidence) -> Finding:
    e.learned()
    found = e.ask(Frequency())["embedding_variance"]["variance_to_covariance"][0]
    if found is None:
        raise Inapplicable("it is undefined here")
    return Finding(f"{found:.0f} times", found >= 10, "", found)


def _variances(e: Evidence) -> pl.DataFrame:
    e.learned()
    tables = e.ask(Variance())
    return tables["position_variance"].head(tables["trained_range"]["trained"][0])


@claim(
    "§ 6.4, Fig. 6",
    "the variance of most positions is constant: 90 % within a quarter of the median",
    "constant",
    "variance",
)
def _constant(e: Evidence) -> Finding:
    variance = _variances(e)["variance"].to_numpy()
    median = float(np.median(variance))
    share = float((np.abs(variance - median) <= median / 4).mean()) if median else 0.0
    return Finding(f"{100 * share:.0f} %", share >= 0.9, f"median {median:.4g}", share)


@claim(
    "§ 6.4, Fig. 6", "position 0 has an exceptionally high variance: an outlier above the median", "first", "variance"
)
def _first(e: Evidence) -> Finding:
    found = _variances(e)
    ratio = found["variance"][0] / float(np.median(found["variance"]))
    why = f"variance {found['variance'][0]:.3g}"
    return Finding(f"{ratio:.1f} times the median", bool(found["outlier"][0]) and ratio > 1, why, ratio)


@claim(
    "§ 6.4, Fig. 6",
    "the last position has an exceptionally low variance: an outlier below the median",
    "last",
    "variance",
)
def _last(e: Evidence) -> Finding:
    found = _variances(e)
    ratio = found["variance"][-1] / float(np.median(found["variance"]))
    why = f"variance {found['variance'][-1]:.3g}"
    return Finding(f"{ratio:.2g} times the median", bool(found["outlier"][-1]) and ratio < 1, why, ratio)


@claim("§ 6.4", "Tᵖ at position 0 is negative without LayerNorm in nearly every head", "negative", "variance")
def _negative(e: Evidence) -> Finding:
    e.learned()
    first = e.ask(Variance())["switch"].sort("head")["first_without_norm"]
    if not first.to_numpy().any():
        raise Inapplicable("Tᵖ is 0: there is no query bias")
    return of_heads(first < 0, NEARLY_EVERY)


@claim(
    "§ 6.4",
    "σ raises Tᵖ at position 0 above the next ten positions in nearly every head",
    "exceptionally high",
    "variance",
)
def _switched(e: Evidence) -> Finding:
    e.learned()
    switch = e.ask(Variance())["switch"].sort("head")
    if not switch["first_without_norm"].to_numpy().any():
        raise Inapplicable("Tᵖ is 0: there is no query bias")
    return of_heads((switch["by_scale"] > 0) & (switch["jump"] > 0), NEARLY_EVERY)


@claim(
    "§ 6.4",
    "its σ raises the attention on position 0, by position alone, in nearly every head (mean over queries)",
    "amplified",
    "shape",
)
def _sink(e: Evidence) -> Finding:
    e.learned()
    reach = e.ask(Shape())["reach"].filter(pl.col("query_position") > 0)
    if reach.is_empty():
        raise Inapplicable("there is one position")
    means = reach.group_by("head").mean().sort("head")
    own, usual = means["on_first"], means["on_first_usual_scale"]
    best = int((own - usual).arg_max() or 0)
    why = f"most in {head_name(best)}: {usual[best]:.3f} to {own[best]:.3f}"
    return of_heads(own > usual, NEARLY_EVERY, why)


@claim(
    "§ 6.4, Fig. 3D",
    "the sink fades with length: less than 5 % on position 0 from the middle in nearly every head",
    "suppressed",
    "shape",
)
def _fades(e: Evidence) -> Finding:
    e.learned()
    return of_heads(e.shape_from(1)["on_first"] < 0.05, NEARLY_EVERY)


@claim(
    "§ 6.4",
    "value vectors at position 0 are shorter than at the next ten positions in nearly every head",
    "19.4 times (GPT-2 medium, Gurnee et al.)",
    "variance",
)
def _values(e: Evidence) -> Finding:
    e.learned()
    ratio = e.ask(Variance())["switch"].sort("head")["value_norm_ratio"]
    if ratio.null_count():
        raise Inapplicable("it is undefined here")
    why = f"norm {span(ratio)} of theirs"
    return of_heads(ratio < 1, NEARLY_EVERY, why)._replace(number=float(np.median(1 / ratio.to_numpy())))


@claim(
    "§ 6.4, Fig. 7",
    "Tᵖᵖ without LayerNorm is flat from the last position: it departs as if untrained in every head",
    "flat at 1023",
    "variance",
)
def _flat(e: Evidence) -> Finding:
    e.learned()
    found = e.ask(Variance())["undertrained"].sort("head")
    if found["undertrained"].null_count():
        raise Inapplicable("untestable: the rows before it are untrained or too few")
    ratio = found["usual_size"] / found["size"]
    return of_heads(found["undertrained"], 1.0, f"{span(ratio, 0)} times smaller than from the four before")


@claim(
    "§ 6.4, Fig. 7",
    "Tᵖᵖ from the four positions before it overlaps: departures of at most 0.1 in every head",
    "overlap",
    "variance",
)
def _overlap(e: Evidence) -> Finding:
    e.learned()
    found = e.ask(Variance())["undertrained"].sort("head")["usual_departure"]
    if found.null_count():
        raise Inapplicable("there are too few positions")
    return of_heads(found <= 0.1, 1.0, f"departures of {span(found)}")


@claim("Limitations", "where is the switch that turns detokenization off for single-token words?", "open", "lookback")
def _switch(_e: Evidence) -> Finding:
    raise Inapplicable("an open question in the paper; see detoklens lookback")
