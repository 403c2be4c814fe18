"""Is what comes with the package what the recipe made, whole, and small enough?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import GPT2LMHeadModel

from detoklens import demo
from text import documents

LARGEST = 10_000_000
CHECKPOINT_HASH = "b86d9c81e6d756da76642a7791388e42f4d6e5cc14677f0042b3980c8c57f127"
FILES = {"config.json", "model.safetensors", "tokenizer.json"}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(demo.CHECKPOINT / "tokenizer.json"))


def test_the_checkpoint_is_the_one_the_numbers_were_measured_on() -> None:
    stored = (demo.CHECKPOINT / "model.safetensors").read_bytes()
    assert hashlib.sha256(stored).hexdigest() == CHECKPOINT_HASH


def test_the_card_names_that_checkpoint() -> None:
    assert CHECKPOINT_HASH in (demo.FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8")


def test_all_of_it_stays_small() -> None:
    sizes = [path.stat().st_size for path in demo.FOLDER.rglob("*") if "__pycache__" not in path.parts]
    assert sum(sizes) < LARGEST


def test_transformers_reads_the_checkpoint_and_finds_every_weight(tokenizer: Tokenizer) -> None:
    model, report = GPT2LMHeadModel.from_pretrained(demo.CHECKPOINT, dtype=torch.float32, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    ids = torch.tensor([tokenizer.encode("The suspicion of a connection was an exception").ids])
    with torch.no_grad():
        loss = model(ids, labels=ids).loss.item()
    assert loss < 6  # a guess without knowledge: ln 4096 = 8.3


@pytest.mark.parametrize("folder", [demo.CHECKPOINT, *demo.snapshots().values()], ids=lambda path: path.name)
def test_each_folder_holds_the_same_tokenizer_and_a_first_layer(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES
    assert (folder / "tokenizer.json").read_bytes() == (demo.CHECKPOINT / "tokenizer.json").read_bytes()
    with safe_open(folder / "model.safetensors", "np") as stored:
        assert {"transformer.wte.weight", "transformer.wpe.weight"} <= set(stored.keys())
        assert {f"transformer.h.0.attn.c_attn.{part}" for part in ("weight", "bias")} <= set(stored.keys())
        seen = int(stored.metadata()["tokens_seen"])
    assert folder == demo.CHECKPOINT or seen == int(folder.name)


def test_there_are_snapshots_from_the_untrained_layer_on() -> None:
    seen = [int(folder.name) for folder in demo.snapshots().values()]
    assert len(seen) >= 3
    assert seen == sorted(seen)
    assert seen[0] == 0


def test_the_counts_are_those_of_the_training_text_with_this_tokenizer() -> None:
    from detoklens import Counts
    from detoklens.tokens import Vocabulary

    counts = Counts.open(demo.COUNTS)
    assert counts.vocabulary_fingerprint == Vocabulary.from_folder(demo.CHECKPOINT).fingerprint
    manifest = json.loads((demo.COUNTS / "manifest.json").read_text(encoding="utf-8"))
    assert int(counts.tokens.sum()) == manifest["totals"]["tokens"] > 40_000_000
    assert not any(Path(source["path"]).is_absolute() for source in manifest["inputs"])


def test_the_documents_are_the_models_own_and_fill_its_context(tokenizer: Tokenizer) -> None:
    context = json.loads((demo.CHECKPOINT / "config.json").read_text(encoding="utf-8"))["n_positions"]
    sampled = list(documents(demo.FOLDER))
    assert len(sampled) >= 300
    assert {document.source for document in sampled} == {"sampled"}
    assert all(len(tokenizer.encode(document.text).ids) >= context for document in sampled)
