"""Write a study as a bundle: a folder of numbers, tokens, head cards, counts and the page that explores them.

`explorer-web/BUNDLE.md` specifies the files and what the page computes from them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from detoklens.errors import DetokLensError, OutputError, TokenError, shown
from detoklens.explorer.arrays import Arrays, described_tokens, sample, write_counts, write_layer
from detoklens.measures.positions import trained_range
from detoklens.progress import shown_steps
from detoklens.questions.anatomy.question import SHARE_NAMES
from detoklens.questions.heads.question import HEADS, MEASURES, SEEN_FIRST, Heads
from detoklens.questions.study import Study
from detoklens.questions.texts import find_beginning
from detoklens.scores.layer import Layer
from detoklens.version import __version__
from detoklens.wording import term_name, term_symbol
from detoklens.writing import make_folder, plain_output_errors, scratch_folder, write_whole

PAGE = Path(__file__).parent / "page"
BUNDLE, CARDS = "bundle.json", "heads.json"
KIND = "detoklens explorer"
FORMAT = 1
"""Increased when older pages can't read the bundle, or newer pages an older bundle."""
OURS = {"arrays", "assets", "counts", "built.json", BUNDLE, CARDS, "index.html", "licences.txt"}
OURS |= {"tokenizer.json", "tokens.json"}
"""Everything a bundle may contain."""
LONGEST_TEXT = 256  # tokens in the page's attention matrix
MOST_WORK = 2e13  # multiplications for all pairs of tokens in all heads: 2e12 for GPT-2 small, 7e13 for an 8B model
SPLITS = {
    "biases": "the part shared by all tokens is the biases",
    "vocabulary": "the part shared by all tokens is the mean over the vocabulary",
}


def is_bundle(folder: Path) -> bool:
    """Whether a folder holds an explorer bundle of any version."""
    return _read_description(folder).get("kind") == KIND


