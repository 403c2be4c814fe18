"""From a report's content to one HTML file that asks nothing of anybody.

Jinja escapes every text; data for the script goes through JSON with `<`, `>` and `&` as escapes, so that no token can
end the element it stands in. The content security policy allows this one script and this one style sheet, by their
hashes, pictures inside the file, and nothing else: no request can leave the page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from detoklens.errors import printable
from detoklens.report.content import Cell, Content
from detoklens.version import __version__


def render_page(content: Content) -> str:
    """The report as one self-contained HTML document."""
    style, script = _asset("page.css"), _asset("page.js")
    environment = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"shown": shown, "data": lambda value: Markup(script_json(value))}
    page = environment.get_template("page.html").render(
        content=content,
        version=__version__,
        policy=content_security_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        partners=asdict(content.partners) if content.partners else None,
        svg=Markup,
    )
    return printable(page)  # paths that are no UTF-8 can be anywhere in it


def content_security_policy(style: str, script: str) -> str:
    """Only this style, this script and pictures inside the file."""
    return (
        f"default-src 'none'; style-src '{_source_hash(style)}'; script-src '{_source_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element whatever its texts are."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shown(value: Cell) -> str:
    """A cell for eyes."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}".replace("-", "−")
        case _:
            return str(value)


def _source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@cache
def _asset(name: str) -> str:
    return files("detoklens.report").joinpath("assets", name).read_text(encoding="utf-8")
