"""Ranks of a word's preceding piece, with the following piece as the query, for any list of words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
import polars as pl

from detoklens.errors import DetokLensError, TokenError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.ranking import pair_ranks
from detoklens.measures.words import (
    fingerprint_of,
    given_words,
    piece_ranks,
    rank_summary,
    split_words,
    token_texts,
    word_pairs,
)
from detoklens.questions.base import Verdict
from detoklens.questions.options import Joining
from detoklens.questions.parameters import Centred, Heads, Parameter, Scale
from detoklens.tables.schema import (
    HEAD,
    JOINED,
    KEY_TOKEN,
    KEY_TOKEN_ID,
    QUERY_TOKEN,
    QUERY_TOKEN_ID,
    RANK,
    SCORE,
    Column,
    Schema,
)
from detoklens.wording import head_name, listed, plural

if TYPE_CHECKING:
    from detoklens.measures.words import PieceRanks, SplitWord, WordPairs
    from detoklens.parallel import Runner
    from detoklens.questions.base import ByLabel, Frames
    from detoklens.questions.study import Study
    from detoklens.scores.layer import Layer, TokenScale


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


class PaperRow(NamedTuple):
    """The rank of a key token for a query token in a head."""

    head: int
    query: str
    key: str
    rank: int


# The paper prints " nineteenth century" for the last row, a misprint: its key is " twentieth".
PAPER_TABLE = (
    PaperRow(3, "yo", "Tok", 1),
    PaperRow(3, "yo", " Tok", 2),
    PaperRow(4, "yo", "Tok", 6),
    PaperRow(7, "yo", "Tok", 1),
    PaperRow(4, " Korea", " North", 1),
    PaperRow(7, " Korea", " North", 1),
    PaperRow(7, " Korea", "North", 2),
    PaperRow(7, " Korea", " South", 3),
    PaperRow(7, " Korea", "South", 4),
    PaperRow(1, " Obama", " Barack", 3),
    PaperRow(1, " Obama", "President", 8),
    PaperRow(4, " Obama", " Barack", 3),
    PaperRow(5, " Obama", " Barack", 5),
    PaperRow(7, " Obama", " President", 2),
    PaperRow(7, " Obama", " Michelle", 3),
    PaperRow(7, " Einstein", " Albert", 1),
    PaperRow(7, " Einstein", "Albert", 2),
    PaperRow(7, " Jackson", " Michael", 1),
    PaperRow(7, " Jackson", " Peter", 2),
    PaperRow(7, " Jackson", "Michael", 3),
    PaperRow(7, " Jackson", " Jesse", 4),
    PaperRow(7, " Jackson", "Peter", 5),
    PaperRow(7, " Jackson", " Janet", 6),
    PaperRow(7, " chloride", " aluminum", 1),
    PaperRow(7, " chloride", " copper", 3),
    PaperRow(7, " chloride", " vinyl", 6),
    PaperRow(7, " chloride", " sodium", 7),
    PaperRow(7, " chloride", " platinum", 8),
    PaperRow(10, " chloride", " potassium", 2),
    PaperRow(10, " chloride", " sodium", 3),
    PaperRow(3, " century", " 19", 1),
    PaperRow(3, " century", " nineteenth", 7),
    PaperRow(7, " century", " 21", 1),
    PaperRow(7, " century", " twentieth", 6),
)


def paper_ranks(layer: Layer, heads: Sequence[int], scale: TokenScale, centred: bool) -> pl.DataFrame:
    """The paper's rank and ours for every row; null if this model lacks a token or the head is not among `heads`."""
    rows = PAPER_TABLE
    ids = [(_token_id(layer, row.query), _token_id(layer, row.key)) for row in rows]
    known = [place for place, pair in enumerate(ids) if None not in pair and rows[place].head in heads]
    if not known:
        raise TokenError(f"{layer.name} has none of the heads and tokens of the paper's Table 1; use gpt2")
    ranks: list[int | None] = [None] * len(rows)
    scores: list[float | None] = [None] * len(rows)
    queries, keys = np.array([ids[place] for place in known], dtype=np.int64).T
    found_ranks, found_scores = pair_ranks(layer.token_affinity(scale, centred), queries, keys[None])
    for column, place in enumerate(known):
        ranks[place] = int(found_ranks[0, rows[place].head, column])
        scores[place] = float(found_scores[0, rows[place].head, column])
    return PAPER_RANKS.frame(
        {
            "head": [row.head for row in rows],
            "query_token": [row.query for row in rows],
            "key_token": [row.key for row in rows],
            "joined": [row.key + row.query for row in rows],
            "paper_rank": [row.rank for row in rows],
            "rank": ranks,
            "difference": [None if rank is None else rank - row.rank for rank, row in zip(ranks, rows, strict=True)],
            "score": scores,
        }
    )


