"""GGUF files: the numbers of the model they were made of, dequantised where they are quantised, or one line."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

import detoklens
from detoklens.errors import CheckpointError, DetokLensError, MissingExtraError, UnsupportedModelError
from detoklens.loading import load_vocabulary
from detoklens.model import checks
from detoklens.model.verify import verify
from detoklens.tokens import Vocabulary
from detoklens.tokens.vocabulary import token_bytes
from detoklens.weights import gguf_file
from detoklens.weights.gguf_tokenizer import gguf_vocabulary
from tests.fuzz.budget import cases
from tests.layers import assert_same_layer
from tests.weights.families.tiny import IDS, assert_equals_real, tiny
from tests.weights.gguf_files import MODEL_TYPES, QUANTISED, write_gguf

LLAMA = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 29,
    "num_hidden_layers": 1,
    "max_position_embeddings": 40,
}
GPT2 = {"n_embd": 32, "n_head": 4, "vocab_size": 23, "n_layer": 1, "n_positions": 20}


SIZES = LLAMA | {"pad_token_id": 0}
ALL_HEADS = {"num_key_value_heads": 4, "pad_token_id": 0}
BLOOM = {"hidden_size": 32, "n_head": 4, "vocab_size": 29, "n_layer": 1}
MPT = {"d_model": 32, "n_heads": 4, "vocab_size": 29, "n_layers": 1, "max_seq_len": 30}
FALCON = {
    "hidden_size": 96, "num_attention_heads": 6, "vocab_size": 29, "num_hidden_layers": 1,
    "max_position_embeddings": 40,
}  # fmt: skip


MADE = [
    ("llama", LLAMA),
    ("llama", LLAMA | {"attention_bias": True, "num_key_value_heads": 4}),
    ("qwen2", LLAMA),
    ("qwen3", LLAMA | {"head_dim": 6}),
    ("qwen3moe", LLAMA | {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5}),
    ("gpt2", GPT2),
    ("gemma", SIZES | {"head_dim": 10}),
    ("gemma2", SIZES | {"head_dim": 10, "query_pre_attn_scalar": 10, "sliding_window": 3}),
    ("gemma3", SIZES | {"head_dim": 10, "query_pre_attn_scalar": 10, "sliding_window": 3}),
    ("phi2", LLAMA | ALL_HEADS),
    ("phi2", LLAMA | ALL_HEADS | {"hidden_size": 40, "partial_rotary_factor": 0.6}),
    ("phi3", SIZES | {"sliding_window": 3}),
    ("olmo2", SIZES),
    ("starcoder2", SIZES),
    ("starcoder2", SIZES | {"use_bias": False}),
    ("gptneox", LLAMA | ALL_HEADS | {"use_parallel_residual": False}),
    ("gptneox", LLAMA | ALL_HEADS | {"rotary_pct": 0.5}),
    ("falcon", FALCON),
    ("falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 3}),
    ("falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
    ("falcon", FALCON | {"multi_query": False, "bias": True}),
    ("bloom", BLOOM),
    ("mpt", MPT),
]


@pytest.mark.parametrize(("architecture", "settings"), MADE, ids=lambda value: value if isinstance(value, str) else "")
def test_a_file_holds_the_model_it_was_made_of(tmp_path, architecture, settings):
    model = tiny(MODEL_TYPES.get(architecture, architecture), **settings)
    layer, whole = detoklens.load(write_gguf(tmp_path / "m.gguf", model, architecture)), detoklens.load(model)
    same_epsilon = replace(layer.weights, norm_epsilon=whole.weights.norm_epsilon)  # a float32 in the file
    if architecture.startswith("gemma"):  # 1 is added to gains before they are stored
        for name in ("norm_gain", "query_norm_gain", "key_norm_gain"):
            gain, theirs = getattr(layer.weights, name), getattr(whole.weights, name)
            np.testing.assert_allclose(gain, theirs, atol=1e-6) if theirs is not None else None
            same_epsilon = replace(same_epsilon, **{name: theirs})
    assert_same_layer(same_epsilon, whole.weights)
    if architecture != "qwen3moe":
        np.testing.assert_allclose(layer.block_output(IDS), whole.block_output(IDS), atol=1e-4)
    assert not any("dequantised" in note for note in layer.notes)


def test_every_architecture_is_tested():
    assert set(gguf_file.ARCHITECTURES) == {architecture for architecture, _ in MADE}


@pytest.mark.parametrize("is_local", [True, False])
def test_olmo_3_is_olmo_2_with_a_window(tmp_path, is_local):
    kind = "sliding_attention" if is_local else "full_attention"
    model = tiny("olmo3", **SIZES, sliding_window=3, layer_types=[kind])
    more = {"olmo2.attention.sliding_window": 3, "olmo2.attention.sliding_window_pattern": [is_local]}
    layer, whole = detoklens.load(write_gguf(tmp_path / "m.gguf", model, "olmo2", more=more)), detoklens.load(model)
    assert layer.weights.window == (3 if is_local else None)
    np.testing.assert_allclose(layer.terms(IDS).attention(), whole.terms(IDS).attention(), atol=1e-5)


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3"])
def test_the_27b_gemmas_scale_queries_by_width_over_heads(tmp_path, architecture):
    model = tiny(MODEL_TYPES.get(architecture, architecture), **SIZES | {"head_dim": 10, "sliding_window": 3})
    model.config.num_hidden_layers = {"gemma2": 46, "gemma3": 62}[architecture]
    layer = detoklens.load(write_gguf(tmp_path / "m.gguf", model, architecture))
    assert layer.attention_scale == pytest.approx((layer.d_model // layer.n_heads) ** -0.5)


def test_gemma_3s_local_layers_have_a_base_of_their_own(tmp_path):
    model = tiny("gemma3_text", **SIZES | {"head_dim": 10, "query_pre_attn_scalar": 10, "sliding_window": 3})
    layers = [
        detoklens.load(write_gguf(tmp_path / f"{number}.gguf", model, "gemma3", more=more))
        for number, more in enumerate([{}, {"gemma3.rope.freq_base_swa": 500.0}])
    ]
    found = [layer.weights.rotary_frequencies for layer in layers]
    exponents = np.arange(5) / 5
    np.testing.assert_allclose(found[0], 10_000.0**-exponents)
    np.testing.assert_allclose(found[1], 500.0**-exponents)


@pytest.mark.parametrize(
    ("architecture", "settings", "name", "value"),
    [
        ("falcon", FALCON, "tensor_data_layout", "other"),
        ("mpt", MPT, "attention.clamp_kqv", 6.0),
        ("mpt", MPT, "attention.max_alibi_bias", 16.0),
    ],
    ids=str,
)
def test_values_that_change_the_scores_are_refused_by_name(tmp_path, architecture, settings, name, value):
    path = write_gguf(tmp_path / "m.gguf", tiny(architecture, **settings), architecture, instead={name: value})
    with pytest.raises(
        UnsupportedModelError, match=rf"the setting {architecture}\.{name} = '?{value}'? is not handled"
    ):
        detoklens.load(path)


@pytest.mark.parametrize("kind", [QUANTISED.Q8_0, QUANTISED.Q4_0, QUANTISED.F16, QUANTISED.BF16], ids=str)
def test_quantised_tensors_are_those_of_the_file_and_that_is_said(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(gguf_file, "BLOCK_NUMBERS", 100)
    model = tiny("llama", **LLAMA)
    path = write_gguf(tmp_path / "m.gguf", model, "llama", {"token_embd.weight": kind, "blk.0.attn_q.weight": kind})
    layer = detoklens.load(path)
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}["token_embd.weight"]
    np.testing.assert_array_equal(layer.weights.token_embeddings, gguf.quants.dequantize(stored.data, kind))
    assert any(f"quantised as {kind.name}" in note for note in layer.notes) == (kind.name not in ("F16", "BF16"))


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [  # transformers takes GPT-2's number of positions for 1,024, whatever the file says
        ("llama", LLAMA),
        ("qwen2", LLAMA),
        ("qwen3", LLAMA | {"head_dim": 128}),
        ("gpt2", GPT2 | {"n_positions": 1024}),
        ("qwen3moe", LLAMA | {"head_dim": 128, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5}),
        ("gemma2", SIZES | {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 3}),
        ("gemma3", SIZES | {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 3}),
        ("starcoder2", SIZES),
        ("bloom", BLOOM),
        ("falcon", FALCON),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_transformers_reads_the_same(tmp_path, architecture, settings):
    kinds = {"blk.0.attn_q.weight": QUANTISED.Q8_0, "blk.0.attn_qkv.weight": QUANTISED.Q8_0}
    tokens = {"tokenizer.ggml.tokens": [f"t{number}" for number in range(settings["vocab_size"])]}  # their vocab_size
    model = tiny(MODEL_TYPES.get(architecture, architecture), **settings)
    path = write_gguf(tmp_path / "m.gguf", model, architecture, kinds, tokens)
    assert_equals_real(path, block=architecture not in ("qwen3moe", "starcoder2"))
    frame = verify(detoklens.load(path), IDS)
    assert frame["passed"].all()
    if architecture == "starcoder2":  # transformers does not find its MLP, which is random then
        assert frame["block_output_difference"].is_null().all()


def test_a_file_that_transformers_reads_in_part_is_not_compared_with_random_tensors(tmp_path):
    more = {"tokenizer.ggml.tokens": [f"t{number}" for number in range(29)], "tokenizer.ggml.padding_token_id": 0}
    path = write_gguf(tmp_path / "m.gguf", tiny("phi3", **SIZES), "phi3", more=more)
    with pytest.raises(UnsupportedModelError, match=r"transformers does not find the tensor 'layers\.0\.self_attn"):
        verify(detoklens.load(path), IDS)


def test_without_accelerate_it_is_named(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "m.gguf", tiny("gpt2", **GPT2), "gpt2")
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == "accelerate" else name)
    with pytest.raises(MissingExtraError, match=r"needs accelerate .* pip install 'detoklens\[model\]'"):
        verify(detoklens.load(path), IDS)


def test_that_tensors_were_dequantised_is_in_the_provenance_and_the_notes(tmp_path):
    kinds = {"token_embd.weight": QUANTISED.Q8_0, "blk.0.attn_q.weight": QUANTISED.Q4_0}
    for number, (quantised, options) in enumerate([(kinds, {"dequantised_from": ["Q4_0", "Q8_0"]}), ({}, {})]):
        path = write_gguf(tmp_path / f"{number}.gguf", tiny("llama", **LLAMA), "llama", quantised)
        answer = detoklens.study(path).ask(detoklens.Partners([3], heads=[1], top=2))
        assert {name: v for name, v in answer.provenance.options.items() if "dequantised" in name} == options
        assert any("tensors quantised as Q4_0, Q8_0 were dequantised" in note for note in answer.notes) == bool(options)


def test_factors_of_the_frequencies_are_heeded(tmp_path):
    model, factors = tiny("llama", **LLAMA), np.linspace(1, 8, 8, dtype=np.float32)
    path = write_gguf(tmp_path / "m.gguf", model, "llama", extra_tensors={"rope_freqs.weight": factors})
    frequencies = detoklens.load(path).weights.rotary_frequencies
    np.testing.assert_allclose(frequencies * factors, detoklens.load(model).weights.rotary_frequencies)


def test_other_files_are_refused_by_name(tmp_path):
    model = tiny("llama", **LLAMA)
    with pytest.raises(UnsupportedModelError, match="RoPE scaling 'yarn' of a GGUF file is not computed"):
        detoklens.load(write_gguf(tmp_path / "a.gguf", model, "llama", more={"llama.rope.scaling.type": "yarn"}))
    with pytest.raises(UnsupportedModelError, match=r"the setting llama\.attention\.strange = 'x' is not handled"):
        detoklens.load(write_gguf(tmp_path / "b.gguf", model, "llama", more={"llama.attention.strange": "x"}))
    gguf.GGUFWriter(tmp_path / "c.gguf", "mamba").close()
    writer = gguf.GGUFWriter(tmp_path / "c.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match="architecture 'mamba' is not supported; supported are: llama"):
        detoklens.load(tmp_path / "c.gguf")


def test_a_factor_of_scaling_without_a_type_is_refused(tmp_path):
    """llama.cpp applies it as if the type were linear; none, 0 and 1 leave angles as they are."""
    model, factor = tiny("llama", **LLAMA), "llama.rope.scaling.factor"
    with pytest.raises(UnsupportedModelError, match=r"by a factor of 4\.0 without a llama\.rope\.scaling\.type is not"):
        detoklens.load(write_gguf(tmp_path / "a.gguf", model, "llama", more={factor: 4.0}))
    for number, name in enumerate((factor, "llama.rope.scaling.type")):
        with pytest.raises(
            CheckpointError, match=rf"the setting '{name}' must be (text|a finite number of at least 0),"
        ):
            detoklens.load(write_gguf(tmp_path / f"list-{number}.gguf", model, "llama", more={name: [1.0, 4.0]}))
    plain = detoklens.load(write_gguf(tmp_path / "b.gguf", model, "llama"))
    for number, more in enumerate([{factor: 0.0}, {factor: 1.0}, {factor: 4.0, "llama.rope.scaling.type": "none"}]):
        unscaled = detoklens.load(write_gguf(tmp_path / f"{number}.gguf", model, "llama", more=more))
        assert unscaled.fingerprint == plain.fingerprint
        assert unscaled.checkpoint.blocks_folder(2) == tmp_path / f"{number}.gguf"


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "m.gguf", tiny("gpt2", **GPT2), "gpt2")
    monkeypatch.setattr(gguf_file, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'detoklens\[gguf\]'"):
        detoklens.load(path)


def test_a_file_that_is_cut_off_or_lies_is_one_line(tmp_path):
    """Any damage is refused, or leaves the numbers as they were, but for the tensors' own bytes."""
    path = write_gguf(tmp_path / "m.gguf", tiny("gpt2", **GPT2), "gpt2")
    content, whole = path.read_bytes(), detoklens.load(path)
    begin_of_data = len(content) - sum(tensor.n_bytes for tensor in gguf.GGUFReader(path).tensors) - 32 * 20
    for random in cases(200):
        damaged = bytearray(content)
        if random.random() < 0.3:
            damaged = damaged[: random.randrange(len(content))]
        else:
            for _ in range(random.choice([1, 1, 4])):
                damaged[random.randrange(begin_of_data)] = random.randrange(256)
        path.write_bytes(damaged)
        with suppress(DetokLensError):
            assert detoklens.load(path).weights.token_embeddings.shape == whole.weights.token_embeddings.shape


