"""Tables, words, controls and the decision rule of `Twins`; `Layers` uses the same rule.

A layer writes words if the twin's rank is clearly worse in each of four controls: another word's first piece (null),
the last piece alone, the first piece alone, and the sum of its pieces (additive). Clearly worse means a rank ratio of
at least CLEARLY with a lower end above 1, and a median rank lost above 0. If only null and last piece are clearly
worse, the layer carries the first piece to the last position, and no more can be concluded.

A head or term is needed if the lower end of the share of the gain that is lost without it exceeds NEEDED, unless the
same ablation sends the null to chance, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl

from detoklens.errors import DetokLensError, TokenError
from detoklens.measures.chance import FEWEST_WORDS
from detoklens.measures.token_classes import exchange_classes
from detoklens.measures.twins import (
    PARTNERS,
    Chains,
    chains,
    exchanged_first,
    listed_tokens,
    merge_splits,
    partner_words,
    text_splits,
    word_tokens,
)
from detoklens.measures.words import given_words
from detoklens.questions.base import Verdict
from detoklens.questions.parameters import Parameter
from detoklens.questions.texts import Beginning, find_beginning
from detoklens.questions.words import by_file
from detoklens.scores.layer import Layer
from detoklens.tables.schema import Column, Schema
from detoklens.wording import estimate, listed, listed_some, plural, term_symbol, token_shown

if TYPE_CHECKING:
    from detoklens.questions.study import Study


PLACE = Column("place", "attention: residual stream between attention and MLP; block: after the whole block", "String")
PIECES = Column("pieces", "number of tokens the word is split into", "Int32")
BOS = Column("bos", "beginning-of-text token before the word; null if there is none", "String")
CONTROL_MEANINGS = (
    "null: another word's first piece, of the same class; last_piece, first_piece: that piece alone; "
    "additive: sum of the mean effects of its pieces"
)
SHARE_LOST = "log rank_ratio / log of the smaller rank_ratio of null and last_piece; null if that is not above 1"


def with_interval(name: str, meaning: str) -> tuple[Column, ...]:
    """A column and the ends of its 95 % interval over words."""
    low = f"lower end of the 95 % interval of {name}; null with fewer than 30 words or without resamples"
    return (
        Column(name, meaning),
        Column(f"{name}_low", low),
        Column(f"{name}_high", f"upper end of the 95 % interval of {name}"),
    )


RANK_MEASURES = (
    *with_interval("median_rank", "median rank of the twin"),
    *with_interval("first", "share of words whose twin has rank 1"),
    *with_interval("first_ten", "share of words whose twin has rank 10 or better"),
    *with_interval("mean_reciprocal_rank", "mean of 1 / rank"),
    *with_interval("rank_lost", "median_rank minus that of whole, for the same words"),
    *with_interval("rank_ratio", "geometric mean over words of rank / rank in whole; above 1 is worse"),
)

TWINS = Schema(
    "twins",
    "Rank of each word's twin",
    Column("token_id", "id of the twin: the token that is the whole word", "Int32"),
    Column("token", "its text", "String"),
    PIECES,
    Column("split", "texts of the pieces, separated by |", "String"),
    PLACE,
    Column("rank", "rank of the twin among the candidates by cosine with the last piece; 1 is best", "Int32"),
    Column("null_rank", "the same with the first piece of another word of its class", "Int32"),
    Column("last_piece_rank", "the same for the last piece alone", "Int32"),
    Column("first_piece_rank", "the same for the first piece alone", "Int32"),
    Column("additive_rank", "the same for the sum of its pieces; null with too few words", "Int32"),
)

TWINS_BY_CONDITION = Schema(
    "twins_by_condition",
    "Rank of the twin by condition",
    PLACE,
    PIECES,
    Column(
        "condition",
        f"whole; {CONTROL_MEANINGS}; cut_L0H1: that head does not attend to earlier pieces; without_ee, only_ee: "
        "attention scores without that term, or of that term alone",
        "String",
    ),
    Column("words", "number of words", "Int32"),
    Column("candidates", "number of ranked tokens", "Int32"),
    BOS,
    *RANK_MEASURES,
    *with_interval("share_lost", f"cut and without: {SHARE_LOST}"),
    *with_interval("null_median_rank", "cut and without: median rank of the null under the same ablation"),
    *with_interval("null_ratio", "geometric mean over words of the null's rank with / without the ablation"),
    *with_interval("share_behind", "cut: share_lost of the strongest cut minus this one's, for the same words"),
)


FEWEST = 2  # words needed to standardise at all

TwinWords = Annotated[
    Path | Sequence[str] | None,
    Parameter(
        "File of words, one per line; words that are not single tokens are skipped. Default: all tokens of letters.",
        metavar="FILE",
        read=Path,
        spell=by_file("--words"),
    ),
]
Triples = Annotated[int, Parameter("Maximum number of words per number of pieces.", least=2, advanced=True)]
NO_BOS = "none"
Bos = Annotated[
    str | int | None,
    Parameter(
        "Beginning-of-text token, by text or id, or none. Default: the checkpoint's own.",
        metavar="TOKEN|none",
        advanced=True,
        read=str,
    ),
]


def beginning_of(
    layer: Layer, say: Callable[[str], None] = lambda _note: None, bos: str | int | None = None
) -> tuple[int, ...]:
    """The requested BOS token, or the model's own; empty without one. A note names it."""
    if bos == NO_BOS:
        say("no beginning-of-text token, as requested: words are at the very start of the text")
        return ()
    try:
        if bos is None:
            found = find_beginning(layer)
        else:  # a whole number is an id; anything else is the text of one token
            found = Beginning(layer.token_id(int(bos) if str(bos).isdecimal() else bos), "as asked")
            layer.check_text([found.token_id])
    except DetokLensError as error:
        if bos is not None:
            raise TokenError(f"BOS token {bos!r}: {error}") from error
        if not isinstance(error, TokenError):
            raise
        say(f"{layer.name} has no beginning-of-text token: words are at the very start of the text")
        return ()
    say(f"beginning-of-text token: {bos_name(layer, (found.token_id,))} (id {found.token_id}), {found.source}")
    return (found.token_id,)


