"""Are sampled documents drawn from the model, seeded, and long enough to fill a context?"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import GPT2LMHeadModel

from export import write_checkpoint
from failure import RecipeError
from model import Shape
from sample import finished, sample_documents, sample_ids
from tests.training.conftest import Script
from tests.training.test_model import lively


@pytest.fixture(scope="module")
def checkpoint(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sampled") / "checkpoint"
    model = lively(Shape(300, 8, 12, 3, 2), 4)
    write_checkpoint(folder, model.state_dict(), model.shape, data / "tokenizer.json", 0)
    return folder


def test_the_cache_changes_nothing(checkpoint: Path) -> None:
    """Each token again, drawn with the same numbers from the whole visible text read anew."""
    model = GPT2LMHeadModel.from_pretrained(checkpoint, dtype=torch.float64).eval()
    context, end, length = model.config.n_positions, model.config.eos_token_id, 19
    sampled = sample_ids(model, 5, length, torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(2)
    whole, start = torch.full((5, 1), end), 0
    for _ in range(length):
        with torch.no_grad():
            logits = model(whole[:, start:]).logits[:, -1]
        whole = torch.cat([whole, torch.multinomial(logits.softmax(-1), 1, generator=generator)], dim=1)
        if whole.shape[1] - start > context:
            start = whole.shape[1] - context // 2
    assert torch.equal(sampled, whole[:, 1:])


def test_documents_fill_a_context_and_depend_on_the_seed_alone(checkpoint: Path) -> None:
    first, same, other = (list(sample_documents(checkpoint, 6, 40, seed)) for seed in (0, 0, 1))
    assert first == same != other
    assert [document.id for document in first] == [f"sampled/{n:04d}" for n in range(6)]
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    assert all(len(tokenizer.encode(document.text).ids) >= 8 for document in first)


def test_a_model_that_ends_at_once_is_refused_and_leaves_no_file(data: Path, tmp_path: Path, script: Script) -> None:
    model = lively(Shape(300, 8, 12, 3, 1), 4)
    with torch.no_grad():
        model.wte.weight[0] = 50 * model.ln_f.bias.sign()
    write_checkpoint(tmp_path / "checkpoint", model.state_dict(), model.shape, data / "tokenizer.json", 0)
    ended = script("sample", tmp_path / "checkpoint", tmp_path / "out.jsonl.zst")
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "none of 8 tokens; train it longer" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_document_stops_before_its_end() -> None:
    assert finished([5, 6, 0, 7, 0], 0) == [5, 6]
    assert finished([5, 6], 0) == [5, 6]
    assert finished([0, 5], 0) == []


def test_documents_shorter_than_the_context_are_refused(checkpoint: Path) -> None:
    with pytest.raises(RecipeError, match="below the model's context of 8"):
        list(sample_documents(checkpoint, 1, 7, 0))
