"""The pairs of tokens with the largest Tᵉᵉ over all V × V pairs, by head, from weights alone.

Corpus counts and a word list only annotate the pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import polars as pl

from detoklens.errors import RangeError
from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry, logarithmic_x
from detoklens.figures.panels import chosen_heads, head_panels, titled_panels
from detoklens.figures.spec import FigureSpec
from detoklens.measures.ranking import largest_pairs, pair_counts
from detoklens.measures.words import (
    WordCheck,
    exchange_keys,
    fingerprint_of,
    given_words,
    has_wordfreq,
    in_list,
    joined_texts,
    known_to_wordfreq,
)
from detoklens.parallel import Arrays, Runner
from detoklens.questions.base import ByLabel, Frames, Question, ReportEntry, View
from detoklens.questions.options import AFFINITY, PairQuestion
from detoklens.questions.parameters import Centred, Heads, Parameter, Scale
from detoklens.questions.partners import describe_pairs
from detoklens.questions.study import Study
from detoklens.questions.words import by_file
from detoklens.tables.schema import (
    BIGRAM_COUNT,
    HEAD,
    JOINED,
    KEY_TOKEN,
    KEY_TOKEN_ID,
    QUERY_TOKEN,
    QUERY_TOKEN_ID,
    SCORE,
    Column,
    Schema,
)
from detoklens.wording import SEAM, head_name, listed, pair_shown, percent, plural, term_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEXICON = Schema(
    "lexicon",
    "Pairs with the largest Tᵉᵉ over the whole vocabulary, by head",
    HEAD,
    Column("rank", "rank among all pairs of the head, 1 is the largest; ties by token ids", "Int32"),
    KEY_TOKEN_ID,
    KEY_TOKEN,
    QUERY_TOKEN_ID,
    QUERY_TOKEN,
    SCORE,
    JOINED,
    Column("is_word", "whether the joined text is a word; null without a word list", "Boolean"),
    BIGRAM_COUNT,
)

EXCHANGED = "the same with keys shuffled by a fixed draw, without the head's own pairs; null below 30 pairs"
FEWEST_EXCHANGED = 30

LEXICON_BY_HEAD = Schema(
    "lexicon_by_head",
    "Lexicon by head",
    HEAD,
    Column("pairs", "pairs in the head's lexicon", "Int32"),
    Column("word_share", "share of pairs whose joined text is a word; null without a word list"),
    Column("word_null", EXCHANGED),
    Column("seen_share", "share of pairs that occur in the corpus; null without counts"),
    Column("seen_null", EXCHANGED),
    Column("identical_share", "share of pairs of a token with itself"),
    Column("query_tokens", "distinct query tokens", "Int32"),
    Column("key_tokens", "distinct key tokens; few if every query prefers the same keys", "Int32"),
    Column("largest_score", "largest Tᵉᵉ"),
    Column("smallest_score", "smallest Tᵉᵉ in the lexicon"),
)

ON_PAGE = 12  # pairs per head in a report
REPORTED_PAIRS = 1000  # per head that a report mines
SHOWN_PAIRS = 20  # pairs per head in a printed table
NAMED_PAIRS = 4  # pairs of the best head in a summary
SHARES = {"seen_share": "occur in the corpus", "word_share": "form a word"}
NULLS = ("head", "word_null", "seen_null")
NO_PAIRS = "The vocabulary has no pairs of different tokens."
MOST_PAIRS = 10_000_000
"""Rows that fit into a laptop's memory: each takes about 250 bytes with its texts."""


