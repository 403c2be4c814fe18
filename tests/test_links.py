"""Every relative link in the Markdown pages points to an existing file and heading, so it also works on a code host.

The site checks its own links when it is built (tests/site). Pages that exist only on the site can't be linked to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("docs", "src", "benchmarks", "explorer-web", "training", ".github")
CODE = re.compile(r"^(```|::::*).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:href|src)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def pages() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.md"))]
    return [*sorted(ROOT.glob("*.md")), *(path for path in found if "node_modules" not in path.parts)]


def links_of(text: str) -> Iterator[str]:
    """What a page leads to within the repository; code is none of it."""
    for in_markdown, in_html in LINK.findall(CODE.sub("", text)):
        if "://" not in (link := in_markdown or in_html):
            yield link


def anchors_of(text: str) -> set[str]:
    """The headings' names as forges and the site make them."""
    plain = [re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in HEADING.findall(text)]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_to_what_is_in_the_repository(page: Path) -> None:
    for link in links_of(page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / unquote(name) if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target.read_text(encoding="utf-8")), link


def test_links_are_found_and_code_is_none() -> None:
    text = 'A [link](one.md#two), <a href="three.md">another</a>.\n```\n[no](link.md)\n```\n`[nor](this.md)`\n'
    assert list(links_of(text)) == ["one.md#two", "three.md"]
    assert anchors_of("## When a head is named?\n# Tᵉᵉ, in short\n") == {"when-a-head-is-named", "tᵉᵉ-in-short"}
