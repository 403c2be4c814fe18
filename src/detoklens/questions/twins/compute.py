"""Does a layer write words, and what does it need for that? The one rule behind verdicts, summaries and cards.

A layer writes words if the twin's rank is clearly worse in each of four controls: another word's first piece (null),
the last piece alone, the first piece alone, and the sum of its pieces (additive). Clearly worse: rank ratio at least
CLEARLY, its lower end above 1, median rank lost above 0. Where only null and last piece are clearly worse, the layer
carries the first piece to the last position, and that is all that can be said.

A head or a term is needed for that if the lower end of the share of the gain that is lost without it is above NEEDED,
unless the same ablation sends the null to chance as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from detoklens.errors import DetokLensError, RangeError, TokenError
from detoklens.measures.twin_chains import (
    chains,
    exchange_classes,
    listed_tokens,
    merge_splits,
    text_splits,
    word_tokens,
)
from detoklens.measures.twins import FEWEST as FEWEST_FOR_INTERVALS
from detoklens.measures.twins import PARTNERS, exchanged_first, partner_words
from detoklens.measures.words import given_words
from detoklens.questions.base import Verdict
from detoklens.questions.parameters import Parameter, in_one_word, whole_numbers
from detoklens.questions.texts import Beginning, find_beginning
from detoklens.questions.words.question import by_file
from detoklens.tables.schema import Column, Schema
from detoklens.wording import listed, plural, term_symbol, token_shown

if TYPE_CHECKING:
    import polars as pl

    from detoklens.measures.twin_chains import Chains, Splits
    from detoklens.scores.layer import Layer


PLACE = Column("place", "String", "attention: the stream between attention and MLP; block: after the whole block")
PIECES = Column("pieces", "Int32", "number of tokens that the word is put together from")
BOS = Column("bos", "String", "beginning-of-text token before the word; null where there is none")
CONTROL_MEANINGS = (
    "null: the first piece is another word's, of the same class; last_piece, first_piece: that piece alone; "
    "additive: the sum of the mean effects of its pieces"
)
SHARE_LOST = "log rank_ratio / log of the smaller rank_ratio of null and last_piece; null where that is not above 1"


def with_interval(name: str, meaning: str) -> tuple[Column, ...]:
    """A column, and the ends of its 95 % interval over words."""
    return (
        Column(name, "Float64", meaning),
        Column(
            f"{name}_low",
            "Float64",
            f"lower end of the 95 % interval of {name}; null below 30 words or without resamples",
        ),
        Column(f"{name}_high", "Float64", f"upper end of the 95 % interval of {name}"),
    )


TWINS = Schema(
    "twins",
    "At which rank does each word's twin stand?",
    (
        Column("token_id", "Int32", "id of the twin: the token that is the whole word"),
        Column("token", "String", "its text"),
        PIECES,
        Column("split", "String", "the pieces' texts, separated by |"),
        PLACE,
        Column("rank", "Int32", "rank of the twin among the candidates by cosine, seen from the last piece; 1 is best"),
        Column("null_rank", "Int32", "the same with the first piece of another word of its class"),
        Column("last_piece_rank", "Int32", "the same for the last piece alone"),
        Column("first_piece_rank", "Int32", "the same for the first piece alone"),
        Column("additive_rank", "Int32", "the same for the sum of its pieces; null with too few words for that"),
    ),
)

TWINS_BY_CONDITION = Schema(
    "twins_by_condition",
    "How near does the word come to its twin, and what takes that away?",
    (
        PLACE,
        PIECES,
        Column(
            "condition",
            "String",
            f"whole; {CONTROL_MEANINGS}; cut_L0H1: that head does not attend to earlier pieces; without_ee, only_ee: "
            "the scores without, or of, that term alone",
        ),
        Column("words", "Int32", "number of words"),
        Column("candidates", "Int32", "number of tokens that are ranked"),
        BOS,
        *with_interval("median_rank", "median rank of the twin"),
        *with_interval("first", "share of words whose twin is at rank 1"),
        *with_interval("first_ten", "share of words whose twin is among the first ten"),
        *with_interval("mean_reciprocal_rank", "mean of 1 / rank"),
        *with_interval("rank_lost", "median_rank less that of whole, of the same words"),
        *with_interval("rank_ratio", "geometric mean over words of rank / rank in whole; above 1 is worse"),
        *with_interval("share_lost", f"cut and without: {SHARE_LOST}"),
        *with_interval("null_median_rank", "cut and without: median rank with the same change made to the null"),
        *with_interval("null_ratio", "geometric mean over words of that rank / the null's rank with nothing changed"),
    ),
)


FEWEST = 2
"""Words that can be standardised at all: one word has no spread."""

TwinWords = Annotated[
    Path | Sequence[str] | None,
    Parameter(
        "Only these words, one a line, as far as they are tokens. Default: all tokens of letters.",
        metavar="FILE",
        read=Path,
        spell=by_file("--words"),
    ),
]
Pieces = Annotated[
    Sequence[int],
    Parameter(
        "In how many pieces.", metavar="2,3,4", read=whole_numbers("numbers of pieces"), spell=in_one_word("--pieces")
    ),
]
Triples = Annotated[
    int, Parameter("At most this many words per number of pieces, drawn by the seed.", least=2, advanced=True)
]
NO_BOS = "none"
Bos = Annotated[
    str | int | None,
    Parameter(
        "Beginning-of-text token: its text or its id, or none. Default: the checkpoint's own.",
        metavar="TOKEN|none",
        advanced=True,
        read=str,
    ),
]


def check_pieces(pieces: Sequence[int]) -> None:
    """Refuse what is no word in pieces."""
    wrong = [number for number in pieces if number < 2]
    if wrong or not pieces:
        raise RangeError(f"a word has at least 2 pieces, not {wrong[0] if wrong else 'none'}; give for example 2,3,4")


def beginning_of(
    layer: Layer, say: Callable[[str], None] = lambda _note: None, bos: str | int | None = None
) -> tuple[int, ...]:
    """The beginning-of-text token that was asked for, or else the model's own; empty without one. A note says which."""
    if bos == NO_BOS:
        say("no beginning-of-text token, as asked: words are at the very start of the text")
        return ()
    try:
        found = find_beginning(layer) if bos is None else Beginning(_asked_token(layer, bos), "as asked")
    except TokenError:
        if bos is not None:
            raise
        say(f"{layer.name} has no beginning-of-text token: words are at the very start of the text")
        return ()
    say(f"beginning-of-text token: {bos_name(layer, (found.token_id,))} (id {found.token_id}), {found.source}")
    return (found.token_id,)