def bos_name(layer: Layer, beginning: tuple[int, ...]) -> str | None:
    """The BOS token as tables show it."""
    return token_shown(layer.token(beginning[0])) if beginning else None


def unreadable(layer: Layer) -> list[int]:
    """The padding token, which has no position, if there is one."""
    padding = layer.weights.padding_token_id
    return [] if padding is None else [padding]


def candidate_tokens(study: Study, size: int | None, wholes: Iterable[np.ndarray]) -> np.ndarray:
    """The tokens to rank, in order of id: those that are neither special nor untrained, or a sample plus the twins."""
    everything = np.setdiff1d(study.meaningful_tokens(), unreadable(study.layer))
    if size is None or size >= len(everything):
        return everything
    sample = np.random.default_rng(study.seed).choice(everything, size, replace=False)
    return np.unique(np.concatenate([sample, *wholes]))


@dataclass(frozen=True)
class Words:
    """Words in pieces with the ingredients of their controls; without partners there is no additive control."""

    chains: Chains
    null: np.ndarray
    partners: np.ndarray | None


def twin_words(
    layer: Layer,
    words: Path | Sequence[str] | None,
    pieces: Sequence[int],
    most: int,
    seed: int,
    say: Callable[[str], None],
) -> dict[int, Words]:
    """The words by number of pieces, where there are at least two."""
    vocabulary = layer.vocabulary
    splits = merge_splits(vocabulary)
    if not splits:
        splits = text_splits(vocabulary)
        if not splits:
            raise TokenError(
                f"no word of {layer.name} has a twin: its tokenizer has no merges and no token that is two others "
                "joined, as with letters or amino acids; choose a model with subword tokens"
            )
        say("the tokenizer has no merges: words are split into their longest first piece and the rest")
    wholes = word_tokens(vocabulary, splits) if words is None else listed_tokens(vocabulary, given_words(words))
    readable = np.setdiff1d(layer.meaningful_tokens, unreadable(layer))
    found = {}
    for number in sorted(set(pieces)):
        some = chains(splits, wholes, number)
        is_readable = np.isin(np.column_stack([some.pieces, some.whole]), readable).all(axis=1)
        found[number] = some.only(np.flatnonzero(is_readable)).sample(most, seed)
    if all(len(some) < FEWEST for some in found.values()):
        raise TokenError(
            f"fewer than two words of {layer.name} split into this many pieces; ask for fewer pieces"
            if words is None
            else f"fewer than two words of the list are tokens of {layer.name} that split into smaller ones; list "
            "words that its tokenizer keeps whole"
        )
    for number, some in found.items():
        if len(some) < FEWEST_WORDS:
            say(f"{plural(len(some), 'word')} in {number} pieces: too few for intervals")
    return {
        number: Words(
            some,
            exchanged_first(some.pieces, seed, exchange_classes(vocabulary, some.pieces[:, 0])),
            _partners(some, seed, say),
        )
        for number, some in found.items()
        if len(some) >= FEWEST
    }


