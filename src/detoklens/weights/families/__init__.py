"""Which families of models can be read? A new one is a new file and one more line here."""

from __future__ import annotations

from detoklens.errors import UnsupportedModelError
from detoklens.weights.families.base import Config, Family
from detoklens.weights.families.gpt2 import GPT2
from detoklens.weights.families.whisper import Whisper

FAMILIES: tuple[Family, ...] = (GPT2(), Whisper())


def family_of(config: Config) -> Family:
    """The family that a config's model_type belongs to."""
    model_type = config.get("model_type")
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    supported = ", ".join(name for family in FAMILIES for name in family.model_types)
    raise UnsupportedModelError(f"model type {model_type!r} is not supported; supported are: {supported}")
