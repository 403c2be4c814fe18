"""`detoklens compare`: several checkpoints in one report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

from detoklens import demo
from detoklens.cli.adapter import Cluster, Corpus, SeedOptions, command_of
from detoklens.cli.output import Width, say
from detoklens.cli.progress import step_list
from detoklens.engines import open_engine
from detoklens.errors import CountsError, DetokLensError, printable
from detoklens.figures.theme import inches
from detoklens.loading import expand_revisions, load
from detoklens.progress import Listener
from detoklens.questions.parameters import Parameter
from detoklens.questions.study import Study, Work, fitting_counts
from detoklens.questions.texts import Texts
from detoklens.report.comparison import KIND, make_comparison, models_folder
from detoklens.report.folder import ask_all, claim, refuse_foreign
from detoklens.wording import plural


@dataclass(frozen=True)
class Compare:
    """Options of a comparison."""

    models: Annotated[
        Sequence[str],
        Parameter(
            "Folders or hub ids, in display order; LABEL=MODEL names one, MODEL@FIRST..LAST:N takes N of a hub model's "
            "revisions. Default: the demo model's training snapshots.",
            metavar="MODEL",
            positional=True,
        ),
    ] = ()
    out: Annotated[Path, Parameter("Output folder.", metavar="DIR")] = Path("comparison")
    figure_width: Width = "page"


def compare(options: Compare, corpus: Corpus, texts: Texts, seed: SeedOptions, work: Cluster) -> None:
    """Compare several checkpoints in one report.

    Models can differ in size, training step or fine-tuning. Counts are used if the model's tokenizer made them; a note
    lists the others. Run the same command again to continue an interrupted comparison. --engine ray runs one checkpoint
    per task, on one core each; all machines must see the models and the output folder.

    Example: detoklens compare small=gpt2 medium=gpt2-medium --counts counts --out comparison

    Example: detoklens compare EleutherAI/pythia-70m@step1000..step143000:8 --counts hf:someone/pile-counts
    """
    refuse_foreign(options.out, KIND)
    inches(options.figure_width)  # refused before any work
    named = labelled_models(list(options.models) or [*demo.snapshots(), demo.NAME])
    checkpoints = [
        Checkpoint(label, model, corpus.counts, texts, seed.seed, options.out.absolute())
        for label, model in named.items()
    ]
    studies = {each.label: each.study(work) for each in checkpoints}
    with step_list() as listener:
        if work.engine == "ray":  # one task per checkpoint; the comparison then reads their answers
            claim(options.out, KIND)
            title = f"Answer for {len(checkpoints)} checkpoints on Ray"
            with listener.step(title) as watch, open_engine(work.engine, work.workers, work.ray_address) as engine:
                for done, _ in enumerate(engine.run(ask_checkpoint, checkpoints), 1):
                    watch(done, len(checkpoints))
        with open_engine(workers=work.workers if work.engine == "local" else None) as engine:
            page = make_comparison(studies, options.out, options.figure_width, listener, engine)
    typer.echo(page)


def labelled_models(models: list[str]) -> dict[str, str]:
    """Models by label: LABEL=MODEL, or the name without the folders that all models share."""
    given: list[tuple[str, str]] = []
    for text in models:
        label, _, model = text.partition("=")
        if not (label and model) or Path(text).exists():
            label, model = "", text.rstrip("/")
        several = expand_revisions(model)
        in_range = label and several != [model]
        given += [(f"{label}@{each.rpartition('@')[2]}" if in_range else label, each) for each in several]
    if len(given) < 2:
        raise DetokLensError(f"{plural(len(given), 'model')} to compare; pass at least two")
    unlabelled = [model for label, model in given if not label]
    folders = zip(*(model.split("/")[:-1] for model in unlabelled), strict=False) if len(unlabelled) > 1 else ()
    shared = "".join(f"{parts[0]}/" for parts in takewhile(lambda parts: len(set(parts)) == 1, folders))
    named = {printable(label or model[len(shared) :]): model for label, model in given}
    if len(named) < len(given):
        raise DetokLensError("two models have the same label; distinguish them with LABEL=MODEL")
    return named


@dataclass(frozen=True)
class Checkpoint:
    """One of the compared models, and the comparison's folder."""

    label: str
    model: str
    counts: str | None
    texts: Texts
    seed: int
    out: Path

    def study(self, work: Work) -> Study:
        layer = load(self.model)
        try:
            counts = fitting_counts(self.counts, layer)
        except CountsError as error:  # another tokenizer made them
            folder = self.counts
            if folder is None or not (folder.startswith("hf:") or (Path(folder) / "manifest.json").is_file()):
                raise
            say(f"{layer.name}: without counts: {error}")
            counts = None
        return Study(layer, counts, self.texts, self.seed, work, [self.model])


def ask_checkpoint(checkpoint: Checkpoint) -> str:
    """Answer all compared questions for one checkpoint on one core, into the comparison's folder."""
    ask_all(checkpoint.study(Work(1)), models_folder(checkpoint.out, checkpoint.label), Listener(), True)
    return checkpoint.label


command = command_of(compare, [Compare, Corpus, Texts, SeedOptions, Cluster])