def bos_name(layer: Layer, beginning: tuple[int, ...]) -> str | None:
    """The beginning-of-text token as tables and summaries show it."""
    return token_shown(layer.token(beginning[0])) if beginning else None


def _asked_token(layer: Layer, bos: str | int) -> int:
    """A whole number is an id, anything else the text of one token."""
    try:
        token_id = layer.token_id(int(bos) if str(bos).isdecimal() else bos)
        layer.check_text([token_id])
    except DetokLensError as error:
        raise TokenError(f"--bos {bos}: {error}") from error
    return token_id


def exchanged(layer: Layer, words: Chains, seed: int) -> np.ndarray:
    """The null's pieces: each word with another's first piece, of the same orthographic class and frequency bin."""
    return exchanged_first(words.pieces, seed, exchange_classes(layer.vocabulary, words.pieces[:, 0]))


def partners_of(words: Chains, seed: int, say: Callable[[str], None]) -> np.ndarray | None:
    """Each word's partners in the additive control; None, and a note, where there are too few words."""
    partners = partner_words(words.pieces, seed)
    if partners is None:
        say(
            f"{plural(len(words), 'word')} in {words.pieces.shape[1]} pieces: too few for the additive control, in "
            f"which each word needs {PARTNERS} partners with another first piece and another rest"
        )
    return partners


