"""Find the layer after which a model writes words, and the heads and MLPs it needs: twins in the real model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import polars as pl

from detoklens.errors import RangeError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.words import fingerprint_of, given_words
from detoklens.model.checks import depth_of, refuse_layers, refuse_too_large
from detoklens.parallel import Runner
from detoklens.questions.base import ByLabel, Frames, Question, ReportEntry, Verdict, View
from detoklens.questions.layers.compute import (
    TWINS_BY_COMPONENT,
    TWINS_BY_LAYER,
    Measuring,
    best_layer,
    by_component,
    by_layer,
    conditions_by_layer,
)
from detoklens.questions.parameters import Parameter
from detoklens.questions.study import Study
from detoklens.questions.texts import Bos, beginning_of, bos_name
from detoklens.questions.twins.compute import Triples, TwinWords, candidate_tokens, twin_words
from detoklens.questions.twins.verdict import (
    Conditions,
    bos_clause,
    brief,
    needed_clause,
    strongest_control,
    verdict_of,
)
from detoklens.weights.blocks import block_notes, real_model
from detoklens.wording import listed, listed_some

USUAL_DEPTH = 8
PIECES = 2
COMPONENT = ("component", "median_rank", "null_median_rank", "needed", "share_lost", "share_lost_low", "matters")
LAYER = ("layer", "condition", "median_rank", "median_rank_low", "median_rank_high", "rank_ratio", "rank_ratio_low")
SHOWN = 16  # components shown in a terminal


@dataclass(frozen=True, repr=False)
class Layers(Question):
    """Find the layer at which the model has composed a word from its pieces.

    After every block, the whole-word token (the twin) is ranked by cosine with the word's last piece and compared with
    the four controls of `twins`. Because the best of several layers is reported, the rule is stricter: the lower ends
    of all four rank ratios must exceed 1.2. Then each head and MLP is ablated in turn, up to the layer that exceeds its
    controls most. Only the first blocks are loaded and run, with transformers: this needs the extra,
    pip install 'detoklens[model]' (in a clone: '.[model]'). With --out, an interrupted run resumes.

    Example: detoklens layers demo --up-to 3
    """

    up_to: Annotated[
        int | None, Parameter("Number of blocks to run. Default: 8, or all if there are fewer.", least=1)
    ] = None
    after: Annotated[
        int | None,
        Parameter("Layer after which ablations are measured, from 0. Default: the best one.", least=0),
    ] = None
    words: TwinWords = None
    triples: Triples = 600
    candidates: Annotated[
        int, Parameter("Number of randomly drawn tokens to rank, in addition to the twins.", least=1, advanced=True)
    ] = 4096
    bootstrap: Annotated[
        int, Parameter("Bootstrap resamples of the words; 0 for no intervals.", least=0, advanced=True)
    ] = 1000
    bos: Bos = None

    progress_label = "running the first blocks"
    report_section = "Words written by the layer"
    needs = frozenset({"vocabulary"})
    uses = frozenset({"seed"})
    parallel = True
    tables = (TWINS_BY_LAYER, TWINS_BY_COMPONENT)
    by: ClassVar[Mapping[str, str]] = {"layer": "twins_by_layer", "component": "twins_by_component"}
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "twins_by_layer": LAYER,
        "twins_by_component": COMPONENT,
    }
    equation = (
        "x_l = residual stream after block l at the last position of [BOS, a, b], y_l of [BOS, c′];  rank of the twin "
        "by cosine of standardised sides, and controls, as in twins;  "
        "off: zeros for the head's part of what enters the attention's output "
        "projection, or for the MLP's output, candidates as they are;  needed = exp mean ln((rank off / rank) / (null "
        "rank off / null rank)) over words;  share lost = ln needed / mean ln(null rank / rank)"
    )
    figures = (
        FigureSpec(
            "twins_by_layer",
            ("twins_by_layer",),
            "Rank of the twin by layer",
            "Median rank of a word's twin after every block, with its 95 % interval over words (lower is better): "
            "unchanged and in the four controls.",
            function="layers",
        ),
        FigureSpec(
            "twins_by_component",
            ("twins_by_component",),
            "Attention to the previous piece, and ablations",
            "Left: mean attention of each head from the last piece to the previous one. Right: rank ratio of the twin "
            "with the head or MLP ablated, relative to that of the null; 1 is no difference. Rings mark needed "
            "components: the lower end of the lost share of the gain exceeds a quarter, and the ablated null stays "
            "above chance.",
            function="component_map",
        ),
    )

    @classmethod
    def report_entries(cls, _study: Study) -> Sequence[ReportEntry]:
        """Nothing: a report runs the real model only with --layers."""
        return []

    def settings(self, study: Study) -> dict[str, Any]:
        words = None if self.words is None else fingerprint_of(given_words(self.words))
        depth, checkpoint = self._depth(study), study.layer.checkpoint
        bos = list(beginning_of(study.layer, bos=self.bos))
        return super().settings(study) | {"words": words, "up_to": depth, "bos": bos, **real_model(checkpoint, depth)}

    def _depth(self, study: Study) -> int:
        checkpoint = study.layer.checkpoint
        depth = min(USUAL_DEPTH, depth_of(checkpoint.config)) if self.up_to is None else self.up_to
        refuse_layers(checkpoint, depth)
        if self.after is not None and self.after >= depth:
            raise RangeError(
                f"layer {self.after} is not among the first {depth} blocks, 0 to {depth - 1}; choose one of these or "
                "run more blocks"
            )
        return depth

    def ask(self, study: Study, runner: Runner) -> Frames:
        layer = study.layer
        beginning = beginning_of(layer, runner.say, self.bos)
        words = twin_words(layer, self.words, [PIECES], self.triples, study.seed, runner.say)[PIECES]
        candidates, depth = candidate_tokens(study, self.candidates, [words.chains.whole]), self._depth(study)
        refuse_too_large(
            len(candidates) * layer.d_model * 4 * (depth + 2),
            f"{len(candidates):,} candidates of width {layer.d_model:,} after {depth} blocks",
            "ask for fewer candidates or blocks",
        )
        from detoklens.model.first_blocks import one_thread_each, open_blocks

        blocks = open_blocks(layer.checkpoint, depth, layer.n_heads)
        for note in block_notes(layer.checkpoint, depth):
            runner.say(note)
        with one_thread_each():
            measuring = Measuring(blocks, words, candidates, beginning, runner)
            intact = measuring.after_every_block()
            ranks, attention = intact["ranks"], intact["attention"]
            after = best_layer(ranks) if self.after is None else self.after
            off, ranks_off = measuring.with_each_off(after)
        drawn, bos = (self.bootstrap, study.seed), bos_name(layer, beginning)
        known = {"words": len(words.chains), "candidates": len(candidates), "bos": bos}
        layers = by_layer(ranks, measuring.conditions, known, *drawn)
        unablated = conditions_by_layer(layers)[after]
        ablated = by_component(off, ranks[after], ranks_off, attention, unablated, after, *drawn)
        return {"twins_by_layer": layers, "twins_by_component": ablated}

    def verdict(self, tables: Frames) -> Verdict:
        """Whether the model writes words after some layer, and the heads it needs."""
        found, writing, after = _conditions(tables)
        decides = _deciding(writing, after)
        by_component = tables["twins_by_component"]
        heads = tuple(by_component.filter(pl.col("matters") & pl.col("head").is_not_null())["component"])
        verdict = verdict_of(found[decides], heads if decides == after else ())
        return Verdict(verdict.value, f"after layer {decides}: {verdict.reason}", verdict.heads)

    def summarize(self, tables: Frames) -> str:
        """After which layers words are written, by which control, and which heads and MLPs are needed."""
        found, writing, after = _conditions(tables)
        ablated = found[after]
        bos = bos_clause(ablated)
        if not ablated.is_testable:
            return f"Whether the model writes words can't be tested: {verdict_of(ablated, ()).reason}. {bos}"
        decides = _deciding(writing, after)
        none = f"Layers 0–{max(found)} write no words" if len(found) > 1 else "Layer 0 writes no words"
        claim = f"The model writes words after {_named(writing)}" if writing else none
        evidence = f"{claim}: after layer {decides} {strongest_control(found[decides])}."
        if decides != after:
            return f"{evidence} Ablations were measured after layer {after}, which writes none. {bos}"
        if not ablated.carries:
            return f"{evidence} {bos}"
        return f"{evidence} {needed_clause(ablated, _needed(tables), 'head or MLP')}. {bos}"

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """After which layers each model writes words, and what it needs."""
        models = []
        for label, tables in by_label.items():
            found, writing, after = _conditions(tables)
            testable = any(each.is_testable for each in found.values())
            where = f"after {_named(writing)}" if writing else "after none" if testable else "untestable"
            needed = _needed(tables)
            models.append(f"{label} {where} ({brief(found[after], [listed_some(needed, 3)] if needed else [])})")
        return f"After which layers does the model write words, by the twin's rank? {'; '.join(models)}."

    def views(self, tables: Frames) -> Sequence[View]:
        """Every layer, and the most needed heads and MLPs."""
        most = tables["twins_by_component"].drop("layer", "head", "after").head(SHOWN)
        return [self.view(tables, "twins_by_layer"), self.view({"twins_by_component": most}, "twins_by_component")]


def _conditions(tables: Frames) -> tuple[dict[int, Conditions], list[int], int]:
    """The conditions after every layer, the layers that write words, and the layer after which parts were ablated."""
    found = conditions_by_layer(tables["twins_by_layer"])
    writing = [layer for layer, each in found.items() if each.writes]
    return found, writing, int(tables["twins_by_component"]["after"][0])


def _deciding(writing: Sequence[int], after: int) -> int:
    """The layer after which components were ablated, unless it writes no words and another one does."""
    return after if after in writing or not writing else writing[0]


def _needed(tables: Frames) -> list[str]:
    return tables["twins_by_component"].filter("matters")["component"].to_list()


def _named(layers: list[int]) -> str:
    """`layer 2`, `layers 2 to 5`, `layers 2, 4 and 5`."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if len(layers) > 2 and layers == list(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]} to {layers[-1]}"
    return f"layers {listed(list(map(str, layers)))}"
