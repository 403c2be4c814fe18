"""What can be asked of some families alone? An offset, what tokens have in common, and the direction of looking.

Where an option has no part, any other value than its default is refused, and it does not enter the provenance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from detoklens.errors import MissingError, RangeError
from detoklens.questions.base import Question
from detoklens.questions.parameters import Parameter, settings_of

if TYPE_CHECKING:
    from detoklens.questions.base import Need
    from detoklens.questions.study import Study
    from detoklens.scores.affinity import Affinity
    from detoklens.scores.factors import Mean
    from detoklens.scores.layer import Layer, TokenScale


AFFINITY = (
    "Tᵉᵉ[h, i, j] = (eᵢ W̃_Q)·(eⱼ W̃_K) / (σᵢ σⱼ),  W̃ = C diag(γ) W,  σ of a token averaged over positions;  "
    "with rotary positions the query is turned by the offset"
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
class SplitTerms(Question):
    """A question about terms; those of rotary and ALiBi positions depend on what counts as common to all tokens."""

    mean: SplitOff = field(default="vocabulary", kw_only=True)

    uses = frozenset({"counts"})
    of_families: ClassVar[frozenset[str]] = frozenset({"mean", "length"})
    """Which of its options belong to some families alone."""
    counted: ClassVar[bool] = False
    """Whether counts decide more than a mean by frequency."""

    def depends_on(self, need: Need) -> bool:
        return super().depends_on(need) and (need != "counts" or self.counted or self.mean == "frequency")

    def settings(self, study: Study) -> dict[str, Any]:
        """Without what has no part in this family."""
        given = super().settings(study)
        return {name: given[name] for name in given if name not in self.of_families} | self.of_family(study)

    def of_family(self, study: Study) -> dict[str, Any]:
        """The options of families that have a part in this one; an error where another one was set."""
        given = {setting.name: setting for setting in settings_of(type(self)) if setting.name in self.of_families}
        for name, setting in given.items():
            if not _has_part(name, study.layer) and getattr(self, name) != setting.default:
                raise RangeError(f"{study.layer.name}: {REFUSED[name]}")
        return {name: getattr(self, name) for name in given if _has_part(name, study.layer)}

    def split_off(self, study: Study) -> Mean:
        """What is split off, as a layer takes it."""
        if self.mean == "none" or study.layer.positions == "learned":
            return None
        if self.mean == "vocabulary":
            return "vocabulary"
        if study.counts is None:
            raise MissingError("counts", "a mean by frequency needs corpus counts")
        return study.counts.tokens.astype("float64")


@dataclass(frozen=True, repr=False)
class AtOffset(SplitTerms):
    """A question about tokens alone: with rotary positions at one offset, by default with nothing split off."""

    offset: Annotated[
        int, Parameter("Rotary positions: distance from query back to key; 1 is the previous token.", advanced=True)
    ] = field(default=1, kw_only=True)
    mean: SplitOff = field(default="none", kw_only=True)

    of_families: ClassVar[frozenset[str]] = SplitTerms.of_families | {"offset"}

    @property
    def manner(self) -> str:
        """How it was asked for, where not as usual: ` (offset 2, means split off)`."""
        said = self.unusual()
        return f" ({', '.join(said)})" if said else ""

    def unusual(self) -> list[str]:
        """In which ways it was asked for otherwise than by default."""
        offset = [f"offset {self.offset}"] if self.offset != 1 else []
        return offset + ([SPLIT_SAID[self.mean]] if self.mean != type(self).mean else [])

    def affinity(self, study: Study, scale: TokenScale | None, centred: bool, heads: Sequence[int]) -> Affinity:
        """Tᵉᵉ of the whole vocabulary, as it was asked for."""
        return study.layer.token_affinity(scale, centred, heads, offset=self.offset, mean=self.split_off(study))


@dataclass(frozen=True, repr=False)
class Joining(AtOffset):
    """A question about tokens that stand together: from the second one back, or from the first one ahead."""

    direction: Annotated[
        Literal["back", "ahead"],
        Parameter(
            "Keys before the query, or after it (bidirectional models only).",
            advanced=True,
        ),
    ] = field(default="back", kw_only=True)

    of_families: ClassVar[frozenset[str]] = AtOffset.of_families | {"direction"}

    @property
    def is_ahead(self) -> bool:
        return self.direction == "ahead"

    def unusual(self) -> list[str]:
        return super().unusual() + (["asked ahead"] if self.is_ahead else [])


SPLIT_SAID = {
    "none": "no mean split off",
    "vocabulary": "means split off",
    "frequency": "means by frequency split off",
}
REFUSED = {
    "mean": "positions are learned, so there is no mean to split off; leave it out",
    "offset": "Tᵉᵉ is the same at every offset where positions are not rotary; leave it out",
    "length": "it looks back only, so how long a text goes on changes nothing; leave it out",
    "direction": "it looks back only, so nothing can be asked ahead; leave the direction out",
}
"""The options of families, and why each is refused where it has no part."""


def _has_part(name: str, layer: Layer) -> bool:
    has_part = {
        "mean": layer.positions != "learned",
        "offset": layer.positions == "rotary",
        "length": not layer.is_causal and layer.positions == "learned",
        "direction": not layer.is_causal,
    }
    return has_part[name]
