"""Draw every question's figures for the demo model and write the gallery pages.

New questions are included automatically. The figures come from the question's examples, which must cover all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from html import escape
from pathlib import Path

import detoklens as dl
from detoklens.figures.save import svg_text
from detoklens.figures.spec import FigureSpec
from detoklens.questions.answer import Answer, Comparison, side_by_side
from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS

START, END = "demo@0", "demo"
ROTARY = "a small Llama with random weights, to show the form of the figure; it is not a finding"
HOME = ("auroc",)  # the figure on the start page


@dataclass(frozen=True)
class Drawn:
    """A figure and the answer it was drawn from."""

    spec: FigureSpec
    answer: Answer
    models: tuple[str, str] = (START, END)
    remark: str = ""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def question(self) -> Question:
        return self.answer.question

    @property
    def command(self) -> str:
        if isinstance(self.answer, Comparison):
            return f"detoklens compare start={self.models[0]} end={self.models[1]} --out comparison"
        name = "" if next(iter(self.answer.figures)) == self.name else f" --figure-name {self.name}"
        asked = self.answer.command.replace(self.answer.model, self.models[1], 1)
        return f"{asked} --figure {self.name}.svg{name}"

    @property
    def python(self) -> str:
        if isinstance(self.answer, Comparison):
            asked = f'dl.compare({{"start": "{self.models[0]}", "end": "{self.models[1]}"}}, dl.{self.question!r})'
        else:
            asked = f'dl.study("{self.models[1]}").ask(dl.{self.question!r})'
        return f'{asked}.figure("{self.name}")'

    @cached_property
    def wide(self) -> str:
        return self._svg("page")

    @cached_property
    def narrow(self) -> str:
        return self._svg("column")

    def _svg(self, width: str) -> str:
        return svg_text(self.answer.figure(self.name, width=width), f"{self.name}-{width}", self.spec.title, "")


def demo_studies() -> dict[str, dl.Study]:
    """The demo model before and after training."""
    return {label: dl.study(model, documents=200) for label, model in (("start", START), ("end", END))}


def drawn_figures(studies: Mapping[str, dl.Study]) -> list[Drawn]:
    """Draw every figure of every question once; exit with an error if no example draws one."""
    found: dict[str, Drawn] = {}
    for question in QUESTIONS.values():
        wanted = {spec.name for spec in (*question.figures, *question.compared_figures)}
        for drawn in _of_question(question, studies):
            found.setdefault(drawn.name, drawn)
        if wanted - set(found):  # e.g. the rotary position kernel, which the demo model does not have
            for drawn in _of_question(question, rotary_studies()):
                found.setdefault(drawn.name, replace(drawn, models=("EARLY", "MODEL"), remark=ROTARY))
        if wanted - set(found):
            raise SystemExit(f"{question.__name__}.examples() does not draw {', '.join(sorted(wanted - set(found)))}")
    return list(found.values())


def _of_question(question: type[Question], studies: Mapping[str, dl.Study]) -> Iterator[Drawn]:
    for example in question.examples():
        if studies["end"].missing(example):
            continue
        answer = studies["end"].ask(example)
        yield from (Drawn(spec, answer) for spec in answer.figures.values())
        if question.compared_figures:
            compared = side_by_side(example, {label: study.ask(example) for label, study in studies.items()})
            yield from (Drawn(spec, compared) for spec in compared.figures.values())


@cache
def rotary_studies() -> dict[str, dl.Study]:
    """Two small rotary models with random weights; the package does not include one."""
    import torch
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=300, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    studies = {}
    for seed, label in enumerate(("start", "end")):
        torch.manual_seed(seed)
        studies[label] = dl.study(LlamaModel(config))
    return studies


def write_gallery(source: Path, studies: Mapping[str, dl.Study]) -> None:
    """Write the gallery, its pages and the start page's figures into the prepared sources."""
    drawn, folder = drawn_figures(studies), source / "made"
    (folder / "gallery").mkdir(parents=True)
    (folder / "home").mkdir()
    for each in drawn:
        (folder / "gallery" / f"{each.name}.md").write_text(_page(each), encoding="utf-8")
    (source / "gallery.md").write_text(_index(drawn), encoding="utf-8")
    by_name = {each.name: each for each in drawn}
    for name in HOME:
        (folder / "home" / f"{name}.md").write_text(_on_first_page(by_name[name]), encoding="utf-8")


def _page(drawn: Drawn) -> str:
    return "\n".join(
        [
            f"# {drawn.spec.title}",
            "",
            f"**{_asked(drawn)}**",
            "",
            _said(drawn),
            f"Drawn for {drawn.remark}.\n" if drawn.remark else "",
            _inlined(drawn),
            "**How to read it.** " + drawn.spec.caption,
            "",
            "```console",
            f"$ {drawn.command}",
            "```",
            "",
            "```python",
            "import detoklens as dl",
            "",
            drawn.python,
            "```",
            "",
        ]
    )


def _asked(drawn: Drawn) -> str:
    """The question that the table behind the figure answers."""
    schema = next(schema for schema in drawn.answer.schemas if schema.name == drawn.spec.tables[0])
    return schema.question


def _said(drawn: Drawn) -> str:
    return _raw(f'<p class="sentence">{escape(drawn.answer.sentence)}</p>')


def _inlined(drawn: Drawn) -> str:
    """The figure at page width for wide screens and at column width for narrow ones."""
    pairs = (("wide", drawn.wide), ("narrow", drawn.narrow))
    return _raw("".join(f'<div class="figure-drawn {kind}">{svg}</div>' for kind, svg in pairs))


def _raw(html: str) -> str:
    return f"```{{raw}} html\n{html}\n```\n"


def _index(drawn: list[Drawn]) -> str:
    """One card per figure, grouped by topic, and the table of contents for the sidebar."""
    parts = ["# Gallery", "", "Every figure that the package draws, for the bundled demo model.", ""]
    topics = {each.name: QUESTIONS.listings[each.question.name()].topic for each in drawn}
    for topic in dict.fromkeys(topics.values()):
        cards = [_card(each) for each in drawn if topics[each.name] == topic]
        parts += [f"## {topic}", "", "::::{grid} 1 2 3 3", ":gutter: 3", "", *cards, "::::", ""]
    names = [f"made/gallery/{each.name}" for each in drawn]
    return "\n".join([*parts, "```{toctree}", ":hidden:", "", *names, "```", ""])


def _card(drawn: Drawn) -> str:
    lines = [f":::{{grid-item-card}} {drawn.spec.title}", f":link: made/gallery/{drawn.name}", ":link-type: doc", ""]
    return "\n".join([*lines, _raw(f'<div class="thumbnail">{drawn.narrow}</div>'), ":::", ""])


def _on_first_page(drawn: Drawn) -> str:
    return "\n".join([_said(drawn), _inlined(drawn), "```console", f"$ {drawn.answer.command}", "```", ""])