@dataclass(frozen=True, repr=False)
class Lexicon(PairQuestion):
    """Find the token pairs with the highest Tᵉᵉ in the whole vocabulary.

    The printed table shows the first 20 pairs of each head; other formats and --out have all. With --out, an
    interrupted run continues when the same command is run again.

    Example: detoklens lexicon gpt2 --heads 7 --top 10000 --centred --no-self --out lexicon
    """

    top: Annotated[int, Parameter("Number of pairs per head.", least=1)] = 10_000
    no_self: Annotated[bool, Parameter("Leave out pairs of a token with itself.")] = False
    words: Annotated[
        Path | Sequence[str] | None,
        Parameter(
            "Word list, one word per line. Default: the words of the library wordfreq, if installed.",
            metavar="WORDS.txt",
            read=Path,
            spell=by_file("--words"),
        ),
    ] = None
    language: Annotated[str, Parameter("Language of wordfreq's words.", advanced=True)] = "en"
    heads: Heads = None
    centred: Centred = False
    scale: Scale = "mean"

    report_section = "Token partners"
    progress_label = "mining pairs"
    uses = frozenset({"counts", "vocabulary"})
    reads_counts = True
    parallel = True
    tables = (LEXICON, LEXICON_BY_HEAD)
    by: ClassVar[Mapping[str, str]] = {"pair": "lexicon", "head": "lexicon_by_head"}
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "lexicon": ("head", "rank", "score", "is_word", "count", "key_token", "query_token", "joined"),
    }
    equation = AFFINITY
    figures = (
        FigureSpec(
            "lexicon",
            ("lexicon",),
            "Lexicons by head",
            "Share of each head's strongest pairs, up to each rank, that occur in the corpus (with counts) or join to "
            "a word (with a word list).",
            per_head=True,
            needs="corpus counts, or a tokenizer to join pairs to words",
        ),
        FigureSpec(
            "lexicon_scores",
            ("lexicon",),
            "Scores of the strongest pairs",
            "Tᵉᵉ of each head's strongest pairs by rank; the legend names the six highest heads.",
        ),
    )

    @classmethod
    def report_entries(cls, study: Study) -> Sequence[ReportEntry]:
        lexicon = cls(top=REPORTED_PAIRS, no_self=True)
        return [ReportEntry(lexicon), *lexicon.report_variants(study, "lexicon")]

    @classmethod
    def examples(cls) -> Sequence[Question]:
        return (cls(top=1000, no_self=True),)

    def settings(self, study: Study) -> dict[str, Any]:
        """The source of words: the list's fingerprint, or wordfreq's version and language."""
        given = super().settings(study)
        del given["language"]
        if self.words is not None:
            return given | {"words": fingerprint_of(given_words(self.words))}
        return given | {"words": f"wordfreq {version('wordfreq')} {self.language}" if has_wordfreq() else None}

    def ask(self, study: Study, runner: Runner) -> Frames:
        heads = study.heads(self.heads)
        is_word = known_to_wordfreq(self.language) if self.words is None else in_list(given_words(self.words))
        if min(self.top, study.layer.vocab_size**2) * len(heads) > MOST_PAIRS:
            raise RangeError(
                f"the top {self.top:,} pairs of {plural(len(heads), 'head')} are more than the {MOST_PAIRS:,} that fit "
                "into memory; choose fewer pairs or heads"
            )

        def factors(number: int) -> tuple[np.ndarray, np.ndarray]:
            """One head at a time: those of all heads of a large vocabulary take a gigabyte."""
            affinity = self.affinity(study, self.scale, self.centred, [heads[number]])
            return affinity.query[0], affinity.key_of(0)

        best = largest_pairs(factors, len(heads), study.meaningful_tokens(), self.top, not self.no_self, runner)
        pairs = pl.concat(_ranked(head, of_head) for head, of_head in zip(heads, best, strict=True))
        lexicon = describe_pairs(study, LEXICON, pairs.with_columns(is_word=None), self.looks_ahead)
        words = pl.Series("is_word", _check_words(lexicon["joined"], is_word), pl.Boolean)
        lexicon = lexicon.with_columns(words)
        nulls = [self._nulls(study, head, of_head, is_word) for head, of_head in zip(heads, best, strict=True)]
        return {"lexicon": lexicon, "lexicon_by_head": _by_head(lexicon, pl.DataFrame(nulls, NULLS))}

    def _nulls(self, study: Study, head: int, pairs: Arrays, is_word: WordCheck | None) -> dict[str, Any]:
        """The shares of words and of corpus pairs with keys exchanged, without the head's own pairs."""
        queries, own = pairs["query"].astype(np.int64), pairs["key"].astype(np.int64)
        keys = exchange_keys(own)
        step = 1 + max(own.max(initial=0), queries.max(initial=0))
        is_other = (keys != queries) & ~np.isin(keys * step + queries, own * step + queries)
        keys, queries = keys[is_other], queries[is_other]
        if len(keys) < FEWEST_EXCHANGED:
            return {"head": head}
        first, second = (queries, keys) if self.looks_ahead else (keys, queries)
        words = pl.Series(_check_words(joined_texts(study.layer, first, second), is_word), dtype=pl.Boolean)
        seen = None if study.counts is None else float(np.mean(pair_counts(study.counts, first, second) > 0))
        return {"head": head, "word_null": words.mean(), "seen_null": seen}

    def view(self, tables: Frames, name: str) -> View:
        """Only the first pairs of each head."""
        whole = super().view(tables, name)
        if name != LEXICON.name:
            return whole
        shown = whole.frame.filter(pl.col("rank") <= SHOWN_PAIRS)
        if len(shown) == len(whole.frame):
            return whole
        return View(f"{whole.title}: the first {SHOWN_PAIRS} of each head ({len(whole.frame):,} in total)", shown)

    def page_views(self, tables: Frames) -> Sequence[View]:
        """The strongest pairs of every head in columns, with a mark between the two tokens."""
        strongest = tables["lexicon"].filter(pl.col("rank") <= ON_PAGE)
        sides = strongest.select(
            "rank",
            head=pl.format("L0H{}", "head"),
            joined=pl.concat_str(*self._in_order("token"), separator=SEAM).fill_null(
                pl.format(f"{{}}{SEAM}{{}}", *self._in_order("token_id"))
            ),
        ).pivot("head", index="rank", values="joined")
        return [View("Each head's strongest pairs", sides)]

    def _in_order(self, column: str) -> tuple[str, str]:
        """The columns of the two tokens of a pair in text order."""
        back = (f"key_{column}", f"query_{column}")
        return back[::-1] if self.looks_ahead else back

    def summarize(self, tables: Frames) -> str:
        """The strongest pairs of the head with the largest share of corpus pairs, else of words."""
        best = _best(tables["lexicon_by_head"])
        if best is None:
            return NO_PAIRS
        first = tables["lexicon"].filter(head=best["head"]).sort("rank").head(NAMED_PAIRS)
        shown = [_shown(pair, self._in_order("token")) for pair in first.iter_rows(named=True)]
        of = f"the {plural(best['pairs'], 'strongest pair')} of {head_name(best['head'])}{self.options_note}"
        shares = []
        for name, words in SHARES.items():
            null = best[name.replace("share", "null")]
            control = "" if null is None else f" ({percent(null)} with their keys shuffled)"
            if best[name] is not None:
                shares.append(f"{percent(best[name])} {words}{control}")
        all_shares = f", {listed(shares)};" if shares else ""
        left_out = "; pairs of a token with itself are left out" if self.no_self else ""
        return f"Of {of}{all_shares} the first are {listed(shown)}{left_out}."

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """Compare the first share that every model has, else the largest score."""
        best = {label: found for label, tables in by_label.items() if (found := _best(tables["lexicon_by_head"]))}
        if not best:
            return NO_PAIRS
        models = {label: f"{label} ({head_name(row['head'])})" for label, row in best.items()}
        for name, words in SHARES.items():
            if all(row[name] is not None for row in best.values()):
                shares = [f"{percent(row[name])} in {models[label]}" for label, row in best.items()]
                return f"Share of the best head's strongest pairs{self.options_note} that {words}: {listed(shares)}."
        scores = [f"{row['largest_score']:.3g} in {models[label]}" for label, row in best.items()]
        return f"Largest Tᵉᵉ of a pair{self.options_note}: {listed(scores)}."


