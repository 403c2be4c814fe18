"""Detokenization heads: AUROC of Tᵉᵉ against the tokens that precede each token, with controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float, Int64

from detoklens.errors import DetokLensError, MissingError, TokenError
from detoklens.figures.spec import FigureSpec
from detoklens.measures.auroc import Measures, QuerySet, RankingOptions, less_mean_query, measure_query_sets
from detoklens.measures.positives import Positives, predecessor_clusters, seen_pairs
from detoklens.measures.token_classes import orthographic_classes
from detoklens.measures.words import token_texts
from detoklens.model.checks import check_layer, refuse_layers
from detoklens.parallel import Runner
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
    auroc_tables,
    can_be_spelled,
    curves_at_a_glance,
    query_tokens,
    read_tokens,
    roc_points,
    spelled_tokens,
)
from detoklens.questions.auroc.deeper import deeper_tables
from detoklens.questions.auroc.verdict import (
    auroc_verdict,
    compare_heads,
    summarize_curves,
    summarize_heads,
    summarize_validity,
)
from detoklens.questions.base import ByLabel, Frames, Need, Question, ReportEntry, Verdict, View
from detoklens.questions.options import PairQuestion
from detoklens.questions.parameters import Centred, Heads, Parameter, Scale, to_cli_args
from detoklens.questions.partners import example_tokens
from detoklens.questions.study import Study
from detoklens.questions.texts import Bos, beginning_of
from detoklens.questions.words import by_file
from detoklens.scores.affinity import Affinity
from detoklens.tables.schema import Schema
from detoklens.weights.blocks import real_model
from detoklens.wording import plural

DRAWN_CURVES = 2  # ROC curves in a report
Within = Literal["class", "clusters"]


@dataclass(frozen=True, repr=False)
class Auroc(PairQuestion):
    """Test which heads rank a token's corpus predecessors above other tokens.

    Prints each head's AUROC with its nulls: queries exchanged among all tokens, within orthographic classes and within
    clusters of tokens with similar predecessors; keys permuted among equally frequent ones; negatives matched by
    frequency. A head is lexical only if it exceeds every null by more than 0.05. With --out, an interrupted run
    continues when the same command is run again.

    Example: detoklens auroc gpt2 --counts counts --pieces --out results
    """

    layer: Annotated[
        int,
        Parameter(
            "Layer to analyse. Above 0, an approximation whose validity is reported; needs text and detoklens[model].",
            least=0,
        ),
    ] = field(default=0, kw_only=True)
    tokens: Annotated[
        Sequence[str | int] | None,
        Parameter(
            'Query tokens: text with its space (" Korea"), ids (262 or 0-99), or @FILE with one per line; repeatable.',
            metavar="TOKEN",
            repeated=True,
            advanced=True,
            read=read_tokens,
            spell=spelled_tokens("--tokens"),
        ),
    ] = None
    pieces: Annotated[bool, Parameter("Only continuation tokens as queries.")] = False
    heads: Heads = None
    truth: Annotated[
        Source, Parameter("Ground truth: corpus bigrams, the tokenizer's merges, or adjacent pieces of words.")
    ] = "counts"
    words: Annotated[
        Path | Sequence[str] | None,
        Parameter(
            "Word list for --truth words, one word per line. Default: the bundled list.",
            metavar="FILE",
            read=Path,
            spell=by_file("--words"),
            advanced=True,
        ),
    ] = None
    positives: Annotated[Kind, Parameter("Positives: all corpus bigrams, or those above a PMI.", advanced=True)] = (
        "count"
    )
    pmi_above: Annotated[float, Parameter("PMI threshold in bits for --positives pmi.", cli=False)] = 0.0
    weights: Annotated[Weights, Parameter("Weight of a positive: its count, or 1.", cli=False)] = "count"
    negatives: Annotated[
        Literal["all", "matched"],
        Parameter("Negatives: all other keys, or only equally frequent ones.", advanced=True),
    ] = "all"
    per_octave: Annotated[int, Parameter("Frequency bins per doubling of counts.", least=1, cli=False)] = 1
    k: Annotated[int, Parameter("Number of top keys for precision at K.", least=1, advanced=True)] = 10
    controls: Annotated[
        bool, Parameter("Compute the nulls and the frequency baseline.", flag="--controls/--no-controls", advanced=True)
    ] = True
    within: Annotated[
        Within,
        Parameter(
            "Nulls that exchange similar queries: within orthographic classes only, or within clusters of tokens with "
            "similar predecessors as well.",
            advanced=True,
        ),
    ] = "clusters"
    roc: Annotated[
        Sequence[str | int] | None,
        Parameter(
            "Compute the ROC curve of this query token instead; repeatable.",
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
        int, Parameter("Bootstrap resamples for 95 % intervals; 0 for none.", least=0, advanced=True)
    ] = 1000
    bos: Bos = field(default=None, kw_only=True)

    progress_label = "ranking keys"
    report_section = "Detokenization heads"
    caveat = "Weights show what a head can distinguish, not how often this term decides its attention on text."
    uses = frozenset({"counts", "vocabulary", "seed", "text"})
    parallel = True
    tables = (GLANCE, AUROC_BY_TOKEN, *OF_HEADS, PRECISION_BY_TOKEN, ROC_POINTS, AUROC_VALIDITY)
    compared_tables = ("auroc_by_head", "auroc_controls", "roc_points", "auroc_validity")
    equation = (
        "AUROCᵢ = Σ_pos Σ_neg w_pos ([s_pos > s_neg] + ½ [s_pos = s_neg]) / (Σ w_pos · number of negatives),  s = "
        "Tᵉᵉ[h, i, :],  positives: with counts, the tokens j with count(j, i) > 0, weighted by the count;  "
        "continuation tokens: query tokens i that begin with a letter and no space;  curve: (share of negatives, share "
        "of the positives' weight) with Tᵉᵉ at least t, for every threshold t"
    )
    figures = (
        FigureSpec(
            "auroc",
            ("auroc_by_head",),
            "AUROC by head",
            "Mean AUROC of Tᵉᵉ over query tokens, with its 95 % interval over query tokens, for this vocabulary: the "
            "paper's Figure 2D. Hollow marks are the nulls: queries exchanged among all tokens; queries exchanged "
            "within their class or cluster (whichever is closer, drawn below the AUROC by its margin); keys permuted "
            "among equally frequent ones. The AUROC of corpus frequency alone is hollow, too. On the "
            "right, with counts, the same among equally frequent keys. 0.5 is chance.",
            optional=("auroc_controls",),
        ),
        FigureSpec(
            "precision",
            ("precision_by_head",),
            "Precision by head",
            "Average precision and precision of the top k keys, each with the value of a constant score (hollow).",
        ),
        FigureSpec(
            "roc",
            ("roc_points",),
            "ROC curves of single query tokens",
            "ROC curves of the query tokens in the legend, with the area under each: share of bigrams whose first "
            "token scores above a threshold against the share of other tokens above it. The diagonal is chance. The "
            "paper's Figure 2C.",
            per_head=True,
        ),
    )
    compared_figures = (
        FigureSpec(
            "compare_auroc",
            ("auroc_by_head",),
            "AUROC by head in several checkpoints",
            "Mean AUROC with its 95 % interval over query tokens, for each head and checkpoint. Hollow marks: the "
            "largest null. With counts, also among equally frequent keys. A head that is not to the right of its null "
            "doesn't use the query, however high its AUROC.",
            optional=("auroc_controls",),
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tokens", "roc"):
            if getattr(self, name) == ():
                raise TokenError(f"{name} is empty; pass tokens as text or ids, or None")
        self.ground_truth.check()
        if self.bos is not None and not self.layer:
            raise DetokLensError("bos is only used above layer 0; pass a layer, or leave bos out")
        if self.roc is not None and self.negatives == "matched":
            raise DetokLensError("an ROC curve uses all other keys as negatives; leave out negatives='matched'")

    @classmethod
    def report_entries(cls, study: Study) -> Sequence[ReportEntry]:
        """On continuation tokens if there are any, on all tokens, and the ROC curves of two examples."""
        has_pieces = study.has("vocabulary") and bool(study.layer.vocabulary.word_internal())
        entries = [ReportEntry(cls(), compared=True, headline=not has_pieces)]
        if has_pieces:
            question, named = cls(pieces=True), ("auroc_pieces", " on continuation tokens")
            first = ReportEntry(question, *named, compared=True)
            entries = [first, *question.report_variants(study, *named), *entries]
        if study.counts is not None:
            sizes = seen_pairs(study.counts.bigrams).sizes
            curves = [token for token in example_tokens(study) if 0 < sizes[token] < study.layer.vocab_size]
            if curves:
                entries.append(ReportEntry(cls(roc=curves[:DRAWN_CURVES]), remark=", ROC curves", headline=False))
        return entries

    @classmethod
    def examples(cls) -> Sequence[Question]:
        return (cls(pieces=True), cls(roc=["ion", "ing"]))

    @property
    def ground_truth(self) -> GroundTruth:
        return GroundTruth(self.truth, self.positives, self.pmi_above, self.weights, self.words)

    @property
    def places_back(self) -> int:
        """How many positions the key precedes the query; negative if it follows."""
        return -1 if self.looks_ahead and self.offset == 1 else self.offset

    def depends_on(self, need: Need) -> bool:
        with_controls = self.roc is None and self.controls
        if need == "counts":
            matched = self.negatives == "matched"
            return self.truth == "counts" or self.mean == "frequency" or with_controls or matched
        if need == "text":
            return self.layer > 0
        if need == "seed":
            return with_controls or (self.roc is None and self.bootstrap > 0)
        return super().depends_on(need)

    def cli_args(self, study: Study) -> list[str]:
        """Pass a token by its id if the command line would read its text as something else."""

        def spellable(tokens: Sequence[str | int] | None) -> list[str | int] | None:
            if tokens is None:
                return None
            return [token if can_be_spelled(token) else study.layer.token_id(token) for token in tokens]

        return to_cli_args(replace(self, tokens=spellable(self.tokens), roc=spellable(self.roc)))

    def settings(self, study: Study) -> dict[str, Any]:
        if self.truth == "counts" and not study.has("counts"):
            raise MissingError("counts", "Auroc needs corpus counts, unless the truth is merges or words")
        if self.negatives == "matched" and not study.has("counts"):
            raise MissingError("counts", "matched negatives need token frequencies")
        if (self.truth != "counts" or self.pieces) and not study.has("vocabulary"):
            what = "on continuation tokens" if self.pieces else f"with the truth {self.truth}"
            raise MissingError("vocabulary", f"Auroc {what} needs a tokenizer")
        settings = {"heads": study.heads(self.heads), "centred": self.centred, "scale": self.scale}
        settings |= self.ground_truth.settings() | self.applicable_options(study)
        if self.layer:  # with the blocks up to this one and how they compute, which decide the numbers
            checkpoint = study.layer.checkpoint
            check_layer(checkpoint, self.layer)
            refuse_layers(checkpoint, self.layer + 1)
            settings |= {"layer": self.layer, "bos": list(beginning_of(study.layer, bos=self.bos))}
            settings |= real_model(checkpoint, self.layer + 1)
        if self.roc is not None:
            return settings | {"roc": study.token_ids(self.roc)}
        for name in ("negatives", "per_octave", "k", "controls", "within", "bootstrap", "pieces"):
            settings[name] = getattr(self, name)
        return settings | {"tokens": "all" if self.tokens is None else self._query_ids(study)}

    def _query_ids(self, study: Study) -> list[int]:
        """Ahead, continuation tokens are the keys, so any token may be a query."""
        named = None if self.tokens is None else study.token_ids(self.tokens)
        return query_tokens(study.layer, named, self.pieces and not self.looks_ahead)

    def ask(self, study: Study, runner: Runner) -> Frames:
        self.split_off(study)  # notes the tokens that its mean leaves out, also if another question computed it
        if self.layer:
            return deeper_tables(self, study, runner)
        heads, layer = study.heads(self.heads), study.layer
        positives = self.ground_truth.positives(layer, study.counts)
        if self.looks_ahead:
            positives = positives.ahead()
            if self.pieces:
                positives = positives.where(np.isin(positives.keys, layer.vocabulary.word_internal()))
        if self.roc is not None:
            affinity, tokens = self.affinity(study, self.scale, self.centred, heads), study.token_ids(self.roc)
            return {"roc_points": roc_points(affinity, heads, positives, tokens, token_texts(layer, tokens))}
        measures = study.prepared.pop(self, None) or self._measures(study, heads, positives, runner)
        texts = token_texts(layer, measures.query_tokens)
        return auroc_tables(measures, heads, positives, texts, self.k, self.bootstrap, study.seed)

    def _measures(self, study: Study, heads: list[int], positives: Positives, runner: Runner) -> Measures:
        """Measure this question, and upcoming ones with the same scores, which are kept in `study.prepared`."""
        matched, counts = self.negatives == "matched", study.counts
        options = RankingOptions(self.k, matched, self.controls, study.seed, self.per_octave)
        groups: dict[str, Int64[np.ndarray, "token"]] = {}
        if self.controls and study.has("vocabulary"):
            groups["within_class"] = orthographic_classes(study.layer.vocabulary, study.layer.vocab_size)
        if self.controls and self.within == "clusters" and counts is not None:
            bigrams = seen_pairs(counts.bigrams)
            groups["within_cluster"] = predecessor_clusters(
                bigrams.ahead() if self.looks_ahead else bigrams, study.seed
            )
        affinity = study.layer.token_affinity(self.scale, self.centred, heads, offset=self.offset)
        others = self._with_the_same_scores(study)
        query_sets = [QuerySet(each._query_ids(study), each._shift(study, affinity)) for each in (self, *others)]
        token_counts = counts.tokens if counts is not None and (self.controls or matched) else None
        runner = runner.under(sha256(repr(others).encode()).hexdigest()[:16]) if others else runner
        tokens = np.unique(np.concatenate([each.tokens for each in query_sets]))
        ranked = tokens[positives.sizes[tokens] > 0]
        affinity = replace(affinity, query=affinity.query[:, ranked])  # Qwen's whole vocabulary takes a gigabyte
        own, *rest = measure_query_sets(affinity, positives, query_sets, token_counts, options, runner, groups, ranked)
        study.prepared |= dict(zip(others, rest, strict=True))
        return own

    def _with_the_same_scores(self, study: Study) -> list[Auroc]:
        """Upcoming questions about other query tokens, or with a mean split off; ahead, pieces decide the positives."""
        upcoming = (each for each in study.upcoming if isinstance(each, Auroc) and each.looks_ahead == self.looks_ahead)
        alike = (
            each
            for each in upcoming
            if replace(each, tokens=self.tokens, mean=self.mean, pieces=self.pieces) == self
            and (each.pieces == self.pieces or not self.looks_ahead)
        )
        return [each for each in alike if each != self and not study.is_answered(each)]

    def _shift(self, study: Study, affinity: Affinity) -> Float[np.ndarray, "head key"] | None:
        """What the mean adds to the scores of Tᵉᵉ without it; nothing if that is centred."""
        if self.mean == "none" or self.centred or study.layer.positions == "learned":
            return None
        return less_mean_query(affinity, study.layer.token_shares(self.mean))

    def verdict(self, tables: Frames) -> Verdict | None:
        """ "yes" if at least one head is lexical; ROC curves have no verdict."""
        if "roc_points" in tables:
            return None
        return auroc_verdict(tables["auroc_controls"], self.layer)

    def summarize(self, tables: Frames) -> str:
        """The head that detokenizes, if any, and the control that decided; or the largest areas under curves."""
        validity = self._validity(tables)
        if "roc_points" in tables:
            return summarize_curves(tables["roc_points"], self.layer, self.options_note) + validity
        truth = self._truth_label() + self.options_note
        controls, queries = tables["auroc_controls"], self._queries_label(tables)
        return summarize_heads(controls, queries, truth, self.layer, self.no_head) + validity

    def summarize_comparison(self, by_label: ByLabel) -> str:
        controls = {label: tables["auroc_controls"] for label, tables in by_label.items() if "auroc_controls" in tables}
        queries = self._queries_label(next(iter(by_label.values()))) if controls else ""
        summary = compare_heads(controls, f"{queries}{self._truth_label()}{self.options_note}", self.layer)
        if not summary:
            return super().summarize_comparison(by_label)
        validity = [f" In {label}:{self._validity(tables)}" for label, tables in by_label.items()] if self.layer else []
        return "".join([summary, *validity])

    def _queries_label(self, tables: Frames) -> str:
        if self.pieces:
            return "for continuation tokens as keys" if self.looks_ahead else "on continuation tokens"
        if self.tokens is None:
            return "on all tokens"
        return f"on {plural(tables['auroc_by_head']['tokens'][0], 'token')}"

    def _truth_label(self) -> str:
        """The ground truth and negatives, if not the default."""
        truth = "" if (self.truth, self.positives) == ("counts", "count") else f" against {self.ground_truth}"
        return truth + (" among equally frequent keys" if self.negatives == "matched" else "")

    def _validity(self, tables: Frames) -> str:
        if not self.layer:
            return ""
        return f" {summarize_validity(tables['auroc_validity'], self.pieces, self.places_back, self.no_head)}"

    def specs(self) -> Sequence[FigureSpec]:
        return self._of_layer(self.figures)

    def compared_specs(self) -> Sequence[FigureSpec]:
        return self._of_layer(self.compared_figures)

    def _of_layer(self, specs: Sequence[FigureSpec]) -> Sequence[FigureSpec]:
        """Above layer 0, heads are named after that layer."""
        return [replace(spec, options=(("layer", self.layer),)) for spec in specs] if self.layer else specs

    def schemas(self, tables: Frames) -> list[Schema]:
        schemas = super().schemas(tables)
        return [schema.with_column(HEAD_OF_LAYER) for schema in schemas] if self.layer else schemas

    def views(self, tables: Frames) -> Sequence[View]:
        """One row per head, or per curve."""
        if "roc_points" not in tables:
            return super().views(tables)
        return [View("Areas under the ROC curves", curves_at_a_glance(tables["roc_points"]))]