def check_bundle(folder: Path) -> dict[str, Any]:
    """Read the description of a bundle; raise an OutputError for other folders and formats."""
    described = _read_description(folder)
    if described.get("kind") != KIND:
        raise OutputError(
            f"{folder} is not an explorer folder ({BUNDLE} is missing or invalid); pass an exported folder"
        )
    if described.get("format") != FORMAT:
        raise OutputError(
            f"{folder} has format {described.get('format')!r}, written by detoklens {described.get('detoklens')!r}; "
            f"this version reads format {FORMAT}: export it again"
        )
    return described


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        described = json.loads((folder / BUNDLE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return described if isinstance(described, dict) else {}


def refuse_foreign(folder: Path) -> None:
    """Raise an OutputError if a folder holds anything but an explorer bundle."""
    with plain_output_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder} is a file; pass a folder")
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        if names and not is_bundle(folder):
            raise OutputError(f"{folder} contains other files and is not overwritten; pass a new or empty folder")
        if names - OURS:
            raise OutputError(
                f"{folder} holds {shown(min(names - OURS))} next to an explorer and is not overwritten; move that "
                "file, or pass another folder"
            )


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Write into a temporary folder that replaces `folder` at the end; after an error the old one is unchanged.

    A process killed between the two renames leaves the old folder under another name; the next one restores it.
    """
    folder = folder.resolve()
    old = folder.with_name(f".{folder.name}.old")
    _take_back(old, folder)
    refuse_foreign(folder)
    make_folder(folder.parent)
    with plain_output_errors(folder), scratch_folder(folder.parent) as scratch:
        written = scratch / "new"
        written.mkdir()
        yield written
        if folder.exists():
            folder.rename(old)
        try:
            written.rename(folder)
        except OSError:
            _take_back(old, folder)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _take_back(old: Path, folder: Path) -> None:
    """Clean up after a killed process: restore its old export, or remove it if there is a new one."""
    if old.is_symlink() or not is_bundle(old):
        return
    with plain_output_errors(folder):
        if folder.exists():
            shutil.rmtree(old)
        else:
            old.rename(folder)


def write_bundle(study: Study, folder: Path, cards_later: bool = False) -> Path:
    """Write the explorer of a study atomically into a folder, replacing a bundle that is already there.

    Head cards take longer than everything else; with `cards_later`, `add_cards` writes them afterwards.
    """
    layer, reason = study.layer, too_large(study.layer)
    text_limit = min(LONGEST_TEXT, layer.n_positions)
    with whole_folder(folder) as written:
        if not (PAGE / "index.html").is_file():
            raise OutputError(
                f"{PAGE}: the explorer's page is missing; reinstall detoklens, or run `make explorer-web`"
            )
        shutil.copytree(PAGE, written, dirs_exist_ok=True, copy_function=shutil.copyfile)
        arrays, counts = Arrays(written), None
        with shown_steps("exporting the layer") as watch:
            write_layer(layer, arrays, text_limit, watch)
        if layer.has_vocabulary:
            (written / "tokens.json").write_bytes(as_json(described_tokens(layer)))
            (written / "tokenizer.json").write_text(layer.vocabulary.to_json(), encoding="utf-8")
        if study.counts is not None:
            counted = study.counts.tokens[: layer.vocab_size]
            arrays.add("token_counts", np.pad(counted, (0, layer.vocab_size - len(counted))), "float64")
            counts = write_counts(study.counts, layer.vocab_size, written)
        if reason is None and not cards_later:
            (written / CARDS).write_bytes(as_json(head_cards(study)))
        described = {
            "format": FORMAT,
            "kind": KIND,
            "detoklens": __version__,
            "model": _model(layer),
            "text_limit": text_limit,
            "has_tokens": layer.has_vocabulary,
            "left_out": np.setdiff1d(np.arange(layer.vocab_size), layer.meaningful_tokens).tolist(),
            "beginning": _beginning(layer),
            "sample": sample(layer, text_limit),
            "splits": _splits(layer),
            "arrays": arrays.described,
            "counts": counts,
            "reasons": _reasons(study),
            "heads": CARDS if reason is None else None,
            "heads_pending": cards_later,
            "views": {"token": None, "text": None, "positions": None, "heads": reason},
            **_kernel(layer),
        }
        (written / BUNDLE).write_bytes(as_json(described))
    return folder


def too_large(layer: Layer) -> str | None:
    """Why a model's head cards are omitted; None if they are not."""
    if float(layer.vocab_size) ** 2 * layer.n_heads * layer.d_head <= MOST_WORK:
        return None
    return (
        f"Head cards compare all pairs of {layer.vocab_size:,} tokens in {layer.n_heads} heads, which takes hours for "
        "a model of this size. Run `detoklens heads` to compute them."
    )


def add_cards(study: Study, folder: Path) -> None:
    """Write the head cards, or the error that prevents them, into a bundle that may be open in a browser."""
    if too_large(study.layer) is not None:
        return
    try:
        cards = head_cards(study)
    except DetokLensError as error:
        cards = {"problem": str(error)}
    write_whole(folder / CARDS, as_json(cards))


def head_cards(study: Study) -> dict[str, Any]:
    """The content of heads.json: the scorecard and the head cards, with empty columns listed separately."""
    answer = study.ask(Heads())
    cards = answer.tables["heads"]
    known = [column for column in HEADS.columns if cards[column.name].null_count() < len(cards)]
    names = [column.name for column in known]
    return {
        "columns": [{"name": column.name, "dtype": column.dtype, "meaning": column.meaning} for column in known],
        "rows": cards.select(names).to_dicts(),
        "shown": [name for name in SEEN_FIRST if name in names],
        "sentence": answer.sentence,
        "verdict": None if answer.verdict is None else answer.verdict.to_dict(),
        "measures": MEASURES,
        "marks": answer.tables["scorecard"].to_dicts(),
        "shares": SHARE_NAMES,
        "missing": [
            {"name": column.name, "meaning": column.meaning} for column in HEADS.columns if column.name not in names
        ],
    }


def _model(layer: Layer) -> dict[str, Any]:
    """The model as the page's formulas need it, under its name without the path of a local folder."""
    weights = layer.weights
    return {
        "name": Path(layer.name).name if Path(layer.name).exists() else layer.name,
        "positions": layer.positions,
        "is_causal": layer.is_causal,
        "n_heads": layer.n_heads,
        "heads_per_key": weights.heads_per_key,
        "d_head": layer.d_head,
        "vocab_size": layer.vocab_size,
        "n_positions": layer.n_positions,
        "trained_positions": trained_range(layer).trained if layer.positions == "learned" else layer.n_positions,
        "attention_scale": float(layer.attention_scale),
        "softcap": weights.softcap,
        "window": weights.window,
        "epsilon": float(weights.norm_epsilon),
        "norm": weights.norm_kind,
        "normed_factors": weights.has_query_key_norms,
        "placeless_token": weights.padding_token_id,
    }


def _kernel(layer: Layer) -> dict[str, Any]:
    """The parameters of rotary and ALiBi positions."""
    rotary, slopes = layer.weights.rotary_frequencies, layer.weights.alibi_slopes
    factor = layer.weights.rotary_factor
    return {
        "rotary": None if rotary is None else {"frequencies": rotary.tolist(), "factor": float(factor)},
        "alibi_slopes": None if slopes is None else slopes.tolist(),
    }


def _beginning(layer: Layer) -> int | None:
    try:
        return find_beginning(layer).token_id
    except TokenError:
        return None


def _splits(layer: Layer) -> list[dict[str, Any]]:
    """The ways to split the score into terms, the more informative one first; the terms are the shortest text's."""
    names = ["biases"] if layer.positions == "learned" else list(SPLITS)
    if len(names) > 1 and not layer.has_biases:
        names.reverse()
    token = 1 if layer.weights.padding_token_id == 0 else 0
    splits = []
    for split in names:
        terms = [
            {"name": name, "symbol": term_symbol(name), "words": term_name(name), "meaning": layer.term_meanings[name]}
            for name in layer.terms([token], None if split == "biases" else "vocabulary").names
        ]
        splits.append({"name": split, "meaning": SPLITS[split], "terms": terms})
    return splits


def _reasons(study: Study) -> dict[str, str | None]:
    """Why a part of a view is unavailable."""
    has_table = study.layer.positions == "learned"
    missing = {
        "counts": (study.counts is None, "No corpus counts were given."),
        "layer_norm": (
            not has_table,
            "Positions are not divided by σ: this model does not add them to the residual stream.",
        ),
        "offset": (
            study.layer.positions != "rotary",
            "Tᵉᵉ does not depend on the offset: this model has no rotary positions.",
        ),
        "vocabulary": (not study.layer.has_vocabulary, "This model has no tokenizer: tokens are shown as ids."),
    }
    return {part: reason if is_missing else None for part, (is_missing, reason) in missing.items()}


def as_json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