def _ranked(head: int, pairs: Arrays) -> pl.DataFrame:
    n_pairs = len(pairs["score"])
    return pl.DataFrame(
        {
            "head": np.full(n_pairs, head),
            "rank": np.arange(1, n_pairs + 1),
            "key_token_id": pairs["key"],
            "query_token_id": pairs["query"],
            "score": pairs["score"],
        }
    )


def _check_words(joined: Iterable[str | None], is_word: WordCheck | None) -> list[bool | None]:
    return [None if is_word is None or text is None else is_word(text) for text in joined]


def _by_head(pairs: pl.DataFrame, nulls: pl.DataFrame) -> pl.DataFrame:
    seen = (pl.col("count") > 0).mean() if "count" in pairs.columns else pl.lit(None)
    return LEXICON_BY_HEAD.conform(
        pairs.group_by("head", maintain_order=True)
        .agg(
            pl.len().alias("pairs"),
            pl.col("is_word").mean().alias("word_share"),
            seen.alias("seen_share"),
            (pl.col("key_token_id") == pl.col("query_token_id")).mean().alias("identical_share"),
            pl.col("query_token_id").n_unique().alias("query_tokens"),
            pl.col("key_token_id").n_unique().alias("key_tokens"),
            pl.col("score").max().alias("largest_score"),
            pl.col("score").min().alias("smallest_score"),
        )
        .join(nulls.cast({"head": pairs.schema["head"]}), on="head", how="left", maintain_order="left")
    )