def _partners(words: Chains, seed: int, say: Callable[[str], None]) -> np.ndarray | None:
    partners = partner_words(words.pieces, seed)
    if partners is None:
        say(
            f"{plural(len(words), 'word')} in {words.pieces.shape[1]} pieces: too few for the additive control, in "
            f"which each word needs {PARTNERS} partners with another first piece and another rest"
        )
    return partners


CLEARLY = 1.2  # rank ratio: with thousands of words, any difference is significant
NEEDED = 0.25  # of the gain
AT_CHANCE = 0.8  # of the median rank in random order
WHERE = {"attention": "after the attention", "block": "after the first block"}
WRITER = {"attention": "The first layer's attention", "block": "The first layer"}
CARRYING = ("null", "last_piece")
CONTROLS = (*CARRYING, "first_piece", "additive")
CONTROL_NAMES = {
    "null": "with another word's first piece",
    "last_piece": "its last piece alone",
    "first_piece": "its first piece alone",
    "additive": "the sum of its pieces",
}
CARRIES = "carries the first piece to the last position"
MOST_NAMED = 2  # followed by "and 3 more"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Conditions:
    """The rows of one place and one number of pieces, by condition."""

    rows: Mapping[str, Row]
    lower_end: float = 1.0
    """Bound for the lower end of a clearly worse rank ratio; larger when the best of many layers is chosen."""

    @property
    def whole(self) -> Row:
        return self.rows["whole"]

    @property
    def has_intervals(self) -> bool:
        return self.whole["median_rank_low"] is not None

    @property
    def is_testable(self) -> bool:
        return self.has_intervals and all(name in self.rows for name in CONTROLS)

    @property
    def writes(self) -> bool:
        """Whether the rank is clearly worse in all four controls."""
        return self.is_testable and not self.failed(CONTROLS)

    @property
    def carries(self) -> bool:
        """Whether the first piece reaches the last position: null and last piece are clearly worse."""
        return self.has_intervals and not self.failed(CARRYING)

    def failed(self, controls: Sequence[str]) -> list[str]:
        """The controls that are not clearly worse, the closest first."""
        rows = {name: self.rows[name] for name in controls}
        failed = [
            name
            for name, row in rows.items()
            if row["rank_ratio_low"] <= self.lower_end or row["rank_ratio"] < CLEARLY or row["rank_lost"] <= 0
        ]
        return sorted(failed, key=lambda name: float(rows[name]["rank_ratio"]))

    def needed(self, kind: str) -> list[str]:
        """What is ablated by the conditions of a kind (`cut_`, `without_`) and needed, worst first."""
        rows = {name.removeprefix(kind): row for name, row in self.rows.items() if name.startswith(kind)}
        needed = [name for name, row in rows.items() if is_needed(row, self.whole["candidates"])]
        return sorted(needed, key=lambda name: -float(rows[name]["share_lost"]))

    def tied(self) -> list[str]:
        """The heads whose cut does not lose clearly less than the strongest cut."""
        rows = {name.removeprefix("cut_"): row for name, row in self.rows.items() if name.startswith("cut_")}
        low = {name: row.get("share_behind_low") for name, row in rows.items()}
        return [name for name, least in low.items() if least is not None and least <= 0]

    def ratio(self, control: str) -> str:
        """`1.80 [1.63, 1.98]`."""
        row = self.rows[control]
        return estimate(row["rank_ratio"], row["rank_ratio_low"], row["rank_ratio_high"])


def is_needed(row: Row, candidates: int) -> bool:
    """Whether the ablated component is needed: by the lower end of its share, if the null stays above chance.

    An ablation that makes the null as bad as a random order destroys everything and explains nothing.
    """
    if row["share_lost_low"] is None or row["share_lost_low"] <= NEEDED:
        return False
    high, ratio = row["null_median_rank_high"], row["null_ratio_low"]
    return high is None or bool(high < AT_CHANCE * (candidates + 1) / 2 or ratio <= 1)


def last_place(tables: Iterable[pl.DataFrame]) -> str:
    """The last place that all tables contain."""
    return "block" if all("block" in table["place"] for table in tables) else "attention"


def fewest_pieces(table: pl.DataFrame, place: str | None = None) -> Conditions:
    """The conditions for the fewest pieces, by default at the last place."""
    pieces = int(table["pieces"].to_numpy().min())
    rows = table.filter(place=place or last_place([table]), pieces=pieces).to_dicts()
    return Conditions({row["condition"]: row for row in rows})


def twins_verdict(found: Conditions) -> Verdict:
    """Whether the layer writes words; the heads are those needed to carry the first piece."""
    return verdict_of(found, tuple(found.needed("cut_")) if found.carries else ())


