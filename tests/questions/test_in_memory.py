"""A model in memory: its tokenizer, its texts, its wrappers, and errors that never speak of files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

import detoklens as dl
from detoklens import demo
from detoklens.errors import MissingError, RangeError

TEXT = "the connection was lost"
SIZE = {"vocab_size": 4096, "bos_token_id": 0, "eos_token_id": 0}
ON_FILES = ("tokenizer.json", "config.json", "next to", "download", "checkpoint", "safetensors", "folder")


def gpt2(**more: Any) -> GPT2LMHeadModel:
    torch.manual_seed(3)
    config = GPT2Config(**SIZE, n_embd=20, n_head=5, n_layer=2, n_positions=48, **more)
    model = GPT2LMHeadModel._from_config(config, attn_implementation="eager")
    for parameter in model.parameters():  # gains and biases that are not 1 and 0
        torch.nn.init.normal_(parameter, 0.3, 0.5)
    return model.eval()


def llama() -> LlamaForCausalLM:
    torch.manual_seed(4)
    config = LlamaConfig(
        **SIZE,
        hidden_size=24,
        intermediate_size=32,
        num_attention_heads=3,
        num_key_value_heads=1,
        num_hidden_layers=1,
        max_position_embeddings=48,
    )
    return LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_file=str(demo.CHECKPOINT / "tokenizer.json"), pad_token="<|endoftext|>", padding_side="left"
    )


def real_attention(model: Any, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([ids]), output_attentions=True).attentions[0][0].numpy()


@pytest.mark.parametrize("make", [gpt2, llama])
def test_any_form_of_tokenizer_gives_the_real_attention(make: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    model = make()
    path = demo.CHECKPOINT / "tokenizer.json"
    forms = [tokenizer, tokenizer.backend_tokenizer, Tokenizer.from_file(str(path)), path, str(demo.CHECKPOINT), "demo"]
    real = real_attention(model, tokenizer(TEXT).input_ids)
    for form in [*forms, dl.load_vocabulary("demo")]:
        layer = dl.study(model, tokenizer=form).layer
        np.testing.assert_allclose(layer.terms(TEXT).attention(), real, atol=1e-5)
        assert layer.vocabulary.fingerprint == dl.load_vocabulary("demo").fingerprint


def test_the_given_tokenizer_is_not_changed(tokenizer: PreTrainedTokenizerFast) -> None:
    fast = tokenizer.backend_tokenizer
    fast.enable_truncation(2)
    try:
        layer = dl.load(gpt2(), tokenizer=tokenizer)
        assert len(layer.vocabulary.encode(TEXT)) > 2
        assert fast.truncation is not None
    finally:
        fast.no_truncation()


@settings(max_examples=20, deadline=None)
@given(ids=st.lists(st.integers(0, 4095), min_size=1, max_size=40))
def test_every_form_of_ids_is_one_text(ids: list[int]) -> None:
    layer = LAYER
    expected = layer.terms(ids).attention()
    tensor = torch.tensor([ids])
    forms = [np.array(ids), np.array([ids]), tensor, tensor[0], {"input_ids": tensor}, {"input_ids": ids}, [ids]]
    for form in forms:
        np.testing.assert_array_equal(layer.terms(form).attention(), expected)


LAYER = dl.load(gpt2())


def test_every_form_of_ids_is_a_parameter() -> None:
    ids, tensor = [5, 4, 300], torch.tensor([[5, 4, 300]])
    scores = LAYER.affinity(ids)
    for form in (np.array(ids), np.array([ids]), tensor, tensor[0], {"input_ids": tensor}, [*tensor[0]], [ids]):
        assert dl.Explain(token_ids=form) == dl.Explain(form) == dl.Explain(token_ids=ids)
        assert dl.Partners(form) == dl.Partners(ids)
        if not isinstance(form, list):
            np.testing.assert_array_equal(LAYER.affinity(form), scores)
    with pytest.raises(RangeError, match="token_ids is a list, each a whole number"):
        dl.Explain(token_ids=torch.tensor([[1, 2], [3, 4]]))


def test_what_tokenizers_return_is_a_text(tokenizer: PreTrainedTokenizerFast) -> None:
    layer = dl.load(gpt2(), tokenizer=tokenizer)
    expected = layer.terms(TEXT).attention()
    padded = tokenizer([TEXT], padding="max_length", max_length=30, return_tensors="pt")
    assert padded.input_ids.shape == (1, 30)
    for form in (
        tokenizer(TEXT),
        tokenizer(TEXT, return_tensors="np"),
        padded,
        tokenizer.backend_tokenizer.encode(TEXT),
    ):
        np.testing.assert_array_equal(layer.terms(form).attention(), expected)


def test_a_study_runs_on_texts_in_any_form(tokenizer: PreTrainedTokenizerFast) -> None:
    model, texts = gpt2(), [TEXT, "a nation of the traditions"]
    ids = [tokenizer(text).input_ids for text in texts]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    assert (batch.attention_mask == 0).any()
    expected = [list(row) for row in dl.study(model, tokenizer=tokenizer, text=texts).documents]
    assert expected == ids
    for form in (ids, batch, [tokenizer(text, return_tensors="pt") for text in texts]):
        assert [list(row) for row in dl.study(model, text=form).documents] == ids
    assert [list(row) for row in dl.study(model, text=ids[0], length=3).documents] == [ids[0][:3]]
    assert [list(row) for row in dl.study(model, text=torch.tensor([ids[0]])).documents] == [ids[0]]


def test_questions_on_given_ids_need_no_tokenizer() -> None:
    study = dl.study(gpt2(), text=[[5, 7, 9, 11, 2, 3], [8, 8, 1, 0, 4]], workers=1)
    by_ids = study.ask(dl.Contributions(query_positions=[3]))
    assert "# in Python" in by_ids.command
    assert len(by_ids.to_pandas()) == len(next(iter(by_ids.tables.values())))
    assert study.ask(dl.Explain([5, 7, 9], heads=[1])).sentence


@pytest.mark.parametrize(
    "text", [[[5, 4096]], [[-1]], [["a"]], {"ids": [1]}, [[1.5]], np.zeros((1, 2, 3), int), 7, b"ab", [b"ab"]]
)
def test_other_ids_are_refused_in_one_line(text: Any) -> None:
    with pytest.raises(dl.DetokLensError) as caught:
        dl.study(gpt2(), text=text).documents  # noqa: B018
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [TEXT, "word " * 2000])
def test_a_text_instead_of_a_list_of_texts(text: str, tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(dl.DetokLensError, match=r"put it in a list: text=\[\"…\"\]$"):
        dl.study(gpt2(), tokenizer=tokenizer, text=text)


class Bridge(torch.nn.Module):
    """Stands in for TransformerLens' TransformerBridge: the model is one attribute, its modules are wrapped."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.original_model = model
        self.cfg = SimpleNamespace(n_heads=5)


