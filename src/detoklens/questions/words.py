"""Ranks of a word's preceding piece, with the following piece as the query, for any list of words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import polars as pl

from detoklens.figures import theme
from detoklens.figures.marks import point_entry, reference
from detoklens.figures.panels import chosen_heads, head_rows, in_order, points
from detoklens.figures.spec import FigureSpec
from detoklens.measures.token_classes import exchange_classes
from detoklens.measures.words import (
    behind_best,
    fingerprint_of,
    given_words,
    null_ratios,
    piece_ranks,
    rank_summary,
    split_words,
    token_texts,
    word_pairs,
)
from detoklens.parallel import Runner
from detoklens.questions.base import ByLabel, Frames, ReportEntry, Verdict
from detoklens.questions.options import PairQuestion
from detoklens.questions.parameters import Centred, Heads, Parameter, Scale
from detoklens.questions.study import Study
from detoklens.tables.schema import (
    HEAD,
    KEY_TOKEN,
    KEY_TOKEN_ID,
    QUERY_TOKEN,
    QUERY_TOKEN_ID,
    RANK,
    SCORE,
    Column,
    Schema,
)
from detoklens.wording import head_name, listed, listed_some, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORD = Column("word", "the word or name, without leading space", "String")

WORD_PIECES = Schema(
    "word_pieces",
    "Pieces of each word",
    WORD,
    Column("pieces", "number of tokens; a word of one token has no pair to rank", "Int32"),
    Column("split", "the tokens' texts, separated by |", "String"),
)

WORD_RANKS = Schema(
    "word_ranks",
    "Ranks of preceding pieces by word and head",
    WORD,
    Column("pair", "index of the adjacent pair in the word, from 0", "Int32"),
    KEY_TOKEN_ID,
    KEY_TOKEN,
    QUERY_TOKEN_ID,
    QUERY_TOKEN,
    HEAD,
    RANK,
    SCORE,
)

WORDS_BY_HEAD = Schema(
    "words_by_head",
    "Ranks of preceding pieces by head",
    HEAD,
    Column("pairs", "number of adjacent pairs of pieces", "Int32"),
    Column("median_rank", "median rank of the preceding piece"),
    Column("median_share", "median rank as a share of the vocabulary; chance is 0.5"),
    Column("null_median_share", "the smaller of the two controls below; null with one word"),
    Column("plain_null_median_share", "median_share of another word's piece; null with one word"),
    Column(
        "class_null_median_share",
        "the same for pieces of the same orthographic class and frequency bin, mean of 8 draws; null with one word",
    ),
    Column("null_ratio", "median_share / null_median_share; null with one word"),
    Column("null_ratio_low", "lower end of its 95 % interval over words; null with fewer than 30 words"),
    Column("null_ratio_high", "upper end of that interval"),
    Column("behind", "median_share minus that of the best head"),
    Column("behind_low", "lower end of its 95 % interval over words; null with fewer than 30 words"),
    Column("behind_high", "upper end of that interval; a head is tied with the best if it contains 0"),
    Column("first", "share of pairs at rank 1"),
    Column("top_1_percent", "share of pairs in the vocabulary's top 1 %; chance is 0.01; null below 100 tokens"),
    Column("top_10_percent", "share of pairs in the vocabulary's top 10 %; chance is 0.1; null below 10 tokens"),
)

NOTHING_SPLIT = "the tokenizer splits none of the words"
CLEARLY = 0.5  # largest ratio of a head's median rank to its null's
DEVIATIONS = 3.0
MOST_NAMED = 2
FEWEST_PAIRS = 20  # with fewer, both medians are too uncertain for a verdict


def words_file(words: Path | Sequence[str]) -> str:
    """The file of a word list on the command line; a placeholder for words given in Python."""
    return str(words) if isinstance(words, Path) else "WORDS.txt"


def by_file(*flag: str) -> Callable[[Path | Sequence[str]], list[str]]:
    """Format a word list as command-line arguments: the option, if any, and the file."""
    return lambda words: [*flag, words_file(words)]


@dataclass(frozen=True, repr=False)
class Words(PairQuestion):
    """Rank the preceding piece of split words among all key tokens.

    Rank 1 is best. There are two controls, each the rank of a piece of another word: any piece, and one of the same
    orthographic class and frequency bin, which rules out heads that only know classes. A word of three or more pieces
    gives several adjacent pairs; unknown tokens are left out.

    Example: detoklens words gpt2 --centred
    """

    word_list: Annotated[
        Path | Sequence[str] | None,
        Parameter(
            "Word list, one word per line. Default: the bundled list.",
            metavar="WORDS.txt",
            positional=True,
            read=Path,
            spell=by_file(),
        ),
    ] = None
    no_space: Annotated[
        bool, Parameter("Split words without a leading space, as at the start of a text.", advanced=True)
    ] = False
    heads: Heads = None
    centred: Centred = False
    scale: Scale = "mean"

    progress_label = "ranking pieces"
    report_section = "Token partners"
    caveat = "Tests the pieces of listed words, not other pairs, and not attention on text."
    needs = frozenset({"vocabulary"})
    parallel = True
    tables = (WORDS_BY_HEAD, WORD_PIECES, WORD_RANKS)
    compared_tables = ("words_by_head",)
    by: ClassVar[Mapping[str, str]] = {"head": "words_by_head", "word": "word_ranks"}
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "words_by_head": ("head", "median_share", "null_median_share", "first", "top_1_percent", "top_10_percent"),
        "word_ranks": ("word", "head", "rank", "key_token", "query_token", "score"),
    }
    equation = "rank of the preceding piece among all keys by Tᵉᵉ, with the following piece as query (ahead: reversed)"
    figures = (
        FigureSpec(
            "words",
            ("words_by_head",),
            "Ranks of preceding pieces",
            "Median rank of a word's preceding piece for its following piece (ahead: the reverse), as a share of the "
            "vocabulary; smaller is better, 0.5 is chance. Hollow marks: the stronger control, another word's piece "
            "(any, or one of the same class).",
        ),
    )

    @classmethod
    def report_entries(cls, study: Study) -> Sequence[ReportEntry]:
        return [ReportEntry(cls(), compared=True, figure=None), *cls().report_variants(study, "words")]

    def settings(self, study: Study) -> dict[str, Any]:
        """The word list by its fingerprint."""
        return super().settings(study) | {"word_list": fingerprint_of(given_words(self.word_list))}

    def ask(self, study: Study, runner: Runner) -> Frames:
        layer, heads = study.layer, study.heads(self.heads)
        split = split_words(layer.vocabulary, given_words(self.word_list), not self.no_space)
        sizes = [len(word.token_ids) for word in split]
        columns = {
            "word": [word.word for word in split],
            "pieces": sizes,
            "split": ["|".join(map(layer.token, word.token_ids)) for word in split],
        }
        pieces = WORD_PIECES.frame(columns)
        if self.word_list is None and not any(True for word in split for _ in word.pairs()):
            return {
                "words_by_head": WORDS_BY_HEAD.of_rows([]),
                "word_pieces": pieces,
                "word_ranks": WORD_RANKS.of_rows([]),
            }
        pairs = word_pairs(split)
        if self.looks_ahead:
            pairs = pairs.ahead()
        classes = exchange_classes(layer.vocabulary, pairs.keys)
        tokens = np.union1d(study.meaningful_tokens(), np.concatenate([pairs.keys, pairs.queries]))
        affinity = self.affinity(study, self.scale, self.centred, heads).of_tokens(tokens)
        ranks = piece_ranks(affinity, pairs.places_in(tokens), classes, runner)
        by_head: dict[str, Any] = {"head": heads, "pairs": [len(pairs.words)] * len(heads)}
        by_head |= rank_summary(ranks, pairs.words, len(tokens))
        best = best_by_words(pl.DataFrame(by_head).fill_nan(None))
        by_head |= null_ratios(ranks, pairs.words).columns("null_ratio")
        place = heads.index(best["head"]) if best else 0
        by_head |= behind_best(ranks.ranks, pairs.words, place, len(tokens)).columns("behind")
        row = np.repeat(np.arange(len(pairs.words)), len(heads))  # one row per pair and head
        by_pair = {
            "word": np.array(pairs.words, object)[row],
            "pair": pairs.pair[row],
            "key_token_id": pairs.keys[row],
            "key_token": np.array(token_texts(layer, pairs.keys), object)[row],
            "query_token_id": pairs.queries[row],
            "query_token": np.array(token_texts(layer, pairs.queries), object)[row],
            "head": np.tile(np.asarray(heads), len(pairs.words)),
            "rank": ranks.ranks.T.ravel(),
            "score": ranks.scores.T.ravel(),
        }
        single, double = sizes.count(1), sizes.count(2)
        runner.say(
            f"{plural(len(split), 'word')}: {single:,} of one token (skipped), {double:,} of two, "
            f"{len(split) - single - double:,} of more; pairs to rank: {len(pairs.words):,}"
        )
        return {
            "words_by_head": WORDS_BY_HEAD.frame(by_head),
            "word_pieces": pieces,
            "word_ranks": WORD_RANKS.frame(by_pair),
        }

    def verdict(self, tables: Frames) -> Verdict:
        """ "yes" if a head ranks a word's own piece clearly above another word's."""
        return words_verdict(tables["words_by_head"])

    def summarize(self, tables: Frames) -> str:
        """The head that ranks a word's own piece best against another word's, and whether it does so clearly."""
        verdict, best = self.verdict(tables), best_by_words(tables["words_by_head"])
        if best is None:
            return f"Untestable: {NOTHING_SPLIT}."
        name, piece = head_name(best["head"]), f"a word's {self._sought}{self.options_note}"
        top = f"top {_share(best['median_share'])} of the vocabulary"
        if verdict.value == "untestable":
            return f"Untestable: {verdict.reason}. {name} ranks {piece} highest: its median rank is in the {top}."
        evidence = f"median rank ({top}) is {_against_null(best)}; we require at most {_required(best):.2f}"
        if not verdict:
            return f"{self.no_head} finds {piece}: the closest is {name}, whose {evidence}."
        tied = [each for each in tied_with_best(tables["words_by_head"]) if each in verdict.heads]
        others = [each for each in verdict.heads if each not in (name, *tied)]
        ties = f" (tied: {listed_some(tied, MOST_NAMED)})" if tied else ""
        too = f" So {'does' if len(others) == 1 else 'do'} {listed_some(others, MOST_NAMED)}." if others else ""
        return f"{name}{ties} finds {piece}: its {evidence}.{too}"

    def summarize_comparison(self, by_label: ByLabel) -> str:
        best = {label: best_by_words(tables["words_by_head"]) for label, tables in by_label.items()}
        ranks = []
        for label, row in best.items():
            if row is not None:
                null = row["null_median_share"]
                control = "" if null is None else f"; {_control(row)} {_share(null)}"
                ranks.append(f"{_share(row['median_share'])} in {label} ({head_name(row['head'])}{control})")
        if not ranks:
            return f"Untestable: {NOTHING_SPLIT}."
        of = f"a word's {self._sought} in the best head{self.options_note}"
        return f"Median rank of {of}, as a share of the vocabulary: {listed(ranks)}."

    @property
    def _sought(self) -> str:
        return "following piece" if self.looks_ahead else "preceding piece"


def words_verdict(by_head: pl.DataFrame) -> Verdict:
    """ "yes" if a head ranks a word's own piece clearly above another word's, also within its class."""
    best = best_by_words(by_head)
    if best is None:
        return Verdict("untestable", NOTHING_SPLIT)
    if best["null_median_share"] is None:
        return Verdict("untestable", "one word has no other word as a control")
    if best["pairs"] < FEWEST_PAIRS:
        pairs = plural(best["pairs"], "pair")
        return Verdict("untestable", f"the words have {pairs} of pieces; at least {FEWEST_PAIRS} are needed")
    clearly = tuple(
        head_name(row["head"]) for row in by_head.sort("head").iter_rows(named=True) if is_clearly_better(row)
    )
    reason = f"the median rank in {head_name(best['head'])} is {_against_null(best)}"
    if clearly:
        return Verdict("yes", reason, clearly)
    return Verdict("no", f"{reason}; we require at most {_required(best):.2f}")


def is_clearly_better(row: Mapping[str, Any]) -> bool:
    """Whether a head's median rank is at most half of its stronger null's, or less if there are few pairs.

    The relative error of such a median is about 1/√pairs, that of a ratio of two √2 times as large.
    """
    null = row["null_median_share"]
    return null is not None and row["median_share"] <= _required(row) * null


def _required(row: Mapping[str, Any]) -> float:
    """The largest ratio of both medians that counts as clear."""
    return min(CLEARLY, 1 - DEVIATIONS * math.sqrt(2 / row["pairs"]))


def _against_null(row: Mapping[str, Any]) -> str:
    """`0.37 [0.34, 0.40] times that of another word's piece`; the interval is unknown for few words."""
    low, high = row.get("null_ratio_low"), row.get("null_ratio_high")
    ends = "" if low is None else f" [{low:.2f}, {high:.2f}]"
    return f"{row['median_share'] / row['null_median_share']:.2f}{ends} times that of {_control(row)}"


def _control(row: Mapping[str, Any]) -> str:
    """The stronger of the two controls."""
    of_class = row.get("class_null_median_share")
    same = " of the same class" if of_class is not None and of_class == row["null_median_share"] else ""
    return f"another word's piece{same}"


def tied_with_best(by_head: pl.DataFrame) -> list[str]:
    """The other heads whose median rank is not clearly behind the best head's, for the same words."""
    best = best_by_words(by_head)
    if best is None or "behind_low" not in by_head.columns:
        return []
    tied = by_head.filter(pl.col("behind_low") <= 0, pl.col("head") != best["head"])
    return [head_name(head) for head in tied.sort("behind", maintain_order=True)["head"]]


