"""From a study to a folder that a browser can explore: numbers, tokens, head cards, counts, and the page itself.

`explorer-web/BUNDLE.md` is the contract: what each file holds, and what the page makes of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from detoklens.errors import TokenError
from detoklens.explorer.arrays import Arrays
from detoklens.explorer.cards import CARDS, head_cards, head_cards_or_problem, too_large
from detoklens.explorer.corpus_counts import token_counts, write_counts
from detoklens.explorer.folder import BUNDLE, FORMAT, KIND, whole_folder
from detoklens.explorer.layer_arrays import write_layer
from detoklens.explorer.page import copy_page
from detoklens.explorer.sample import sample
from detoklens.explorer.tokens import described_tokens
from detoklens.measures.trained_range import trained_range
from detoklens.progress import shown_steps
from detoklens.questions.study import Study
from detoklens.questions.texts import beginning_token
from detoklens.scores.layer import Layer
from detoklens.version import __version__
from detoklens.wording import term_name, term_symbol
from detoklens.writing import write_whole

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
