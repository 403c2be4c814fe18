"""`detoklens compare`: the head cards and the main curves of several checkpoints side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens import demo
from detoklens.cli import asking, options, report_input, text_input
from detoklens.cli.output import say
from detoklens.errors import CountsError, DetokLensError

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts
    from detoklens.report.subject import Subject
    from detoklens.scores.layer import Layer


def compare(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Local folders or hub ids, in the order to show them; LABEL=MODEL gives one another name. "
            "Default: the demo model and its earlier snapshots.",
            show_default=False,
        ),
    ] = None,
    counts: options.CountsFolder = None,
    text: report_input.Texts = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the report goes.")] = Path("comparison"),
    figure_width: report_input.FigureWidth = "page",
    documents: text_input.Documents = 200,
    prepend_bos: text_input.PrependBos = False,
    text_field: text_input.TextField = "text",
    document_per_line: text_input.DocumentPerLine = False,
    skip_bad: text_input.SkipBad = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of nulls, resamples and documents.")] = 0,
    workers: text_input.Workers = None,
    engine: text_input.EngineName = "local",
    ray_address: text_input.RayAddress = None,
) -> None:
    """Set checkpoints side by side in one report: sizes, training steps, fine-tunes.

    Counts are used for the models whose tokenizer made them, and left out, with a word about it, for the others. An
    interrupted comparison is continued by the same command.

    Example: detoklens compare small=gpt2 medium=gpt2-medium --counts counts --out comparison
    """
    from detoklens.cli.step_list import step_list
    from detoklens.engines import open_engine
    from detoklens.report.comparing import KIND, make_comparison
    from detoklens.report.making import refuse_foreign

    refuse_foreign(out, KIND)
    width = report_input.chosen_width(figure_width)
    asked = text_input.Asked(text or [], documents, seed, None, prepend_bos, text_field, document_per_line, skip_bad)
    named = _labelled(models or [*demo.snapshots(), demo.NAME])
    subjects = {label: _subject(model, counts, asked) for label, model in named.items()}
    with open_engine(engine, workers, ray_address) as running, step_list() as listener:
        page = make_comparison(subjects, out, width, running, listener)
    say(f"open {page} in a browser")
    typer.echo(page)


def _labelled(models: list[str]) -> dict[str, str]:
    """Models by label: LABEL=MODEL, else the name itself without the folders that all of them share."""
    given = [_label_and_model(model) for model in models]
    if len(given) < 2:
        raise DetokLensError(f"{len(given)} model was named; name at least two to compare")
    shared = _shared_folders([model for label, model in given if label is None])
    named = {label or model[len(shared) :]: model for label, model in given}
    if len(named) < len(given):
        raise DetokLensError("two models have the same label; tell them apart by LABEL=MODEL")
    return named


def _label_and_model(text: str) -> tuple[str | None, str]:
    label, equals, model = text.partition("=")
    return (label, model) if equals and label and model and not Path(text).exists() else (None, text.rstrip("/"))


def _shared_folders(models: list[str]) -> str:
    """The folders at the beginning of all names."""
    folders = [model.split("/")[:-1] for model in models]
    shared = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "".join(f"{part}/" for part in shared) if len(models) > 1 else ""


def _subject(model: str, counts_folder: Path | None, texts: text_input.Asked) -> Subject:
    layer = asking.open_layer(model, None)
    return report_input.subject_from(layer, model, None, *_fitting_counts(counts_folder, layer), texts, None)


def _fitting_counts(folder: Path | None, layer: Layer) -> tuple[Counts | None, Path | None]:
    """The counts where they were made with this model's tokenizer."""
    try:
        return asking.open_counts(folder, layer), folder
    except CountsError as error:
        if folder is None or not (folder / "manifest.json").is_file():
            raise
        say(f"{layer.name}: without counts: {error}")
        return None, None