def best_by_words(by_head: pl.DataFrame) -> dict[str, Any] | None:
    """The best rank among heads clearly better than their null; if there are none, the best ratio to the null."""
    clearly = pl.Series([is_clearly_better(row) for row in by_head.iter_rows(named=True)], dtype=pl.Boolean)
    against = pl.col("median_share") / pl.col("null_median_share")
    better = by_head.filter(clearly).sort("median_share", maintain_order=True)
    ordered = better if len(better) else by_head.sort(against, "median_share", nulls_last=True, maintain_order=True)
    return ordered.row(0, named=True) if len(ordered) else None


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


OWN, OTHER = theme.SERIES[0], theme.SERIES[1]
SHARES = {"first": 0.0, "top_1_percent": 0.01, "top_10_percent": 0.1}  # with chance


def words(words_by_head: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Draw each head's median rank of a word's preceding piece, and the shares of pairs near the top."""
    asked = chosen_heads(words_by_head, heads)
    rows = in_order(words_by_head, asked)
    titles = [
        "median rank share\n(lower is better)",
        "pairs at\nrank 1",
        "pairs in\nthe top 1 %",
        "pairs in\nthe top 10 %",
    ]
    legend = [point_entry("head", OWN), point_entry("another word's piece", OTHER, filled=False)]
    figure, panels = head_rows(asked, width, titles, legend=legend)
    points(panels[0], rows["null_median_share"], OTHER, filled=False)
    points(panels[0], rows["median_share"], OWN)
    reference(panels[0], x=0.5)
    for axes, (column, chance) in zip(panels[1:], SHARES.items(), strict=True):
        points(axes, rows[column], OWN)
        reference(axes, x=chance)
    return figure
