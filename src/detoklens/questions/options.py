"""Options that apply to some model families only: offset, common mean, direction.

For other families any value except the default is refused, and provenance omits the option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np

from detoklens.errors import MissingError, RangeError
from detoklens.measures.documents import digest
from detoklens.questions.base import Question, ReportEntry
from detoklens.questions.parameters import Parameter, settings_of

if TYPE_CHECKING:
    from detoklens.questions.study import Study
    from detoklens.scores.affinity import Affinity
    from detoklens.scores.factors import Mean
    from detoklens.scores.layer import Layer, TokenScale


AFFINITY = (
    "Tᵉᵉ[h, i, j] = (eᵢ W̃_Q)·(eⱼ W̃_K) / (σᵢ σⱼ),  W̃ = C diag(γ) W,  σ of a token averaged over positions;  "
    "with rotary positions the query is rotated by the offset"
)


SplitOff = Annotated[
    Literal["none", "vocabulary", "frequency"],
    Parameter(
        "Rotary or ALiBi positions: split off the mean query and key over the vocabulary, unweighted or weighted by "
        "corpus frequency; none: biases only.",
        advanced=True,
    ),
]


@dataclass(frozen=True, repr=False)
class TermQuestion(Question):
    """A question about terms; in rotary and ALiBi models they depend on the mean that is split off."""

    mean: SplitOff = field(default="vocabulary", kw_only=True)

    uses = frozenset({"counts"})
    family_options: ClassVar[frozenset[str]] = frozenset({"mean", "length"})
    """The options that apply to some families only."""
    reads_counts = False

    def settings(self, study: Study) -> dict[str, Any]:
        """Without the options that don't apply to this family."""
        values = super().settings(study).items()
        settings = {name: value for name, value in values if name not in self.family_options} | self.applicable_options(
            study
        )
        if settings.get("mean") != "vocabulary":
            return settings
        left_out = np.setdiff1d(np.arange(study.layer.vocab_size), study.layer.meaningful_tokens)
        return settings | ({"tokens_left_out": digest([left_out])} if left_out.size else {})

    def applicable_options(self, study: Study) -> dict[str, Any]:
        """The options that apply to this family; an error if another one was set."""
        found = {}
        for setting in settings_of(type(self)):
            if setting.name not in self.family_options:
                continue
            applies, refusal = APPLIES[setting.name]
            value = getattr(self, setting.name)
            if applies(study.layer):
                found[setting.name] = value
            elif value != setting.default:
                raise RangeError(f"{study.layer.name}: {refusal}")
        return found

    def split_off(self, study: Study) -> Mean:
        """The mean to split off, as `Layer` takes it."""
        if self.mean == "none" or study.layer.positions == "learned":
            return None
        if self.mean == "vocabulary":
            study.meaningful_tokens()  # notes how many are left out
            return "vocabulary"
        if study.counts is None:
            raise MissingError("counts", "a mean weighted by frequency needs corpus counts")
        return study.counts.tokens.astype("float64")


@dataclass(frozen=True, repr=False)
class TextQuestion(TermQuestion):
    """A question about attention on text, which may differ from its study in the beginning-of-text token.

    The paper's Figure 4 prepends the token and its Figure 3E does not, so a report asks each question its own way.
    """

    prepend_bos: Annotated[
        bool | None, Parameter("Prepend the beginning-of-text token. Default: as in the study.", cli=False)
    ] = field(default=None, kw_only=True)

    needs = frozenset({"text"})

    @property
    def begins_with_bos(self) -> bool | None:
        return self.prepend_bos

    def cli_args(self, study: Study) -> list[str]:
        """Without prepend_bos: the command takes it as an option of the texts."""
        return Question.cli_args(replace(self, prepend_bos=None), study)

    def settings(self, study: Study) -> dict[str, Any]:
        """Without prepend_bos, which the digest of the documents covers."""
        return {name: value for name, value in super().settings(study).items() if name != "prepend_bos"}


@dataclass(frozen=True, repr=False)
class TokenQuestion(TermQuestion):
    """A question about token terms; for rotary models at one offset, by default with no mean split off."""

    offset: Annotated[
        int, Parameter("Rotary positions: distance from query back to key; 1 is the previous token.", advanced=True)
    ] = field(default=1, kw_only=True)
    mean: SplitOff = field(default="none", kw_only=True)

    family_options: ClassVar[frozenset[str]] = TermQuestion.family_options | {"offset"}

    @property
    def options_note(self) -> str:
        """The options that differ from their defaults: ` (offset 2, means split off)`."""
        words = [f"offset {self.offset}"] if self.offset != 1 else []
        words += [SPLIT_OFF[self.mean]] if self.mean != type(self).mean else []
        words += ["keys after the query"] if isinstance(self, PairQuestion) and self.looks_ahead else []
        return f" ({', '.join(words)})" if words else ""

    def report_variants(self, study: Study, label: str, remark: str = "") -> list[ReportEntry]:
        """Report entries for some families only: with means split off, or with the key after the query."""
        entry = partial(ReportEntry, compared=True, headline=False)
        entries = []
        if study.layer.positions != "learned":
            split = replace(self, mean="vocabulary")
            entries.append(entry(split, f"{label}_split", f"{remark}, means split off"))
        if isinstance(self, PairQuestion) and not study.layer.is_causal:
            ahead = replace(self, direction="ahead")
            entries.append(entry(ahead, f"{label}_ahead", f"{remark}, key after query"))
        return entries

    def affinity(
        self,
        study: Study,
        scale: TokenScale | None,
        centred: bool,
        heads: Sequence[int],
        queries: Sequence[int] | None = None,
    ) -> Affinity:
        """Tᵉᵉ of the whole vocabulary with these options, or of some queries."""
        mean = self.split_off(study)
        return study.layer.token_affinity(scale, centred, heads, offset=self.offset, mean=mean, queries=queries)


@dataclass(frozen=True, repr=False)
class PairQuestion(TokenQuestion):
    """A question about adjacent tokens: keys before the query, or after it."""

    direction: Annotated[
        Literal["back", "ahead"],
        Parameter(
            "Keys before the query, or after it (bidirectional models only).",
            advanced=True,
        ),
    ] = field(default="back", kw_only=True)

    family_options: ClassVar[frozenset[str]] = TokenQuestion.family_options | {"direction"}

    @property
    def looks_ahead(self) -> bool:
        return self.direction == "ahead"


SPLIT_OFF = {
    "none": "no mean split off",
    "vocabulary": "means split off",
    "frequency": "means by frequency split off",
}
APPLIES: dict[str, tuple[Callable[[Layer], bool], str]] = {
    "mean": (
        lambda layer: layer.positions != "learned",
        "learned positions have no mean to split off; leave mean out",
    ),
    "offset": (
        lambda layer: layer.positions == "rotary",
        "Tᵉᵉ is the same at every offset because positions are not rotary; leave offset out",
    ),
    "length": (
        lambda layer: not layer.is_causal and layer.positions == "learned",
        "a causal model's attention does not depend on the text's length; leave length out",
    ),
    "direction": (
        lambda layer: not layer.is_causal,
        "a causal model does not attend to later keys; leave direction out",
    ),
}
"""Where each option applies, and why it is refused elsewhere."""
