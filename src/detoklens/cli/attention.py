"""`detoklens attention`: does attention on real text agree with what position alone predicts?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli import asking, options, text_input
from detoklens.cli.answering import provenance_of, show_answer, write_answer
from detoklens.cli.options import whole_numbers
from detoklens.demo import NAME as DEMO

if TYPE_CHECKING:
    from detoklens.scores.layer import Layer


class Rows(StrEnum):
    """What a row of the printed table is."""

    query = "query"
    key = "key"


def attention(
    model: options.Model = DEMO,
    text: text_input.Texts = None,
    query_positions: text_input.QueryPositions = None,
    heads: options.Heads = None,
    band: Annotated[float, typer.Option("--band", help="The share of documents that the band holds.")] = 0.95,
    by: Annotated[
        Rows, typer.Option("--by", help="Print the agreement of each head and query, or one row for every key.")
    ] = Rows.query,
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
    """Show layer 0's real attention on text beside the softmax of T^p + T^pp, and how far apart they are.

    First is position 0, self the query's own, recent the 15 before it, far the rest. Without --query-positions the
    paper's 50, 500 and 1000 of 1024 are scaled to the model's length. With --out an interrupted run is continued by the
    same command.

    Example: detoklens attention gpt2 --text 'openwebtext/*.parquet' --query-positions 500 --heads 1,7
    """
    from detoklens.analyses.attention import text_attention
    from detoklens.analyses.text_blocks import digest
    from detoklens.errors import RangeError
    from detoklens.tables.attention import ATTENTION, ATTENTION_AGREEMENT

    if not 0 < band <= 1:
        raise RangeError(f"--band {band} is no share of documents; give a number above 0 and up to 1, such as 0.95")
    layer = asking.open_layer(model, revision)
    chosen = asking.chosen_heads(heads, layer)
    positions = _positions(query_positions, layer, length)
    asked = text_input.Asked(text or [], documents, seed, length, prepend_bos, text_field, document_per_line, skip_bad)
    texts = text_input.read_sample(layer, asked)
    text_input.say_too_short(texts, positions)
    question = {**asked.options(), "heads": chosen, "query_positions": positions, "band": band}
    provenance = provenance_of("attention", layer, {**question, "documents_digest": digest(texts)})
    with text_input.opened_runner("attention", engine, workers, ray_address, out, provenance) as runner:
        keys, agreement = text_attention(layer, texts, positions, chosen, band, runner)
    write_answer(layer, [(ATTENTION, keys), (ATTENTION_AGREEMENT, agreement)], provenance, out)
    runner.finish()
    schema, frame = (ATTENTION_AGREEMENT, agreement) if by is Rows.query else (ATTENTION, keys)
    show_answer(layer, schema, frame, output_format)


def _positions(text: str | None, layer: Layer, length: int | None) -> list[int]:
    """The positions asked for; else the paper's, scaled to the length of the model or of the cut documents."""
    from detoklens.analyses.positions import chosen_queries

    positions = chosen_queries(layer, whole_numbers(text, "query positions"))
    if text is None and length is not None:
        return sorted({position * length // layer.n_positions for position in positions})
    text_input.check_reachable(positions, length)
    return positions
