"""`detoklens verify`: is the decomposition equal to the real model?"""

from __future__ import annotations

from typing import Annotated

import typer

from detoklens.cli import options
from detoklens.cli.output import emit, say
from detoklens.demo import NAME as DEMO


def verify(
    model: options.Model = DEMO,
    text: Annotated[
        str | None,
        typer.Option("--text", help="The text to run through both. Default: a built-in one.", show_default=False),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            "--length",
            min=1,
            help="Places to fill where no text is given. Default: all, at most 256.",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", min=0, help="Default: 1e-4 in float32, 1e-10 in float64.", show_default=False),
    ] = None,
    output_format: options.FormatOption = options.Format.table,
    revision: options.Revision = None,
) -> None:
    """Compare with transformers' own first layer; exit code 1 above tolerance.

    Prints per head the largest difference of the attention weights and of what the head writes, in float32 and float64.
    Needs the extra: pip install 'detoklens[verify]'.

    Example: detoklens verify gpt2 --text "Homo sapiens"
    """
    from detoklens.errors import DetokLensError
    from detoklens.loading import load
    from detoklens.verification.verify import default_token_ids
    from detoklens.verification.verify import verify as compare

    layer = load(model, revision=revision)
    for note in layer.notes:
        say(note)
    frame = compare(layer, default_token_ids(layer, text, length), tolerance)
    emit(frame, output_format, title=f"{layer.name}: decomposition against the real first layer")
    failed = int((~frame["passed"]).sum())
    if failed:
        raise DetokLensError(f"{layer.name}: {failed} of {len(frame)} comparisons are above tolerance")