class Component(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._original_component = module

    def forward(self, *args: Any, **named: Any) -> Any:
        return self._original_component(*args, **named)


def test_a_bridge_is_unwrapped(tokenizer: PreTrainedTokenizerFast) -> None:
    expected = dl.load(gpt2()).fingerprint
    model = gpt2()
    block = model.transformer.h[0]
    block.ln_1, block.attn.c_attn = Component(block.ln_1), Component(block.attn.c_attn)
    model.transformer.h[0] = Component(block)
    assert "transformer.h.0._original_component.ln_1._original_component.weight" in model.state_dict()
    study = dl.study(Bridge(model), tokenizer=tokenizer, workers=1)
    assert study.layer.fingerprint == expected
    assert study.ask(dl.Partners([" the"], top=2, heads=[0])).sentence


def test_a_bridge_with_other_weights_is_refused() -> None:
    bridge = Bridge(gpt2())
    bridge._weights_processed = True  # as TransformerLens' enable_compatibility_mode leaves it
    with pytest.raises(dl.DetokLensError, match="has changed this bridge's weights"):
        dl.load(bridge)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_wrappers_of_torch_are_unwrapped() -> None:
    model = gpt2()
    for wrapped in (torch.nn.DataParallel(model), torch.compile(model)):
        assert dl.load(wrapped).fingerprint == dl.load(model).fingerprint


def test_a_model_without_a_transformers_config_is_refused() -> None:
    with pytest.raises(dl.DetokLensError, match="Linear has no transformers config; pass the transformers model"):
        dl.load(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("model", [3, None, {"wte": 1}, GPT2LMHeadModel, SimpleNamespace(config={})])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(RangeError, match=r"is not a model; pass a name or path .* or a transformers model$"):
        dl.load(model)


@pytest.mark.parametrize("model", [gpt2(), "demo", demo.CHECKPOINT])
def test_only_the_hub_has_revisions(model: Any) -> None:
    with pytest.raises(dl.DetokLensError, match="has no revision"):
        dl.load(model, revision="0")


def test_a_tokenizer_on_this_machine_has_no_revisions() -> None:
    with pytest.raises(dl.DetokLensError, match=r"has no revision '0'; its snapshots are demo@0, "):
        dl.load_vocabulary("demo", revision="0")


def test_another_models_tokenizer_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    small = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=8, n_head=2, n_layer=1, bos_token_id=0, eos_token_id=0))
    with pytest.raises(dl.DetokLensError, match="4,096 tokens, but GPT2LMHeadModel has embeddings for 50"):
        dl.load(small, tokenizer=tokenizer)
    with pytest.raises(dl.DetokLensError, match="object is not a fast tokenizer; pass a fast one of transformers"):
        dl.load(small, tokenizer=object())
    with pytest.raises(dl.DetokLensError, match="already loaded"):
        dl.study(dl.load(small), tokenizer=tokenizer)


