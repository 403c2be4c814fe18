"""Parameters: dataclass fields with a help line, declared once.

The command line builds its options from them, Python validates arguments against them, and answers spell their command
from them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from detoklens.errors import DetokLensError, RangeError
from detoklens.scores.token_ids import id_lists

Owner = TypeVar("Owner", bound=type)
LONGEST_RANGE = 1_000_000  # numbers in one `first-last`
LONGEST_SHOWN = 60  # characters of an invalid value in a message
REQUIRED: Any = ...  # the default of a required parameter
PARAMETERS = "\n\nParameters\n----------"
"""The title of a docstring's section; `documented` adds one, and the command line's help leaves it out."""


@dataclass(frozen=True)
class Parameter:
    """A parameter's help line and how the command line offers it; name, type and default are those of its field.

    `flag` overrides the option's name. `advanced` options are listed last in help; `cli=False` makes a parameter
    Python-only. `read` turns the command line's text into the value and `spell` turns the value
    back; an option that may be `repeated` is read as a list.
    """

    help: str
    flag: str = ""
    metavar: str | None = None
    least: float | None = None
    positional: bool = False
    repeated: bool = False
    advanced: bool = False
    cli: bool = True
    read: Callable[[Any], Any] | None = None
    spell: Callable[[Any], Sequence[str]] | None = None
    name: str = ""
    kind: Any = None
    default: Any = None


_SETTINGS: dict[type, tuple[Parameter, ...]] = {}  # evaluating type hints is slow


def settings_of(owner: type) -> tuple[Parameter, ...]:
    """The parameters of a dataclass, in order; fields without a Parameter are skipped."""
    if owner not in _SETTINGS:
        hints = get_type_hints(owner, include_extras=True)
        _SETTINGS[owner] = tuple(
            replace(
                parameter,
                name=field.name,
                kind=get_args(hint)[0],
                default=() if field.default is MISSING else field.default,
                flag=parameter.flag or f"--{field.name.replace('_', '-')}",
            )
            for field in fields(owner)
            if get_origin(hint := hints[field.name]) is Annotated
            for parameter in get_args(hint)[1:]
            if isinstance(parameter, Parameter)
        )
    return _SETTINGS[owner]


def values_of(owner: Any) -> dict[str, Any]:
    """The values of a dataclass's parameters, by name."""
    return {setting.name: getattr(owner, setting.name) for setting in settings_of(type(owner))}


def documented(owner: Owner) -> Owner:
    """The class with a numpydoc section of its parameters in its docstring, and their plain types in its signature."""
    text = inspect.getdoc(owner) or ""
    if PARAMETERS in text:
        return owner
    settings, plain = {setting.name: setting for setting in settings_of(owner)}, inspect.signature(owner)
    lines = (f"{name}\n    {settings[name].help}" for name in plain.parameters if name in settings)
    owner.__doc__ = "\n".join([text + PARAMETERS, *lines])
    shown = [
        each.replace(annotation=settings[name].kind) if name in settings else each
        for name, each in plain.parameters.items()
    ]
    owner.__signature__ = plain.replace(parameters=shown)  # type: ignore[attr-defined]
    return owner


def to_cli_args(owner: Any) -> list[str]:
    """The command-line arguments for all parameters that differ from their defaults, positional ones first."""
    words: list[str] = []
    for setting in sorted(settings_of(type(owner)), key=lambda setting: not setting.positional):
        value = getattr(owner, setting.name)
        if value == setting.default:
            continue
        if setting.spell is not None:
            words += setting.spell(value)
        elif isinstance(value, bool):
            words.append(setting.flag.split("/")[0 if value else -1])
        else:
            flag = [] if setting.positional else [setting.flag]
            words += [word for each in (value if isinstance(value, tuple) else [value]) for word in (*flag, str(each))]
    return words


SIMPLE: dict[Any, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "text"),
    Path: (str | Path, "a path"),
    NoneType: (NoneType, "None"),
}
"""What is accepted for a type, and the type in words."""


