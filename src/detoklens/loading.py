"""Load a model: `load` reads its first layer, `load_vocabulary` its tokenizer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np

from detoklens import demo
from detoklens.errors import HubError, RangeError, TokenError, as_path, errors_in_memory
from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary
from detoklens.tokens.tokenizer_files import read_tokenizer_file
from detoklens.weights.checkpoint import (
    find_tokenizer_folder,
    is_in_memory,
    locate,
    plain_file_errors,
    read_checkpoint,
    read_gguf_vocabulary,
)
from detoklens.weights.gguf_file import SUFFIX

DTYPES = ("float32", "float64")


def load(
    model: Any,
    dtype: Literal["float32", "float64"] = "float32",
    revision: str | None = None,
    tokenizer: Any = None,
    all_tokens: bool = False,
) -> Layer:
    """Read a checkpoint's first layer.

    Only the embeddings and layer 0's norm and attention are read. torch and transformers are not imported.

    Parameters
    ----------
    model
        A local folder, a GGUF file, a hub id (``gpt2``, or ``EleutherAI/pythia-70m@step1000`` for a revision),
        ``demo``, or a transformers model in memory. Wrappers of a model in memory (TransformerLens bridges,
        torch.compile) are unwrapped.
    dtype
        Precision of all computations.
    revision
        Branch, tag or commit of a hub model.
    tokenizer
        The tokenizer, where the model's files have none: a fast transformers tokenizer, a ``tokenizers.Tokenizer``, or
        what `load_vocabulary` takes.
    all_tokens
        Include special tokens, and tokens that training barely changed or that no text contains, in means over
        the vocabulary, candidates and rankings.

    Returns
    -------
    Layer
        The first layer.

    Raises
    ------
    CheckpointError, UnsupportedModelError, HubError
        The model can't be read, is not supported, or can't be downloaded.
    TokenError, RangeError
        The tokenizer has more tokens than the model, or the dtype is not supported.

    Examples
    --------
    >>> import detoklens as dl
    >>> dl.load("demo")
    Layer('demo', n_heads=4, d_head=32, d_model=128, vocab_size=4096, n_positions=256)
    """
    if dtype not in DTYPES:
        raise RangeError(f"dtype {dtype!r} is not supported; accepted are {' and '.join(DTYPES)}")
    in_memory = is_in_memory(model)
    vocabulary = tokenizer
    if isinstance(tokenizer, str | Path):
        vocabulary = load_vocabulary(tokenizer)
    elif not isinstance(tokenizer, Vocabulary | None):
        vocabulary = Vocabulary.of_tokenizer(tokenizer)
    with errors_in_memory(in_memory):
        checkpoint = read_checkpoint(model, np.dtype(dtype), revision, vocabulary)
    rows = len(checkpoint.first_layer.token_embeddings)
    if vocabulary is not None and vocabulary.size > rows:
        raise TokenError(
            f"the tokenizer has {vocabulary.size:,} tokens, but {checkpoint.name} has embeddings for {rows:,}; pass "
            "the model's own tokenizer"
        )
    return Layer(checkpoint, all_tokens)


def expand_revisions(models: str) -> list[str]:
    """The models that `MODEL@FIRST..LAST` names: one per revision on the hub, in the order of their numbers.

    The revisions' names are FIRST with other numbers, up to LAST. `MODEL@FIRST..LAST:N` takes N of them, evenly spaced,
    both ends included. Any other name is returned unchanged. With `demo`, they are its snapshots.
    """
    found = re.fullmatch(r"(?P<model>[^@]+)@(?P<first>.+?)\.\.(?P<last>.+?)(?::(?P<number>\d{1,6}))?", models)
    if not found or Path(models).exists():
        return [models]
    model, ends = found["model"], (found["first"], found["last"])
    numbers = re.compile(r"\d+")
    form = re.compile(numbers.sub(r"\\d+", re.escape(ends[0])))
    if model == demo.NAME:
        names = [name.partition("@")[2] for name in demo.snapshots()]
    else:
        from detoklens.hub.repository import Repository
        from detoklens.hub.session import one_line_errors

        repository = Repository("model", model)
        with one_line_errors(repository, None):
            names = repository.list_revisions()
    names.sort(key=lambda name: ([int(each) for each in re.findall(r"\d{1,18}", name)], name))
    known = [name for name in names if form.fullmatch(name)]
    missing = [end for end in ends if end not in known]
    if missing:
        others = f"those of its form go from {known[0]} to {known[-1]}" if known else "see its branches on the hub"
        raise HubError(f"{model} has no revision {missing[0]!r}, which {models} needs; {others}")
    first, last = sorted(known.index(end) for end in ends)
    chosen = known[first : last + 1]
    number = int(found["number"] or len(chosen))
    if not 1 < number <= len(chosen):
        raise RangeError(f"{models}: there are {len(chosen)} such revisions; take 2 to {len(chosen)}, not {number}")
    places = sorted({round(place) for place in np.linspace(0, len(chosen) - 1, number)})
    return [f"{model}@{chosen[place]}" for place in places]


def load_vocabulary(model: str | Path, revision: str | None = None) -> Vocabulary:
    """Read a model's tokenizer without its weights.

    Parameters
    ----------
    model
        A local folder, a tokenizer.json, a GGUF file, or a hub id, with ``@REVISION`` for another revision than main.
    revision
        Branch, tag or commit of a hub model.

    Returns
    -------
    Vocabulary
        Token ids and their text.

    Raises
    ------
    TokenError, HubError
        The tokenizer can't be read or downloaded.

    Examples
    --------
    >>> import detoklens as dl
    >>> dl.load_vocabulary("demo").encode("the priest")
    [1022, 1377, 420]
    """
    if str(model).endswith(".json.zst") and Path(model).is_file():
        raise TokenError(f"{model} is compressed; decompress it (zstd -d) and pass the tokenizer.json")
    path = as_path(model, "a tokenizer")
    if path.suffix in (".json", ".zst") and not path.exists():
        raise TokenError(f"{model}: no such file; name a tokenizer.json, a folder that holds one, or a hub id")
    with plain_file_errors():
        place = locate(model, revision, files=(".json", SUFFIX))
        if isinstance(place, Path) and place.is_file():
            return Vocabulary(read_tokenizer_file(path)) if path.suffix == ".json" else read_gguf_vocabulary(path)
        return Vocabulary.from_folder(find_tokenizer_folder(place))