def twin_words(
    layer: Layer,
    words: Path | Sequence[str] | None,
    pieces: Sequence[int],
    most: int,
    seed: int,
    say: Callable[[str], None],
) -> dict[int, Chains]:
    """The words for each number of pieces, as far as there are two of them; an error where there are none at all."""
    splits: Splits = merge_splits(layer.vocabulary)
    if not splits:
        splits = text_splits(layer.vocabulary)
        if splits:
            say("the tokenizer has no merges: a word's pieces are its longest first piece and the rest")
    wholes = _wholes(layer, splits, words)
    found = {number: _readable(layer, chains(splits, wholes, number)).sample(most, seed) for number in set(pieces)}
    kept = {number: found[number] for number in sorted(found) if len(found[number]) >= FEWEST}
    if not kept:
        raise TokenError(_nothing_splits(layer, words, bool(splits)))
    for number in sorted(found):
        if len(found[number]) < FEWEST_FOR_INTERVALS:
            say(f"{plural(len(found[number]), 'word')} in {number} pieces: too few for intervals")
    return kept


def _wholes(layer: Layer, splits: Splits, words: Path | Sequence[str] | None) -> list[int]:
    if words is None:
        return word_tokens(layer.vocabulary, splits)
    return listed_tokens(layer.vocabulary, given_words(words))


def _readable(layer: Layer, words: Chains) -> Chains:
    """Those of whose tokens the model has an embedding and a place."""
    unread = -1 if layer.weights.padding_token_id is None else layer.weights.padding_token_id
    tokens = np.concatenate([words.pieces, words.whole[:, None]], axis=1)
    return words.only(np.flatnonzero(((tokens < layer.vocab_size) & (tokens != unread)).all(axis=1)))


def _nothing_splits(layer: Layer, words: Path | Sequence[str] | None, has_splits: bool) -> str:
    if not has_splits:
        return (
            f"no word of {layer.name} has a twin: its tokenizer has no merges, and none of its tokens is two others "
            "joined, as in a vocabulary of letters or amino acids; ask a model whose tokenizer has words in pieces"
        )
    if words is not None:
        return (
            f"no two words of the list are tokens of {layer.name} that can be taken apart into smaller ones; "
            "give words that its tokenizer keeps whole"
        )
    return f"no two words of {layer.name} are tokens that can be taken apart into so many pieces; ask for fewer"


CLEARLY = 1.2  # times: with thousands of words any difference is beyond chance
NEEDED = 0.25  # of the gain
AT_CHANCE = 0.8  # of the median rank in a random order
WHERE = {"attention": "after the attention", "block": "after the first block"}
IN_PIECES = {2: "two pieces", 3: "three pieces", 4: "four pieces"}
CARRYING = ("null", "last_piece")
CONTROLS = (*CARRYING, "first_piece", "additive")
IN_WORDS = {
    "null": "with another word's first piece",
    "last_piece": "for the last piece alone",
    "first_piece": "for the first piece alone",
    "additive": "for the sum of its pieces",
}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """The conditions of one place and one number of pieces, by name."""

    rows: Mapping[str, Row]
    lower_end: float = 1.0
    """What the lower end of a clearly worse rank ratio is above; more where the best of many layers is looked for."""

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
        return self.is_testable and all(map(self.is_clearly_worse, CONTROLS))

    @property
    def carries(self) -> bool:
        """Whether the first piece reaches the last position: null and last piece alone are clearly worse."""
        return all(map(self.is_clearly_worse, CARRYING))

    def is_clearly_worse(self, condition: str) -> bool:
        row = self.rows[condition]
        return (
            self.has_intervals
            and row["rank_ratio_low"] > self.lower_end
            and row["rank_ratio"] >= CLEARLY
            and row["rank_lost"] > 0
        )

    def failed(self) -> list[str]:
        """The controls that are not clearly worse."""
        return [name for name in CONTROLS if not self.is_clearly_worse(name)]

    def needed(self, kind: str) -> list[Row]:
        """The conditions of a kind (`cut_`, `without_`) that lose much of the gain, the worst first."""
        rows = [row for name, row in self.rows.items() if name.startswith(kind) and is_needed(row, self.candidates)]
        return sorted(rows, key=lambda row: -float(row["share_lost"]))

    @property
    def candidates(self) -> int:
        return int(self.whole["candidates"])


