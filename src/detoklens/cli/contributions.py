"""`detoklens contributions`: how much would attention on real text change if one term were missing?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli import asking, options, text_input
from detoklens.cli.answering import provenance_of, show_answer, write_answer
from detoklens.cli.options import whole_numbers
from detoklens.demo import NAME as DEMO

if TYPE_CHECKING:
    from detoklens.analyses.contributions import Formula
    from detoklens.scores.layer import Layer


class Rows(StrEnum):
    """What a row of the printed table is."""

    head = "head"
    position = "position"


class FormulaName(StrEnum):
    """Whose formula."""

    paper = "paper"
    published = "published"


class Direction(StrEnum):
    """Which attention comes first in D(·‖·)."""

    without = "without"
    whole = "whole"


class Scaling(StrEnum):
    """Which scores go through the softmax."""

    scaled = "scaled"
    unscaled = "unscaled"


class Reduction(StrEnum):
    """How the divergence is taken over keys."""

    sum = "sum"
    mean = "mean"


def contributions(
    model: options.Model = DEMO,
    text: text_input.Texts = None,
    query_positions: text_input.QueryPositions = None,
    heads: options.Heads = None,
    formula: Annotated[
        FormulaName,
        typer.Option(
            "--formula",
            help="The paper's: D(without‖whole), scaled, sum. Its code's: D(whole‖without), unscaled, mean.",
        ),
    ] = FormulaName.paper,
    direction: Annotated[
        Direction | None,
        typer.Option("--direction", help="D(without‖whole) or D(whole‖without), whatever the formula says."),
    ] = None,
    scaling: Annotated[
        Scaling | None, typer.Option("--scaling", help="Softmax of s / sqrt(d'), or of s as it is.")
    ] = None,
    reduction: Annotated[
        Reduction | None, typer.Option("--reduction", help="Sum over keys, or mean over the i + 1 keys.")
    ] = None,
    by: Annotated[
        Rows, typer.Option("--by", help="Print one row a head and term, or one for each query position too.")
    ] = Rows.head,
    documents: text_input.Documents = 1000,
    seed: text_input.Seed = 0,
    length: text_input.Length = None,
    prepend_bos: text_input.PrependBos = False,
    text_field: text_input.TextField = "text",
    document_per_line: text_input.DocumentPerLine = False,
    skip_bad: text_input.SkipBad = False,
    workers: text_input.Workers = None,
    engine: text_input.EngineName = "local",
    ray_address: text_input.RayAddress = None,
    output_format: options.FormatOption = options.Format.table,
    out: options.Out = None,
    revision: options.Revision = None,
) -> None:
    """Take away one of the six terms at a time: by how many nats does the attention on real text move?

    Looks from every position unless told otherwise. Documents are the ones whose texts have the smallest sha256, so
    anyone gets the same. With --out an interrupted run is continued by the same command. Numbers are the same whatever
    the number of workers.

    Example: detoklens contributions gpt2 --text 'openwebtext/*.parquet' --prepend-bos --documents 5000 --out results
    """
    from detoklens.analyses.contributions import contributions as measure
    from detoklens.analyses.contributions import contributions_by_head
    from detoklens.analyses.text_blocks import digest
    from detoklens.tables.contributions import CONTRIBUTIONS, CONTRIBUTIONS_BY_HEAD

    layer = asking.open_layer(model, revision)
    chosen, positions = asking.chosen_heads(heads, layer), _positions(query_positions, layer, length)
    asked = text_input.Asked(text or [], documents, seed, length, prepend_bos, text_field, document_per_line, skip_bad)
    texts = text_input.read_sample(layer, asked)
    text_input.say_too_short(texts, positions or [])
    exact = _formula(formula, direction, scaling, reduction)
    question = {**asked.options(), "heads": chosen, "query_positions": positions, "formula": vars(exact)}
    provenance = provenance_of("contributions", layer, {**question, "documents_digest": digest(texts)})
    with text_input.opened_runner("contributions", engine, workers, ray_address, out, provenance) as runner:
        each = measure(layer, texts, positions, chosen, exact, runner)
    summary = contributions_by_head(each)
    write_answer(layer, [(CONTRIBUTIONS, each), (CONTRIBUTIONS_BY_HEAD, summary)], provenance, out)
    runner.finish()
    schema, frame = (CONTRIBUTIONS_BY_HEAD, summary) if by is Rows.head else (CONTRIBUTIONS, each)
    show_answer(layer, schema, frame, output_format)


def _positions(text: str | None, layer: Layer, length: int | None) -> list[int] | None:
    positions = whole_numbers(text, "query positions")
    if positions is not None:
        layer.check_positions(positions)
        text_input.check_reachable(positions, length)
    return positions


def _formula(
    name: FormulaName, direction: Direction | None, scaling: Scaling | None, reduction: Reduction | None
) -> Formula:
    from dataclasses import replace

    from detoklens.analyses.contributions import PAPER, PUBLISHED

    parts = {"direction": direction, "scaling": scaling, "reduction": reduction}
    given = {part: choice.value for part, choice in parts.items() if choice is not None}
    return replace(PAPER if name is FormulaName.paper else PUBLISHED, **given)  # type: ignore[arg-type]
