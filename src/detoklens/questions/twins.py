"""Does the layer write the word? Does a word's last piece come to look like the whole word's token?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from detoklens.errors import CheckpointError, RangeError, UnsupportedModelError
from detoklens.figures.spec import FigureSpec
from detoklens.questions.parameters import Heads, Parameter
from detoklens.questions.question import Question, View
from detoklens.questions.twin_words import Pieces, Triples, TwinWords, beginning_of, check_pieces, twin_words
from detoklens.questions.twins_said import last_place, twins_compared, twins_said
from detoklens.questions.twins_schemas import TWINS, TWINS_BY_CONDITION
from detoklens.wording import percent

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import polars as pl

    from detoklens.measures.twin_chains import Chains
    from detoklens.measures.twin_ranks import ClosedWorld, Condition
    from detoklens.parallel import Runner
    from detoklens.questions.question import ByLabel, Frames
    from detoklens.questions.study import Study
    from detoklens.scores.layer import Layer
    from detoklens.weights.rest_of_block import RestOfBlock

COPIES = 3  # of one place's vectors in float32 while they are put in order, beside those of all places
SHARE_OF_MEMORY = 0.75
SHOWN = (
    *("condition", "place", "pieces", "median_rank", "median_rank_low", "median_rank_high", "first", "first_ten"),
    *("rank_lost", "rank_ratio", "rank_ratio_low", "rank_ratio_high"),
)

Ranks = Mapping[tuple[str, int], "np.ndarray"]


@dataclass(frozen=True, repr=False)
class Twins(Question):
    """Ask whether the first layer writes words: does the last piece of a word come to look like the whole word's token?

    A token that is a word has a twin, the same text in pieces (` magic` is also ` mag` + `ic`). The twin's rank among
    all tokens by cosine, after attention and after the block, stands beside that of the null (the first piece another
    word's) and of the last piece alone; words of the fewest pieces also with every head's look back cut, and with every
    term left out and alone. From weights alone and exact: only a beginning-of-text token and the pieces are in sight.

    Example: detoklens twins gpt2 --triples 2000 --pieces 2
    """

    words: TwinWords = None
    pieces: Pieces = (2, 3, 4)
    triples: Triples = 600
    candidates: Annotated[
        int | None, Parameter("Look for the twin among so many tokens, drawn by the seed. Default: all.", least=1)
    ] = None
    heads: Heads = None
    bootstrap: Annotated[int, Parameter("Resamples of the words for the intervals; 0 for none.", least=0)] = 1000

    topic = "Which heads detokenize?"
    doing = "looking for twins"
    needs = frozenset({"vocabulary"})
    uses = frozenset({"seed"})
    tables = (TWINS_BY_CONDITION, TWINS)
    compared_tables = ("twins_by_condition",)
    by: ClassVar[Mapping[str, str]] = {"condition": "twins_by_condition", "word": "twins"}
    eyes: ClassVar[Mapping[str, tuple[str, ...]]] = {"twins_by_condition": SHOWN}
    equation = (
        "x = stream at the last place of [BOS, p₁, …, p_k], y_c of [BOS, c];  each side z = clip((x − mean x) / std x, "
        "±5) by dimension, over its own words or candidates;  rank of the twin c = 1 + number of c′ with "
        "cos(z, z_c′) > cos(z, z_c), ties by id;  cut: α[h, k, j] = 0 for the pieces j before, not renormalised;  "
        "without t, only t: α = softmax of the scores without term t, or of it alone;  rank ratio: exp mean "
        "ln(rank / rank in whole) over words"
    )
    figures = (
        FigureSpec(
            "twins",
            "twins",
            ("twins_by_condition",),
            "Rank of the twin by condition",
            "Median rank of a word's twin among the candidates, all tokens or a sample of them, seen from the word's "
            "last piece, with its 95 % interval over words (left is better): as it is, with another word's first "
            "piece, for the last piece alone, with one head's look back cut, with one term left out or alone; words of "
            "the fewest pieces. On the right how many times worse that is, word by word (geometric mean). The dotted "
            "line is the word as it is.",
        ),
        FigureSpec(
            "twins_pieces",
            "twins:twins_pieces",
            ("twins_by_condition",),
            "Words in more pieces",
            "Median rank of the twin with its 95 % interval by the number of pieces, the last piece being the same: as "
            "it is, with another word's first piece, and for the last piece alone.",
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_twins",
            "twins:compare_twins",
            ("twins_by_condition",),
            "Writing words in several checkpoints",
            "How many times worse the twin's rank is with another word's first piece, for the last piece alone, and "
            "with the look back of one head cut, each with its 95 % interval over words. 1 is no difference: a model "
            "whose null is at 1 writes no words.",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pieces(self.pieces)

    def settings(self, study: Study) -> dict[str, Any]:
        """The list and the rest of the block by their fingerprints."""
        from detoklens.measures.word_list import fingerprint_of, given_words

        given = super().settings(study) | {"pieces": sorted(set(self.pieces)), **rest_settings(study.layer)}
        return given | {"words": None if self.words is None else fingerprint_of(given_words(self.words))}

    def ask(self, study: Study, runner: Runner) -> Frames:
        import polars as pl

        from detoklens.measures.twin_ranks import ClosedWorld

        layer = study.layer
        words = twin_words(layer, self.words, self.pieces, self.triples, study.seed, runner.say)
        beginning = beginning_of(layer, runner.say)
        self._check_places(layer, len(beginning) + max(words))
        world = ClosedWorld.of(layer, beginning, _rest(layer, runner.say))
        token_ids = self._candidates(layer, words, study.seed)
        _check_memory(layer, len(token_ids), len(world.places))
        asked = self._conditions(study, world, words)
        ranks = _ranked(world, asked, words, token_ids, runner)
        by_condition = [
            self._by_condition(place, pieces, [one.name for one in asked[pieces]], found, len(token_ids), study.seed)
            for (place, pieces), found in ranks.items()
        ]
        by_word = [_word_by_word(layer, place, words[pieces], found) for (place, pieces), found in ranks.items()]
        return {"twins_by_condition": pl.concat(by_condition), "twins": pl.concat(by_word)}

    def _check_places(self, layer: Layer, longest: int) -> None:
        if longest > layer.n_positions:
            raise RangeError(
                f"words in {max(self.pieces)} pieces need {longest} positions, {layer.name} has {layer.n_positions}; "
                "ask for fewer pieces"
            )

    def _candidates(self, layer: Layer, words: Mapping[int, Chains], seed: int) -> np.ndarray:
        """The tokens among which twins are looked for, from the smallest id: all, or a sample that holds the twins."""
        import numpy as np

        unread = layer.weights.placeless_token
        everything = np.setdiff1d(np.arange(layer.vocab_size), [] if unread is None else [unread])
        if self.candidates is None or self.candidates >= len(everything):
            return everything
        drawn = np.random.default_rng(seed).choice(everything, self.candidates, replace=False)
        return np.unique(np.concatenate([drawn, *(some.whole for some in words.values())]))

    def _conditions(self, study: Study, world: ClosedWorld, words: Mapping[int, Chains]) -> dict[int, list[Condition]]:
        """By number of pieces: words of the fewest in every condition, longer ones as they are, null and baseline."""
        asked = {pieces: world.words_changed(some, study.seed) for pieces, some in words.items()}
        fewest = min(words)
        asked[fewest] += world.layer_changed(words[fewest], study.heads(self.heads))
        return asked

    def _by_condition(
        self, place: str, pieces: int, names: Sequence[str], ranks: np.ndarray, n_candidates: int, seed: int
    ) -> pl.DataFrame:
        from detoklens.measures.twins import summary

        known = {"place": place, "pieces": pieces, "words": ranks.shape[1], "candidates": n_candidates}
        data: dict[str, Any] = {name: [value] * len(names) for name, value in known.items()}
        data["condition"] = list(names)
        for name, measured in vars(summary(ranks, self.bootstrap, seed)).items():
            data |= {name: measured.value, f"{name}_low": measured.low, f"{name}_high": measured.high}
        return TWINS_BY_CONDITION.frame(data)

    def say(self, tables: Frames) -> str:
        """Whether the layer writes words beyond its null, and which head and which term it needs."""
        return twins_said(tables["twins_by_condition"], all_heads=self.heads is None)

    def say_compared(self, by_label: ByLabel) -> str:
        """Which of the models write words."""
        return twins_compared({label: tables["twins_by_condition"] for label, tables in by_label.items()})

    def views(self, tables: Frames) -> Sequence[View]:
        """The words of the fewest pieces at the last place; the other formats hold all."""
        table = tables["twins_by_condition"]
        fewest = table.filter(place=last_place([table]), pieces=int(table["pieces"].to_numpy().min()))
        return [View(TWINS_BY_CONDITION.question, fewest.select(SHOWN))]


def _rest(layer: Layer, say: Callable[[str], None]) -> RestOfBlock | None:
    """The rest of the first block; None, and a note with the reason, where it is not read exactly or not there."""
    try:
        return layer.rest_of_block
    except (UnsupportedModelError, CheckpointError) as error:
        say(f"only the place after attention is known: {error}")
        return None


def rest_settings(layer: Layer) -> dict[str, str | None]:
    """The rest of the first block as provenance keeps it: numbers after the attention or the block depend on it."""
    rest = _rest(layer, lambda _note: None)
    return {"rest_of_block": None if rest is None else rest.fingerprint}


def _check_memory(layer: Layer, n_candidates: int, n_places: int) -> None:
    """Refuse before anything is computed what would not fit."""
    from detoklens.corpus.memory import machine_memory

    kept = n_places * layer.weights.token_embeddings.itemsize + COPIES * 4
    needed, there = n_candidates * layer.d_model * kept, machine_memory()
    if needed > SHARE_OF_MEMORY * there:
        fitting = int(n_candidates * SHARE_OF_MEMORY * there / needed)
        raise RangeError(
            f"{n_candidates:,} candidates of width {layer.d_model:,} need {needed / 1e9:.1f} GB, more than "
            f"{percent(SHARE_OF_MEMORY)} of this machine's {there / 1e9:.1f} GB; look for twins among {fitting:,} or "
            "fewer"
        )


def _ranked(
    world: ClosedWorld,
    asked: Mapping[int, Sequence[Condition]],
    words: Mapping[int, Chains],
    token_ids: np.ndarray,
    runner: Runner,
) -> Ranks:
    """By place and number of pieces the ranks [condition, word] of the twins among these candidates."""
    import numpy as np

    threads = runner.workers
    candidates = world.candidates(token_ids, threads)
    ranks: dict[tuple[str, int], list[np.ndarray]] = {(place, pieces): [] for place in world.places for pieces in asked}
    steps = [(pieces, condition) for pieces, conditions in asked.items() for condition in conditions]
    for number, (pieces, condition) in enumerate(steps, 1):
        twins = np.searchsorted(token_ids, words[pieces].whole)
        vectors = world.vectors(condition.pieces, condition.look, threads)
        for place in world.places:
            ranks[place, pieces].append(candidates[place].ranks(vectors[place], twins, threads))
        if runner.watch is not None:
            runner.watch(number, len(steps))
    return {key: np.stack(found) for key, found in ranks.items()}


def _word_by_word(layer: Layer, place: str, words: Chains, ranks: np.ndarray) -> pl.DataFrame:
    """The first three conditions are the word as it is, the null and the last piece."""
    return TWINS.frame(
        {
            "token_id": words.whole,
            "token": [layer.token(int(token)) for token in words.whole],
            "pieces": [words.pieces.shape[1]] * len(words),
            "split": ["|".join(map(layer.token, chain)) for chain in words.pieces.tolist()],
            "place": [place] * len(words),
            **dict(zip(("rank", "null_rank", "last_piece_rank"), ranks, strict=False)),
        }
    )
