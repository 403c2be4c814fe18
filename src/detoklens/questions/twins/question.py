"""Test whether the first layer writes words: whether a word's last piece comes to look like the whole word's token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import polars as pl

from detoklens.errors import CheckpointError, RangeError, UnsupportedModelError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.chance import Interval
from detoklens.measures.twins import ClosedWorld, geometric_means, rank_measures, shares_lost
from detoklens.measures.words import fingerprint_of, given_words
from detoklens.model import checks
from detoklens.questions.base import Question, View
from detoklens.questions.parameters import Heads, Parameter
from detoklens.questions.twins.compute import (
    CARRYING,
    CONTROLS,
    TWINS,
    TWINS_BY_CONDITION,
    Bos,
    Pieces,
    Triples,
    TwinWords,
    beginning_of,
    bos_name,
    candidate_tokens,
    check_pieces,
    compare_twins,
    fewest_pieces,
    last_place,
    null_pieces,
    partners_of,
    summarize_twins,
    twin_words,
    twins_verdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from detoklens.measures.twins import Chains, Condition
    from detoklens.parallel import Runner
    from detoklens.questions.base import ByLabel, Frames, Verdict
    from detoklens.questions.study import Study
    from detoklens.scores.layer import Layer
    from detoklens.weights.first_layer import MlpSublayer


COPIES = 3  # of one place's vectors in float32 while standardising, on top of the vectors of all places
SHOWN = (
    *("condition", "place", "pieces", "median_rank", "median_rank_low", "median_rank_high", "first", "first_ten"),
    *("rank_lost", "rank_ratio", "rank_ratio_low", "rank_ratio_high"),
)


@dataclass(frozen=True)
class Ranked:
    """Ranks of the twins at one place, for one number of pieces, by condition."""

    ranks: dict[str, np.ndarray] = field(default_factory=dict)
    null_ranks: dict[str, np.ndarray] = field(default_factory=dict)
    """Of the null, under the same ablation."""


@dataclass(frozen=True, repr=False)
class Twins(Question):
    """Test whether the first layer writes words.

    The pieces ` mag` + `ic` have a twin, the token ` magic`. Its rank among all tokens, by cosine with the last piece
    after the attention and after the block, is compared with four controls: another word's first piece (null), the last
    piece alone, the first piece alone, and the sum of its pieces (additive). A layer writes words only if the rank is
    clearly worse in all four. For the fewest pieces, each head's attention to earlier pieces is also cut, and each term
    of the scores left out or used alone. Exact and from weights alone: a text is a beginning-of-text token and pieces.

    Example: detoklens twins gpt2 --triples 2000 --pieces 2
    """

    words: TwinWords = None
    pieces: Pieces = (2, 3, 4)
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
    caveat = "The text is only a beginning-of-text token and one word; longer texts may distract the heads."
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
            "twins",
            ("twins_by_condition",),
            "Rank of the twin by condition",
            "Median rank of a word's twin among the candidates, with its 95 % interval over words (left is better): "
            "unchanged, in the four controls, with one head's attention to earlier pieces cut, and with one term left "
            "out or alone; words of the fewest pieces. Right: geometric mean over words of the rank ratio. The dotted "
            "line marks the unchanged word.",
        ),
        FigureSpec(
            "twins_pieces",
            "twins:twins_pieces",
            ("twins_by_condition",),
            "Words in more pieces",
            "Median rank of the twin, with its 95 % interval, by number of pieces with the same last piece: unchanged "
            "and in the four controls.",
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_twins",
            "twins:compare_twins",
            ("twins_by_condition",),
            "Twins in several checkpoints",
            "Rank ratio of the twin in each of the four controls, and with one head's attention to earlier pieces cut, "
            "with its 95 % interval over words. 1 is no difference. A layer writes words only if all four controls are "
            "clearly above 1.",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pieces(self.pieces)

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
        token_ids = candidate_tokens(study, self.candidates, [some.whole for some in words.values()])
        each = layer.d_model * (len(world.places) * layer.weights.token_embeddings.itemsize + COPIES * 4)
        checks.refuse_too_large(
            len(token_ids) * each,
            f"{len(token_ids):,} candidates of width {layer.d_model:,}",
            f"rank {int(checks.MEMORY_SHARE * checks.machine_memory() / each):,} candidates or fewer",
        )
        nulls = {pieces: null_pieces(layer, some, study.seed) for pieces, some in words.items()}
        asked = {
            pieces: world.words_changed(some, nulls[pieces], partners_of(some, study.seed, runner.say))
            for pieces, some in words.items()
        }
        fewest = min(words)  # longer words have controls only
        asked[fewest] += world.layer_changed(words[fewest], study.heads(self.heads), nulls[fewest])
        by_condition, by_word = [], []
        for (place, pieces), found in _ranked(world, asked, words, token_ids, runner).items():
            known = {"place": place, "pieces": pieces, "words": len(words[pieces]), "candidates": len(token_ids)}
            data: dict[str, Any] = {name: [value] * len(found.ranks) for name, value in known.items()}
            data |= {"condition": [*found.ranks], "bos": [bos_name(layer, beginning)] * len(found.ranks)}
            for name, numbers in _measures(found, self.bootstrap, study.seed).items():
                data |= numbers.columns(name)
            by_condition.append(TWINS_BY_CONDITION.frame(data))
            by_word.append(_word_by_word(layer, place, words[pieces], found))
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
        say(f"results are only available after the attention, not after the block: {error}")
        return None


def rest_settings(layer: Layer) -> dict[str, str | None]:
    """Fingerprint of the first block's MLP for the provenance."""
    rest = _rest(layer, lambda _note: None)
    return {"rest_of_block": None if rest is None else rest.fingerprint}