@pytest.mark.parametrize("count", [2**60, 2**63])
def test_an_array_that_claims_more_than_the_file_holds_is_refused(tmp_path, count):
    path = write_gguf(tmp_path / "m.gguf", tiny("gpt2", **GPT2), "gpt2", more={"some.list": [1, 2, 3]})
    content = path.read_bytes()
    place = content.index(b"some.list") + len(b"some.list") + 8
    path.write_bytes(content[:place] + count.to_bytes(8, "little") + content[place + 8 :])
    with pytest.raises(CheckpointError, match=r"bytes are declared at byte .* cut off or damaged"):
        detoklens.load(path)


def text_of(folder: Path) -> str:
    return (folder / "tiny.txt").read_text()[:4000]


@pytest.mark.parametrize(
    ("name", "way"), [("llama3", "llama-bpe"), ("qwen2_5", "qwen2"), ("smollm2", "smollm")], ids=str
)
def test_a_byte_level_tokenizer_gives_the_ids_of_the_original(corpus_folder, name, way):
    original = json.loads(shared_tokenizer(corpus_folder, name))
    added = {token["id"]: token for token in original["added_tokens"]}
    ids = original["model"]["vocab"] | {token["content"]: number for number, token in added.items()}
    tokens = sorted(ids, key=ids.__getitem__)
    if list(range(len(tokens))) != sorted(ids.values()):
        tokens = [
            {number: token for token, number in ids.items()}.get(i, f"<gap {i}>") for i in range(max(ids.values()) + 1)
        ]
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in original["model"]["merges"]]
    settings = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": way,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [3 if number in added else 1 for number in range(len(tokens))],
    }
    vocabulary, notes = gguf_vocabulary(settings)
    assert vocabulary is not None
    assert not notes
    theirs = Vocabulary.from_json(json.dumps(original | {"post_processor": None}))
    for text in (text_of(corpus_folder), "It's 12345 o'clock!\n\n  naïve ﬁ 東京 🤦\t<|endoftext|> x"):
        assert vocabulary.encode(text) == theirs.encode(text)


