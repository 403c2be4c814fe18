"""Build a question's command: options from its fields, help from its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from detoklens.cli.completion import completion_of
from detoklens.cli.output import Output, say, show_answer
from detoklens.demo import NAME as DEMO
from detoklens.errors import DetokLensError
from detoklens.loading import load
from detoklens.questions.base import Question
from detoklens.questions.options import TextQuestion
from detoklens.questions.parameters import (
    PARAMETERS,
    REQUIRED,
    Parameter,
    choices_of,
    settings_of,
    to_cli_args,
)
from detoklens.questions.study import Study, Work, fitting_counts
from detoklens.questions.texts import Texts

ADVANCED = "Advanced options"
Memory = Annotated[
    str | None, Parameter("Memory limit for all workers together. Default: a quarter of RAM.", metavar="SIZE")
]
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def parse_size(text: str, option: str) -> int:
    """Return the bytes of `500MB`, `4 GiB`, `2g` or a plain number."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise DetokLensError(f"{option} {text!r} is not a size; pass e.g. 500MB or 4GB")
    number, unit, is_binary = match.groups()
    base = UNITS[unit.lower()]
    if is_binary:
        base = 2 ** (10 * list(UNITS).index(unit.lower()))
    size = int(float(number) * base)
    if size < 1:
        raise DetokLensError(f"{option} {text!r} is less than a byte; pass e.g. 500MB or 4GB")
    return size


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
            "Tokenizer of a model that has no readable one: a folder, a tokenizer.json or a hub id.",
            metavar="TOKENIZER",
            advanced=True,
        ),
    ] = None
    all_tokens: Annotated[
        bool,
        Parameter(
            "Include special tokens, and tokens that training barely changed or that no text contains, in means over "
            "the vocabulary, candidates and rankings.",
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
    engine: Annotated[Literal["local", "ray"], Parameter("Run on this machine or on Ray.", advanced=True)] = "local"
    ray_address: Annotated[
        str | None, Parameter("Address of a running Ray cluster. Default: start one.", advanced=True)
    ] = None


@dataclass(frozen=True)
class SeedOptions:
    """The random seed."""

    seed: Annotated[int, Parameter("Random seed.", least=0)] = 0


def question_command(question: type[Question]) -> Callable[..., None]:
    """The command of a question, with its options and those of inputs and output."""

    def run(*options: Any) -> None:
        given = dict(zip(owners, options, strict=True))
        asked, output, corpus, texts = given[question], given[Output], given.get(Corpus), given.get(Texts)
        if corpus is not None and corpus.counts is not None and not asked.depends_on("counts"):
            say("--counts is ignored with these options")
        if texts is not None and texts.text and not asked.depends_on("text"):
            say("--text is ignored with these options")
        study = open_study(given[AnalysedModel], corpus, texts, given.get(SeedOptions), given.get(Work))
        show_answer(study.ask(asked, output.out), output)

    owners = option_owners(question)
    return command_of(run, owners, question)


def option_owners(question: type[Question]) -> dict[type, Sequence[Parameter]]:
    """The dataclasses that a command's options come from, with their settings."""
    owners: dict[type, Sequence[Parameter]] = {each: settings_of(each) for each in (AnalysedModel, question)}
    if question.takes("counts"):  # on text, counts can only weight the mean that is split off
        owners[Corpus] = _advanced(Corpus, issubclass(question, TextQuestion))
    if question.takes("text"):
        owners[Texts] = _advanced(Texts, "text" not in question.needs)
    if question.takes("seed") or question.takes("text"):
        owners[SeedOptions] = settings_of(SeedOptions)
    if question.parallel:
        owners[Work] = settings_of(Work)
    figures = tuple(spec.name for spec in question.figures)
    tables = tuple(schema.name for schema in question.tables)
    choices = {"table": tables if len(tables) > 1 else (), "by": tuple(question.by), "figure_name": figures}
    without_use = {name for name, values in choices.items() if not values}
    without_use |= set() if figures else {"figure", "force", "width"}
    owners[Output] = tuple(
        replace(setting, kind=Literal[choices[setting.name]] | None) if setting.name in choices else setting
        for setting in settings_of(Output)
        if setting.name not in without_use
    )
    return owners


def _advanced(owner: type, advanced: bool) -> tuple[Parameter, ...]:
    """The settings of a dataclass, listed under the advanced options if `advanced`."""
    return tuple(replace(setting, advanced=advanced or setting.advanced) for setting in settings_of(owner))


def command_of(
    run: Callable[..., None], owners: Mapping[type, Sequence[Parameter]] | Sequence[type], described: Any = None
) -> Callable[..., None]:
    """A function for typer with a parameter per setting of some dataclasses; it calls `run` with one object of each."""
    settings = owners if isinstance(owners, Mapping) else {owner: settings_of(owner) for owner in owners}

    def command(**given: Any) -> None:
        run(
            *(
                owner(**{setting.name: _value(setting, given.get(setting.name)) for setting in of_owner})
                for owner, of_owner in settings.items()
            )
        )

    offered = [setting for of_owner in settings.values() for setting in of_owner if setting.cli]
    offered.sort(key=lambda setting: not setting.positional)
    command.__signature__ = inspect.Signature([_typer_parameter(each) for each in offered])  # type: ignore[attr-defined]
    command.__annotations__ = {}
    command.__doc__ = (inspect.getdoc(described or run) or "").partition(PARAMETERS)[0]  # its options describe them
    return command


def _value(setting: Parameter, given: Any) -> Any:
    """The value of a setting from the command line's argument."""
    if given is None or setting.read is None:
        return setting.default if given is None else given
    try:
        return setting.read(given)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=f"'{setting.flag}'") from error


def _typer_parameter(setting: Parameter) -> inspect.Parameter:
    """What typer makes an option or argument of.

    It is text if the setting has its own reader, and a list if it may be repeated.
    """
    kind, default = setting.kind, setting.default
    required = default is REQUIRED
    sequences = [choice for choice in choices_of(kind) if get_origin(choice) is Sequence]
    if setting.read is not None and not setting.repeated:
        kind = str | None if default is None else str
        default = default if default is None or required else str(default)
    elif sequences:
        kind = list[int] if get_args(sequences[0]) == (int,) else list[str]
        kind = kind if required else kind | None
    if isinstance(setting.default, tuple):
        default = None
    looks: dict[str, Any] = {"metavar": setting.metavar or _metavar(setting), "help": setting.help}
    looks["autocompletion"] = completion_of(setting)
    shown = not required and default is not None
    if setting.positional:
        option = typer.Argument(show_default=shown, **looks)
    else:
        if setting.least is not None and kind in (int, float, int | None):
            looks["min"] = setting.least
        looks["rich_help_panel"] = ADVANCED if setting.advanced else None
        option = typer.Option(setting.flag, show_default=shown and not isinstance(default, bool), **looks)
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else default,
        annotation=Annotated[kind, option],
    )


def _metavar(setting: Parameter) -> str:
    """How help shows the value of an option: its choices, N or X for a number, else the last word of its name."""
    for choice in choices_of(setting.kind):
        if get_origin(choice) is Literal:
            return "|".join(map(str, get_args(choice)))
        if choice in (int, float):
            return "N" if choice is int else "X"
    return setting.name.rpartition("_")[2].upper()


def open_study(
    model: AnalysedModel,
    corpus: Corpus | None = None,
    texts: Texts | None = None,
    seed: SeedOptions | None = None,
    work: Work | None = None,
) -> Study:
    """The study that the command line describes."""
    layer = load(model.model, revision=model.revision, tokenizer=model.tokenizer, all_tokens=model.all_tokens)
    counts = fitting_counts(corpus.counts, layer) if corpus is not None else None
    words = [model.model, *to_cli_args(replace(model, model=DEMO))]
    return Study(layer, counts, texts, seed.seed if seed else 0, work, words)
