"""`--figure` overwrites figures that detoklens drew, and other files only with `--force`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command_line import refuse, run
from tests.layers import random_first_layer, write_gpt2


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_gpt2(tmp_path / "model", random_first_layer(dtype="float32"))


def test_another_file_is_overwritten_only_by_force(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "thesis.svg"
    path.write_text("<svg>mine</svg>", encoding="utf-8")
    told = refuse("shape", model, "--figure", path)
    assert "thesis.svg is not a figure drawn by detoklens; choose another file or add --force" in told
    assert path.read_text(encoding="utf-8") == "<svg>mine</svg>"
    run("shape", model, "--figure", path, "--force")
    drawn = path.read_bytes()
    run("shape", model, "--figure", path)
    assert path.read_bytes() == drawn
    os.mkfifo(tmp_path / "pipe.png")
    assert "is not a figure drawn by detoklens" in refuse("shape", model, "--figure", tmp_path / "pipe.png")


def test_a_figure_has_exactly_the_given_name(model: Path, tmp_path: Path) -> None:
    """An ending in capitals neither draws over the file with a small one nor is left unwritten."""
    other, asked = tmp_path / "thesis.svg", tmp_path / "thesis.SVG"
    other.write_text("<svg>mine</svg>", encoding="utf-8")
    run("shape", model, "--figure", asked)
    assert other.read_text(encoding="utf-8") == "<svg>mine</svg>"
    assert asked.read_bytes().startswith(b"<?xml")
    run("shape", model, "--figure", asked)
    asked.write_text("<svg>mine</svg>", encoding="utf-8")
    assert "thesis.SVG is not a figure drawn by detoklens" in refuse("shape", model, "--figure", asked)


def test_control_characters_of_a_folder_are_not_printed(tmp_path: Path) -> None:
    model = write_gpt2(tmp_path / "\x1b[2J\u202emodel", random_first_layer(dtype="float32"))
    result = run("shape", model)
    assert "\\x1b[2J\\u202emodel" in result.stdout
    assert (result.stdout + result.stderr).replace("\n", "").isprintable()