def test_a_sentencepiece_tokenizer_gives_the_ids_of_the_original(stories_folder, corpus_folder):
    pieces = json.loads((stories_folder / "tokenizer.json").read_text())
    ids = pieces["model"]["vocab"]
    order = {f"{a}{b}": rank for rank, (a, b) in reversed(list(enumerate(map(split_merge, pieces["model"]["merges"]))))}
    tokens = sorted(ids, key=ids.__getitem__)
    settings = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(order.get(token, 10**6)) for token in tokens],
    }
    vocabulary, _ = gguf_vocabulary(settings)
    assert vocabulary is not None
    theirs = Vocabulary.from_folder(stories_folder)
    for text in ("Once upon a time", text_of(corpus_folder), "naïve 東京 🤦  two"):
        assert vocabulary.encode(text) == theirs.encode(text)


def test_gemmas_tokenizer_gives_the_ids_of_the_original(corpus_folder):
    """Without a space before the text; its first 20,000 tokens and all characters."""
    original = json.loads(shared_tokenizer(corpus_folder, "gemma"))
    kept = [token for token, number in original["model"]["vocab"].items() if number < 20_000 or len(token) == 1]
    ids = original["model"]["vocab"] = {token: number for number, token in enumerate(kept)}
    merges = original["model"]["merges"]
    original["model"]["merges"] = [
        merge for merge in merges if {*merge.split(" "), merge.replace(" ", "")} <= ids.keys()
    ]
    order = {merge.replace(" ", ""): -rank for rank, merge in reversed(list(enumerate(original["model"]["merges"])))}
    added = {token["id"] for token in original["added_tokens"]}
    tokens = sorted(ids, key=ids.__getitem__)
    settings = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [float(order.get(token, -1e6)) for token in tokens],
        "tokenizer.ggml.token_type": [3 if number in added else 1 for number in range(len(tokens))],
        "tokenizer.ggml.unknown_token_id": ids["<unk>"],
        "tokenizer.ggml.add_space_prefix": False,
    }
    vocabulary, _ = gguf_vocabulary(settings)
    assert vocabulary is not None
    theirs = Vocabulary.from_json(json.dumps(original | {"post_processor": None}))
    for text in (text_of(corpus_folder), " It's 12345 o'clock!\n\n  naïve ﬁ 東京 🤦\t<eos> x"):
        assert vocabulary.encode(text) == theirs.encode(text)


