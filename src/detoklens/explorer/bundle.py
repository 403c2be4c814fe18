"""From a study to a folder that a browser can explore: numbers, tokens, head cards, counts, and the page itself.

`explorer-web/BUNDLE.md` is the contract: what each file holds, and what the page makes of it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from detoklens.errors import DetokLensError, OutputError, TokenError, shown
from detoklens.explorer.arrays import Arrays, described_tokens, sample, token_counts, write_counts, write_layer
from detoklens.measures.positions import trained_range
from detoklens.progress import shown_steps
from detoklens.questions.heads.question import HEADS, SEEN_FIRST, Heads
from detoklens.questions.study import Study
from detoklens.questions.texts import beginning_token
from detoklens.scores.layer import Layer
from detoklens.scratch import scratch_folder
from detoklens.version import __version__
from detoklens.wording import term_name, term_symbol
from detoklens.writing import make_folder, plain_output_errors, write_whole

PAGE = Path(__file__).parent / "page"


def copy_page(folder: Path) -> None:
    """Put the built page into a bundle."""
    if not (PAGE / "index.html").is_file():
        raise OutputError(f"{PAGE}: the explorer's page is not there; install the package again, or build explorer-web")
    shutil.copytree(PAGE, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)


BUNDLE = "bundle.json"
KIND = "detoklens explorer"
FORMAT = 1
"""Goes up when a page can't read what an earlier version wrote."""
OURS = {"arrays", "assets", "counts", "built.json", BUNDLE, "heads.json", "index.html", "licences.txt"}
OURS |= {"tokenizer.json", "tokens.json"}
"""All that a bundle holds."""


def is_bundle(folder: Path) -> bool:
    """Whether a folder holds an explorer, of whatever version."""
    return _read_description(folder).get("kind") == KIND


def check_bundle(folder: Path) -> dict[str, Any]:
    """What a finished bundle says of itself; an error where it is none, or of another format."""
    described = _read_description(folder)
    if described.get("kind") != KIND:
        raise OutputError(f"{folder}: no explorer ({BUNDLE} is missing or is something else); name its folder")
    if described.get("format") != FORMAT:
        raise OutputError(
            f"{folder}: an explorer of format {described.get('format')!r}, written by detoklens "
            f"{described.get('detoklens')!r}; this version reads format {FORMAT}: export it again from the model"
        )
    return described


