"""Build a question's command: options from its fields, help from its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from detoklens.cli.completion import completion_of
from detoklens.cli.output import Output, say, show_answer
from detoklens.demo import NAME as DEMO
from detoklens.loading import load
from detoklens.questions.options import OnText
from detoklens.questions.parameters import PARAMETERS, REQUIRED, Parameter, Setting, settings_of
from detoklens.questions.study import Study, Work, fitting_counts
from detoklens.questions.texts import Texts

if TYPE_CHECKING:
    from detoklens.questions.base import Question

ADVANCED = "Advanced options"


@dataclass(frozen=True)
class Model:
    """Which model is analysed."""

    model: Annotated[
        str,
        Parameter(
            "A folder in Hugging Face layout, a GGUF file, a hub id such as gpt2 or gpt2@REVISION, or demo (bundled).",
            metavar="MODEL",
            positional=True,
        ),
    ] = DEMO
    revision: Annotated[str | None, Parameter("Branch, tag or commit of a hub model.", advanced=True)] = None


@dataclass(frozen=True)
class AnalysedModel(Model):
    """A model whose tokens are analysed."""

    tokenizer: Annotated[
        str | None,
        Parameter(
            "Tokenizer of a model whose own is missing or not read: a folder, a tokenizer.json or a hub id.",
            metavar="TOKENIZER",
            advanced=True,
        ),
    ] = None
    all_tokens: Annotated[
        bool,
        Parameter(
            "Include special tokens, and tokens that training barely changed, in means over the vocabulary, "
            "candidates and rankings.",
            advanced=True,
        ),
    ] = False


@dataclass(frozen=True)
class Corpus:
    """Which corpus counts are used."""

    counts: Annotated[
        str | None,
        Parameter(
            "Corpus counts: a folder written by `detoklens count`, hf:USER/NAME (a dataset on the hub), or demo.",
            metavar="COUNTS",
        ),
    ] = None


@dataclass(frozen=True)
class Cluster(Work):
    """Workers on this machine or on a Ray cluster."""

    workers: Annotated[int | None, Parameter("Number of workers. Default: one per core.", least=1)] = None
    engine: Annotated[
        Literal["local", "ray"], Parameter("Run on this machine or on Ray.", metavar="local|ray", advanced=True)
    ] = "local"
    ray_address: Annotated[
        str | None, Parameter("Address of a running Ray cluster. Default: start one.", advanced=True)
    ] = None


@dataclass(frozen=True)
class SeedOptions:
    """The random seed."""

    seed: Annotated[int, Parameter("Random seed.", least=0)] = 0


def question_command(question: type[Question]) -> Callable[..., None]:
    """The command of a question, with its options and those of inputs and output."""
    owners = owners_of(question)

    def run(*parts: Any) -> None:
        made = dict(zip(owners, parts, strict=True))
        made[Output].check(made[question])
        note_ignored_inputs(made[question], made.get(Corpus), made.get(Texts))
        study = open_study(made[AnalysedModel], *(made.get(owner) for owner in (Corpus, Texts, SeedOptions, Work)))
        show_answer(study.ask(made[question], made[Output].out), made[Output])

    return command_of(run, owners, question)


def note_ignored_inputs(question: Question, corpus: Corpus | None, texts: Texts | None) -> None:
    """Say which inputs are ignored with these parameters."""
    if corpus is not None and corpus.counts is not None and not question.depends_on("counts"):
        say("--counts is ignored with these options")
    if texts is not None and texts.text and not question.depends_on("text"):
        say("--text is ignored with these options")


def command_of(
    run: Callable[..., None], owners: Mapping[type, Sequence[Setting]] | Sequence[type], described: Any = None
) -> Callable[..., None]:
    """A function with a parameter per setting of some dataclasses; it calls `run` with one object of each."""
    settings = owners if isinstance(owners, Mapping) else {owner: settings_of(owner) for owner in owners}

    def command(**given: Any) -> None:
        run(*(owner(**read_settings(of_owner, given)) for owner, of_owner in settings.items()))

    flat = [setting for of_owner in settings.values() for setting in of_owner if setting.parameter.cli]
    return with_parameters(command, flat, described or run)


def owners_of(question: type[Question]) -> dict[type, list[Setting]]:
    """The dataclasses that a command's options come from, with their settings."""
    owners: dict[type, list[Setting]] = {each: list(settings_of(each)) for each in (AnalysedModel, question)}
    if question.takes("counts"):
        only_a_mean = issubclass(question, OnText)  # there, counts can only weight the mean that is split off
        owners[Corpus] = [as_advanced(s) if only_a_mean else s for s in settings_of(Corpus)]
    if question.takes("text"):
        owners[Texts] = [s if "text" in question.needs else as_advanced(s) for s in settings_of(Texts)]
    if question.takes("seed") or question.takes("text"):
        owners[SeedOptions] = list(settings_of(SeedOptions))
    if question.parallel:
        owners[Work] = list(settings_of(Work))
    owners[Output] = output_settings(question)
    return owners


