"""The architectures that can be read, one `Spec` each. Adding one means adding a Spec to a `SPECS` of this package."""

from __future__ import annotations

from detoklens.errors import UnsupportedModelError, shown
from detoklens.weights.config import Config, refuse_other_values, refuse_unknown_keys
from detoklens.weights.families import encoders, layernorm, learned, llama
from detoklens.weights.spec import Spec

SPECS: tuple[Spec, ...] = (*learned.SPECS, *encoders.SPECS, *llama.SPECS, *layernorm.SPECS)
SPEC_OF = {model_type: spec for spec in SPECS for model_type in spec.model_types}
"""The Spec of each model_type."""
LATENT = "its queries, keys and values come from low-rank latent vectors with norms between, which is not computed"
NO_ATTENTION = "its first layer has no attention"
REFUSED = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "mistral4", "minicpm3", "kimi_k2"), LATENT),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "jamba", "bamba", "recurrent_gemma"), NO_ATTENTION),
    **dict.fromkeys(("t5", "mt5", "umt5"), "its scores have a learned bias per distance, which is not computed"),
    **dict.fromkeys(("deberta", "deberta-v2"), "its scores compare tokens with distances, which is not computed"),
    "gpt_oss": "its softmax has a learned sink per head, which is not computed",
    "neobert": "its code is not part of transformers, so there is nothing to compare with",
}
"""Architectures that people ask for and that can't be read exactly, with the reason."""
LANGUAGE_MODELS = ("text_config", "language_config", "llm_config")
"""Keys under which multimodal configs keep the config of their language model."""


def spec_of(config: Config) -> Spec:
    """The Spec of a config's model_type, adapted to the config; refused if layer 0 would not be exact."""
    _refuse_quantized(config)
    model_type = config.get("model_type")
    spec = SPEC_OF.get(model_type) if isinstance(model_type, str) else None
    if spec is None:
        if isinstance(model_type, str) and model_type in REFUSED:
            raise UnsupportedModelError(f"model type {shown(model_type)} is not supported: {REFUSED[model_type]}")
        _refuse_multimodal(config)
        raise UnsupportedModelError(
            f"model type {shown(model_type)} is not supported; supported are: {', '.join(SPEC_OF)}"
        )
    refuse_unknown_keys(config, spec.known_keys)
    refuse_other_values(config, spec.accepted)
    return spec.adapt.apply(spec, config) if spec.adapt else spec


def _refuse_quantized(config: Config) -> None:
    quantized = config.get("quantization_config")
    if quantized:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else None
        raise UnsupportedModelError(
            f"config.json: quantization_config = {shown(quantized)}: weights quantised by {shown(method)} are not "
            "read; pass the original checkpoint, or a GGUF file"
        )


def _refuse_multimodal(config: Config) -> None:
    """Name the language model inside: how it treats a text there was compared for `MULTIMODAL` only."""
    part = next((key for key in LANGUAGE_MODELS if isinstance(config.get(key), dict)), None)
    if part is not None:
        raise UnsupportedModelError(
            f"model type {shown(config.get('model_type'))} contains its language model ({part}: model type "
            f"{shown(config[part].get('model_type'))}), which is read on its own only; save that part as a checkpoint"
        )