def choices_of(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a union; for any other type, the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


class Checked:
    """A dataclass that checks its parameters when it is made."""

    def __post_init__(self) -> None:
        """Refuse values of a wrong type or size; lists become tuples, so that a question is immutable."""
        for setting in settings_of(type(self)):
            name, value = setting.name, getattr(self, setting.name)
            try:
                found = _converted(setting.kind, value)
            except TypeError as error:
                accepted = " or ".join(dict.fromkeys(map(_described, choices_of(setting.kind))))
                given = repr(value).replace("\n", " ")
                given = given if len(given) <= LONGEST_SHOWN else f"{given[:LONGEST_SHOWN]}…"
                raise RangeError(f"{type(self).__name__}({name}={given}): {name} is {accepted}") from error
            least = setting.least
            if least is not None and found is not None and found < least:
                raise RangeError(f"{type(self).__name__}({name}={found}): at least {least:g} is needed")
            object.__setattr__(self, name, found)


def _converted(kind: Any, value: Any) -> Any:
    """The value as the first type that fits, a single value as a sequence of one; TypeError if none fits."""
    choices = choices_of(kind)
    if len(choices) > 1:
        for choice in choices:
            with suppress(TypeError):
                return _converted(choice, value)
        raise TypeError
    if get_origin(kind) is Sequence:
        value = _as_one_list(value)
        several = not isinstance(value, str | bytes | Mapping) and isinstance(value, Iterable)
        return tuple(_converted(get_args(kind)[0], each) for each in (value if several else [value]))
    if get_origin(kind) is Literal:
        fits = type(value) is str and value in get_args(kind)
    else:
        accepted = SIMPLE[kind][0] if kind in SIMPLE else kind
        value = value.item() if getattr(value, "ndim", None) == 0 else value  # a number of numpy or torch
        fits = isinstance(value, accepted) and not (kind in (int, float) and isinstance(value, bool))
    if not fits:
        raise TypeError
    return kind(value) if kind in (int, float, Path) else value


def _as_one_list(value: Any) -> Any:
    """An array, a tensor, a list of one list, or what a tokenizer returns for one text, as a list."""
    if hasattr(value, "ids") or (isinstance(value, Mapping) and "input_ids" in value):
        rows = id_lists(value)
        return rows[0].tolist() if len(rows) == 1 else value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        return value[0]
    if getattr(value, "ndim", 0) not in (1, 2) or not hasattr(value, "tolist"):
        return value
    return (value[0] if value.ndim == 2 and len(value) == 1 else value).tolist()


def _described(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, get_args(kind)))
    if get_origin(kind) is Sequence:
        return "a list, each " + " or ".join(map(_described, choices_of(get_args(kind)[0])))
    return SIMPLE[kind][1] if kind in SIMPLE else str(kind)


def whole_numbers(what: str) -> Callable[[str], tuple[int, ...]]:
    """A reader of `0,7` or `0-3,7`."""

    def read(text: str) -> tuple[int, ...]:
        numbers: list[int] = []
        for part in text.split(","):
            found = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part.strip())
            if not found:
                raise ValueError(f"{text!r} is not a list of {what}; write e.g. 0,7 or 0-3")
            first, last = int(found[1]), int(found[2] or found[1])
            if not 0 <= last - first < LONGEST_RANGE:
                raise ValueError(f"{part.strip()} is reversed or too long; write e.g. 0-3")
            numbers.extend(range(first, last + 1))
        return tuple(numbers)

    return read


def number_ranges(numbers: Iterable[int]) -> str:
    """`0-3,7` for 0, 1, 2, 3, 7; `whole_numbers` reads it back in the same order."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def read_text(path: Path, wanted: str) -> str:
    """The text of a small UTF-8 file."""
    if not path.is_file():
        raise DetokLensError(f"{path}: no such file; name {wanted}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DetokLensError(f"{path}: not UTF-8 at byte {error.start}; name {wanted}, as UTF-8") from error


def comma_separated(flag: str) -> Callable[[Iterable[int]], list[str]]:
    """Write several numbers as one argument: `--heads 0,7`."""
    return lambda numbers: [flag, ",".join(map(str, numbers))]


Heads = Annotated[
    Sequence[int] | None,
    Parameter(
        "Only these heads, from 0. Default: all.",
        metavar="0,7",
        read=whole_numbers("heads"),
        spell=comma_separated("--heads"),
    ),
]
QUERY_POSITIONS = Parameter(
    "Query positions, from 0. Default: about 1/20, 1/2 and nearly all of the model's length.",
    metavar="50,500,1000",
    read=whole_numbers("query positions"),
    spell=comma_separated("--query-positions"),
)
QueryPositions = Annotated[Sequence[int] | None, QUERY_POSITIONS]
Centred = Annotated[
    bool, Parameter("Subtract each key's mean over all query tokens before ranking keys.", advanced=True)
]

Scale = Annotated[
    Literal["mean", "published", "bare"] | int,
    Parameter(
        "σ of a token: mean over positions (published: rounded to float16 first, as in the paper's code), of the bare "
        "embedding, or at one position.",
        cli=False,
    ),
]
