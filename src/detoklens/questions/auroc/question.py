"""Which heads rank the tokens that belong before a token above all others? AUROC of Tᵉᵉ, with its controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from detoklens.errors import DetokLensError, MissingError, TokenError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.auroc import Judging, measure_heads, predecessor_clusters
from detoklens.measures.token_classes import orthographic_classes
from detoklens.questions.auroc.compute import (
    AUROC_BY_TOKEN,
    AUROC_VALIDITY,
    GLANCE,
    HEAD_OF_LAYER,
    OF_HEADS,
    PRECISION_BY_TOKEN,
    ROC_POINTS,
    GroundTruth,
    Kind,
    Source,
    Weights,
    areas_under,
    asked_beyond,
    auroc_tables,
    can_be_spelled,
    curves_at_a_glance,
    query_tokens,
    read_tokens,
    roc_points,
    spelled_tokens,
)
from detoklens.questions.base import Verdict, View
from detoklens.questions.options import Joining
from detoklens.questions.parameters import Centred, Heads, Parameter, Scale, to_cli_args
from detoklens.questions.words.question import by_file
from detoklens.weights.blocks import real_model
from detoklens.wording import head_name, listed, listed_some, plural, sentence, signed, token_shown

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Int64

    from detoklens.measures.auroc import Measures, Positives
    from detoklens.parallel import Runner
    from detoklens.questions.base import ByLabel, Frames, Need
    from detoklens.questions.study import Study
    from detoklens.scores.affinity import Affinity
    from detoklens.tables.schema import Schema


CHANCE = 0.5
REQUIRED = 0.05
"""The margin above each null. With thousands of query tokens any difference is beyond chance: a speech decoder, which
hears the spelling, has a head 0.04 above its plain null, the demo model one 0.2."""
FEWEST_TOKENS = 20
"""Query tokens that a verdict needs."""
NAMED_HEADS = 4  # heads that a sentence lists

Within = Literal["class", "clusters"]
Level = Literal["lexical", "untestable", "class-level", "none"]
ORDER: tuple[Level, ...] = ("none", "class-level", "untestable", "lexical")
PLAIN, WITHIN_CLASS, MATCHED = "above_null", "above_within_class", "matched_above_null"
CONTROLS = {PLAIN: "plain null", WITHIN_CLASS: "within-class null", MATCHED: "frequency-matched null"}


@dataclass(frozen=True)
class HeadJudgement:
    """A row of `auroc_controls` and what follows from it."""

    row: Mapping[str, Any]

    @property
    def head(self) -> int:
        return int(self.row["head"])

    @property
    def margins(self) -> dict[str, float]:
        """By how much the AUROC exceeds each null that is known."""
        return {control: self.row[control] for control in CONTROLS if self.row[control] is not None}

    @property
    def strongest(self) -> str | None:
        """The null that the head exceeds least; None without any."""
        return min(self.margins, key=lambda control: self.margins[control], default=None)

    @property
    def above_chance(self) -> bool:
        return _lower_end(self.row, "auroc") > CHANCE

    @cached_property
    def failed(self) -> tuple[str, ...]:
        """The nulls that the head does not exceed by enough, or not surely."""
        return tuple(
            control
            for control, margin in self.margins.items()
            if margin <= REQUIRED or _lower_end(self.row, control) <= 0
        )

    @cached_property
    def missing(self) -> str:
        """Why the rule can't be applied; empty where it can."""
        if self.row[PLAIN] is None:
            return "no null was computed"
        if self.row[WITHIN_CLASS] is None:
            return "the within-class null needs a tokenizer and two tokens of one class"
        if self.row["within_class_tokens"] < FEWEST_TOKENS:
            found = plural(self.row["within_class_tokens"], "query token")
            return f"{found} can be exchanged within a class; at least {FEWEST_TOKENS} are needed"
        if self.row[MATCHED] is None:
            return "without counts, frequency is not controlled"
        return ""

    @property
    def level(self) -> Level:
        if not self.above_chance or {PLAIN, MATCHED} & set(self.failed):
            return "none"
        if self.failed:
            return "class-level"
        return "untestable" if self.missing else "lexical"

    @property
    def standing(self) -> tuple[int, float, float]:
        """Higher levels first, then what exceeds its strongest control most."""
        margins = list(self.margins.values())
        least = min([*margins, self.row["auroc"] - CHANCE] if self.level == "none" else margins, default=0.0)
        return ORDER.index(self.level), least, self.row["auroc"]


