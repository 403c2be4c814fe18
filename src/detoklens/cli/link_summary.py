"""The strongest links of a text, for eyes: who attends to whom, how much, and which term makes it so."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detoklens.cli.output import shown

if TYPE_CHECKING:
    import polars as pl
    from rich.text import Text

PIPE_WIDTH, WIDE = 120, 100  # characters
COLOURS = {"ee": "green", "pp": "cyan", "pe": "blue", "ep": "magenta", "e": "yellow", "p": "red"}
READINGS = {
    "ee": "token compares itself with token",
    "pp": "position with position",
    "pe": "position looks for token",
    "ep": "token looks for position",
    "e": "token asserts itself",
    "p": "position asserts itself",
}


@dataclass(frozen=True)
class Room:
    """How much of a line each part may take, in characters; lifts by number."""

    token: int
    bar: int
    lifts: int


def room_of(width: int) -> Room:
    """A wide terminal shows longer tokens and more lifts; 80 characters are enough for the rest."""
    return Room(token=16, bar=8, lifts=3) if width >= WIDE else Room(token=10, bar=4, lifts=2)


def print_links(links: pl.DataFrame, terms: list[str], title: str) -> None:
    """One line per link, the term that explains it in its colour; below, what the terms stand for."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    room = room_of(console.width)
    table = Table(title=Text(title), box=SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    for name in ("head", "token", "attends to", "attention", "term", "without", "lifts, in nats"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("head", "without") else "left")
    previous = None
    for link in links.iter_rows(named=True):
        if previous not in (None, link["head"]):
            table.add_section()
        table.add_row(Text(f"L0H{link['head']}" if link["head"] != previous else ""), *_cells(link, terms, room))
        previous = link["head"]
    console.print(table)
    console.print(_legend(terms))


def _cells(link: dict[str, Any], terms: list[str], room: Room) -> list[Text]:
    from rich.text import Text

    term, attention = link["term"], link["attention"]
    colour = COLOURS.get(term or "", "")
    return [
        _token(link["query_text"], link["query_position"], room),
        _token(link["key_text"], link["key_position"], room),
        Text(f"{attention:.2f} ").append("█" * round(attention * room.bar), style=colour),
        Text(term or "–", style=f"bold {colour}"),
        Text("–" if term is None else f"{link['without_term']:.2f}"),
        _lifts({name: link[f"lift_{name}"] for name in terms}, room),
    ]


def _token(text: str, position: int, room: Room) -> Text:
    """A token in quotes with what cannot be seen spelled out, cut where it is long, and its place in the text."""
    from rich.text import Text

    quoted = shown(text)
    return Text(quoted if len(quoted) <= room.token else quoted[: room.token - 1] + "…").append(f" {position}", "dim")


def _lifts(lifts: dict[str, float], room: Room) -> Text:
    """The largest lifts, up or down."""
    from rich.text import Text

    largest = sorted(lifts, key=lambda name: -abs(lifts[name]))[: room.lifts]
    return Text("  ").join(Text(f"{name} {lifts[name]:+.1f}", style=COLOURS.get(name, "")) for name in largest)


def _legend(terms: list[str]) -> Text:
    from rich.text import Text

    line = Text("term: the one whose removal lowers the link most. ", style="dim")
    for name in terms:
        line.append(name, style=COLOURS.get(name, "")).append(f" {READINGS.get(name, '')}; ", style="dim")
    line.right_crop(2)
    return line
