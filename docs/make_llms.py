"""Write llms.txt and schema.json of the site: the pages, questions and schemas for programs that read text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import detoklens as dl
from detoklens.questions.catalogue import QUESTIONS, TOPICS

CONTENTS = re.compile(r"```\{toctree\}\n(?::hidden:\n)?:caption: (?P<caption>.+)\n\n(?P<pages>(?:.+\n)+)```")
HEADER = """# detoklens

> detoklens reads a language model's first attention layer off the weights: exact score terms of tokens and positions,
> which heads merge subword tokens into words (detokenization), verdicts with controls. A Python package and a command
> line; torch is not needed.

Start with `detoklens partners demo ion` or `dl.study("demo").ask(dl.Auroc(pieces=True)).sentence`; `demo` is a bundled
model. In a terminal, `detoklens QUESTION MODEL --format json` prints one JSON object, and `detoklens schema QUESTION`
its JSON schema.
"""


def write_llms(source: Path, folder: Path) -> None:
    """Write both files into a folder, from the prepared pages."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.json").write_text(json.dumps(dl.schema(), indent=1, ensure_ascii=False), encoding="utf-8")
    (folder / "llms.txt").write_text(llms_text(source), encoding="utf-8")


def llms_text(source: Path) -> str:
    """The list of pages by chapter, and of questions by topic."""
    parts = [HEADER]
    for chapter in CONTENTS.finditer((source / "index.md").read_text(encoding="utf-8")):
        pages = [page for name in chapter["pages"].split() for page in _pages(source, name)]
        parts.append("\n".join([f"## {chapter['caption']}", "", *pages, ""]))
    for topic, names in TOPICS.items():
        lines = [f"- [{name}](tables.html#{name}): {QUESTIONS.listings[name].summary}" for name in names]
        parts.append("\n".join([f"## Questions: {topic}", "", *lines, ""]))
    parts.append("## Schemas\n\n- [schema.json](schema.json): the parameters and tables of every question\n")
    return "\n".join(parts)


def _pages(source: Path, name: str) -> list[str]:
    """A page's line, and those of the pages that its own table of contents names."""
    path = source / f"{name}.md"
    if not path.is_file():  # a notebook
        return [f"- [{name.rpartition('/')[2].replace('-', ' ')}]({name}.html)"]
    text = path.read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    prose = [part for part in text.split("\n\n") if re.match(r"[A-Za-z*`]", part) and not part.startswith("```")]
    first = re.match(r".+?\S[.:](?=\s|$)", " ".join(prose[0].split())) if prose else None
    said = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", first[0]).rstrip(".:") if first else ""
    line = f"- [{title[1] if title else name}]({name}.html)" + (f": {said}" if said else "")
    inside = re.search(r"```\{toctree\}\n(?::.+\n)*\n?((?:[\w/-]+\n)+)```", text)
    folder = name.rpartition("/")[0]
    below = inside[1].split() if inside else []
    return [line, *(each for page in below for each in _pages(source, f"{folder}/{page}" if folder else page))]
