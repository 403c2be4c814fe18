"""The report as one HTML document, and the data of its search box.

The search box holds the strongest partners of every token, by plain and by centred scores. If they don't fit the page,
fewer partners are listed, then only those of the most frequent tokens (of the first ones without counts).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from detoklens.errors import printable
from detoklens.measures.ranking import HeadScores, pair_counts, top_keys
from detoklens.measures.words import token_texts
from detoklens.parallel import thread_map
from detoklens.questions.partners.question import example_tokens
from detoklens.questions.study import Study
from detoklens.report.content import Cell, Content, PartnerIndex, PartnerView
from detoklens.scores.affinity import Affinity
from detoklens.version import __version__
from detoklens.wording import token_shown

MARK = re.compile(r"(?P<word>yes|no|not testable) (?P<number>\((?:z )?(?P<value>[+−]?[\d.]+)[^)]*\))")


def render_page(content: Content) -> str:
    """Render the report as one self-contained HTML document."""
    style, script = _asset("page.css"), _asset("page.js")
    environment = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"shown": shown, "mark": mark, "data": lambda value: Markup(script_json(value))}
    page = environment.get_template("page.html").render(
        content=content,
        version=__version__,
        policy=content_security_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        partners=asdict(content.partners) if content.partners else None,
        svg=Markup,
    )
    return printable(page)  # it may contain paths that are not UTF-8


def content_security_policy(style: str, script: str) -> str:
    """Allow only this style, this script and images inside the file."""
    return (
        f"default-src 'none'; style-src '{_source_hash(style)}'; script-src '{_source_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def script_json(value: Any) -> str:
    """JSON that is safe inside an HTML element, with any strings."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shown(value: Cell) -> str:
    """Format a cell."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}".replace("-", "−")
        case _:
            return str(value)


def mark(cell: Cell) -> tuple[str, str, float] | None:
    """The word, number and sort value of `yes (+0.21)`; None for other cells."""
    found = MARK.fullmatch(cell) if isinstance(cell, str) else None
    return found and (found["word"], found["number"], float(found["value"].replace("−", "-")))


def _source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@cache
def _asset(name: str) -> str:
    return files("detoklens.report").joinpath("assets", name).read_text(encoding="utf-8")


TOPS = (20, 10)  # partners per head: the first number that fits
FEWEST = 100  # tokens that can be searched however full the page is
ID_TEXT = 8  # bytes of a searchable token's id as text
ROWS = 128  # query tokens scored together
TASK_QUERIES = 4096  # query tokens per task


def partner_index(study: Study, available: int, example: tuple[str, list[int]] | None = None) -> PartnerIndex:
    """Partners by Tᵉᵉ of every token, or of as many tokens as fit into the available bytes.

    `example` is the word that the page searches for first, with its pieces; by default the first example token.
    """
    layer, examples = study.layer, example_tokens(study)
    word, pieces = example or (str(examples[0]), examples[:1])
    texts = token_texts(layer, range(layer.vocab_size))
    tokens = [token_shown(text or "") for text in texts] if layer.has_vocabulary else None
    id_bytes = 2 if layer.vocab_size <= 1 << 16 else 4
    left = available - (0 if tokens is None else len(script_json(tokens)))
    top, searched = _searchable(study, id_bytes, left, [*examples, *pieces])

    def view(centred: bool) -> PartnerView:
        partners = find_partners(layer.token_affinity(centred=centred), searched, top, study.workers)
        packed = base64.b64encode(partners.astype(f"<u{id_bytes}").tobytes()).decode("ascii")
        return PartnerView(packed, _pairs_seen(study, searched, partners))

    return PartnerIndex(
        tokens=tokens,
        mark=layer.vocabulary.continuing_mark if layer.has_vocabulary else "",
        searched=[int(token) for token in searched],
        n_heads=layer.n_heads,
        top=top,
        id_bytes=id_bytes,
        plain=view(centred=False),
        centred=view(centred=True),
        note=_note(len(searched), study, top),
        example=word,
    )


def _searchable(
    study: Study, id_bytes: int, available: int, examples: list[int]
) -> tuple[int, Int[np.ndarray, "query"]]:
    """The number of partners per head, and the tokens, that fit into the available bytes."""
    layer, counts = study.layer, study.counts
    for top in (min(most, layer.vocab_size) for most in TOPS):
        bits = 2 * layer.n_heads * top * (8 * id_bytes + (counts is not None))
        fits = max(FEWEST, int(available // (bits / 8 * 4 / 3 + ID_TEXT)))
        if fits >= layer.vocab_size:
            return top, np.arange(layer.vocab_size)
    first = np.arange(layer.vocab_size) if counts is None else np.argsort(-counts.tokens, kind="stable")
    return top, np.unique([*examples, *first[: fits - len(examples)]])


def find_partners(
    affinity: Affinity, tokens: Int[np.ndarray, "query"], top: int, workers: int = 1
) -> Int[np.ndarray, "query head rank"]:
    """The `top` keys of each query token in each head."""
    blocks = [
        (head, slice(begin, begin + TASK_QUERIES))
        for head in range(affinity.n_heads)
        for begin in range(0, len(tokens), TASK_QUERIES)
    ]
    partners = np.empty((len(tokens), affinity.n_heads, top), np.uint32)

    def fill(place: tuple[int, slice]) -> None:
        head, block = place
        partners[block, head] = best_keys(affinity.query[head, tokens[block]], affinity.key_of(head), top)

    list(thread_map(fill, blocks, workers))
    return partners


def best_keys(
    queries: Float[np.ndarray, "query d_head"], keys: Float[np.ndarray, "token d_head"], top: int
) -> Int[np.ndarray, "query rank"]:
    """The best keys of some queries, with few rows of scores in memory at a time."""
    scores = HeadScores.of(keys)
    return np.concatenate(
        [top_keys(scores.rows(queries[place : place + ROWS]), top) for place in range(0, len(queries), ROWS)]
    )


def _pairs_seen(
    study: Study, searched: Int[np.ndarray, "query"], partners: Int[np.ndarray, "query head rank"]
) -> str | None:
    """One bit per partner, set if the corpus has the pair; None without counts."""
    if study.counts is None:
        return None
    queries = np.repeat(searched, partners[0].size)
    counted = pair_counts(study.counts, partners.ravel().astype(np.int64), queries)
    return base64.b64encode(np.packbits(counted > 0).tobytes()).decode("ascii")


def _note(searched: int, study: Study, top: int) -> str:
    vocab_size, has_counts, by_text = study.layer.vocab_size, study.counts is not None, study.layer.has_vocabulary
    if searched == vocab_size:
        covered = f"Covers all {vocab_size:,} tokens"
    else:
        chosen = "most frequent" if has_counts else "first"
        covered = f"Covers the examples below and the {chosen} tokens, {searched:,} of {vocab_size:,}: more do not fit"
    note = f"{covered}. Shows the {top} keys with the largest Tᵉᵉ in each head."
    if not by_text:
        return note
    return f"{note} ␣ is a space. A word is split into the fewest tokens that spell it; the tokenizer may differ."
