"""What several commands ask for alike: the model, the counts that belong to it, heads that it has, σ by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from detoklens import demo
from detoklens.cli.options import whole_numbers
from detoklens.errors import CountsError, DetokLensError, RangeError

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts
    from detoklens.scores.layer import Layer, TokenScale
    from detoklens.tables.schema import Schema

Scale = Annotated[
    str,
    typer.Option(
        "--scale",
        metavar="mean|published|bare|POSITION",
        help="σ of a token: its mean over positions (published: each first rounded to float16, as in the paper's "
        "published code), that of the bare embedding, or that at one position.",
    ),
]


LONGEST_NUMBER = 18  # digits


class Ranking(TypedDict):
    """How keys are ranked by T^ee: in which heads, with which σ, centred or not."""

    heads: list[int]
    scale: TokenScale
    centred: bool


def chosen_ranking(layer: Layer, heads: str | None, scale: str, centred: bool) -> Ranking:
    """What `--heads`, `--scale` and `--centred` ask for, refused where the model has no such head or position."""
    return {"heads": chosen_heads(heads, layer), "scale": chosen_scale(scale, layer), "centred": centred}


def open_layer(model: str, revision: str | None) -> Layer:
    """The model's first layer."""
    from detoklens.loading import load

    return load(model, revision=revision)


@contextmanager
def working(title: str) -> Iterator[None]:
    """A line on stderr while something without steps is computed; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(title):
        yield


def open_counts(folder: Path | None, layer: Layer) -> Counts | None:
    """The counts in a folder, refused where they were made with another tokenizer; the demo model brings its own."""
    if folder is None and demo.is_demo(layer.name):
        folder = demo.COUNTS
    if folder is None:
        return None
    from detoklens.corpus.counts import Counts

    counts = Counts.open(folder, layer.vocabulary.fingerprint if layer.has_vocabulary else None)
    if counts.vocabulary_size != layer.vocab_size:
        raise CountsError(
            f"{folder} counts a vocabulary of {counts.vocabulary_size} tokens, {layer.name} has {layer.vocab_size}; "
            "count with this model's tokenizer"
        )
    return counts


def chosen_heads(text: str | None, layer: Layer) -> list[int]:
    """The heads that `--heads` names, each once; all of them where it is not given."""
    heads = whole_numbers(text, "heads")
    if heads is None:
        return list(range(layer.n_heads))
    layer.check_heads(heads)
    return list(dict.fromkeys(heads))


def chosen_scale(text: str, layer: Layer) -> TokenScale:
    """`mean`, `published`, `bare` or a position."""
    if text == "mean":
        return "mean"
    if text == "published":
        return "published"
    if text == "bare":
        return "bare"
    if not (text.isdecimal() and len(text) <= LONGEST_NUMBER):
        raise RangeError(f"--scale {text!r} is not known; accepted are mean, published, bare, or a position from 0")
    layer.check_positions([int(text)])
    return int(text)


def read_text(path: Path, wanted: str) -> str:
    """The text of a small file that the user names."""
    if not path.is_file():
        raise DetokLensError(f"{path}: no such file; name {wanted}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DetokLensError(f"{path}: not UTF-8 at byte {error.start}; give {wanted}, as UTF-8") from error


def check_column(name: str, schema: Schema) -> None:
    """Refuse to sort by a column that the table does not have, before any work is done."""
    columns = [column.name for column in schema.columns]
    if name not in columns:
        raise RangeError(f"there is no column {name!r} to sort by; the columns are {', '.join(columns)}")
