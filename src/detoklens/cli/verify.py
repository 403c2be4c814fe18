"""`detoklens verify`: compare the decomposition with the real model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import polars as pl

from detoklens.cli.adapter import Model, command_of
from detoklens.cli.output import Printed, print_table, say
from detoklens.errors import DetokLensError, printable
from detoklens.loading import load
from detoklens.model.verify import default_token_ids
from detoklens.model.verify import verify as compare_with_transformers
from detoklens.questions.parameters import Parameter
from detoklens.wording import listed


@dataclass(frozen=True)
class Verify:
    """Options of the comparison with transformers."""

    text: Annotated[str | None, Parameter("Text to run. Default: a built-in one.")] = None
    length: Annotated[
        int | None, Parameter("Number of positions without --text. Default: all, at most 256.", least=1)
    ] = None
    tolerance: Annotated[
        float | None, Parameter("Largest accepted difference. Default: 1e-4 in float32, 1e-10 in float64.", least=0)
    ] = None


def verify(model: Model, options: Verify, printed: Printed) -> None:
    """Compare the decomposition with transformers' own first layer.

    Prints, per head, the largest difference in attention and in the head's output, in float32 and float64. The exit
    code is 1 above tolerance. Requires pip install 'detoklens[model]' (in a clone: '.[model]').

    Example: detoklens verify gpt2 --text "Homo sapiens"
    """
    if (named := printable(model.model)) != model.model:
        raise DetokLensError(f"{named} is not UTF-8 and transformers can't read such a path; rename the folder")
    layer = load(model.model, revision=model.revision)
    for note in layer.notes:
        say(note)
    frame = compare_with_transformers(layer, default_token_ids(layer, options.text, options.length), options.tolerance)
    title = f"{layer.name}: decomposition against the real first layer"
    print_table(frame, printed.output_format, title, ("dtype", "head", "passed"))
    failed = int((~frame["passed"]).sum())
    if failed:
        raise DetokLensError(f"{layer.name}: {failed} of {len(frame)} comparisons are above tolerance")
    by_dtype = frame.group_by("dtype", maintain_order=True).agg(pl.col("attention_difference").max()).rows()
    largest = [f"{difference:.1g} in {dtype}" for dtype, difference in by_dtype]
    say(f"The decomposition equals the real first layer: attention differs by at most {listed(largest)}.")


command = command_of(verify, [Model, Verify, Printed])
