"""The page as text: whatever a text holds, it stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.questions.base import Verdict, View
from detoklens.report.page import Content, Download, Grid, Part, Picture, Unasked, render_page, script_json, shown
from detoklens.report.report import grid_of
from detoklens.wording import listed, token_shown
from tests.report.made import HOSTILE


def grid(text: str, is_open: bool = False) -> Grid:
    return Grid(text, [(text, text), ("n", "")], [(text, 1.5), (None, None)], is_open)


def picture(text: str) -> Picture:
    return Picture("name", text, text, "<svg></svg>", "<svg></svg>")


def content(text: str = "plain") -> Content:
    verdicts = {text: Verdict("yes", text, (text,))}
    shown, more = [picture(text)], [picture(text)]
    return Content(
        title=text,
        summary=text,
        facts=[(text, text)],
        parts=[
            Part(
                text, text, text, verdicts, text, True, shown, more, [grid(text), grid(text, True)], text, text, [text]
            ),
            Part(text, f"another {text}", text, headline=False),
        ],
        unasked=[Unasked([text, text], text, text)],
        downloads=[Download("table", text, 2, "tables/table.csv", text)],
        pieces=(text, text),
        notes=[text],
    )


class Elements(HTMLParser):
    """All elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def elements(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(html)
    return parser.found


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_adds_no_element_and_no_attribute(text):
    plain, hostile = elements(render_page(content())), elements(render_page(content(text)))
    assert [(tag, sorted(found)) for tag, found in hostile] == [(tag, sorted(found)) for tag, found in plain]


def test_each_headline_is_one_line_with_its_verdict_and_a_link():
    verdicts = {"": Verdict("yes", "L0H1 exceeds every control", ("L0H1", "L0H3")), "b": Verdict("untestable", "why")}
    parts = [
        Part("Heads", "auroc", "Summary.", verdicts, pictures=[picture("AUROC")]),
        Part("Heads", "roc of x", "In the appendix.", headline=False),
        Part("Terms", "terms", "Only measured."),
    ]
    html = render_page(Content("t", "s", [], parts))
    words = re.findall(r'<dd class="verdict">(.*?)</dd>', html, re.DOTALL)
    assert [" ".join(re.sub("<[^>]*>", "", each).split()) for each in words] == ["yes b: not testable", "measured"]
    assert html.count("Summary.") == html.count("In the appendix.") == html.count("Only measured.") == 1
    assert '<a href="#figure-name">Heads</a> <code>auroc</code>' in html
    assert '<a href="#part-terms-more">Terms</a> <code>terms</code>' in html
    assert 'id="part-terms-more"' in html
    assert "(L0H1, L0H3): L0H1 exceeds every control.</p>" in html


def test_what_was_not_asked_is_one_line_with_reason_and_command():
    """Where its answer would be if an input would give it: a reader looks for it there."""
    command = "detoklens report x --corpus TEXT"
    some = [
        Unasked(["auroc", "lookback"], "no corpus counts", command, ["Heads", "Looking back"], place=0),
        Unasked(["attention"], "no text", command, ["Attention on text"], place=1),
    ]
    html = render_page(
        Content("t", "s", [], [Part("s", "t", "x")], [*some, Unasked(["variance"], "no position embeddings")])
    )
    line = f"Not answered (no corpus counts): auroc; lookback. Run <code>{command}</code></dd>"
    assert html.index("<dt>Heads, Looking back</dt>") < html.index(line) < html.index('id="part-t"')
    assert html.index('id="part-t"') < html.index("<dt>Attention on text</dt>")
    assert "Not answered (no position embeddings): variance.</p>" in html


def test_a_caveat_says_what_a_yes_does_not_show():
    for value, times in (("yes", 1), ("no", 0), ("untestable", 0)):
        part = Part("s", "t", "x", {"": Verdict(value, "y")}, caveat="Only from weights.")
        assert render_page(Content("t", "s", [], [part])).count("Only from weights.") == times


def test_the_glossary_explains_its_terms_with_two_pieces():
    assert '>␣conn</span> + <span class="token">ection</span>' in render_page(Content("t", "s", [], []))
    own = render_page(Content("t", "s", [], [], pieces=("dwell", "##ing")))
    assert "␣conn" not in own
    assert own.count("##ing") >= 3


def test_the_policy_names_the_very_style_and_script_of_the_page():
    html = render_page(content())
    policy = next(found["content"] for tag, found in elements(html) if found.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_nothing_in_the_page_names_another_place():
    html = render_page(content())
    for _, found in elements(html):
        for name in ("src", "href"):
            assert not (found.get(name) or "").startswith(("http", "//"))


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.lists(inner)))
def test_data_for_the_script_survives_and_can_not_end_its_element(value):
    text = script_json(value)
    assert json.loads(text) == value
    assert not set("<>&") & set(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        (True, "yes"),
        (False, "no"),
        (-0.123456, "−0.1235"),
        (7, "7"),
        ("a", "a"),
        (1e-9, "1e−09"),
        (10490.4, "10490"),
        (9999.9, "10000"),
        (1234.5678, "1235"),
        (-2.5e20, "−2.5e+20"),
    ],
)
def test_cells_are_readable(value, expected):
    assert shown(value) == expected


def test_tokens_are_visible_and_cut():
    assert token_shown(" a\n\u202e\x00") == "␣a\\n\\u202e\\x00"
    assert token_shown("x" * 41) == "x" * 40 + "…"
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


def test_a_column_that_holds_nothing_is_left_out():
    frame = pl.DataFrame({"head": [0, 1], "auroc_null": [None, None], "self_match": [0.5, None]})
    found = grid_of(View("Cards", frame), {"self_match": "meaning"})
    assert [name for name, _ in found.columns] == ["head", "self match"]
    assert found.rows == [("L0H0", 0.5), ("L0H1", None)]
    assert len(grid_of(View("Cards", frame.clear()), {}).columns) == 3
    late = pl.DataFrame({"head": range(40), "late": [None] * 39 + [1]})
    assert len(grid_of(View("Rows beyond those shown", late), {}).columns) == 2


def test_numbers_stand_to_the_right_and_texts_to_the_left():
    grid = Grid("", [("a", ""), ("b", ""), ("c", "")], [(1, "x", True), (None, "y", False)])
    assert grid.numeric == [True, False, False]