def _token_id(layer: Layer, text: str) -> int | None:
    try:
        return layer.token_id(text)
    except TokenError:
        return None


WORD = Column("word", "String", "the word or name, without leading space")

WORD_PIECES = Schema(
    "word_pieces",
    "Pieces of each word",
    (
        WORD,
        Column("pieces", "Int32", "number of tokens; a word of one token has no pair to rank"),
        Column("split", "String", "the tokens' texts, separated by |"),
    ),
)

WORD_RANKS = Schema(
    "word_ranks",
    "Ranks of preceding pieces by word and head",
    (
        WORD,
        Column("pair", "Int32", "index of the adjacent pair in the word, from 0"),
        KEY_TOKEN_ID,
        KEY_TOKEN,
        QUERY_TOKEN_ID,
        QUERY_TOKEN,
        HEAD,
        RANK,
        SCORE,
    ),
)

WORDS_BY_HEAD = Schema(
    "words_by_head",
    "Ranks of preceding pieces by head",
    (
        HEAD,
        Column("pairs", "Int32", "number of adjacent pairs of pieces"),
        Column("median_rank", "Float64", "median rank of the preceding piece"),
        Column("median_share", "Float64", "median rank as a share of the vocabulary; chance is 0.5"),
        Column(
            "null_median_share",
            "Float64",
            "median_share with each key ranked for another word's query; null with one word",
        ),
        Column("first", "Float64", "share of pairs at rank 1"),
        Column(
            "top_1_percent",
            "Float64",
            "share of pairs in the vocabulary's top 1 %; chance is 0.01; null below 100 tokens",
        ),
        Column(
            "top_10_percent",
            "Float64",
            "share of pairs in the vocabulary's top 10 %; chance is 0.1; null below 10 tokens",
        ),
    ),
)

NOTHING_SPLIT = "the tokenizer splits none of the words"
CLEARLY = 0.5  # largest ratio of a head's median rank to its null's
DEVIATIONS = 3.0
FEWEST_PAIRS = 20  # with fewer, both medians are too uncertain for a verdict


def words_file(words: Path | Sequence[str]) -> str:
    """The file of a word list on the command line; a placeholder for words given in Python."""
    return str(words) if isinstance(words, Path) else "WORDS.txt"


def by_file(*flag: str) -> Callable[[Path | Sequence[str]], list[str]]:
    """Format a word list as command-line arguments: the option, if any, and the file."""
    return lambda words: [*flag, words_file(words)]