def is_needed(row: Row, candidates: int) -> bool:
    """Whether what the row switches off is needed: by the lower end of its share, if the null stays above chance."""
    low = row["share_lost_low"]
    return low is not None and low > NEEDED and not sends_null_to_chance(row, candidates)


def sends_null_to_chance(row: Row, candidates: int) -> bool:
    """Whether an ablation makes the null worse, and as bad as a random order: then it explains nothing."""
    high, ratio = row["null_median_rank_high"], row["null_ratio_low"]
    return high is not None and bool(high >= AT_CHANCE * (candidates + 1) / 2 and ratio > 1)


def last_place(tables: Iterable[pl.DataFrame]) -> str:
    """The last place that all of these tables know."""
    return "block" if all("block" in table["place"] for table in tables) else "attention"


def found_at(table: pl.DataFrame, place: str, pieces: int) -> Found | None:
    """The rows of one place and one number of pieces; None where there is no such word."""
    rows = table.filter(place=place, pieces=pieces).to_dicts()
    return Found({row["condition"]: row for row in rows}) if rows else None


def fewest_pieces(table: pl.DataFrame, place: str | None = None) -> Found:
    """The words of fewest pieces, two unless others were asked for; by default at the last place that is known."""
    found = found_at(table, place or last_place([table]), int(table["pieces"].to_numpy().min()))
    assert found is not None
    return found


def twins_verdict(found: Found) -> Verdict:
    """Whether the layer writes words; the heads are those that it needs to carry the first piece."""
    heads = tuple(map(_name, found.needed("cut_"))) if found.carries else ()
    return verdict_of(found, heads)


def verdict_of(found: Found, heads: tuple[str, ...]) -> Verdict:
    """The verdict by the four controls, with the control that decided as its reason."""
    if not found.is_testable:
        return Verdict("untestable", inconclusive(found))
    if found.writes:
        weakest = min(CONTROLS, key=lambda name: float(found.rows[name]["rank_ratio"]))
        return Verdict("yes", f"all four controls are clearly worse; the closest is {_control(found, weakest)}", heads)
    failed = listed([_control(found, name) for name in found.failed()])
    rule = f"a ratio of at least {CLEARLY}, with a lower end above {found.lower_end:g}"
    reason = f"not clearly worse ({rule}): {failed}"
    return Verdict("no", f"{carried(found)}; {reason}" if found.carries else reason, heads)


def carried(found: Found) -> str:
    """What a layer does that passes null and last piece, but not all controls."""
    if not found.is_clearly_worse("additive"):
        return "carries the first piece to the last position, but not beyond the sum of its pieces"
    return "carries the first piece to the last position, but comes no nearer to the word than the first piece alone"


def inconclusive(found: Found) -> str:
    """Why there is no verdict."""
    from detoklens.measures.twins import FEWEST, PARTNERS

    words = plural(found.whole["words"], "word")
    if found.whole["words"] < FEWEST:
        return f"{words} are too few to conclude anything from; at least {FEWEST} are needed"
    if not found.has_intervals:
        return "without resamples of the words nothing can be concluded"
    return f"{words} are too few for the additive control: each needs {PARTNERS} partners with other pieces"


def twins_said(table: pl.DataFrame, all_heads: bool = True) -> str:
    """Whether the layer writes words, what it needs for that, and whether the first of more pieces counts.

    `all_heads` says whether every head was cut: nothing is said about those that were not.
    """
    found = fewest_pieces(table)
    verdict = twins_verdict(found)
    ranks = f"{_place(found)}, the twin of a word in {_pieces(found)} has {ranks_said(found)}"
    if verdict.value == "untestable":
        return f"{_capital(ranks)}; {verdict.reason}."
    longer = _longer(table, found.whole["pieces"])
    needs = f"; {_head_said(found, all_heads)}, {_term_said(found)}" if found.carries else ""
    return f"{_conclusion(found)}: {ranks}{needs}{longer}."


def _conclusion(found: Found) -> str:
    if found.writes:
        return "The first layer writes words"
    return f"The first layer {carried(found)}" if found.carries else "The first layer writes no words"


