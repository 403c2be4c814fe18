"""Which heads rank the tokens that belong before a token above all others? AUROC of Tᵉᵉ, with its controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from detoklens.errors import DetokLensError, MissingError, TokenError
from detoklens.figures.spec import FigureSpec
from detoklens.questions.auroc_said import curves_said, validity_said
from detoklens.questions.auroc_schemas import (
    AUROC_BY_TOKEN,
    AUROC_VALIDITY,
    GLANCE,
    HEAD_OF_LAYER,
    OF_HEADS,
    PRECISION_BY_TOKEN,
    ROC_POINTS,
)
from detoklens.questions.auroc_truth import (
    GroundTruth,
    Kind,
    Source,
    Weights,
    can_be_spelled,
    query_tokens,
    read_tokens,
    spelled_tokens,
)
from detoklens.questions.auroc_verdict import Within, auroc_verdict, compare_heads, summarize_heads
from detoklens.questions.family_options import Joining
from detoklens.questions.parameters import Centred, Heads, Parameter, Scale, words_of
from detoklens.questions.question import View
from detoklens.questions.words import by_file
from detoklens.wording import plural

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int64

    from detoklens.measures.auroc import Measures, Positives
    from detoklens.parallel import Runner
    from detoklens.questions.question import ByLabel, Frames, Need
    from detoklens.questions.study import Study
    from detoklens.questions.verdict import Verdict
    from detoklens.scores.affinity import Affinity
    from detoklens.tables.schema import Schema


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
            "One word a line. Default: the list that comes along.", metavar="FILE", read=Path, spell=by_file("--words")
        ),
    ] = None
    positives: Annotated[Kind, Parameter("Of the corpus: every pair it holds, or those above a PMI.")] = "count"
    pmi_above: Annotated[float, Parameter("With --positives pmi: the PMI in bits.")] = 0.0
    weights: Annotated[Weights, Parameter("A positive weighs as much as its count, or as much as any other.")] = "count"
    negatives: Annotated[
        Literal["all", "matched"], Parameter("Compare with all other keys, or only with equally frequent ones.")
    ] = "all"
    per_octave: Annotated[
        int, Parameter("Strata of equal frequency to an octave of counts; 4 leaves next to nothing of it.", least=1)
    ] = 1
    k: Annotated[int, Parameter("Precision among the first K keys.", least=1)] = 10
    controls: Annotated[
        bool, Parameter("Compute the nulls and the frequency baseline.", flag="--controls/--no-controls")
    ] = True
    within: Annotated[
        Within,
        Parameter(
            "Within-class null: exchange queries of one orthographic class, or of one cluster of similar positives."
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
        ),
    ] = None
    centred: Centred = False
    scale: Scale = "mean"
    bootstrap: Annotated[int, Parameter("Resamples of query tokens for the 95 % intervals; 0 for none.", least=0)] = (
        1000
    )

    topic = "Which heads detokenize?"
    doing = "ranking keys"
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

    def command_words(self, study: Study) -> list[str]:
        """A token whose text the command line would read as something else is named by its id."""

        def sayable(tokens: Sequence[str | int] | None) -> list[str | int] | None:
            if tokens is None:
                return None
            return [token if can_be_spelled(token) else study.layer.token_id(token) for token in tokens]

        return words_of(replace(self, tokens=sayable(self.tokens), roc=sayable(self.roc)))

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
        from detoklens.weights.blocks import real_model

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
        import numpy as np

        pairs = self._right.positives(study.layer, study.counts)
        if not self.is_ahead:
            return pairs
        ahead = pairs.ahead()
        return ahead.where(np.isin(ahead.keys, study.layer.vocabulary.word_internal())) if self.pieces else ahead

    def ask(self, study: Study, runner: Runner) -> Frames:
        from detoklens.questions.auroc_tables import auroc_tables, roc_points

        if self.layer:
            from detoklens.questions.auroc_beyond import asked_beyond

            return asked_beyond(self, study, runner)
        heads = study.heads(self.heads)
        affinity, pairs = self.affinity(study, self.scale, self.centred, heads), self._pairs(study)
        if self.roc is not None:
            return {"roc_points": roc_points(study.layer, affinity, heads, pairs, study.token_ids(self.roc))}
        measured = self._measured(study, affinity, pairs, runner)
        return auroc_tables(study.layer, measured, heads, pairs, self.k, self.bootstrap, study.seed)

    def _measured(self, study: Study, affinity: Affinity, pairs: Positives, runner: Runner) -> Measures:
        from detoklens.measures.auroc import Judging, measure_heads

        matched = self.negatives == "matched"
        judging = Judging(self.k, matched, self.controls, study.seed, self.per_octave)
        counted = study.counts.tokens if study.counts is not None and (self.controls or matched) else None
        classes = self._classes(study, pairs) if self.controls else None
        return measure_heads(affinity, pairs, self._queries(study), counted, judging, runner, classes)

    def _classes(self, study: Study, pairs: Positives) -> Int64[np.ndarray, "token"] | None:
        """Within which query tokens are exchanged; orthographic classes need a tokenizer."""
        if self.within == "clusters":
            from detoklens.measures.auroc import predecessor_clusters

            return predecessor_clusters(pairs, study.seed)
        if not study.has("vocabulary"):
            return None
        from detoklens.measures.token_classes import orthographic_classes

        return orthographic_classes(study.layer.vocabulary, study.layer.vocab_size)

    def verdict(self, tables: Frames) -> Verdict | None:
        """ "yes" where at least one head is lexical; curves of single tokens have no verdict."""
        if "roc_points" in tables:
            return None
        return auroc_verdict(tables["auroc_controls"], self.layer, self.within)

    def say(self, tables: Frames) -> str:
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

    def say_compared(self, by_label: ByLabel) -> str:
        """Which heads of each model detokenize."""
        controls = {label: tables["auroc_controls"] for label, tables in by_label.items() if "auroc_controls" in tables}
        whom = self._whom(next(iter(by_label.values()))) if controls else ""
        said = compare_heads(controls, f"{whom}{self._against}{self.manner}", self.layer)
        if not said:
            return super().say_compared(by_label)
        validity = [f" In {label}:{self._validity(tables)}" for label, tables in by_label.items()] if self.layer else []
        return "".join([said, *validity])

    def views(self, tables: Frames) -> Sequence[View]:
        """One row a head; of curves one row each."""
        if "roc_points" not in tables:
            return super().views(tables)
        from detoklens.questions.auroc_tables import curves_at_a_glance

        return [
            View("How large is the area under each query token's ROC curve?", curves_at_a_glance(tables["roc_points"]))
        ]
