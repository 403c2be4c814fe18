"""The page for everybody: strangers' tokens, small screens, the dark, the keyboard, a screen reader, and bad luck."""

from __future__ import annotations

import json
import shutil
from xml.etree import ElementTree

import pytest

from tests.axe import serious_findings
from tests.explorer.browser.conftest import DRAWN
from tests.report.made import HOSTILE

VIEWS = ("token", "text", "positions", "heads")
NAMELESS = """() => [...document.querySelectorAll(
    "button, a[href], input, select, textarea, svg:not([aria-hidden=true] *):not([aria-hidden=true]), [role], table"
  )].filter((element) => {
    if (element.closest("[aria-hidden=true]") || element.closest("svg svg")) return false;
    if (["status", "alert", "presentation", "option"].includes(element.getAttribute("role"))) return false;
    const by = (element.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id));
    const labels = [...(element.labels ?? [])].map((label) => label.textContent);
    const inside = element.matches("button, a") ? element.textContent : element.querySelector("caption")?.textContent;
    const said = [element.getAttribute("aria-label"), ...by.map((each) => each?.textContent), ...labels, inside];
    return !said.some((text) => text?.trim());
  }).map((element) => element.outerHTML.slice(0, 200))"""
CONTRASTS = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (colour) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = parse(colour).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!/, 0\\)$|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = {};
  const texts = "h1, h2, .facts, .soft, .note, td, th, a, button, label, figcaption";
  for (const element of document.querySelectorAll(texts)) {
    if (!element.textContent.trim() || !element.checkVisibility() || element.closest(":disabled")) continue;
    const [one, other] = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) found[element.outerHTML.slice(0, 120)] = ratio;
  }
  return found;
}"""


def test_a_hostile_vocabulary_injects_nothing(opened, said_of):
    size = said_of("hostile")["model"]["vocab_size"]
    with opened("hostile/#/token") as page:
        page.wait_for_selector(DRAWN)
        for token in range(0, size, 29):
            page.evaluate("(token) => { location.hash = `#/token?token=${token}&top=100` }", token)
        page.wait_for_selector(DRAWN)
        page.get_by_role("combobox").fill("<")
        page.get_by_role("option").first.wait_for()
        assert any("<script>" in text for text in page.get_by_role("option").all_inner_texts())
        page.evaluate("() => { location.hash = '#/text?ids=' + [...Array(24).keys()].map((n) => n * 11).join(',') }")
        page.wait_for_selector("main[data-view=text][data-ready=true]")
        page.get_by_role("application").focus()
        page.keyboard.press("ArrowLeft")
        assert page.evaluate("() => window.injected") is None
        assert page.locator("main script, main img, main b[onclick], main svg[onload]").count() == 0
        texts = page.evaluate("() => document.body.textContent")
        assert not [character for character in texts if ord(character) < 9 or character in "\u202e\u2066\x1b"]
    assert any("script" in text for text in HOSTILE)


@pytest.mark.parametrize("view", ["token", "text"])
def test_hostile_tokens_are_saved_as_text(opened, view):
    with opened(f"hostile/#/{view}?top=100") as page:
        page.wait_for_selector(DRAWN)
        with page.expect_download() as waiting:
            page.get_by_role("button", name="SVG", exact=True).click()
        drawing = ElementTree.parse(waiting.value.path())
        assert not [each for each in drawing.iter() if each.tag.rpartition("}")[2] in ("script", "img", "b")]
        assert not [name for each in drawing.iter() for name in each.attrib if name.startswith("on")]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_screen_shows_every_view(opened, view, scheme, width):
    with opened(f"learned/#/{view}", color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        page.wait_for_selector(DRAWN)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        assert page.evaluate(NAMELESS) == []
        assert page.evaluate(CONTRASTS) == {}
        assert page.locator("h1").count() == page.locator("main").count() == page.locator("nav").count() == 1
        ground = page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor || ''")
        body = page.evaluate("() => getComputedStyle(document.body).backgroundColor || ''")
        dark = [
            sum(map(int, colour[4:-1].split(",")[:3])) < 200 for colour in (ground, body) if colour.startswith("rgb(")
        ]
        assert any(dark) == (scheme == "dark")


@pytest.mark.parametrize("view", [*VIEWS, "text?draw=matrix", "text?heads=0,1"])
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_axe_finds_nothing_serious(opened, view, scheme, width):
    with opened(f"learned/#/{view}", color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        page.wait_for_selector(DRAWN)
        assert serious_findings(page) == []


def test_the_keyboard_is_enough(opened):
    """From the top of the page: the skip link, the views, a token, a text's matrix, a sorted column."""
    with opened("learned/#/token") as page:
        page.wait_for_selector(DRAWN)
        press = page.keyboard.press
        press("Tab")
        assert page.evaluate("() => document.activeElement.className") == "skip"
        press("Enter")
        assert page.evaluate("() => document.activeElement.id") == "view"
        _tab_to(page, "#token-search")
        page.keyboard.type("an")
        press("ArrowDown")
        press("Enter")
        page.wait_for_function("() => location.hash.includes('token=')")
        _tab_to(page, ".heads button:nth-of-type(3)")
        press("Enter")
        page.wait_for_function("() => location.hash.includes('head=2')")
        _tab_to(page, "nav a[href*='text']")
        press("Enter")
        page.wait_for_selector("main[data-view=text][data-ready=true]")
        _tab_to(page, "[role=application]")
        before = page.locator(".panel .pair").inner_text()
        press("ArrowUp")
        page.wait_for_function("(before) => document.querySelector('.panel .pair').innerText !== before", arg=before)
        _tab_to(page, "nav a[href*='heads']")
        press("Enter")
        page.wait_for_selector("main[data-view=heads][data-ready=true]")
        _tab_to(page, "th button")
        press("Enter")
        assert page.locator("th[aria-sort]").count() == 1


