"""The site builds strictly, and every page of it opens in a browser from under a path, with no request that leaves.

The browser has no network but 127.0.0.1, and whatever a page asks of another host is an error besides.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib
import json
import os
import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import urlopen

import numpy as np
import pytest

from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.study import Study
from detoklens.report import drawing
from tests.answers import SharingDrawings, sharing_answers
from tests.axe import serious_findings
from tests.once import once

ROOT = Path(__file__).resolve().parents[2]
UNDER = "some/where"
WAIT = 60_000  # milliseconds; a machine may be busy


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Links(HTMLParser):
    """What a page leads to and what it is made of."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.names: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.found.append(value)
            if name == "id" and value:
                self.names.add(value)


@pytest.fixture(scope="module")
def site(answers_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make site` builds it, under a path."""
    return once(tmp_path_factory, "site", lambda host: build(host, answers_folder)) / UNDER


def build(host: Path, answers_folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        patch.setenv("PYTHONWARNINGS", "")
        patch.setattr(drawing, "FORMATS", ("svg",))
        patch.setattr(Study, "_computed", sharing_answers(answers_folder))
        patch.setattr(drawing, "draw_files", SharingDrawings(answers_folder))
        make_site = importlib.import_module("make_site")
        source = host.with_name("source")
        make_site.lay_out(source)
        make_site.build(source, host / UNDER)


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    host = site.parents[len(Path(UNDER).parts) - 1]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=host))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{UNDER}/"
    server.shutdown()
    server.server_close()


def pages_of(site: Path) -> list[Path]:
    return sorted(path for path in site.rglob("*.html") if "live" not in path.relative_to(site).parts)


def test_every_link_leads_to_a_page_and_a_place_that_are_there(site: Path) -> None:
    read = {path: Links(path) for path in pages_of(site)}
    for page, links in read.items():
        for link in links.found:
            target, place = urldefrag(link)
            if "://" in target or target.startswith(("mailto:", "data:")):
                continue
            target = urlsplit(target).path  # without the version that style sheets carry
            path = Path(os.path.normpath(page.parent / unquote(target))) if target else page
            assert path.is_file(), (page, link)
            assert not place or path not in read or unquote(place) in read[path].names, (page, link)


def test_every_file_that_the_report_leads_to_is_there(site: Path) -> None:
    report = site / "live" / "report" / "report.html"  # too large to be taken apart
    links = re.findall(r'<a [^>]*href="([^"#][^"]*)"', report.read_text(encoding="utf-8"))
    assert "tables/positions.csv" in links
    for link in links:
        assert (report.parent / link).is_file(), link


def test_every_figure_of_every_question_is_in_the_gallery(site: Path) -> None:
    from detoklens.questions.catalogue import QUESTIONS

    specs = [spec for question in QUESTIONS.values() for spec in (*question.figures, *question.compared_figures)]
    for spec in specs:
        page = (site / "made" / "gallery" / f"{spec.name}.html").read_text(encoding="utf-8")
        assert "<svg" in page
        assert "detoklens" in page


@contextlib.contextmanager
def opened(browser, address: str):
    """A tab, with everything that went wrong or tried to leave."""
    with contextlib.closing(browser.new_context(viewport={"width": 1280, "height": 900})) as tab:
        page = tab.new_page()
        page.set_default_timeout(WAIT)
        wrong: list[str] = []
        page.on(
            "console", lambda message: wrong.append(f"{page.url}: {message.text}") if message.type == "error" else 0
        )
        page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
        page.on("request", lambda asked: None if _stays(asked.url, address) else wrong.append(asked.url))
        yield page
        assert wrong == []


def _stays(url: str, address: str) -> bool:
    return url.startswith((address, "data:", "blob:"))


def test_the_browser_can_reach_no_other_host(browser, address: str) -> None:
    by_name = address.replace("127.0.0.1", "localhost")
    with urlopen(by_name) as answer:  # it is there for anybody else
        assert answer.status == 200
    with contextlib.closing(browser.new_context()) as tab, pytest.raises(Exception, match="ERR_"):
        tab.new_page().goto(by_name)


def test_every_page_opens_fits_its_screen_and_asks_nobody_else(browser, site: Path, address: str) -> None:
    """On a phone, which is then turned into a desk's screen: no error, nothing that leaves, no scrolling sideways."""
    with opened(browser, address) as page:
        for path in pages_of(site):
            page.set_viewport_size({"width": 400, "height": 800})
            page.goto(urljoin(address, path.relative_to(site).as_posix()), wait_until="load")
            assert page.title()
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
            page.set_viewport_size({"width": 1280, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= 1280, path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "is-it-in-my-model", "families", "calibration", "findings", "cli"])
def test_axe_finds_nothing_serious(browser, address: str, name: str, scheme: str) -> None:
    with contextlib.closing(browser.new_context(color_scheme=scheme)) as tab:
        page = tab.new_page()
        page.goto(f"{address}{name}.html", wait_until="load")
        assert serious_findings(page) == []


def test_search_finds_auroc(browser, address: str) -> None:
    with opened(browser, address) as page:
        page.goto(address + "search.html?q=AUROC")
        page.wait_for_selector("#search-results li a")
        assert page.locator("#search-results li").count() > 3


def test_the_report_lives_in_the_site(browser, address: str) -> None:
    with opened(browser, address) as page:
        page.goto(address + "live.html")
        report = page.frame_locator('iframe[title="The report of the demo model"]')
        report.locator("main h2").first.wait_for()
        assert report.locator("main h2").first.inner_text() == "Heads"


def test_the_explorer_answers_in_the_site(browser, address: str) -> None:
    import detoklens as dl

    layer = dl.load("demo")
    token = layer.token_id("ion")
    expected = int(layer.token_affinity(heads=[1]).scores(np.array([token]))[0, 0].argmax())
    with opened(browser, address) as page:
        page.goto(address + "live/explorer/index.html")
        asked = {"head": 1, "token": token, "way": "looks", "centred": False, "offset": 1, "split": "biases", "top": 3}
        ask = "async (asked) => (await window.detoklens.ready, window.detoklens.partners(asked))"
        found = page.evaluate(ask, asked)
        assert found["top"][0]["id"] == expected


def test_llms_txt_leads_to_pages_and_names_every_question(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# detoklens\n\n> ")
    for address in re.findall(r"\]\(([^)]+)\)", text):
        page, name = urldefrag(address)
        assert (site / page).is_file(), address
        assert not name or name in Links(site / page).names, address
    schemas = json.loads((site / "schema.json").read_text(encoding="utf-8"))["questions"]
    assert all(f"- [{name}](" in text for name in schemas)
    assert set(schemas) == set(QUESTIONS)
