"""`detoklens compare`: several checkpoints in one report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens import demo
from detoklens.cli.adapter import Cluster, Corpus, SeedOptions, command_of
from detoklens.cli.output import chosen_width, say
from detoklens.cli.progress import step_list
from detoklens.engines import open_engine
from detoklens.errors import CountsError, DetokLensError, printable
from detoklens.loading import expand_revisions, load
from detoklens.questions.parameters import Parameter
from detoklens.questions.study import Study, Work, fitting_counts
from detoklens.questions.texts import Texts
from detoklens.report.comparison import KIND, make_comparison, models_folder
from detoklens.report.folder import Listener, ask_all, claim, refuse_foreign
from detoklens.wording import plural

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts
    from detoklens.scores.layer import Layer


@dataclass(frozen=True)
class Compared:
    """Options of a comparison."""

    models: Annotated[
        Sequence[str],
        Parameter(
            "Folders or hub ids, in display order; LABEL=MODEL names one, MODEL@FIRST..LAST:N takes N of a hub model's "
            "revisions. Default: the demo model's training snapshots.",
            metavar="[MODEL]...",
            positional=True,
        ),
    ] = ()
    out: Annotated[Path, Parameter("Output folder.", metavar="DIR")] = Path("comparison")
    figure_width: Annotated[
        str, Parameter("Figure width: column is 3.3 inches, page is 7.", metavar="column|page|INCHES")
    ] = "page"


def compare(made: Compared, corpus: Corpus, texts: Texts, chance: SeedOptions, work: Cluster) -> None:
    """Compare several checkpoints in one report.

    For example sizes, training steps or fine-tunes. Counts are used for the models whose tokenizer made them; a note
    lists the others. Run the same command again to continue an interrupted comparison. --engine ray runs one checkpoint
    per task, on one core each; all machines must see the models and the output folder.

    Example: detoklens compare small=gpt2 medium=gpt2-medium --counts counts --out comparison

    Example: detoklens compare EleutherAI/pythia-70m@step1000..step143000:8 --counts hf:someone/pile-counts
    """
    refuse_foreign(made.out, KIND)
    width = chosen_width(made.figure_width)
    named = labelled_models(list(made.models) or [*demo.snapshots(), demo.NAME])
    checkpoints = [
        Checkpoint(label, model, corpus.counts, texts, chance.seed, made.out.absolute())
        for label, model in named.items()
    ]
    studies = {each.label: each.study(work) for each in checkpoints}
    with step_list() as listener:
        if work.engine == "ray":
            claim(made.out, KIND)
            _ask_on_cluster(checkpoints, work, listener)
        with open_engine(workers=work.workers if work.engine == "local" else None) as engine:
            page = make_comparison(studies, made.out, width, listener, engine)
    typer.echo(page)


def labelled_models(models: list[str]) -> dict[str, str]:
    """Models by label: LABEL=MODEL, or the name without the folders that all models share."""
    given = []
    for label, named_models in map(_label_and_model, models):
        several = expand_revisions(named_models)
        in_range = label is not None and several != [named_models]
        given += [(f"{label}@{each.rpartition('@')[2]}" if in_range else label, each) for each in several]
    if len(given) < 2:
        raise DetokLensError(f"{plural(len(given), 'model')} to compare; name at least two")
    shared = _shared_folders([model for label, model in given if label is None])
    named = {printable(label or model[len(shared) :]): model for label, model in given}
    if len(named) < len(given):
        raise DetokLensError("two models have the same label; distinguish them with LABEL=MODEL")
    return named


def _label_and_model(text: str) -> tuple[str | None, str]:
    label, equals, model = text.partition("=")
    return (label, model) if equals and label and model and not Path(text).exists() else (None, text.rstrip("/"))


def _shared_folders(models: list[str]) -> str:
    """The folders that all names start with."""
    folders = [model.split("/")[:-1] for model in models]
    shared = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "".join(f"{part}/" for part in shared) if len(models) > 1 else ""


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
        return Study(layer, _counts_that_fit(self.counts, layer), self.texts, self.seed, work, [self.model])


def ask_checkpoint(checkpoint: Checkpoint) -> str:
    """Answer all compared questions for one checkpoint on one core, into the comparison's folder."""
    ask_all(checkpoint.study(Work(1)), models_folder(checkpoint.out, checkpoint.label), Listener(), True)
    return checkpoint.label


def _ask_on_cluster(checkpoints: Sequence[Checkpoint], work: Cluster, listener: Listener) -> None:
    """Run one Ray task per checkpoint; the comparison then reads their answers."""
    title = f"Answer for {len(checkpoints)} checkpoints on Ray"
    with listener.step(title) as watch, open_engine(work.engine, work.workers, work.ray_address) as engine:
        for done, _ in enumerate(engine.run(ask_checkpoint, checkpoints), 1):
            if watch is not None:
                watch(done, len(checkpoints))


def _counts_that_fit(folder: str | None, layer: Layer) -> Counts | None:
    """The counts, or None where another tokenizer made them."""
    try:
        return fitting_counts(folder, layer)
    except CountsError as error:
        if folder is None or not (folder.startswith("hf:") or (Path(folder) / "manifest.json").is_file()):
            raise
        say(f"{layer.name}: without counts: {error}")
        return None


command = command_of(compare, [Compared, Corpus, Texts, SeedOptions, Cluster])