def as_advanced(setting: Setting) -> Setting:
    """The same setting, listed under the advanced options."""
    return replace(setting, parameter=replace(setting.parameter, advanced=True))


def output_settings(question: type[Question]) -> list[Setting]:
    """The output settings of a question, with its tables and figures as choices."""
    names = tuple(schema.name for schema in question.tables)
    figures = tuple(spec.name for spec in question.figures)
    kinds = {"table": names if len(names) > 1 else (), "by": tuple(question.by), "figure_name": figures}
    settings = []
    for setting in settings_of(Output):
        choices = kinds.get(setting.name)
        if setting.name in ("figure", "force", "width") and not figures:
            continue
        if choices is None:
            settings.append(setting)
        elif choices:
            settings.append(replace(setting, kind=Literal[choices] | None))
    return settings


def with_parameters(command: Callable[..., None], settings: Sequence[Setting], described: Any) -> Callable[..., None]:
    """Give a function the signature that typer reads and the docstring of `described`."""
    ordered = sorted(settings, key=lambda setting: not setting.parameter.positional)
    parameters = [
        inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=default_of(setting), annotation=kind)
        for setting in ordered
        for kind in [annotation_of(setting)]
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {}
    command.__doc__ = (inspect.getdoc(described) or "").partition(PARAMETERS)[0]  # its options describe them
    return command


def default_of(setting: Setting) -> Any:
    """The default as the command line shows it."""
    default = inspect.Parameter.empty if setting.default is REQUIRED else setting.default
    if isinstance(default, tuple):
        return None
    written = setting.parameter.read is not None and default is not None and setting.default is not REQUIRED
    return str(default) if written else default


def annotation_of(setting: Setting) -> Any:
    """The type that typer reads, with the option's name and help."""
    parameter = setting.parameter
    kind = _typed(setting)
    hide = default_of(setting) in (None, inspect.Parameter.empty)
    least = {"min": parameter.least} if parameter.least is not None and kind in (int, float, int | None) else {}
    if parameter.positional:
        look: dict[str, Any] = {"metavar": parameter.metavar, "help": parameter.help, "show_default": not hide}
        return Annotated[kind, typer.Argument(**look, autocompletion=completion_of(setting))]
    return Annotated[
        kind,
        typer.Option(
            setting.flag,
            metavar=parameter.metavar,
            help=parameter.help,
            rich_help_panel=ADVANCED if parameter.advanced else None,
            autocompletion=completion_of(setting),
            show_default=not hide and not isinstance(setting.default, bool),
            **least,  # type: ignore[arg-type]
        ),
    ]


def _typed(setting: Setting) -> Any:
    """The type that typer converts to: text if the setting has its own reader, a list if it may be repeated."""
    if setting.parameter.read is not None and not setting.parameter.repeated:
        return str | None if setting.default is None else str
    sequence = next(
        (choice for choice in (setting.kind, *get_args(setting.kind)) if get_origin(choice) is Sequence), None
    )
    if sequence is not None:
        several = list[int] if get_args(sequence) == (int,) else list[str]
        return several if setting.default is REQUIRED else several | None
    return setting.kind


def read_settings(settings: Iterable[Setting], given: dict[str, Any]) -> dict[str, Any]:
    """The values of settings from the command line's arguments."""
    values: dict[str, Any] = {}
    for setting in settings:
        value = given.get(setting.name)
        if value is None:
            value = setting.default
        elif setting.parameter.read is not None:
            try:
                value = setting.parameter.read(value)
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint=f"'{setting.flag}'") from error
        values[setting.name] = value
    return values


def open_study(
    model: AnalysedModel, corpus: Corpus | None, texts: Texts | None, chance: SeedOptions | None, work: Work | None
) -> Study:
    """The study that the command line describes."""
    layer = load(model.model, revision=model.revision, tokenizer=model.tokenizer, all_tokens=model.all_tokens)
    counts = fitting_counts(corpus.counts, layer) if corpus is not None else None
    words = [model.model, *(["--revision", model.revision] if model.revision else [])]
    words += ["--tokenizer", model.tokenizer] if model.tokenizer else []
    words += ["--all-tokens"] * model.all_tokens
    return Study(layer, counts, texts, chance.seed if chance else 0, work, words)
