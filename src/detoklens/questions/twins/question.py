"""Test whether the first layer writes words: whether a word's last piece comes to look like the whole word's token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import polars as pl

from detoklens.errors import CheckpointError, RangeError, UnsupportedModelError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.chance import Interval
from detoklens.measures.twins import (
    ClosedWorld,
    control_pieces,
    geometric_means,
    median_ranks,
    rank_measures,
    shares_lost,
)
from detoklens.measures.words import fingerprint_of, given_words
from detoklens.model import checks
from detoklens.parallel import Runner
from detoklens.questions.base import Question, Verdict, View
from detoklens.questions.parameters import Heads, Parameter, comma_separated, whole_numbers
from detoklens.questions.texts import Bos, beginning_of, bos_name
from detoklens.questions.twins.compute import (
    TWINS,
    TWINS_BY_CONDITION,
    Triples,
    TwinWords,
    Words,
    candidate_tokens,
    twin_words,
)
from detoklens.questions.twins.verdict import (
    CARRYING,
    CONTROLS,
    compare_twins,
    fewest_pieces,
    last_place,
    summarize_twins,
    twins_verdict,
)
from detoklens.scores.layer import Layer
from detoklens.weights.first_layer import MlpSublayer
from detoklens.wording import plural

if TYPE_CHECKING:
    from detoklens.questions.base import ByLabel, Frames
    from detoklens.questions.study import Study


SHOWN = (
    *("condition", "place", "pieces", "median_rank", "median_rank_low", "median_rank_high", "first", "first_ten"),
    *("rank_lost", "rank_ratio", "rank_ratio_low", "rank_ratio_high"),
)


Ranks = dict[str, np.ndarray]
"""Ranks of the twins by condition; `null_cut_L0H1` are those of the null under the same ablation."""


@dataclass(frozen=True, repr=False)
class Twins(Question):
    """Test whether the first layer writes words.

    The pieces ` mag` + `ic` have a twin, the token ` magic`. It is ranked among all tokens by cosine with the last
    piece, after the attention and after the block. Its rank is compared with four controls: another word's first piece
    (null), the last piece alone, the first piece alone, and the sum of its pieces (additive). A layer writes words only
    if the rank is clearly worse in all four. For words of the fewest pieces, each head's attention to earlier pieces is
    also cut, and each score term is left out or used alone. Exact and from weights alone: the input is only a
    beginning-of-text token and the pieces.

    Example: detoklens twins gpt2 --triples 2000 --pieces 2
    """

    words: TwinWords = None
    pieces: Annotated[
        Sequence[int],
        Parameter(
            "Numbers of pieces.",
            metavar="2,3,4",
            read=whole_numbers("numbers of pieces"),
            spell=comma_separated("--pieces"),
        ),
    ] = (2, 3, 4)
    triples: Triples = 600
    candidates: Annotated[
        int | None,
        Parameter(
            "Number of randomly drawn tokens to rank, in addition to the twins. Default: all.", least=1, advanced=True
        ),
    ] = None
    heads: Heads = None
    bootstrap: Annotated[
        int, Parameter("Bootstrap resamples of the words; 0 for no intervals.", least=0, advanced=True)
    ] = 1000
    bos: Bos = None

    progress_label = "ranking twins"
    report_section = "Words written by the layer"
    caveat = "The text is only a beginning-of-text token and one word. In longer texts, heads may attend elsewhere."
    needs = frozenset({"vocabulary"})
    uses = frozenset({"seed"})
    tables = (TWINS_BY_CONDITION, TWINS)
    compared_tables = ("twins_by_condition",)
    by: ClassVar[Mapping[str, str]] = {"condition": "twins_by_condition", "word": "twins"}
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {"twins_by_condition": SHOWN}
    equation = (
        "x = residual stream at the last position of [BOS, p₁, …, p_k], y_c of [BOS, c];  each side z = "
        "clip((x − mean x) / std x, ±5) by dimension, over its own words or candidates;  "
        "rank of the twin c = 1 + number of c′ with "
        "cos(z, z_c′) > cos(z, z_c), ties by id;  additive: x̂(a, b) = mean_k x(a, b_k) + mean_k x(a_k, b) − mean_k "
        "x(a_k, b_k) over 16 other words, a the first piece, b the rest;  "
        "cut: α[h, k, j] = 0 for the pieces j before, not renormalised;  "
        "without t, only t: α = softmax of the scores without term t, or of it alone;  rank ratio: exp mean "
        "ln(rank / rank in whole) over words"
    )
    figures = (
        FigureSpec(
            "twins",
            ("twins_by_condition",),
            "Rank of the twin by condition",
            "Median rank of a word's twin among the candidates, with its 95 % interval over words (left is better): "
            "unchanged, in the four controls, with one head's attention to earlier pieces cut, and with one term left "
            "out or used alone, for words of the fewest pieces. Right: geometric mean over words of the rank ratio. "
            "The dotted line marks the unchanged word.",
        ),
        FigureSpec(
            "twins_pieces",
            ("twins_by_condition",),
            "Words in more pieces",
            "Median rank of the twin, with its 95 % interval, by number of pieces with the same last piece: unchanged "
            "and in the four controls.",
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_twins",
            ("twins_by_condition",),
            "Twins in several checkpoints",
            "Rank ratio of the twin in each of the four controls, and with one head's attention to earlier pieces cut, "
            "with its 95 % interval over words. 1 is no difference. A layer writes words only if all four controls are "
            "clearly above 1.",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pieces or min(self.pieces) < 2:
            wrong = next((number for number in self.pieces if number < 2), "none")
            raise RangeError(f"a word has at least 2 pieces, not {wrong}; pass, e.g., 2,3,4")

    def settings(self, study: Study) -> dict[str, Any]:
        given = super().settings(study) | {"pieces": sorted(set(self.pieces)), **rest_settings(study.layer)}
        words = None if self.words is None else fingerprint_of(given_words(self.words))
        return given | {"words": words, "bos": list(beginning_of(study.layer, bos=self.bos))}

    def ask(self, study: Study, runner: Runner) -> Frames:
        layer = study.layer
        beginning = beginning_of(layer, runner.say, self.bos)
        words = twin_words(layer, self.words, self.pieces, self.triples, study.seed, runner.say)
        longest = len(beginning) + max(words)
        if longest > layer.n_positions:
            raise RangeError(
                f"words in {max(self.pieces)} pieces need {longest} positions, {layer.name} has {layer.n_positions}; "
                "ask for fewer pieces"
            )
        world = ClosedWorld.of(layer, beginning, _rest(layer, runner.say))
        token_ids = candidate_tokens(study, self.candidates, [some.chains.whole for some in words.values()])
        _check_memory(world, len(token_ids), len(words[min(words)].chains), min(words))
        by_condition, by_word = [], []
        for (place, pieces), ranks in rank_twins(world, words, study.heads(self.heads), token_ids, runner).items():
            some, found = words[pieces].chains, _measures(ranks, self.bootstrap, study.seed)
            known = {"place": place, "pieces": pieces, "words": len(some), "candidates": len(token_ids)}
            data = {name: column for each, numbers in found.items() for name, column in numbers.columns(each).items()}
            axes = {"condition": _conditions(ranks)}
            by_condition.append(TWINS_BY_CONDITION.grid(axes, known | data | {"bos": bos_name(layer, beginning)}))
            spelled = {
                "token": [layer.token(int(token)) for token in some.whole],
                "split": ["|".join(map(layer.token, chain)) for chain in some.pieces.tolist()],
            }
            controls = {f"{name}_rank": ranks.get(name) for name in CONTROLS}
            numbers = {"pieces": pieces, "place": place, "rank": ranks["whole"], **controls}
            by_word.append(TWINS.grid({"token_id": some.whole}, spelled | numbers))
        return {"twins_by_condition": pl.concat(by_condition), "twins": pl.concat(by_word)}

    def verdict(self, tables: Frames) -> Verdict:
        """Whether the layer writes words; the heads carry the first piece to the last position."""
        return twins_verdict(fewest_pieces(tables["twins_by_condition"]))

    def summarize(self, tables: Frames) -> str:
        return summarize_twins(tables["twins_by_condition"], all_heads=self.heads is None)

    def summarize_comparison(self, by_label: ByLabel) -> str:
        return compare_twins({label: tables["twins_by_condition"] for label, tables in by_label.items()})

    def views(self, tables: Frames) -> Sequence[View]:
        """The fewest pieces at the last place; other formats contain everything."""
        table = tables["twins_by_condition"]
        fewest = table.filter(place=last_place([table]), pieces=int(table["pieces"].to_numpy().min()))
        return [View(TWINS_BY_CONDITION.question, fewest.select(SHOWN))]


def _rest(layer: Layer, say: Callable[[str], None]) -> MlpSublayer | None:
    """The MLP of the first block; None, with a note, if it is missing or unsupported."""
    try:
        return layer.mlp_sublayer
    except (UnsupportedModelError, CheckpointError) as error:
        say(f"results are only available after the attention, not after the block ({error})")
        return None


def rest_settings(layer: Layer) -> dict[str, str | None]:
    """Fingerprint of the first block's MLP for the provenance."""
    rest = _rest(layer, lambda _note: None)
    return {"rest_of_block": None if rest is None else rest.fingerprint}


