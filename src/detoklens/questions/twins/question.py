"""Test whether the first layer writes words: whether a word's last piece comes to look like the whole word's token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import polars as pl

from detoklens.corpus.memory import machine_memory
from detoklens.errors import CheckpointError, RangeError, UnsupportedModelError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.twin_ranks import ClosedWorld
from detoklens.measures.twins import Measured, geometric_means, shares_lost, summary
from detoklens.measures.words import fingerprint_of, given_words
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
from detoklens.wording import percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from detoklens.measures.twin_chains import Chains
    from detoklens.measures.twin_ranks import Condition
    from detoklens.parallel import Runner
    from detoklens.questions.base import ByLabel, Frames, Verdict
    from detoklens.questions.study import Study
    from detoklens.scores.layer import Layer
    from detoklens.weights.mlp import MlpSublayer


COPIES = 3  # of one place's vectors in float32 while standardising, on top of the vectors of all places
MEMORY_SHARE = 0.75
SHOWN = (
    *("condition", "place", "pieces", "median_rank", "median_rank_low", "median_rank_high", "first", "first_ten"),
    *("rank_lost", "rank_ratio", "rank_ratio_low", "rank_ratio_high"),
)


@dataclass(frozen=True)
class Ranked:
    """Ranks of the twins at one place, for one number of pieces."""

    conditions: tuple[str, ...]
    ranks: np.ndarray
    """[condition, word]"""
    null_ranks: Mapping[str, np.ndarray]
    """Ranks of the null under the same ablation, by condition."""


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
        self._check_places(layer, len(beginning) + max(words))
        world = ClosedWorld.of(layer, beginning, _rest(layer, runner.say))
        token_ids = self._candidates(layer, words, study.seed)
        _check_memory(layer, len(token_ids), len(world.places))
        asked = self._conditions(study, world, words, runner.say)
        ranked = _ranked(world, asked, words, token_ids, runner)
        bos = bos_name(layer, beginning)
        by_condition = [
            self._by_condition(place, pieces, found, len(token_ids), bos, study.seed)
            for (place, pieces), found in ranked.items()
        ]
        by_word = [_word_by_word(layer, place, words[pieces], found) for (place, pieces), found in ranked.items()]
        return {"twins_by_condition": pl.concat(by_condition), "twins": pl.concat(by_word)}

    def _check_places(self, layer: Layer, longest: int) -> None:
        if longest > layer.n_positions:
            raise RangeError(
                f"words in {max(self.pieces)} pieces need {longest} positions, {layer.name} has {layer.n_positions}; "
                "ask for fewer pieces"
            )

    def _candidates(self, layer: Layer, words: Mapping[int, Chains], seed: int) -> np.ndarray:
        """The tokens to rank, in order of id: all, or a sample plus the twins."""
        unread = layer.weights.padding_token_id
        everything = np.setdiff1d(np.arange(layer.vocab_size), [] if unread is None else [unread])
        if self.candidates is None or self.candidates >= len(everything):
            return everything
        drawn = np.random.default_rng(seed).choice(everything, self.candidates, replace=False)
        return np.unique(np.concatenate([drawn, *(some.whole for some in words.values())]))

    def _conditions(
        self, study: Study, world: ClosedWorld, words: Mapping[int, Chains], say: Callable[[str], None]
    ) -> dict[int, list[Condition]]:
        """By number of pieces: every condition for the fewest, only the controls for longer words."""
        nulls = {pieces: null_pieces(study.layer, some, study.seed) for pieces, some in words.items()}
        asked = {
            pieces: world.words_changed(some, nulls[pieces], partners_of(some, study.seed, say))
            for pieces, some in words.items()
        }
        fewest = min(words)
        asked[fewest] += world.layer_changed(words[fewest], study.heads(self.heads), nulls[fewest])
        return asked

    def _by_condition(
        self, place: str, pieces: int, found: Ranked, n_candidates: int, bos: str | None, seed: int
    ) -> pl.DataFrame:
        n_words = found.ranks.shape[1]
        known = {"place": place, "pieces": pieces, "words": n_words, "candidates": n_candidates, "bos": bos}
        data: dict[str, Any] = {name: [value] * len(found.conditions) for name, value in known.items()}
        data["condition"] = list(found.conditions)
        measured = vars(summary(found.ranks, self.bootstrap, seed)) | _off(found, self.bootstrap, seed)
        for name, numbers in measured.items():
            data |= {name: numbers.value, f"{name}_low": numbers.low, f"{name}_high": numbers.high}
        return TWINS_BY_CONDITION.frame(data)

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


def _check_memory(layer: Layer, n_candidates: int, n_places: int) -> None:
    kept = n_places * layer.weights.token_embeddings.itemsize + COPIES * 4
    needed, available = n_candidates * layer.d_model * kept, machine_memory()
    if needed > MEMORY_SHARE * available:
        fitting = int(n_candidates * MEMORY_SHARE * available / needed)
        raise RangeError(
            f"{n_candidates:,} candidates of width {layer.d_model:,} need {needed / 1e9:.1f} GB, more than "
            f"{percent(MEMORY_SHARE)} of this machine's {available / 1e9:.1f} GB; rank {fitting:,} candidates or fewer"
        )


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
    keys = [(place, pieces) for place in world.places for pieces in asked]
    ranks: dict[tuple[str, int], list[np.ndarray]] = {key: [] for key in keys}
    nulls: dict[tuple[str, int], dict[str, np.ndarray]] = {key: {} for key in keys}
    steps = [(pieces, condition) for pieces, conditions in asked.items() for condition in conditions]
    for number, (pieces, condition) in enumerate(steps, 1):
        twins = np.searchsorted(token_ids, words[pieces].whole)
        vectors = world.condition_vectors(condition, threads)
        for place in world.places:
            ranks[place, pieces].append(candidates[place].ranks(vectors[place], twins, threads))
        if condition.null is not None:
            vectors = world.vectors(condition.null, condition.look, threads)
            for place in world.places:
                nulls[place, pieces][condition.name] = candidates[place].ranks(vectors[place], twins, threads)
        if runner.watch is not None:
            runner.watch(number, len(steps))
    return {
        (place, pieces): Ranked(
            tuple(one.name for one in asked[pieces]), np.stack(ranks[place, pieces]), nulls[place, pieces]
        )
        for place, pieces in keys
    }


def _off(found: Ranked, resamples: int, seed: int) -> dict[str, Measured]:
    """For each cut and each term left out: the share of the gain lost, and the effect on the null."""
    off = [row for row, name in enumerate(found.conditions) if name in found.null_ranks]
    columns = ("share_lost", "null_median_rank", "null_ratio")
    unknown = {name: np.full((3, len(found.conditions)), np.nan) for name in columns}
    if off:
        row = {name: number for number, name in enumerate(found.conditions)}
        logarithms, null = np.log(found.ranks), found.ranks[row["null"]]
        null_off = np.stack([found.null_ranks[found.conditions[number]] for number in off])
        gains = logarithms[[row[name] for name in CARRYING]] - logarithms[row["whole"]]
        measured = (
            shares_lost(logarithms[off] - logarithms[row["whole"]], gains, resamples, seed),
            summary(null_off, resamples, seed).median_rank,
            geometric_means(null_off / null, resamples, seed),
        )
        for name, numbers in zip(columns, measured, strict=True):
            unknown[name][:, off] = numbers.value, numbers.low, numbers.high
    return {name: Measured(*values) for name, values in unknown.items()}


def _word_by_word(layer: Layer, place: str, words: Chains, found: Ranked) -> pl.DataFrame:
    ranks = dict(zip(found.conditions, found.ranks, strict=True))
    controls = {f"{name}_rank": ranks[name] if name in ranks else [None] * len(words) for name in CONTROLS}
    return TWINS.frame(
        {
            "token_id": words.whole,
            "token": [layer.token(int(token)) for token in words.whole],
            "pieces": [words.pieces.shape[1]] * len(words),
            "split": ["|".join(map(layer.token, chain)) for chain in words.pieces.tolist()],
            "place": [place] * len(words),
            "rank": ranks["whole"],
            **controls,
        }
    )
