"""Save figures as SVG, PDF (both with text as text) and PNG, atomically.

The metadata of each file says that detoklens drew it, so files from elsewhere are never overwritten.
"""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from jaxtyping import Float

from detoklens.figures import theme
from detoklens.writing import make_folder, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

XML_DECLARATION = '<?xml version="1.0" encoding="utf-8"?>\n'
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_DROPPED = {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}
_URL = re.compile(r"url\(#([^)]*)\)")
MANY, LONG = 40, 200  # points from which a path is written as steps, and from which a line in it is thinned
CURVED = frozenset("CQAHVSTmlhvcsqta")  # commands other than straight lines to a place
COLUMN = 0.6  # width in points: one pixel of a page, less than the thickness of a line
_BEYOND_HUNDREDTHS = re.compile(r"(\.\d\d)\d+")
_DROPPED_PROPERTIES = {"-inkscape-stroke"}
RAISED, RAISED_SIZE = 0.36, 0.8  # superscripts: height in em of the text around them, and size relative to it

MAKER = ("data-made-by", "detoklens")
"""The attribute that marks an SVG as drawn by detoklens."""

ElementTree.register_namespace("", _SVG)
ElementTree.register_namespace("xlink", _XLINK)


def svg_text(figure: Figure, name: str, title: str = "", description: str = "") -> str:
    """The figure as an <svg> element for a page, with ink in the page's text colour."""
    return for_page(svg_file_text(figure, name, title, description))


def for_page(svg_file: str) -> str:
    """An SVG file as an element of a page, with ink in the page's text colour."""
    return svg_file.removeprefix(XML_DECLARATION).strip().replace(f'"{theme.INK}"', '"currentColor"')


def svg_file_text(figure: Figure, name: str, title: str = "", description: str = "") -> str:
    """matplotlib's SVG as a file, without metadata, with attributes instead of styles and unique ids."""
    drawn = BytesIO()
    with theme.themed():
        figure.savefig(drawn, format="svg", dpi=theme.DPI, metadata={"Date": None, "Creator": None})
    # written by matplotlib just now: it has no entities or external references
    root = ElementTree.fromstring(drawn.getvalue())
    prefix = re.sub(r"[^A-Za-z0-9_-]", "-", name) + "-"
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in _DROPPED]:
            parent.remove(child)
    for element in list(root.iter()):
        _clean(element, prefix)
        _raise_symbols(element)
    root.set("stroke-linejoin", "round")
    _describe(root, prefix, title, description)
    return f"{XML_DECLARATION}{ElementTree.tostring(root, encoding='unicode')}\n"


def _clean(element: Element, prefix: str) -> None:
    for declaration in element.attrib.pop("style", "").split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name and name not in _DROPPED_PROPERTIES:
            element.set(name, value)
    for name, value in element.attrib.items():
        if name == "id":
            element.set(name, prefix + value)
        elif name in ("href", f"{{{_XLINK}}}href") and value.startswith("#"):
            element.set(name, f"#{prefix}{value[1:]}")
        elif name == "d":
            element.set(name, _BEYOND_HUNDREDTHS.sub(r"\1", compact(value)).replace("  ", " "))
        elif "url(#" in value:
            element.set(name, _URL.sub(rf"url(#{prefix}\1)", value))


def _raise_symbols(text: Element) -> None:
    """Write Tᵉᵉ as T with a raised ee: the font's own superscripts are too small to tell e from p."""
    parts = theme.SYMBOL.split(text.text or "")
    if len(parts) == 1:
        return
    text.text = f"{parts[0]}T"
    for place, letters in enumerate(parts[1::2], 1):
        raised = SubElement(
            text, f"{{{_SVG}}}tspan", {"dy": f"-{RAISED / RAISED_SIZE:.2f}em", "font-size": f"{RAISED_SIZE:.0%}"}
        )
        raised.text = letters.translate(theme.LETTERS)
        rest = parts[2 * place] + ("T" if 2 * place + 1 < len(parts) else "")
        if rest:
            SubElement(text, f"{{{_SVG}}}tspan", {"dy": f"{RAISED}em"}).text = rest


def compact(path: str) -> str:
    """Thin a path of many points and write it as steps in tenths of a point; short and curved paths are unchanged."""
    if path.count("L") < MANY or CURVED & set(path):
        return path
    lines = []
    for line in path.split("M")[1:]:
        points, end, _ = line.partition("z")
        places = np.array(points.replace("L", " ").split(), float).reshape(-1, 2)
        tenths = np.round((places if len(places) < LONG else thinned(places)) * 10).astype(int)
        start, *steps = (" ".join(f"{step / 10:g}" for step in row) for row in np.diff(tenths, axis=0, prepend=0))
        lines.append(f"M{start}l{' '.join(steps)}{end}".replace(" 0.", " .").replace("-0.", "-.").replace(" -", "-"))
    return "".join(lines)


def thinned(places: Float[np.ndarray, "point 2"]) -> Float[np.ndarray, "kept 2"]:
    """The first, lowest, highest and last point of each column that a line passes, in order."""
    columns = np.floor(places[:, 0] / COLUMN)
    kept: list[int] = []
    for column in np.split(np.arange(len(places)), np.flatnonzero(np.diff(columns)) + 1):
        heights = places[column, 1]
        kept += sorted({column[0], column[heights.argmin()], column[heights.argmax()], column[-1]})
    return places[kept]


def _describe(root: Element, prefix: str, title: str, description: str) -> None:
    root.set(*MAKER)
    root.set("role", "img")
    root.set("id", prefix.rstrip("-"))
    root.set("aria-labelledby", " ".join(f"{prefix}{part}" for part in ("title", "desc")))
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = Element(f"{{{_SVG}}}{tag}", {"id": f"{prefix}{tag}"})
        element.text = text
        root.insert(place, element)


DRAWN_BY = "detoklens"
MARKS = {
    ".svg": '{}="{}"'.format(*MAKER).encode(),
    ".pdf": f"/Creator ({DRAWN_BY})".encode(),
    ".png": f"tEXtSoftware\0{DRAWN_BY}".encode(),
}
"""What marks a file as drawn by detoklens, by extension."""


def is_ours(path: Path) -> bool:
    """Whether detoklens drew this file."""
    return path.is_file() and MARKS[path.suffix.lower()] in path.read_bytes()


def save(figure: Figure, path: Path, *, title: str = "", description: str = "") -> None:
    """Write a figure to exactly this path, in the format of its ending; the same figure always gives the same bytes."""
    content = file_content(figure, path.suffix[1:].lower(), path.stem, title=title, description=description)
    make_folder(path.parent)
    write_whole(path, content)


def file_content(figure: Figure, extension: str, name: str, *, title: str = "", description: str = "") -> bytes:
    """The figure as the content of a file of this format."""
    if extension == "svg":
        return svg_file_text(figure, name, title, description).encode()
    more: dict[str, Any] = {"metadata": {"Title": title, "Software": DRAWN_BY}, "facecolor": "white"}
    if extension == "pdf":
        more = {"metadata": {"Title": title, "CreationDate": None, "Creator": DRAWN_BY, "Producer": None}}
    drawn = BytesIO()
    with theme.themed():
        figure.savefig(drawn, format=extension, dpi=theme.DPI, **more)
    return drawn.getvalue()
