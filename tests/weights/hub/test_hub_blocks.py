"""A model of the hub whose first blocks are run: they are fetched, and nothing of later ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import detoklens as dl
from tests.command_line import run
from tests.questions.asking import same_tables
from tests.questions.rotary_model import write_folder
from tests.weights.hub.server import HubServer
from tests.weights.hub.tiny_model import REPO, tensor_requests

LAYERS = dl.Layers(up_to=1, triples=60, candidates=300, bootstrap=20)
AUROC = dl.Auroc(layer=1, tokens=[300, 301, 302], truth="merges", controls=False, bootstrap=0)
TEXT = ["Once upon a time there was a little girl who lived in a village near the forest."]


@pytest.fixture
def folder(hub: HubServer, tmp_path: Path) -> Path:
    """The same model on this machine and on the hub."""
    written = write_folder(tmp_path / "local")
    names = ("config.json", "model.safetensors", "tokenizer.json")
    hub.repositories[REPO].files = {name: (written / name).read_bytes() for name in names}
    return written


def of_later_blocks(file: Path, first: int) -> list[range]:
    """Where the tensors of blocks from this one on lie in a safetensors file."""
    content = file.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:data])
    numbered = {name: re.match(r"layers\.(\d+)\.", name) for name in header}
    later = [name for name, found in numbered.items() if found and int(found[1]) >= first]
    return [range(*(data + place for place in header[name]["data_offsets"])) for name in later]


@pytest.mark.parametrize(("question", "blocks"), [(LAYERS, 1), (AUROC, 2)], ids=["layers", "auroc"])
def test_it_answers_as_the_folder_does_without_later_blocks(hub: HubServer, folder: Path, question, blocks) -> None:
    local, fetched = (dl.study(model, text=TEXT, workers=1).ask(question) for model in (folder, REPO))
    assert same_tables(local, fetched)
    assert local.sentence == fetched.sentence
    assert local.provenance.options["blocks"] == fetched.provenance.options["blocks"]
    unneeded = of_later_blocks(folder / "model.safetensors", blocks)
    assert len(unneeded) == 9 * (3 - blocks)
    for asked in tensor_requests(hub):
        assert not [each for each in unneeded if each.start < asked.stop and asked.start < each.stop]


def test_the_command_line_asks_a_hub_name(hub: HubServer, folder: Path) -> None:
    words = ("--up-to", "1", "--triples", "40", "--candidates", "100", "--bootstrap", "0", "--workers", "1")
    assert "writes words" in run("layers", REPO, *words).stderr