def _best(by_head: pl.DataFrame) -> dict[str, Any] | None:
    ordered = by_head.sort(
        "seen_share", "word_share", "largest_score", descending=True, nulls_last=True, maintain_order=True
    )
    return ordered.row(0, named=True) if len(ordered) else None


def _shown(pair: Mapping[str, Any], order: Sequence[str]) -> str:
    """A pair as text, or by its ids without a tokenizer."""
    first, second = (pair[name] for name in order)
    if first is None or second is None:
        return "ids " + " and ".join(str(pair[f"{name}_id"]) for name in order)
    return f"“{pair_shown(first, second)}”"


CURVES = {
    "is_word": ("joined text is a word", theme.SERIES[0]),
    "seen": ("pair occurs in the corpus", theme.SERIES[1]),
}
OTHERS = theme.Style(theme.INK, "solid", "o", "")


def lexicon(lexicon: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Draw the share of words and of corpus pairs among each head's strongest pairs, up to each rank."""
    seen = pl.col("count") > 0 if "count" in lexicon.columns else pl.lit(None, dtype=pl.Boolean)
    rows = lexicon.with_columns(seen=seen).sort("head", "rank")
    shares = {column: share for column, share in CURVES.items() if rows[column].is_not_null().any()}
    figure, panels = head_panels(
        chosen_heads(lexicon, heads),
        width,
        x_label="strongest pairs, up to rank",
        y_label="share of pairs",
        legend=[line_entry(label, style) for label, style in shares.values()],
        share_y=True,
    )
    for head, axes in panels.items():
        pairs = rows.filter(head=head)
        for column, (_, style) in shares.items():
            line(axes, pairs["rank"], _share_up_to(pairs[column]), style)
        logarithmic_x(axes)
        axes.set_ylim(-0.03, 1.03)
    return figure


def _share_up_to(found: pl.Series) -> pl.Series:
    """Running mean over the ranks; undefined pairs count neither way."""
    table = pl.DataFrame({"found": found.cast(pl.Float64)})
    known = pl.col("found").is_not_null().cum_sum()
    return table.select(pl.col("found").fill_null(0).cum_sum() / pl.when(known > 0).then(known)).to_series()


def lexicon_scores(lexicon: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Draw Tᵉᵉ of each head's strongest pairs by rank. The six highest heads are named, the others faint."""
    rows = lexicon.filter(pl.col("head").is_in(chosen_heads(lexicon, heads))).sort("rank")
    best = rows.group_by("head").agg(pl.col("score").max()).sort("score", "head", descending=[True, False])
    named = {head: theme.style_of(place) for place, head in enumerate(best["head"].head(len(theme.SERIES)))}
    figure, (axes,) = titled_panels(
        ["strongest pairs over the whole vocabulary"],
        width,
        x_label="rank of the pair",
        y_label=term_name("ee"),
        legend=[line_entry(head_name(head), style) for head, style in named.items()],
    )
    for head in reversed(best["head"].to_list()):
        pairs = rows.filter(head=head)
        look = {} if head in named else {"alpha": theme.BESIDE, "linewidth": 0.6}
        line(axes, pairs["rank"], pairs["score"], named.get(head, OTHERS), **look)
    logarithmic_x(axes)
    return figure