def _lower_end(row: Mapping[str, Any], name: str) -> float:
    """The lower end of an interval; the value itself without a bootstrap."""
    low = row[f"{name}_low"]
    return float(row[name] if low is None else low)


def judge_heads(controls: pl.DataFrame) -> list[HeadJudgement]:
    """Every head that has an AUROC, the strongest first, from the columns of `auroc_controls`."""
    found = [HeadJudgement(row) for row in controls.iter_rows(named=True) if row["auroc"] is not None]
    return sorted(found, key=lambda judgement: judgement.standing, reverse=True)


def auroc_verdict(controls: pl.DataFrame, layer: int = 0, within: Within = "class") -> Verdict:
    """ "yes" where at least one head is lexical."""
    judged = judge_heads(controls)
    if not judged:
        return Verdict("untestable", "no query token has both positives and negatives")
    best, lexical = judged[0], tuple(each for each in judged if each.level == "lexical")
    if lexical:
        names = tuple(head_name(each.head, layer) for each in sorted(lexical, key=lambda each: each.head))
        return Verdict("yes", f"{head_name(best.head, layer)} exceeds every control; {_least(best, within)}", names)
    if best.level == "untestable" or not best.margins:
        return Verdict("untestable", best.missing)
    return Verdict("no", f"{head_name(best.head, layer)} {_shortfall(best, within)}")


def summarize_heads(
    controls: pl.DataFrame, whom: str, truth: str = "", layer: int = 0, within: Within = "class"
) -> str:
    """The verdict in at most 40 words: which head, its AUROC with its interval, and the control that decided."""
    judged, found = judge_heads(controls), auroc_verdict(controls, layer, within)
    if not judged:
        return f"Untestable: {found.reason}."
    best = judged[0]
    name, auroc = head_name(best.head, layer), f"AUROC {_value_with_interval(best.row, whom)}{truth}"
    if found:
        also = f" ({listed_some(found.heads, NAMED_HEADS)} are lexical)" if len(found.heads) > 1 else ""
        return f"{name} detokenizes{also}: {auroc}; {_least(best, within)}.{_frequency_clause(best.row)}"
    if found.value == "untestable":
        beside = f"; {_least(best, within)}" if best.margins else ""
        return f"Untestable: {found.reason}. The strongest head is {name}: {auroc}{beside}."
    if best.level == "class-level":
        return f"No head detokenizes. {name} is class-level, not lexical: {auroc}; it {_shortfall(best, within)}."
    return f"No head detokenizes: the closest, {name}, has {auroc}; it {_shortfall(best, within)}."


def in_short(controls: pl.DataFrame, layer: int = 0) -> str:
    """The verdict for a list of models; empty where there is no null."""
    judged = judge_heads(controls)
    if not judged or not judged[0].margins:
        return ""
    best, name = judged[0], head_name(judged[0].head, layer)
    above = f"{signed(min(best.margins.values()))} above its strongest control"
    if best.level == "lexical":
        named = auroc_verdict(controls, layer).heads
        return f"{listed_some(named, NAMED_HEADS)} ({'' if len(named) == 1 else f'{name} '}{above})"
    said = {"class-level": "class-level only", "untestable": f"untestable, {best.missing}", "none": "closest"}
    return f"no head ({name}: {said[best.level]}, {above})"


def _control(name: str, within: Within) -> str:
    return CONTROLS[name].replace("class", "cluster") if within == "clusters" else CONTROLS[name]


def _least(best: HeadJudgement, within: Within) -> str:
    strongest = best.strongest
    if strongest is None:
        return ""
    return f"{best.margins[strongest]:.3f} above its strongest control, the {_control(strongest, within)}"


def _shortfall(best: HeadJudgement, within: Within) -> str:
    """Which control a head does not exceed, and by how much it would have to."""
    if not best.failed:
        return "is not above chance"
    decided = min(best.failed, key=lambda control: best.margins[control])
    name, margin = _control(decided, within), best.margins[decided]
    if margin <= 0:
        return f"does not exceed the {name} ({signed(margin)})"
    if margin <= REQUIRED:
        return f"exceeds the {name} by {margin:.3f}; we require more than {REQUIRED}"
    return f"exceeds the {name} by {margin:.3f}, but the interval reaches 0"


