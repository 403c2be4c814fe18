"""`detoklens verify`: is the decomposition equal to the real model?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from detoklens.cli.adapter import Model, command_of
from detoklens.cli.output import Printed, print_table, say
from detoklens.errors import DetokLensError, printable
from detoklens.loading import load
from detoklens.questions.parameters import Parameter


@dataclass(frozen=True)
class Check:
    """What is run through both."""

    text: Annotated[str | None, Parameter("The text to run through both. Default: a built-in one.")] = None
    length: Annotated[
        int | None, Parameter("Places to fill where no text is given. Default: all, at most 256.", least=1)
    ] = None
    tolerance: Annotated[float | None, Parameter("Default: 1e-4 in float32, 1e-10 in float64.", least=0)] = None


def verify(model: Model, check: Check, printed: Printed) -> None:
    """Compare with transformers' own first layer; exit code 1 above tolerance.

    Prints per head the largest difference of the attention weights and of what the head writes, in float32 and float64.
    Needs the extra: pip install 'detoklens[model]' (in a clone: '.[model]').

    Example: detoklens verify gpt2 --text "Homo sapiens"
    """
    from detoklens.model.verify import default_token_ids
    from detoklens.model.verify import verify as compare

    if printable(model.model) != model.model:
        named = printable(model.model)
        raise DetokLensError(f"{named} is no UTF-8, and transformers reads no such path; rename the folder")
    layer = load(model.model, revision=model.revision)
    for note in layer.notes:
        say(note)
    frame = compare(layer, default_token_ids(layer, check.text, check.length), check.tolerance)
    title = f"{layer.name}: decomposition against the real first layer"
    print_table(frame, printed.output_format, title, ("dtype", "head", "passed"))
    failed = int((~frame["passed"]).sum())
    if failed:
        raise DetokLensError(f"{layer.name}: {failed} of {len(frame)} comparisons are above tolerance")


command = command_of(verify, [Model, Check, Printed])
