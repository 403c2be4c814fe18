"""Which families of models can be read? A new one is a new file and one more line here."""

from __future__ import annotations

from detoklens.errors import UnsupportedModelError, shown
from detoklens.weights.families.base import Config, Family
from detoklens.weights.families.bert import Bert, Electra, Roberta
from detoklens.weights.families.bloom import Bloom
from detoklens.weights.families.distilbert import DistilBert
from detoklens.weights.families.gemma import Gemma, Gemma2, Gemma3
from detoklens.weights.families.gpt1 import GPT1
from detoklens.weights.families.gpt2 import GPT2
from detoklens.weights.families.gpt_neo import GPTNeo
from detoklens.weights.families.gpt_neox import GPTNeoX
from detoklens.weights.families.gptj import GPTJ
from detoklens.weights.families.llama import Llama, Mistral, Mixtral
from detoklens.weights.families.mpt import Mpt
from detoklens.weights.families.opt import OPT, XGLM, BioGPT
from detoklens.weights.families.phi import Phi
from detoklens.weights.families.phi3 import Phi3
from detoklens.weights.families.qwen import Qwen2, Qwen3, Qwen3Experts
from detoklens.weights.families.whisper import Whisper

FAMILIES: tuple[Family, ...] = (
    GPT2(),
    Whisper(),
    Llama(),
    Mistral(),
    Mixtral(),
    Qwen2(),
    Qwen3(),
    Qwen3Experts(),
    Gemma(),
    Gemma2(),
    Gemma3(),
    GPTNeoX(),
    GPTJ(),
    Phi(),
    Phi3(),
    OPT(),
    GPTNeo(),
    GPT1(),
    BioGPT(),
    XGLM(),
    Bert(),
    Roberta(),
    Electra(),
    DistilBert(),
    Bloom(),
    Mpt(),
)


PARTS = ("text_config", "language_config", "llm_config")


def family_of(config: Config) -> Family:
    """The family that a config's model_type belongs to."""
    model_type = config.get("model_type")
    _refuse_quantised(config)
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    _refuse_several_parts(config)
    supported = ", ".join(name for family in FAMILIES for name in family.model_types)
    raise UnsupportedModelError(f"model type {shown(model_type)} is not supported; supported are: {supported}")


def _refuse_quantised(config: Config) -> None:
    quantised = config.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else None
        raise UnsupportedModelError(
            f"config.json: quantization_config = {shown(quantised)}: weights quantised by {shown(method)} are not "
            "read; give the checkpoint that they were made from, or a GGUF file"
        )


def _refuse_several_parts(config: Config) -> None:
    """A multimodal model has its language model inside, under names that differ from release to release."""
    part = next((name for name in PARTS if isinstance(config.get(name), dict)), None)
    if part is not None:
        raise UnsupportedModelError(
            f"model type {shown(config.get('model_type'))} has its language model inside ({part}: model type "
            f"{shown(config[part].get('model_type'))}); save that part alone as a checkpoint and give it"
        )