def verdict_of(found: Conditions, heads: tuple[str, ...]) -> Verdict:
    """The verdict by the four controls; its reason names the control that decided."""
    if not found.is_testable:
        return Verdict("untestable", _why_untestable(found))
    if found.writes:
        closest = _closest(found)
        reason = f"all four controls are clearly worse; the closest is {closest} {found.ratio(closest)}"
        return Verdict("yes", reason, heads)
    failed = listed([f"{name} {found.ratio(name)}" for name in CONTROLS if name in found.failed(CONTROLS)])
    rule = f"a ratio of at least {CLEARLY}, with a lower end above {found.lower_end:g}"
    reason = f"not clearly worse ({rule}): {failed}"
    return Verdict("no", f"{CARRIES}, but {reason}" if found.carries else reason, heads)


def _closest(found: Conditions) -> str:
    """The control with the smallest rank ratio."""
    return min(CONTROLS, key=lambda name: float(found.rows[name]["rank_ratio"]))


def _why_untestable(found: Conditions) -> str:
    words = plural(found.whole["words"], "word")
    if found.whole["words"] < FEWEST_WORDS:
        return f"{words} are too few for intervals; at least {FEWEST_WORDS} are needed"
    if not found.has_intervals:
        return "intervals need bootstrap resamples"
    return f"{words} are too few for the additive control: each needs {PARTNERS} partners with other pieces"


def summarize_twins(table: pl.DataFrame, all_heads: bool = True) -> str:
    """Whether the layer writes words, by which control, and which heads and terms are needed.

    `all_heads` tells whether every head was cut; otherwise nothing is claimed about the others.
    """
    found = fewest_pieces(table)
    verdict, bos = twins_verdict(found), bos_clause(found)
    if verdict.value == "untestable":
        return f"Whether the first layer writes words can't be tested: {verdict.reason}. {bos}"
    claim = "writes words" if found.writes else "does not write words"
    evidence = f"{WRITER[found.whole['place']]} {claim}: {strongest_control(found)}."
    if not found.carries:
        return f"{evidence} {bos}"
    needed = [*found.needed("cut_"), *map(term_symbol, found.needed("without_"))]
    if not needed and not all_heads:
        return f"{evidence} {bos}" if found.writes else f"{evidence} It carries the first piece. {bos}"
    tied = [head for head in found.tied() if head not in needed] if found.needed("cut_") else []
    also = f"; not clearly less: {listed_some(tied, MOST_NAMED)}" if tied else ""
    return f"{evidence} {needed_clause(found, needed, 'head or term')}{also}. {bos}"


def bos_clause(found: Conditions) -> str:
    """The beginning-of-text token before the word."""
    return f"BOS: {found.whole['bos']}." if found.whole["bos"] else "No BOS."


def needed_clause(found: Conditions, needed: Sequence[str], ablated: str) -> str:
    """What is needed to write words or, in a layer that writes none, to carry the first piece."""
    carry = "" if found.writes else " to carry pieces"
    return f"Needed{carry}: {listed_some(needed, MOST_NAMED)}" if needed else f"No single {ablated} is needed{carry}"


def strongest_control(found: Conditions) -> str:
    """The control that decides, how much better the word ranks, and the bound."""
    name = _closest(found) if found.writes else found.failed(CONTROLS)[0]
    row, control = found.rows[name], CONTROL_NAMES[name]
    if not found.writes and row["rank_ratio"] >= CLEARLY and row["rank_ratio_low"] > found.lower_end:
        bound = "its median rank is not better"
    elif found.lower_end >= CLEARLY or (not found.writes and row["rank_ratio"] >= CLEARLY):
        bound = f"the lower end must exceed {found.lower_end:g}"
    else:
        bound = f"we require {CLEARLY}"
    if row["rank_ratio"] < 1:
        return f"the word ranks no better than {control} ({found.ratio(name)}); {bound}"
    return f"the word ranks {found.ratio(name)} times better than {control}; {bound}"


def compare_twins(tables: Mapping[str, pl.DataFrame]) -> str:
    """Which models write words, with two controls and the heads each needs."""
    place = last_place(tables.values())
    models = []
    for label, table in tables.items():
        found = fewest_pieces(table, place)
        verdict = twins_verdict(found)
        models.append(f"{label} {verdict.value} ({brief(found, verdict.heads)})")
    return f"Does the first layer write words, by the twin's rank {WHERE[place]}? {'; '.join(models)}."


def brief(found: Conditions, needed: Sequence[str]) -> str:
    """The ratios of the null and of the additive control, and what is needed."""
    ratios = listed([f"{name} {found.ratio(name)}" for name in ("null", "additive") if name in found.rows])
    carries = "carries the first piece, " if found.carries and found.is_testable and not found.writes else ""
    return f"{carries}{ratios}{f', needs {listed(needed)}' if needed else ''}"