def broken_models() -> dict[str, Any]:
    nan, half, cut = gpt2(), gpt2(), gpt2()
    with torch.no_grad():
        nan.transformer.wte.weight[0, 0] = float("nan")
    half.transformer.h[0].ln_1.weight = torch.nn.Parameter(torch.ones(20, dtype=torch.complex64))
    cut.transformer.h[0].attn.c_attn.weight = torch.nn.Parameter(torch.ones(20, 30))
    odd = gpt2()
    odd.config.n_head = 7
    unknown = SimpleNamespace(config={"model_type": "nothing"}, state_dict=dict)
    return {"nan": nan, "complex": half, "shape": cut, "heads": odd, "family": unknown}


@pytest.mark.parametrize("name", ["nan", "complex", "shape", "heads", "family"])
def test_no_error_of_reading_advises_files(name: str) -> None:
    with pytest.raises(dl.DetokLensError) as caught:
        dl.load(broken_models()[name])
    assert not [word for word in ON_FILES if word in str(caught.value)], str(caught.value)


def test_no_error_of_asking_advises_files() -> None:
    study = dl.study(gpt2())
    errors = []
    for ask in (
        lambda: study.ask(dl.Words()),
        lambda: study.ask(dl.Partners([" the"])),
        lambda: study.layer.terms(TEXT),
    ):
        with pytest.raises(dl.DetokLensError) as caught:
            ask()
        errors.append(str(caught.value))
    assert all("tokenizer=" in error for error in errors), errors
    assert not any("next to" in error for error in errors)
    with pytest.raises(MissingError, match="tokenizer="):
        study.ask(dl.Words())


def test_no_command_is_claimed_to_open_the_model(tokenizer: PreTrainedTokenizerFast) -> None:
    model = gpt2()
    model.config._name_or_path = "gpt2"
    answer = dl.study(model, tokenizer=tokenizer).ask(dl.Shape())
    assert answer.command.startswith("study.ask(dl.Shape())")
    by_files = dl.study("demo", tokenizer=tokenizer).ask(dl.Shape())
    assert by_files.command.startswith("study.ask(")


def test_a_bidirectional_model() -> None:
    config = BertConfig(vocab_size=60, hidden_size=12, num_attention_heads=3, num_hidden_layers=1, intermediate_size=8)
    assert dl.study(BertModel(config), text=[[4, 5, 6]]).ask(dl.Attention(query_positions=[1])).sentence


def test_terms_as_a_dictionary() -> None:
    terms = LAYER.terms([1, 2, 3, 4])
    found = terms.to_dict()
    assert list(found) == list(terms.names)
    assert {part.shape for part in found.values()} == {(5, 4, 4)}
    np.testing.assert_allclose(sum(found.values()), terms.total(), rtol=1e-5, atol=1e-5)


def test_a_notebook_shows_a_study() -> None:
    html = dl.study(gpt2())._repr_html_()
    assert "GPT2LMHeadModel" in html
    assert "<th>needs a tokenizer</th><td>words" in html
    assert "<th>needs text</th><td>attention" in html
    assert "<th>needs " not in dl.study("demo")._repr_html_()


def test_to_pandas_and_a_missing_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = dl.study("demo", workers=1).ask(dl.Partners([" the"], top=2))
    frame = answer.to_pandas("partners")
    assert list(frame.columns) == answer.tables["partners"].columns
    assert frame.to_dict("list") == answer.to_pandas().to_dict("list")
    with pytest.raises(dl.DetokLensError, match="unknown table 'nothing'; the tables are partners"):
        answer.to_pandas("nothing")
    monkeypatch.setattr("detoklens.questions.answer.find_spec", lambda _name: None)
    with pytest.raises(dl.DetokLensError, match="pip install pandas"):
        answer.to_pandas()


def test_a_figure_of_one_panel_is_drawn_into_given_axes() -> None:
    from matplotlib.figure import Figure

    answer = dl.study(gpt2(), text=[[5, 7, 9, 11, 2, 3]], workers=1).ask(dl.Contributions(query_positions=[3]))
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert answer.figure("contributions", heads=[2], ax=left) is figure
    assert left.has_data()
    assert left.get_ylabel()
    assert left.get_title(loc="left") == "L0H2"
    assert not right.has_data()
    assert not right.texts
    with pytest.raises(dl.DetokLensError, match="5 panels and ax has 1; pass an axes for each panel in a list"):
        answer.figure("contributions", ax=right)
    with pytest.raises(dl.DetokLensError, match="ax is an Axes of matplotlib, or a list"):
        answer.figure("contributions", heads=[2], ax=3)  # type: ignore[arg-type]
    heatmap = dl.study("demo").ask(dl.Heatmap(tokens=5))
    with pytest.raises(dl.DetokLensError, match="own layout"):
        heatmap.figure(heads=[0], ax=right)
    assert len(answer.figure("contributions").axes) == 5  # the next figure is its own again