def _check_memory(world: ClosedWorld, candidates: int, words: int, pieces: int) -> None:
    """Refuse candidates, and positions of ablated words, that take most of the machine's memory."""
    each, ablated = world.candidate_bytes, world.ablation_bytes(words, pieces)
    fitting = int(checks.MEMORY_SHARE * checks.machine_memory() - ablated) // each
    checks.refuse_too_large(
        candidates * each + ablated,
        f"{candidates:,} candidates of width {world.layer.d_model:,} and the ablations of {plural(words, 'word')}",
        f"rank {fitting:,} candidates or fewer" if fitting > 0 else "ask about fewer words",
    )


def rank_twins(
    world: ClosedWorld, words: Mapping[int, Words], heads: Sequence[int], token_ids: np.ndarray, runner: Runner
) -> dict[tuple[str, int], Ranks]:
    """Ranks of the twins among the candidates, by place and number of pieces; ablations for the fewest pieces only.

    One place after the other, as the candidates of a large vocabulary take a gigabyte at each.
    """
    threads = runner.workers
    steps: list[tuple[int, str, Callable[[str], np.ndarray]]] = []
    for number, some in words.items():
        pieces = some.chains.pieces
        steps += [
            (number, name, partial(world.vectors, texts, threads=threads))
            for name, texts in control_pieces(pieces, some.null).items()
        ]
        if some.partners is not None:
            steps.append((number, "additive", partial(world.additive, pieces, some.partners, threads=threads)))
        if number == min(words):
            vectors, null_vectors = (
                partial(world.vectors, texts, threads=threads, kept={}) for texts in (pieces, some.null)
            )
            for name, look in world.ablations(heads).items():
                steps.append((number, name, partial(vectors, look=look)))
                if not name.startswith("only_"):
                    steps.append((number, f"null_{name}", partial(null_vectors, look=look)))
    twins = {number: np.searchsorted(token_ids, some.chains.whole) for number, some in words.items()}
    found: dict[tuple[str, int], Ranks] = {(place, number): {} for place in world.places for number in words}

    def rank_at(place: str, done: int) -> None:
        candidates = world.candidates(token_ids, place, threads)
        for number, name, compute in steps:
            found[place, number][name] = candidates.ranks(compute(place), twins[number], threads)
            done += 1
            runner.watch(done, len(world.places) * len(steps))

    for order, place in enumerate(world.places):
        rank_at(place, order * len(steps))
    return found


