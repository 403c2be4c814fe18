"""The page in a real browser, from disk, with the network off."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
from xml.etree import ElementTree

import pytest

from tests.axe import serious_findings
from tests.report.made import HOSTILE

WAIT = 60_000  # milliseconds; a machine may be busy
UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"

# Browsers save only some downloads of one page; these are what it gives them to save, by name.
KEEP_DOWNLOADS = """() => {
  window.kept = {};
  let latest;
  URL.createObjectURL = (blob) => { latest = blob; return "#"; };
  HTMLAnchorElement.prototype.click = function () { window.kept[this.download] = latest; };
}"""
KEPT_DOWNLOADS = """async () => {
  const kept = {};
  for (const [name, blob] of Object.entries(window.kept)) {
    const bytes = new Uint8Array(await blob.arrayBuffer());
    kept[name] = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  }
  return kept;
}"""


FIGURES_ON_SCREEN = """() => [...document.querySelectorAll("figure svg")]
  .filter((svg) => svg.getClientRects().length)
  .map((svg) => {
    const box = svg.getBoundingClientRect();
    const sizes = [...svg.querySelectorAll("text")].map((text) => parseFloat(getComputedStyle(text).fontSize));
    const scale = box.width / svg.viewBox.baseVal.width;
    return { id: svg.id, right: box.right, text: Math.min(...sizes) * scale };
  })"""
FIRST_PARTNERS = """(view) => {
  const d = JSON.parse(document.getElementById('partner-data').content.textContent);
  const ids = new Uint16Array(Uint8Array.from(atob(d[view].partners), c => c.charCodeAt(0)).buffer);
  const chosen = document.querySelector('#matches [aria-pressed=true]').dataset.row;
  return [0, 1, 2].map(h => d.tokens[ids[(Number(chosen) * 3 + h) * d.top]]);
}"""


@contextlib.contextmanager
def opened(browser, folder, **context):
    """The page, with everything that went wrong or tried to leave; nothing of either is allowed."""
    with contextlib.closing(browser.new_context(offline=True, accept_downloads=True, **context)) as tab:
        page = tab.new_page()
        page.set_default_timeout(WAIT)
        wrong: list[str] = []
        address = (folder / "report.html").as_uri()
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("request", lambda asked: wrong.append(asked.url) if _leaves(asked.url, address) else None)
        page.goto(address)
        yield page
        assert wrong == []


def _leaves(url: str, address: str) -> bool:
    return url.partition("#")[0] != address and not url.startswith(("data:", "blob:"))


def test_opens_with_the_network_off_and_is_organised_by_questions(browser, whole):
    with opened(browser, whole) as page:
        headings = page.locator("main h2").all_inner_texts()
        assert headings[:4] == ["Heads", "Answers", "What does a token attend to?", "Detokenization heads"]
        assert headings[-1] == "Appendix"
        assert page.locator("main figure svg[role=img]").count() >= 20
        assert page.locator("h1").count() == page.locator("main").count() == 1


def test_the_first_screens_hold_the_verdicts_and_few_figures(browser, whole):
    """Scorecard, one line per question and at most ten figures in 7,000 pixels and 2,500 words; the rest is folded."""
    with opened(browser, whole, viewport={"width": 1280, "height": 900}) as page:
        appendix = page.locator("#appendix").bounding_box()
        assert 0 < appendix["y"] <= 7000
        shown = page.evaluate(
            "[...document.querySelectorAll('figure')].filter((each) => each.checkVisibility()).length"
        )
        assert 5 <= shown <= 10
        assert len(page.locator("body").inner_text().split()) <= 2500
        assert page.locator("#scorecard").bounding_box()["y"] < page.locator("#answers").bounding_box()["y"] < 900
        answers = page.locator(".answers > div")
        assert answers.count() >= 8
        assert set(page.locator(".answers .word").all_inner_texts()) <= {"yes", "no", "not testable", "measured"}
        assert page.locator("table.sortable th").count() <= 10
        assert page.evaluate(
            "document.querySelector('.scroll').scrollWidth <= document.querySelector('.scroll').clientWidth"
        )
        sentences = [each.inner_text().strip() for each in answers.locator("dd:not(.verdict)").all()]
        assert all(sentences)
        text = page.locator("body").text_content()
        assert [each for each in sentences if text.count(each) != 1] == [], "each thing once"


def test_every_link_of_an_answer_leads_to_something_visible(browser, whole):
    with opened(browser, whole) as page:
        for link in page.locator(".answers a").all():
            link.click()
            target = page.locator(link.get_attribute("href"))
            assert target.is_visible()
            assert not target.evaluate("(node) => node.tagName === 'DETAILS' && !node.open")


def test_the_search_starts_with_a_word_of_two_pieces(browser, whole):
    with opened(browser, whole) as page:
        word = page.get_by_label("Partners of a token").input_value()
        assert page.locator("#pieces button").count() == 2
        assert "".join(page.locator("#pieces button").all_inner_texts()).strip("␣") == word
        assert "Preceding piece" in page.locator("#found").inner_text()
        assert page.locator("#found table").count() == 1
        assert page.locator("#search-count").inner_text() == ""


def test_searching_a_token_shows_its_partners_in_every_head(browser, whole):
    with opened(browser, whole) as page:
        page.get_by_label("Partners of a token").fill("ien")
        assert page.locator("#search-count").inner_text().endswith(" shown")
        table = page.locator("#found table")
        assert table.locator("tbody th").all_inner_texts() == ["L0H0", "L0H1", "L0H2"]
        assert table.locator("tbody li").count() == 3 * 20
        assert table.locator("li:first-child").all_inner_texts() == page.evaluate(FIRST_PARTNERS, "plain")
        plain = table.inner_text()
        page.get_by_label("centred").check()
        assert table.inner_text() != plain
        assert table.locator("li:first-child").all_inner_texts() == page.evaluate(FIRST_PARTNERS, "centred")
        page.get_by_label("Partners of a token").fill("漢字")  # no token's text, nor spelled by any
        assert page.locator("#found table").count() == 0
        assert page.locator("#search-count").inner_text().startswith("No searchable token")


def test_more_matches_are_shown_on_request(browser, whole):
    with opened(browser, whole) as page:
        page.get_by_label("Partners of a token").fill("e")
        said = page.locator("#search-count")
        shown, found = (int(number) for number in said.inner_text().removesuffix(" shown").split(" of "))
        assert (shown, page.locator("#matches li").count()) == (24, 24) < (found, 0)
        page.get_by_role("button", name="Show more").click()
        assert said.inner_text() == f"{min(48, found)} of {found} shown"
        page.get_by_label("Partners of a token").fill("")
        assert said.inner_text() == ""
        assert not page.get_by_role("button", name="Show more").is_visible()


def test_a_word_is_found_by_its_pieces_and_whole_pairs_are_marked(browser, whole):
    """The tokenizer spells “sapiens” as two tokens; a pair that it would join to one is underlined."""
    with opened(browser, whole) as page:
        page.get_by_label("Partners of a token").fill("sapiens")
        pieces = page.locator("#pieces button")
        assert "".join(pieces.all_inner_texts()) == "␣sapiens"
        assert pieces.count() > 1
        assert pieces.last.get_attribute("aria-pressed") == "true"
        assert "Preceding piece" in page.locator("#found").inner_text()
        tokens = page.evaluate("JSON.parse(document.getElementById('partner-data').content.textContent).tokens")
        known, marked = set(tokens), 0
        for asked in ("n", "s", "e", "r"):
            page.get_by_label("Partners of a token").fill(asked)
            asked = page.locator("#matches [aria-pressed=true]").inner_text()
            for partner in page.locator("#found td .token").all():
                is_whole = partner.inner_text() + asked in known
                assert is_whole == ("whole" in partner.get_attribute("class").split())
                marked += is_whole
        assert marked


@pytest.mark.parametrize(("width", "is_narrow"), [(420, True), (1280, False)])
def test_each_figure_has_a_version_that_fits_the_screen(browser, whole, width, is_narrow):
    """No figure is wider than its place, and its smallest text has at least 8 pixels."""
    with opened(browser, whole, viewport={"width": width, "height": 900}) as page:
        page.evaluate(UNFOLD)
        drawn = page.locator("figure svg:visible")
        assert drawn.count() == page.locator("figure").count() > 20
        for found in page.evaluate(FIGURES_ON_SCREEN):
            assert found["id"].endswith("_phone") == is_narrow
            assert found["right"] <= width
            assert found["text"] >= 8, found


def test_the_heads_can_be_sorted_with_the_keyboard(browser, whole):
    with opened(browser, whole) as page:
        table = page.locator("table.sortable")
        names = table.locator("thead th").all_inner_texts()
        column = names.index("matches itself")
        heading = table.locator("thead th").nth(column)
        heading.locator("button").focus()
        for direction in ("descending", "ascending"):
            page.keyboard.press("Enter")
            assert heading.get_attribute("aria-sort") == direction
            cells = table.locator(f"tbody tr td:nth-child({column + 1})")
            values = [float(cell.get_attribute("data-value")) for cell in cells.all()]
            assert values == sorted(values, reverse=direction == "descending")
        assert table.locator("th[aria-sort]").count() == 1


def test_downloads_come_out_of_the_page_itself(browser, whole, tmp_path):
    alone = tmp_path / "report.html"
    alone.write_bytes((whole / "report.html").read_bytes())
    with opened(browser, tmp_path) as page:
        page.evaluate(UNFOLD)
        with page.expect_download(timeout=WAIT) as caught:
            page.locator("a[data-csv=csv-heads]").click()
        text = caught.value.path().read_text(encoding="utf-8")
        assert text == (whole / "tables" / "heads.csv").read_text(encoding="utf-8")
        assert len(list(csv.DictReader(io.StringIO(text)))) == 3
        with page.expect_download(timeout=WAIT) as caught:
            page.locator("#figure-auroc a[data-figure]").click()
        assert caught.value.suggested_filename == "auroc.svg"
        assert ElementTree.parse(caught.value.path()).getroot().tag.endswith("svg")


def test_downloads_are_the_files_byte_by_byte(browser, hostile):
    """Tokens of every byte are in them, NUL and CR as well, and what spreadsheets would run."""
    files = {path.name: path.read_bytes() for path in (hostile / "tables").glob("*.csv")}
    assert any(b"\0" in content for content in files.values())
    assert any(b"\r" in content for content in files.values())
    with opened(browser, hostile) as page:
        page.evaluate(UNFOLD)
        page.evaluate(KEEP_DOWNLOADS)
        for link in page.locator("a[data-csv]").all():
            link.click()
        kept = page.evaluate(KEPT_DOWNLOADS)
    different = [name for name in kept if base64.b64decode(kept[name]) != files[name]]
    assert len(kept) > 10
    assert different == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_until_the_button_says_otherwise(browser, whole, scheme):
    with opened(browser, whole, color_scheme=scheme) as page:
        brightness = (
            "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3)"
            ".reduce((sum, each) => sum + Number(each), 0)"
        )
        before = page.evaluate(brightness)
        assert (before < 200) == (scheme == "dark")
        page.locator("#scheme").click()
        assert (page.evaluate(brightness) < 200) == (scheme == "light")
        ink = page.locator("#figure-auroc svg text").first.evaluate("node => getComputedStyle(node).fill")
        assert (sum(map(int, ink.strip("rgb()").split(","))) > 500) == (scheme == "light")


def test_a_narrow_page_does_not_scroll_sideways(browser, whole):
    with opened(browser, whole, viewport={"width": 360, "height": 700}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_hostile_vocabulary_injects_nothing(browser, hostile):
    with opened(browser, hostile) as page:
        for text in ("script", "<img", "{{", "]]>", "-->", "onmouse"):
            page.get_by_label("Partners of a token").fill(text)
            assert page.locator("#matches button").count() >= 1
        assert page.evaluate("window.injected") is None
        assert page.locator("script").count() == 1
        assert page.locator("main img, main iframe, main b, [onerror], [onload], [onmouseover]").count() == 0
        assert "49" not in page.locator("#matches").inner_text()
        page.get_by_label("Partners of a token").fill("right")
        assert page.locator("#matches button").first.inner_text() == "\\u202eright␣to␣left\\u2066"


def test_every_hostile_token_is_in_the_data_as_text(browser, hostile):
    with opened(browser, hostile) as page:
        tokens = page.evaluate("JSON.parse(document.getElementById('partner-data').content.textContent).tokens")
    assert "</script><script>window.injected␣=␣1</sc…" in tokens
    assert "]]>" in tokens
    assert len([token for token in tokens if token in HOSTILE]) >= 6


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing_serious(browser, whole, width, scheme):
    """The page passes axe-core's checks of accessibility, unfolded, on wide and narrow screens."""
    viewport = {"width": width, "height": 900}
    with opened(browser, whole, bypass_csp=True, color_scheme=scheme, viewport=viewport) as page:
        page.evaluate(UNFOLD)
        assert serious_findings(page) == []