@dataclass(frozen=True, repr=False)
class Words(Joining):
    """Rank the preceding piece of split words among all key tokens.

    Rank 1 is best. The control is the rank of another word's piece. A word of three or more pieces gives several
    adjacent pairs; unknown tokens are left out.

    Example: detoklens words gpt2 --centred
    """

    word_list: Annotated[
        Path | Sequence[str] | None,
        Parameter(
            "Word list, one word per line. Default: the bundled list.",
            metavar="[WORDS.txt]",
            positional=True,
            read=Path,
            spell=by_file(),
        ),
    ] = None
    paper: Annotated[bool, Parameter("Compare with the 34 ranks of the paper's Table 1 instead.")] = False
    no_space: Annotated[
        bool, Parameter("Split words without a leading space, as at the start of a text.", advanced=True)
    ] = False
    heads: Heads = None
    centred: Centred = False
    scale: Scale = "mean"

    topic = "What does a token look for?"
    progress_label = "ranking pieces"
    needs = frozenset({"vocabulary"})
    tables = (WORDS_BY_HEAD, WORD_PIECES, WORD_RANKS, PAPER_RANKS)
    compared_tables = ("words_by_head", "paper_ranks")
    by: ClassVar[Mapping[str, str]] = {"head": "words_by_head", "word": "word_ranks"}
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "words_by_head": ("head", "median_share", "null_median_share", "first", "top_1_percent", "top_10_percent"),
        "word_ranks": ("word", "head", "rank", "key_token", "query_token", "score"),
        "paper_ranks": ("head", "query_token", "key_token", "paper_rank", "rank", "difference", "score"),
    }
    equation = "rank of the preceding piece among all keys by Tᵉᵉ, with the following piece as query (ahead: reversed)"
    figures = (
        FigureSpec(
            "words",
            "words",
            ("words_by_head",),
            "Ranks of preceding pieces",
            "Median rank of a word's preceding piece for its following piece (ahead: the reverse), as a share of the "
            "vocabulary; smaller is better, 0.5 is chance. Hollow: the same for another word's query.",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.paper and self.word_list is not None:
            raise DetokLensError("the paper's table has its own words; omit the word list or the table")
        if self.paper and (self.offset, self.mean, self.direction) != (1, "none", "back"):
            raise DetokLensError("the paper's table is for learned positions; leave out offset, mean and direction")

    def settings(self, study: Study) -> dict[str, Any]:
        """The word list by its fingerprint; the paper's table has none."""
        given = super().settings(study)
        if self.paper:
            return {name: given[name] for name in ("paper", "heads", "centred", "scale")}
        return given | {"word_list": fingerprint_of(given_words(self.word_list))}

    def specs(self) -> Sequence[FigureSpec]:
        """The paper's table has no figure."""
        return () if self.paper else self.figures

    def table_by(self, row: str) -> str | None:
        return PAPER_RANKS.name if self.paper and row in self.by else super().table_by(row)

    def ask(self, study: Study, runner: Runner) -> Frames:
        if self.paper:
            return {"paper_ranks": paper_ranks(study.layer, study.heads(self.heads), self.scale, self.centred)}
        split = split_words(study.layer.vocabulary, given_words(self.word_list), not self.no_space)
        pieces = _pieces(study.layer, split)
        if self.word_list is None and not any(True for word in split for _ in word.pairs()):
            return {"words_by_head": WORDS_BY_HEAD.empty(), "word_pieces": pieces, "word_ranks": WORD_RANKS.empty()}
        pairs = word_pairs(split)
        ranked = self._ranked(study, pairs.ahead() if self.is_ahead else pairs, runner)
        runner.say(_counted(pieces["pieces"], len(ranked["word_ranks"]) // len(ranked["words_by_head"])))
        return {"words_by_head": ranked["words_by_head"], "word_pieces": pieces, "word_ranks": ranked["word_ranks"]}

    def _ranked(self, study: Study, pairs: WordPairs, runner: Runner) -> Frames:
        heads, layer = study.heads(self.heads), study.layer
        found = piece_ranks(self.affinity(study, self.scale, self.centred, heads), pairs, runner.watch)
        summary = {"head": heads, "pairs": [len(pairs.words)] * len(heads), **rank_summary(found, layer.vocab_size)}
        return {"words_by_head": WORDS_BY_HEAD.frame(summary), "word_ranks": _pair_by_pair(layer, heads, pairs, found)}

    def verdict(self, tables: Frames) -> Verdict | None:
        """ "yes" if a head ranks a word's own piece clearly above another word's; None for the paper's table."""
        return None if self.paper else words_verdict(tables["words_by_head"])

    def summarize(self, tables: Frames) -> str:
        """The head that ranks a word's own piece best against another word's, and whether it does so clearly."""
        if self.paper:
            return _summarize_paper(tables["paper_ranks"])
        found, best = self.verdict(tables), best_by_words(tables["words_by_head"])
        if best is None or found is None:
            return f"Untestable: {NOTHING_SPLIT}."
        name, null = head_name(best["head"]), best["null_median_share"]
        ranked = (
            f"median rank in the top {_share(best['median_share'])} of the vocabulary over {_pairs(best)}{self.manner}"
        )
        control = "" if null is None else f"; another word's piece is in the top {_share(null)}"
        if found.value == "untestable":
            return f"Untestable: {found.reason}. {name} ranks the {self._sought} highest: {ranked}{control}."
        if found:
            return f"{name} finds a word's {self._sought}: {ranked}{control}."
        return f"No head finds a word's {self._sought}: the closest, {name}, has its {ranked}{control}."

    def summarize_comparison(self, by_label: ByLabel) -> str:
        if self.paper:
            return super().summarize_comparison(by_label)
        best = {label: best_by_words(tables["words_by_head"]) for label, tables in by_label.items()}
        said = [
            f"{_share(row['median_share'])} in {label} ({head_name(row['head'])}{_beside(row)})"
            for label, row in best.items()
            if row
        ]
        if not said:
            return f"Untestable: {NOTHING_SPLIT}."
        of = f"a word's {self._sought} in the best head{self.manner}"
        return f"Median rank of {of}, as a share of the vocabulary: {listed(said)}."

    @property
    def _sought(self) -> str:
        return "following piece" if self.is_ahead else "preceding piece"


def words_verdict(by_head: pl.DataFrame) -> Verdict:
    """ "yes" if a head ranks a word's own piece clearly above another word's."""
    best = best_by_words(by_head)
    if best is None:
        return Verdict("untestable", NOTHING_SPLIT)
    if best["null_median_share"] is None:
        return Verdict("untestable", "one word has no other word as a control")
    if best["pairs"] < FEWEST_PAIRS:
        return Verdict("untestable", f"the words have {_pairs(best)} of pieces; at least {FEWEST_PAIRS} are needed")
    clearly = tuple(
        head_name(row["head"]) for row in by_head.sort("head").iter_rows(named=True) if is_clearly_better(row)
    )
    ratio = best["median_share"] / best["null_median_share"]
    reason = f"the median rank in {head_name(best['head'])} is {ratio:.2f} times that of another word's piece"
    if clearly:
        return Verdict("yes", reason, clearly)
    return Verdict("no", f"{reason}; we require at most {_required(best):.2f}")


def is_clearly_better(row: Mapping[str, Any]) -> bool:
    """Whether a head's median rank is at most half of its null's, or less if there are few pairs.

    The relative error of such a median is about 1/√pairs, that of a ratio of two √2 times as large.
    """
    null = row["null_median_share"]
    return null is not None and row["median_share"] <= _required(row) * null


def _required(row: Mapping[str, Any]) -> float:
    """The largest ratio of both medians that counts as clear."""
    return min(CLEARLY, 1 - DEVIATIONS * math.sqrt(2 / row["pairs"]))


def best_by_words(by_head: pl.DataFrame) -> dict[str, Any] | None:
    """The best rank among heads clearly better than their null; if there are none, the best ratio to the null."""
    clearly = pl.Series([is_clearly_better(row) for row in by_head.iter_rows(named=True)], dtype=pl.Boolean)
    against = pl.col("median_share") / pl.col("null_median_share")
    better = by_head.filter(clearly).sort("median_share", maintain_order=True)
    ordered = better if len(better) else by_head.sort(against, "median_share", nulls_last=True, maintain_order=True)
    return ordered.row(0, named=True) if len(ordered) else None


def _pairs(row: Mapping[str, Any]) -> str:
    return plural(row["pairs"], "pair")


def _beside(row: Mapping[str, Any]) -> str:
    null = row["null_median_share"]
    return "" if null is None else f"; another word's piece {_share(null)}"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _summarize_paper(found: pl.DataFrame) -> str:
    known = found["difference"].drop_nulls()
    return (
        f"This model has {len(known)} of the {len(found)} rows of the paper's Table 1; "
        f"{int((known == 0).sum())} have the paper's rank, {int((known.abs() <= 1).sum())} are within 1 of it."
    )


def _counted(pieces: pl.Series, pairs: int) -> str:
    single, double = int((pieces == 1).sum()), int((pieces == 2).sum())
    return (
        f"{len(pieces)} words: {single} of one token (left out), {double} of two, "
        f"{len(pieces) - single - double} of more; {pairs} pairs are ranked"
    )


def _pieces(layer: Layer, split: Sequence[SplitWord]) -> pl.DataFrame:
    return WORD_PIECES.frame(
        {
            "word": [word.word for word in split],
            "pieces": [len(word.token_ids) for word in split],
            "split": ["|".join(map(layer.token, word.token_ids)) for word in split],
        }
    )


def _pair_by_pair(layer: Layer, heads: Sequence[int], pairs: WordPairs, found: PieceRanks) -> pl.DataFrame:
    """One row per pair and head."""
    repeated = np.repeat(np.arange(len(pairs.words)), len(heads))
    keys, queries = token_texts(layer, pairs.keys), token_texts(layer, pairs.queries)
    return WORD_RANKS.frame(
        {
            "word": [pairs.words[place] for place in repeated],
            "pair": pairs.pair[repeated],
            "key_token_id": pairs.keys[repeated],
            "key_token": [keys[place] for place in repeated],
            "query_token_id": pairs.queries[repeated],
            "query_token": [queries[place] for place in repeated],
            "head": np.tile(np.asarray(heads), len(pairs.words)),
            "rank": found.ranks.T.ravel(),
            "score": found.scores.T.ravel(),
        }
    )