def _ranked(
    world: ClosedWorld,
    asked: Mapping[int, Sequence[Condition]],
    words: Mapping[int, Chains],
    token_ids: np.ndarray,
    runner: Runner,
) -> dict[tuple[str, int], Ranked]:
    """Ranks of the twins among the candidates, by place and number of pieces."""
    threads = runner.workers
    candidates = world.candidates(token_ids, threads)
    found = {(place, pieces): Ranked() for place in world.places for pieces in asked}
    steps = [(pieces, condition) for pieces, conditions in asked.items() for condition in conditions]
    for number, (pieces, condition) in enumerate(steps, 1):
        twins = np.searchsorted(token_ids, words[pieces].whole)
        vectors = world.condition_vectors(condition, threads)
        for place in world.places:
            found[place, pieces].ranks[condition.name] = candidates[place].ranks(vectors[place], twins, threads)
        if condition.null is not None:
            vectors = world.vectors(condition.null, condition.look, threads)
            for place in world.places:
                ranks = candidates[place].ranks(vectors[place], twins, threads)
                found[place, pieces].null_ranks[condition.name] = ranks
        if runner.watch is not None:
            runner.watch(number, len(steps))
    return found


def _measures(found: Ranked, resamples: int, seed: int) -> dict[str, Interval]:
    """The rank measures; for each cut and each term left out, the share of the gain lost and the effect on the null."""
    row = {name: number for number, name in enumerate(found.ranks)}
    ranks = np.stack([*found.ranks.values()])
    off = [row[name] for name in found.null_ranks]
    columns = ("share_lost", "null_median_rank", "null_ratio", "share_behind")
    ablated = {name: np.full((3, len(row)), np.nan) for name in columns}
    if off:
        logarithms, null_off = np.log(ranks), np.stack([*found.null_ranks.values()])
        gains = logarithms[[row[name] for name in CARRYING]] - logarithms[row["whole"]]
        lost = logarithms[off] - logarithms[row["whole"]]
        measured = {
            "share_lost": shares_lost(lost, gains, resamples, seed),
            "null_median_rank": rank_measures(null_off, resamples, seed)["median_rank"],
            "null_ratio": geometric_means(null_off / found.ranks["null"], resamples, seed),
        }
        for name, numbers in measured.items():
            ablated[name][:, off] = numbers.value, numbers.low, numbers.high
    cuts = [number for name, number in row.items() if name.startswith("cut_")]
    if cuts:
        lost = logarithms[cuts] - logarithms[row["whole"]]
        numbers = shares_lost(lost, gains, resamples, seed, behind=int(lost.mean(axis=1).argmax()))
        ablated["share_behind"][:, cuts] = numbers.value, numbers.low, numbers.high
    by_name = {name: Interval(*values) for name, values in ablated.items()}
    return rank_measures(ranks, resamples, seed) | by_name


def _word_by_word(layer: Layer, place: str, words: Chains, found: Ranked) -> pl.DataFrame:
    controls = {f"{name}_rank": found.ranks.get(name, [None] * len(words)) for name in CONTROLS}
    return TWINS.frame(
        {
            "token_id": words.whole,
            "token": [layer.token(int(token)) for token in words.whole],
            "pieces": [words.pieces.shape[1]] * len(words),
            "split": ["|".join(map(layer.token, chain)) for chain in words.pieces.tolist()],
            "place": [place] * len(words),
            "rank": found.ranks["whole"],
            **controls,
        }
    )