def _tab_to(page, selector: str) -> None:
    """Press Tab until an element has the focus, which must be seen."""
    for _ in range(150):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            style = "() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle + s.boxShadow }"
            assert page.evaluate(style) != "nonenone"
            return
    pytest.fail(f"Tab does not reach {selector}")


def test_the_first_view_fetches_one_head_and_no_more(browser, address, said_of):
    page, asked = browser.new_page(), []
    page.on("request", lambda request: asked.append(request.url.removeprefix(f"{address}learned/")))
    page.goto(f"{address}learned/#/token")
    page.wait_for_selector(DRAWN)
    page.wait_for_timeout(300)
    page.close()
    heads = {name for name in asked if name.startswith(("arrays/query_", "arrays/key_"))}
    head = said_of("learned")["sample"]["head"]
    assert heads == {f"arrays/query_{head}.bin", f"arrays/key_{head}.bin"}
    assert "tokenizer.json" not in asked
    assert not [name for name in asked if name.startswith("http")]


def test_a_model_without_a_tokenizer_is_asked_by_ids(opened):
    with opened("plain/#/token") as page:
        page.wait_for_selector(DRAWN)
        search = page.get_by_label("Token id")
        search.fill("7")
        search.press("Enter")
        page.wait_for_function("() => location.hash.includes('token=7')")
        page.wait_for_selector(DRAWN)
        assert "<id 7>" in page.locator(".chosen").inner_text()
        assert "No corpus counts were given" in page.locator("main").inner_text()
        page.get_by_role("link", name="Text", exact=True).click()
        page.wait_for_selector("main[data-view=text]")
        page.get_by_label("Token ids").fill("1 2, 3")
        page.wait_for_function("() => location.hash.includes('ids=1,2,3')")
        page.wait_for_selector(DRAWN)
        assert "no tokenizer" in page.locator("main").inner_text()


@pytest.fixture(scope="module")
def broken(site):
    """Bundles that can't be read: of another format, without their description, without an array."""
    for name in ("older", "nothing", "hole"):
        shutil.copytree(site / "learned", site / name)
    said = json.loads((site / "older/bundle.json").read_text()) | {"format": 0}
    (site / "older/bundle.json").write_text(json.dumps(said))
    (site / "nothing/bundle.json").unlink()
    for file in (site / "hole/arrays").glob("key_*"):
        file.write_bytes(file.read_bytes()[:100])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("older", "This bundle has format 0 and this page reads format 1"),
        ("nothing", "The file bundle.json is missing"),
        ("hole", "has 100 bytes instead of"),
    ],
)
@pytest.mark.usefixtures("broken")
def test_a_bundle_that_can_not_be_read_says_why(opened, name, message):
    with opened(f"{name}/#/token", allowed=("404", message)) as page:
        page.get_by_text(message).wait_for()


def test_a_browser_without_what_is_needed_says_so(browser, address):
    page = browser.new_page()
    page.add_init_script("delete window.Worker")
    page.goto(f"{address}learned/")
    page.get_by_text("This browser lacks web workers").wait_for()
    page.close()


def test_without_scripts_the_page_says_what_it_needs(opened):
    with opened("learned/", java_script_enabled=False) as page:
        assert "needs JavaScript" in page.locator("body").inner_text()