TEXT = "He'll PAY $1234.50 to café²'S iPhone!\n\n  (x, y) мир"


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("phi-2", "He|'ll| PAY| $|1234|.|50| to| café|²|'|S| iPhone|!|\n\n | (|x|,| y|)| мир"),
        ("mpt", "He|'ll| PAY| $|1234|.|50| to| café|²|'|S| iPhone|!|\n\n | (|x|,| y|)| мир"),
        ("starcoder", "He|'ll| PAY| $|1|2|3|4|.|5|0| to| café|²|'|S| iPhone|!|\n\n | (|x|,| y|)| мир"),
        ("falcon", "He|'|ll| PAY| |$|123|4|.|50| to| café|�|�|'|S| iPhone|!|\n\n  |(|x|,| y|)| �|�|ир"),
        ("bloom", "He'll| PAY| $1234|.|50| to| café²'S| iPhone|!\n\n  (|x|,| y|)| мир"),
        ("dbrx", "He|'ll| PAY| $|123|4|.|50| to| café|²|'S| iPhone|!\n\n| | (|x|,| y|)| мир"),
        ("gpt-4o", "He'll| PAY| $|123|4|.|50| to| café|²|'S| i|Phone|!\n\n| | (|x|,| y|)| мир"),
        ("tekken", "He|'ll| PAY| $|1|2|3|4|.|5|0| to| café|²|'S| i|Phone|!\n\n| | (|x|,| y|)| мир"),
    ],
    ids=str,
)
def test_pre_tokenizers_cut_as_the_models_own(pre, pieces):
    """The tokenizer.json of a model of each kind cuts this text so."""
    settings = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": ["a"]}
    vocabulary, notes = gguf_vocabulary(settings)
    assert not notes
    found = vocabulary.tokenizer.pre_tokenizer.pre_tokenize_str(TEXT)
    assert "|".join(token_bytes(piece).decode("utf-8", "replace") for piece, _ in found) == pieces