def _frequency_clause(row: Mapping[str, Any]) -> str:
    """What frequency alone does, where that is known."""
    beyond = row["matched_frequency"] is None or row["matched"] > row["matched_frequency"]
    if row["frequency"] is not None and row["frequency"] > row["auroc"]:
        said = f"frequency alone ranks keys better ({row['frequency']:.3f})"
        return " " + sentence(said + (", but not among equally frequent keys" if beyond else ""))
    return " Frequency alone does not explain it." if beyond else ""


def _value_with_interval(row: Mapping[str, Any], whom: str) -> str:
    low, high = row["auroc_low"], row["auroc_high"]
    return f"{row['auroc']:.3f} {whom}" + ("" if low is None or high is None else f" [{low:.3f}, {high:.3f}]")


def compare_heads(controls: Mapping[str, pl.DataFrame], whom: str, layer: int = 0) -> str:
    """Which heads of each model detokenize; empty where no model has a null."""
    short = {label: in_short(frame, layer) for label, frame in controls.items()}
    found = [f"{said} in {label}" for label, said in short.items() if said]
    return f"Heads that detokenize {whom}: {listed(found)}." if found else ""


FEWEST_LINKS = 200
HOLDS = 0.5  # rank correlation of predicted and real scores
SAID_CURVES = 4  # query tokens that the sentence about curves names


def curves_said(points: pl.DataFrame, layer: int = 0, manner: str = "") -> str:
    """The head with the largest area for each of the first query tokens."""
    tokens = points["token_id"].unique(maintain_order=True)
    areas = areas_under(points).sort("area", descending=True, maintain_order=True)
    said = []
    for token in tokens.head(SAID_CURVES):
        best = areas.filter(token_id=token).row(0, named=True)
        shown = f"id {token}" if best["token"] is None else f"“{token_shown(best['token'])}”"
        said.append(f"{best['area']:.3f} for {shown} ({head_name(best['head'], layer)})")
    first = f" of the first {SAID_CURVES} of {len(tokens)} query tokens" if len(tokens) > SAID_CURVES else ""
    return f"Largest areas under the ROC curves{first}{manner}: {listed(said)}; 0.5 is chance."


def validity_said(validity: pl.DataFrame, pieces: bool, back: int = 1) -> str:
    """For which heads do predicted scores say what the real ones are? By all links, or by those of pieces."""
    column = "pieces_correlation" if pieces else "correlation"
    layer, rows = int(validity["layer"][0]), validity.sort(column, descending=True, nulls_last=True)
    counted, best = validity["pieces_links" if pieces else "links"][0], rows[column][0]
    links = f"{counted:,} links of the text to {_linked_to(back)}"
    if counted < FEWEST_LINKS:
        return f"Whether it holds can't be told: {links} are too few."
    if best is None:
        return f"Whether it holds can't be told: on {links} no head's predicted and real scores both vary."
    held = [
        f"{head_name(head, layer)} ({found:.2f})"
        for head, found in rows.select("head", column).iter_rows()
        if found is not None and found >= HOLDS
    ]
    how = f"rank correlation of predicted and real scores at least {HOLDS}, on {links}"
    if held:
        return f"It holds for {listed(held)} ({how}), for no other head."
    nearest = f"; the nearest is {head_name(rows['head'][0], layer)} with {best:.2f}"
    return f"But it does not hold for any head ({how}{nearest}): this says nothing of what layer {layer} does on text."


def _linked_to(back: int) -> str:
    """Where the key stands that a link goes to."""
    if back == 0:
        return "the token itself"
    side = "before" if back > 0 else "after"
    return f"the token {side}" if abs(back) == 1 else f"the token {abs(back)} places {side}"