def _conditions(ranks: Ranks) -> list[str]:
    return [name for name in ranks if not name.startswith("null_")]


def _measures(ranks: Ranks, resamples: int, seed: int) -> dict[str, Interval]:
    """The rank measures; for each cut and each term left out, the share of the gain lost and the effect on the null."""
    names, drawn = _conditions(ranks), (resamples, seed)
    found = rank_measures(np.stack([ranks[name] for name in names]), *drawn)
    logarithms = {name: np.log(ranks[name]) for name in names}
    gains = np.stack([logarithms[name] - logarithms["whole"] for name in CARRYING])

    def add(column: str, rows: Sequence[str], numbers: Interval) -> None:
        """Other conditions have NaN."""
        ends = np.full((3, len(names)), np.nan)
        ends[:, [names.index(name) for name in rows]] = numbers
        found[column] = Interval(*ends)

    unknown = Interval(*np.empty((3, 0)))
    for column in ("share_lost", "null_median_rank", "null_ratio", "share_behind"):
        add(column, [], unknown)
    ablated = [name for name in names if f"null_{name}" in ranks]
    if ablated:
        lost = np.stack([logarithms[name] - logarithms["whole"] for name in ablated])
        nulls = np.stack([ranks[f"null_{name}"] for name in ablated])
        add("share_lost", ablated, shares_lost(lost, gains, *drawn))
        add("null_median_rank", ablated, median_ranks(nulls, *drawn))
        add("null_ratio", ablated, geometric_means(nulls / ranks["null"], *drawn))
    if cuts := [name for name in names if name.startswith("cut_")]:
        lost = np.stack([logarithms[name] - logarithms["whole"] for name in cuts])
        strongest = int(lost.mean(axis=1).argmax())
        add("share_behind", cuts, shares_lost(lost, gains, *drawn, behind=strongest))
    return found