def refuse_foreign(folder: Path) -> None:
    """An error where a folder holds anything but an explorer of ours; nothing is written."""
    with plain_output_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder} is a file; name a folder")
        if folder.is_dir() and any(folder.iterdir()) and not is_bundle(folder):
            raise OutputError(f"{folder} holds something else and is not overwritten; name a new or empty folder")
        strange = {path.name for path in folder.iterdir()} - OURS if folder.is_dir() else set()
        if strange:
            raise OutputError(
                f"{folder} holds {shown(min(strange))} beside an explorer and is not overwritten; move it away, or "
                "name another folder"
            )


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into that is renamed at the end; after an error the old one is as it was.

    Between two renames the old one has another name: a process that is killed there leaves it, and the next one takes
    it back.
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
    """Finish what a killed process left: its old export comes back where there is no new one, else it is removed."""
    if old.is_symlink() or not is_bundle(old):
        return
    with plain_output_errors(folder):
        if folder.exists():
            shutil.rmtree(old)
        else:
            old.rename(folder)


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        described = json.loads((folder / BUNDLE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return described if isinstance(described, dict) else {}


CARDS = "heads.json"
MOST_WORK = 2e13  # multiplications of all tokens with all tokens in all heads: GPT-2 small has 2e12, an 8B model 7e13


def too_large(layer: Layer) -> str | None:
    """Why a model's head cards are left out; None where they are not."""
    if float(layer.vocab_size) ** 2 * layer.n_heads * layer.d_head <= MOST_WORK:
        return None
    return (
        f"Head cards compare all {layer.vocab_size:,} tokens with each other in all {layer.n_heads} heads, which takes "
        "hours for a model of this size; `detoklens heads` makes them."
    )


def head_cards_or_problem(study: Study) -> dict[str, Any]:
    """The same while somebody is looking at the page already: what goes wrong is said there."""
    try:
        return head_cards(study)
    except DetokLensError as error:
        return {"problem": f"{error}"}


def head_cards(study: Study) -> dict[str, Any]:
    """heads.json: what `heads` answers; columns of which nothing is known are named apart."""
    answer = study.ask(Heads())
    cards = answer.tables["heads"]
    known = [column for column in HEADS.columns if cards[column.name].null_count() < len(cards)]
    names = [column.name for column in known]
    return {
        "columns": [{"name": column.name, "dtype": column.dtype, "meaning": column.meaning} for column in known],
        "rows": cards.select(names).to_dicts(),
        "shown": [name for name in SEEN_FIRST if name in names],
        "sentence": answer.sentence,
        "missing": [
            {"name": column.name, "meaning": column.meaning} for column in HEADS.columns if column.name not in names
        ],
    }


LONGEST_TEXT = 256  # tokens that the page draws as a matrix
SPLITS = {
    "biases": "what all tokens have in common is what the weights say: the biases",
    "vocabulary": "what all tokens have in common is the mean over the vocabulary",
}


def write_bundle(study: Study, folder: Path, cards_later: bool = False) -> Path:
    """Write the explorer of a study into a folder, whole or not at all; one of ours that is there is replaced.

    Head cards take longer than all the rest; `add_cards` writes them where they are to come later.
    """
    with whole_folder(folder) as written:
        copy_page(written)
        described = _written_parts(study, written)
        reason = too_large(study.layer)
        if reason is None and not cards_later:
            (written / CARDS).write_bytes(as_json(head_cards(study)))
        described["heads"], described["heads_pending"] = CARDS if reason is None else None, cards_later
        described["views"] = {"token": None, "text": None, "positions": None, "heads": reason}
        (written / BUNDLE).write_bytes(as_json(described))
    return folder


def add_cards(study: Study, folder: Path) -> None:
    """Write the head cards into a bundle that somebody may be looking at already."""
    if too_large(study.layer) is None:
        write_whole(folder / CARDS, as_json(head_cards_or_problem(study)))


def _written_parts(study: Study, folder: Path) -> dict[str, Any]:
    """Write all but head cards and bundle.json, and say what that has to say of it."""
    layer, arrays = study.layer, Arrays(folder)
    text_limit = min(LONGEST_TEXT, layer.n_positions)
    with shown_steps("the explorer's numbers") as watch:
        write_layer(layer, arrays, text_limit, watch)
    if layer.has_vocabulary:
        (folder / "tokens.json").write_bytes(as_json(described_tokens(layer)))
        (folder / "tokenizer.json").write_text(layer.vocabulary.to_json(), encoding="utf-8")
    counts = None
    if study.counts is not None:
        arrays.add("token_counts", token_counts(study.counts, layer.vocab_size), "float64")
        counts = write_counts(study.counts, layer.vocab_size, folder)
    return _described(layer, text_limit) | {"arrays": arrays.described, "counts": counts, "reasons": _reasons(study)}


def _described(layer: Layer, text_limit: int) -> dict[str, Any]:
    rotary, slopes = layer.weights.rotary_frequencies, layer.weights.alibi_slopes
    return {
        "format": FORMAT,
        "kind": KIND,
        "detoklens": __version__,
        "model": _model(layer),
        "text_limit": text_limit,
        "has_tokens": layer.has_vocabulary,
        "beginning": _beginning(layer),
        "sample": sample(layer, text_limit),
        "splits": _splits(layer),
        "rotary": None
        if rotary is None
        else {"frequencies": rotary.tolist(), "factor": float(layer.weights.rotary_factor)},
        "alibi_slopes": None if slopes is None else slopes.tolist(),
    }


def _model(layer: Layer) -> dict[str, Any]:
    weights = layer.weights
    return {
        "name": _name(layer),
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


def _name(layer: Layer) -> str:
    """A folder by its last name: others need not know where it lay."""
    return Path(layer.name).name if Path(layer.name).exists() else layer.name


def _beginning(layer: Layer) -> int | None:
    try:
        return beginning_token(layer)
    except TokenError:
        return None


def _splits(layer: Layer) -> list[dict[str, Any]]:
    """The ways in which the score is split; the first is the one that tells more."""
    names = ["biases"] if layer.positions == "learned" else list(SPLITS)
    if len(names) > 1 and not layer.has_biases:
        names.reverse()
    return [{"name": name, "meaning": SPLITS[name], "terms": _terms(layer, name)} for name in names]


def _terms(layer: Layer, split: str) -> list[dict[str, str]]:
    """Those that a text has, asked of the shortest one."""
    token = 1 if layer.weights.padding_token_id == 0 else 0
    terms = layer.terms([token], None if split == "biases" else "vocabulary")
    return [
        {"name": name, "symbol": term_symbol(name), "words": term_name(name), "meaning": layer.term_meanings[name]}
        for name in terms.names
    ]


def _reasons(study: Study) -> dict[str, str | None]:
    """Why a part of a view is not there."""
    layer = study.layer
    learned, rotary = layer.positions == "learned", layer.positions == "rotary"
    return {
        "counts": None if study.counts is not None else "No corpus counts were given.",
        "layer_norm": None if learned else "Positions are not divided by σ: here they are no vectors in the stream.",
        "offset": None if rotary else "Tᵉᵉ does not depend on the offset: positions do not turn queries and keys.",
        "vocabulary": None if layer.has_vocabulary else "This model came without a tokenizer: tokens are ids.",
    }


def as_json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