def ranks_said(found: Found) -> str:
    """The median rank, and how many times worse the rank is in each control, which is what the rule uses."""
    whole = found.whole
    low_high = [rank_said(whole[f"median_rank_{end}"]) for end in ("low", "high") if found.has_intervals]
    ends = f" ({' to '.join(low_high)})" if low_high else ""
    bos = f" after {whole['bos']}" if whole["bos"] is not None else " with no beginning-of-text token"
    controls = [name for name in CONTROLS if name in found.rows]
    times = [f"{times_said(found.rows[name])}{'' if at else ' times as large'}" for at, name in enumerate(controls)]
    worse = [f"{ratio} {IN_WORDS[name]}" for ratio, name in zip(times, controls, strict=True)]
    return (
        f"median rank {rank_said(whole['median_rank'])}{ends} of {whole['candidates']:,}{bos}; "
        f"the rank is {listed(worse)}"
    )


def times_said(row: Row, name: str = "rank_ratio") -> str:
    """`1.80 [1.63, 1.98]`."""
    ends = "" if row[f"{name}_low"] is None else f" [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"
    return f"{row[name]:.2f}{ends}"


def _control(found: Found, name: str) -> str:
    return f"{name} {times_said(found.rows[name])}"


def _head_said(found: Found, all_heads: bool) -> str:
    needed = found.needed("cut_")
    if needed:
        return f"it needs {listed([f'{_name(row)} ({times_said(row)} with its link cut)' for row in needed])}"
    if all_heads:
        return "no single head is needed for it"
    cut = [_name(row) for name, row in found.rows.items() if name.startswith("cut_")]
    if len(cut) == 1:
        return f"{cut[0]}, the only head that was cut, is not needed for it"
    return f"none of the {len(cut)} heads that were cut is needed for it"


def _term_said(found: Found) -> str:
    needed = found.needed("without_")
    if needed:
        return f"and of the terms {listed([f'{_term(row)} ({times_said(row)} without it)' for row in needed])}"
    return "and no single term"


def _longer(table: pl.DataFrame, shortest: int) -> str:
    """Whether the first of more pieces counts, by the null."""
    said = []
    for pieces in sorted(set(table["pieces"].to_list()) - {shortest}):
        found = found_at(table, last_place([table]), pieces)
        if found is None or not found.has_intervals:
            continue
        counts = "counts" if found.is_clearly_worse("null") else "does not clearly count"
        said.append(f"in {_pieces(found)} the first one {counts} (null {times_said(found.rows['null'])})")
    return f"; {listed(said)}" if said else ""


def twins_compared(tables: Mapping[str, pl.DataFrame]) -> str:
    """Which of several models write words, with the additive control and the heads that each needs."""
    place = last_place(tables.values())
    said = [
        _in_short(label, found, twins_verdict(found))
        for label, found in ((label, fewest_pieces(table, place)) for label, table in tables.items())
    ]
    return f"Does the first layer write words? By the twin's rank {WHERE[place]}: {'; '.join(said)}."


def _in_short(label: str, found: Found, verdict: Verdict) -> str:
    value = "can't be told" if verdict.value == "untestable" else verdict.value
    return f"{label} {value} ({briefly(found, verdict.heads)})"


def briefly(found: Found, needed: Sequence[str]) -> str:
    """The ratios of the null and of the additive control, and what is needed."""
    shown = listed([_control(found, name) for name in ("null", "additive") if name in found.rows])
    carries = "carries the first piece, " if found.carries and found.is_testable and not found.writes else ""
    return f"{carries}{shown}{f', needs {listed(needed)}' if needed else ''}"


def _name(row: Row) -> str:
    return str(row["condition"]).removeprefix("cut_")


def _term(row: Row) -> str:
    return term_symbol(str(row["condition"]).removeprefix("without_"))


def _place(found: Found) -> str:
    return WHERE[found.whole["place"]]


def _pieces(found: Found) -> str:
    pieces = found.whole["pieces"]
    return IN_PIECES.get(pieces, f"{pieces} pieces")


def rank_said(rank: float) -> str:
    """A median rank, which may be a half: shown below 100."""
    return f"{rank:.1f}".removesuffix(".0") if rank < 100 else f"{rank:,.0f}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