@dataclass(frozen=True, repr=False)
class Auroc(Joining):
    """Judge every head: does it rank the tokens that precede a token above all others?

    Each head's AUROC is shown with its nulls (another token's scores; those of tokens of the same class; keys permuted
    among equally frequent ones), with the AUROC of frequency alone, and with its AUROC among equally frequent keys. A
    head is called lexical only if it exceeds every null by more than 0.05. The numbers don't depend on the
    number of workers. With --out, run the same command again to continue an interrupted run.

    Example: detoklens auroc gpt2 --counts counts --pieces --out results
    """

    layer: Annotated[
        int,
        Parameter(
            "Of this layer. Beyond 0 an approximation that carries its validity: needs text and the extra model.",
            least=0,
        ),
    ] = field(default=0, kw_only=True)
    tokens: Annotated[
        Sequence[str | int] | None,
        Parameter(
            'Only these query tokens: text with its space (" Korea"), ids (262 or 0-99), or @FILE with one a line; '
            "may be repeated.",
            metavar="TOKEN",
            repeated=True,
            advanced=True,
            read=read_tokens,
            spell=spelled_tokens("--tokens"),
        ),
    ] = None
    pieces: Annotated[bool, Parameter("Only query tokens that go on with a word: a letter first, no space.")] = False
    heads: Heads = None
    truth: Annotated[
        Source, Parameter("Right pairs: of the corpus, of the tokenizer's merges, of a word list's pieces.")
    ] = "counts"
    words: Annotated[
        Path | Sequence[str] | None,
        Parameter(
            "One word a line. Default: the list that comes along.",
            metavar="FILE",
            read=Path,
            spell=by_file("--words"),
            advanced=True,
        ),
    ] = None
    positives: Annotated[
        Kind, Parameter("Of the corpus: every pair it holds, or those above a PMI.", advanced=True)
    ] = "count"
    pmi_above: Annotated[float, Parameter("With --positives pmi: the PMI in bits.", cli=False)] = 0.0
    weights: Annotated[
        Weights, Parameter("A positive weighs as much as its count, or as much as any other.", cli=False)
    ] = "count"
    negatives: Annotated[
        Literal["all", "matched"],
        Parameter("Compare with all other keys, or only with equally frequent ones.", advanced=True),
    ] = "all"
    per_octave: Annotated[
        int,
        Parameter(
            "Strata of equal frequency to an octave of counts; 4 leaves next to nothing of it.", least=1, cli=False
        ),
    ] = 1
    k: Annotated[int, Parameter("Precision among the first K keys.", least=1, advanced=True)] = 10
    controls: Annotated[
        bool, Parameter("Compute the nulls and the frequency baseline.", flag="--controls/--no-controls", advanced=True)
    ] = True
    within: Annotated[
        Within,
        Parameter(
            "Within-class null: exchange queries of one orthographic class, or of one cluster of similar positives.",
            advanced=True,
        ),
    ] = "class"
    roc: Annotated[
        Sequence[str | int] | None,
        Parameter(
            "Instead: the points of one token's curve; may be repeated.",
            metavar="TOKEN",
            repeated=True,
            read=read_tokens,
            spell=spelled_tokens("--roc"),
            advanced=True,
        ),
    ] = None
    centred: Centred = False
    scale: Scale = "mean"
    bootstrap: Annotated[
        int, Parameter("Resamples of query tokens for the 95 % intervals; 0 for none.", least=0, advanced=True)
    ] = 1000

    topic = "Which heads detokenize?"
    progress_label = "ranking keys"
    uses = frozenset({"counts", "vocabulary", "seed", "text"})
    parallel = True
    tables = (GLANCE, AUROC_BY_TOKEN, *OF_HEADS, PRECISION_BY_TOKEN, ROC_POINTS, AUROC_VALIDITY)
    compared_tables = ("auroc_by_head", "auroc_controls", "roc_points", "auroc_validity")
    equation = (
        "AUROCᵢ = Σ_pos Σ_neg w_pos ([s_pos > s_neg] + ½ [s_pos = s_neg]) / (Σ w_pos · number of negatives),  s = "
        "Tᵉᵉ[h, i, :],  positives: of a corpus the tokens j with count(j, i) > 0, weighted by the count;  pieces: the "
        "query tokens i that begin with a letter and without a space;  curve: (share of negatives, share of the "
        "positives' weight) with Tᵉᵉ at least t, for every threshold t"
    )
    figures = (
        FigureSpec(
            "auroc",
            "auroc",
            ("auroc_by_head",),
            "AUROC by head",
            "How well each head ranks the tokens that belong before a token above all others: mean AUROC of Tᵉᵉ over "
            "query tokens with its 95 % interval over query tokens, for this vocabulary. Hollow: its nulls (queries "
            "exchanged among all tokens, or within their class; keys permuted within equal frequency) and the AUROC of "
            "the keys' corpus frequency alone. Where counts are known, also among equally frequent keys, where "
            "frequency says little. 0.5 is chance.",
            optional=("auroc_controls",),
        ),
        FigureSpec(
            "precision",
            "auroc:precision",
            ("precision_by_head",),
            "Precision by head",
            "How many of the keys that a head ranks first belong before the query token: average precision and "
            "precision of the first k keys, each beside what a constant score would reach.",
        ),
        FigureSpec(
            "roc",
            "auroc:roc",
            ("roc_points",),
            "ROC curves of single query tokens",
            "Share of bigrams whose first token scores above a threshold, against the share of other tokens above it, "
            "for the query tokens in the legend, with the area under each curve. The diagonal is chance.",
            per_head=True,
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_auroc",
            "auroc:compare_auroc",
            ("auroc_by_head",),
            "AUROC by head in several checkpoints",
            "Mean AUROC with its 95 % interval over query tokens, for each head and checkpoint. Hollow: the largest of "
            "its nulls. Where counts are known, also among equally frequent keys. A head that is not to the right of "
            "its null knows nothing about the query, however high its AUROC.",
            optional=("auroc_controls",),
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tokens", "roc"):
            if getattr(self, name) == ():
                raise TokenError(f"{name} names no token; give some, as text or by their ids, or None")
        self._right.check()
        if self.roc is not None and self.negatives == "matched":
            raise DetokLensError("a curve is drawn against all other keys; leave matched negatives out")

    @classmethod
    def examples(cls) -> Sequence[Question]:
        return (cls(pieces=True), cls(roc=["ion", "ing"]))

    @property
    def _right(self) -> GroundTruth:
        return GroundTruth(self.truth, self.positives, self.pmi_above, self.weights, self.words)

    @property
    def places_back(self) -> int:
        """How many places before its query the key stands that is asked about; less than 0 where after it."""
        return -1 if self.is_ahead and self.offset == 1 else self.offset

    def depends_on(self, need: Need) -> bool:
        judged = self.roc is None
        if need == "counts":
            return (
                self.truth == "counts"
                or self.mean == "frequency"
                or (judged and (self.controls or self.negatives == "matched"))
            )
        if need == "text":
            return self.layer > 0
        if need == "seed":
            return judged and (self.controls or self.bootstrap > 0)
        return super().depends_on(need)

    def cli_args(self, study: Study) -> list[str]:
        """A token whose text the command line would read as something else is named by its id."""

        def sayable(tokens: Sequence[str | int] | None) -> list[str | int] | None:
            if tokens is None:
                return None
            return [token if can_be_spelled(token) else study.layer.token_id(token) for token in tokens]

        return to_cli_args(replace(self, tokens=sayable(self.tokens), roc=sayable(self.roc)))

    def settings(self, study: Study) -> dict[str, Any]:
        self._refuse_missing(study)
        ranked = {"heads": study.heads(self.heads), "centred": self.centred, "scale": self.scale}
        asked = self._right.settings() | ranked | self.of_family(study)
        if self.layer:
            asked |= {"layer": self.layer, **self._real_model(study)}
        if self.roc is not None:
            return asked | {"roc": study.token_ids(self.roc)}
        judged = {
            name: getattr(self, name)
            for name in ("negatives", "per_octave", "k", "controls", "within", "bootstrap", "pieces")
        }
        return asked | judged | {"tokens": "all" if self.tokens is None else self._queries(study)}

    def _real_model(self, study: Study) -> dict[str, Any]:
        """What decides the numbers beyond layer 0: the blocks up to this one, and how they compute."""
        from detoklens.model.first_blocks import check_layer, refuse_layers

        checkpoint = study.layer.checkpoint
        check_layer(checkpoint, self.layer)
        refuse_layers(checkpoint, self.layer + 1)
        return real_model(checkpoint, self.layer + 1)

    def _refuse_missing(self, study: Study) -> None:
        """What is needed depends on what is asked."""
        if self.truth == "counts" and not study.has("counts"):
            raise MissingError("counts", "Auroc needs corpus counts (unless the truth is merges or words)")
        if self.negatives == "matched" and not study.has("counts"):
            raise MissingError("counts", "matched negatives need to know how frequent tokens are")
        if (self.truth != "counts" or self.pieces) and not study.has("vocabulary"):
            what = "pieces of words" if self.pieces else f"the truth {self.truth}"
            raise MissingError("vocabulary", f"Auroc by {what} needs a tokenizer")

    def _queries(self, study: Study) -> list[int]:
        """Asked ahead, pieces are what is looked for, so any token may look for them."""
        named = None if self.tokens is None else study.token_ids(self.tokens)
        return query_tokens(study.layer, named, self.pieces and not self.is_ahead)

    def _pairs(self, study: Study) -> Positives:
        """The right pairs; asked ahead, the same ones from the other side."""
        pairs = self._right.positives(study.layer, study.counts)
        if not self.is_ahead:
            return pairs
        ahead = pairs.ahead()
        return ahead.where(np.isin(ahead.keys, study.layer.vocabulary.word_internal())) if self.pieces else ahead

    def ask(self, study: Study, runner: Runner) -> Frames:
        if self.layer:
            return asked_beyond(self, study, runner)
        heads = study.heads(self.heads)
        affinity, pairs = self.affinity(study, self.scale, self.centred, heads), self._pairs(study)
        if self.roc is not None:
            return {"roc_points": roc_points(study.layer, affinity, heads, pairs, study.token_ids(self.roc))}
        measured = self._measured(study, affinity, pairs, runner)
        return auroc_tables(study.layer, measured, heads, pairs, self.k, self.bootstrap, study.seed)

    def _measured(self, study: Study, affinity: Affinity, pairs: Positives, runner: Runner) -> Measures:
        matched = self.negatives == "matched"
        judging = Judging(self.k, matched, self.controls, study.seed, self.per_octave)
        counted = study.counts.tokens if study.counts is not None and (self.controls or matched) else None
        classes = self._classes(study, pairs) if self.controls else None
        return measure_heads(affinity, pairs, self._queries(study), counted, judging, runner, classes)

    def _classes(self, study: Study, pairs: Positives) -> Int64[np.ndarray, "token"] | None:
        """Within which query tokens are exchanged; orthographic classes need a tokenizer."""
        if self.within == "clusters":
            return predecessor_clusters(pairs, study.seed)
        if not study.has("vocabulary"):
            return None
        return orthographic_classes(study.layer.vocabulary, study.layer.vocab_size)

    def verdict(self, tables: Frames) -> Verdict | None:
        """ "yes" where at least one head is lexical; curves of single tokens have no verdict."""
        if "roc_points" in tables:
            return None
        return auroc_verdict(tables["auroc_controls"], self.layer, self.within)

    def summarize(self, tables: Frames) -> str:
        """Which head detokenizes, if any does, and the control that decided; or the largest areas under curves."""
        if "roc_points" in tables:
            return curves_said(tables["roc_points"], self.layer, self.manner) + self._validity(tables)
        return summarize_heads(
            tables["auroc_controls"],
            self._whom(tables),
            self._against + self.manner,
            self.layer,
            self.within,
        ) + self._validity(tables)

    @property
    def _against(self) -> str:
        """What the AUROC is measured against, where that is not the default."""
        truth = "" if (self.truth, self.positives) == ("counts", "count") else f" against {self._right}"
        return truth + (" among equally frequent keys" if self.negatives == "matched" else "")

    def _validity(self, tables: Frames) -> str:
        if not self.layer:
            return ""
        return f" {validity_said(tables['auroc_validity'], self.pieces, self.places_back)}"

    def specs(self) -> Sequence[FigureSpec]:
        return self._named(self.figures)

    def compared_specs(self) -> Sequence[FigureSpec]:
        return self._named(self.compared_figures)

    def _named(self, specs: Sequence[FigureSpec]) -> Sequence[FigureSpec]:
        """Beyond layer 0 heads have that layer's names."""
        return [replace(spec, options=(("layer", self.layer),)) for spec in specs] if self.layer else specs

    def schemas(self, tables: Frames) -> list[Schema]:
        plain = super().schemas(tables)
        return [schema.with_column(HEAD_OF_LAYER) for schema in plain] if self.layer else plain

    def _whom(self, tables: Frames) -> str:
        if self.pieces:
            return "for continuation tokens as keys" if self.is_ahead else "on continuation tokens"
        if self.tokens is None:
            return "on all tokens"
        return f"on {plural(tables['auroc_by_head']['tokens'][0], 'token')}"

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """Which heads of each model detokenize."""
        controls = {label: tables["auroc_controls"] for label, tables in by_label.items() if "auroc_controls" in tables}
        whom = self._whom(next(iter(by_label.values()))) if controls else ""
        said = compare_heads(controls, f"{whom}{self._against}{self.manner}", self.layer)
        if not said:
            return super().summarize_comparison(by_label)
        validity = [f" In {label}:{self._validity(tables)}" for label, tables in by_label.items()] if self.layer else []
        return "".join([said, *validity])

    def views(self, tables: Frames) -> Sequence[View]:
        """One row a head; of curves one row each."""
        if "roc_points" not in tables:
            return super().views(tables)
        return [
            View("How large is the area under each query token's ROC curve?", curves_at_a_glance(tables["roc_points"]))
        ]
