"""The architectures that can be read, one `Spec` each. Adding one means adding a Spec to a `SPECS` of this package."""

from __future__ import annotations

from detoklens.errors import UnsupportedModelError, shown
from detoklens.weights.config import Config, refuse_other_values, refuse_unknown_keys
from detoklens.weights.families import alibi, encoders, learned, llama, rotary
from detoklens.weights.spec import Spec

SPECS: tuple[Spec, ...] = (*learned.SPECS, *encoders.SPECS, *llama.SPECS, *rotary.SPECS, *alibi.SPECS)
SPEC_OF = {model_type: spec for spec in SPECS for model_type in spec.model_types}
"""The Spec of each model_type."""
LANGUAGE_MODELS = ("text_config", "language_config", "llm_config")
"""Keys under which multimodal configs keep the config of their language model."""


def spec_of(config: Config) -> Spec:
    """The Spec of a config's model_type, adapted to the config; refused if layer 0 would not be exact."""
    _refuse_quantized(config)
    model_type = config.get("model_type")
    spec = SPEC_OF.get(model_type) if isinstance(model_type, str) else None
    if spec is None:
        _refuse_multimodal(config)
        raise UnsupportedModelError(
            f"model type {shown(model_type)} is not supported; supported are: {', '.join(SPEC_OF)}"
        )
    refuse_unknown_keys(config, spec.known_keys)
    refuse_other_values(config, spec.accepted)
    return spec.adapt(spec, config)


def _refuse_quantized(config: Config) -> None:
    quantized = config.get("quantization_config")
    if quantized:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else None
        raise UnsupportedModelError(
            f"config.json: quantization_config = {shown(quantized)}: weights quantised by {shown(method)} are not "
            "read; give the checkpoint that they were made from, or a GGUF file"
        )


def _refuse_multimodal(config: Config) -> None:
    """Name the language model inside; its tensors have different names from release to release."""
    part = next((key for key in LANGUAGE_MODELS if isinstance(config.get(key), dict)), None)
    if part is not None:
        raise UnsupportedModelError(
            f"model type {shown(config.get('model_type'))} has its language model inside ({part}: model type "
            f"{shown(config[part].get('model_type'))}); save that part alone as a checkpoint and give it"
        )