@pytest.mark.parametrize(("architecture", "is_read"), [("gpt2", True), ("phi2", True), ("llama", False), (None, False)])
@pytest.mark.parametrize("pre", [{}, {"tokenizer.ggml.pre": "default"}], ids=["unnamed", "default"])
def test_an_unnamed_pre_tokenizer_is_gpt_2s_where_the_architecture_says_so(architecture, is_read, pre):
    settings = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"], "general.architecture": architecture}
    vocabulary, notes = gguf_vocabulary(settings | pre)
    assert (vocabulary is not None) == is_read
    wanted = "the GGUF file's pre-tokenizer 'default' is not read; pass the model's tokenizer.json as tokenizer"
    assert notes == (() if is_read else (wanted,))


def split_merge(merge: str | list[str]) -> list[str]:
    return merge.split(" ") if isinstance(merge, str) else merge


def shared_tokenizer(corpus_folder: Path, name: str) -> bytes:
    import zstandard

    path = corpus_folder.parent / "tokenizers" / f"{name}.json.zst"
    if not path.is_file():
        pytest.skip(f"NOT TESTED ON REAL DATA: {path.name} is missing beside the repository (../shared)")
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


@pytest.mark.parametrize(
    "settings",
    [
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": ["a", "b"],
            "tokenizer.ggml.merges": ["x"],
        },
        {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.scores": [1.0]},
        {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.unknown_token_id": "x"},
    ],
    ids=str,
)
def test_a_damaged_tokenizer_is_one_line(settings):
    with pytest.raises(CheckpointError, match="its tokenizer can't be read"):
        gguf_vocabulary(settings)


def test_a_setting_for_each_layer_is_that_of_layer_0(tmp_path):
    model = tiny("llama", **LLAMA)
    plain = detoklens.load(write_gguf(tmp_path / "a.gguf", model, "llama"))
    path = write_gguf(tmp_path / "b.gguf", model, "llama", more={"llama.attention.head_count_kw": [2, 0]})
    path.write_bytes(rewritten(path, b"llama.attention.head_count_kv", b"llama.attention.head_count_kw"))
    assert detoklens.load(path).fingerprint == plain.fingerprint


def rewritten(path: Path, old: bytes, new: bytes) -> bytes:
    """The file with two settings' names exchanged, the old one's made one that is not read."""
    content = path.read_bytes().replace(old, old.replace(b"llama", b"other"))
    return content.replace(new, old)


def test_a_setting_of_another_type_is_one_line(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", tiny("llama", **LLAMA), "llama")
    content = path.read_bytes()
    for name in (b"llama.embedding_length", b"llama.attention.head_count", b"llama.attention.key_length"):
        place = content.index(name) + len(name)
        path.write_bytes(content[:place] + (6).to_bytes(4, "little") + content[place + 4 :])  # a float
        with pytest.raises(DetokLensError):
            detoklens.load(path)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "a"]},
        {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.pre": "strange"},
        {"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ["a"]},
    ],
    ids=str,
)
def test_a_tokenizer_that_is_not_known_leaves_ids_alone(settings):
    vocabulary, notes = gguf_vocabulary(settings)
    assert vocabulary is None
    assert "not read" in notes[0]


def test_the_tokenizer_inside_can_be_counted_with(tmp_path):
    model = tiny("gpt2", **GPT2)
    tokens = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b", "ab"],
        "tokenizer.ggml.merges": ["a b"],
    }
    path = write_gguf(tmp_path / "m.gguf", model, "gpt2", more=tokens)
    assert load_vocabulary(path).encode("abba") == [2, 1, 0]
    assert detoklens.load(path).vocab_size == 3
    with pytest.raises(CheckpointError, match=r"tokenizer is not read; pass the folder of the model's own tokenizer"):
        load_vocabulary(write_gguf(tmp_path / "n.gguf", model, "gpt2"))


def test_a_file_that_is_not_there_is_no_hub_id(tmp_path):
    for read in (detoklens.load, load_vocabulary):
        with pytest.raises(CheckpointError, match=r"none\.gguf: no such file; pass the path of a GGUF file"):
            read("none.gguf")
    write_gguf(tmp_path / "m.gguf", tiny("gpt2", **GPT2), "gpt2")
    with pytest.raises(CheckpointError, match=r"no config\.json; pass the file m\.gguf itself"):
        detoklens.load(tmp_path)
