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
from tests.training.test_model import lively


@pytest.fixture(scope="module")
def checkpoint(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sampled") / "checkpoint"
    model = lively(Shape(300, 8, 12, 3, 2), 4)
    tokenizer = Tokenizer.from_file(str(data / "tokenizer.json"))
    plain = torch.tensor([tokenizer.id_to_token(n).isascii() for n in range(300)])
    with torch.no_grad():  # the first feature says "ASCII", so that what is written is mostly valid UTF-8
        model.ln_f.weight[0], model.ln_f.bias[0] = 0.0, 20.0
        model.wte.weight[:, 0] = torch.where(plain, 0.0, -1.0)
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
    assert all("�" not in document.text for document in first)


def test_a_document_stops_before_its_end() -> None:
    assert finished([5, 6, 0, 7, 0], 0) == [5, 6]
    assert finished([5, 6], 0) == [5, 6]
    assert finished([0, 5], 0) == []


def test_documents_shorter_than_the_context_are_refused(checkpoint: Path) -> None:
    with pytest.raises(RecipeError, match="below the model's context of 8"):
        list(sample_documents(checkpoint, 1, 7, 0))
