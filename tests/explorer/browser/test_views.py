"""Each view by what a person does and sees."""

from __future__ import annotations

import csv
import io
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.explorer.browser.conftest import DRAWN

SVG = "{http://www.w3.org/2000/svg}"


def settled(page, view=None):
    """Wait until what was asked for is drawn."""
    page.wait_for_selector(DRAWN if view is None else f"main[data-view={view}][data-ready=true]")
    return page


def rows(page, place=0):
    """The cells of a table of partners."""
    table = page.locator("table.partners").nth(place)
    return [row.split("\t") for row in table.locator("tbody").inner_text().strip().split("\n") if row.strip()]


def number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def saved(page, name: str) -> str:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name, exact=True).click()
    return waiting.value.path().read_text(encoding="utf-8")


def test_a_token_is_searched_and_its_partners_are_followed(opened, demo):
    with opened() as page:
        settled(page)
        search = page.get_by_role("combobox")
        search.fill("␣mag")
        options = page.get_by_role("listbox").get_by_role("option")
        assert options.count() > 0
        assert all("␣mag" in text for text in options.all_inner_texts())
        search.fill("#306")
        search.press("Enter")
        page.wait_for_function("() => location.hash.includes('token=306')")
        settled(page)
        assert page.locator(".chosen").inner_text().startswith("ic")
        keys = [cells[1] for cells in rows(page)]
        affinity = demo.layer.token_affinity(heads=[1])
        exact = affinity.key[0] @ affinity.query[0, 306]
        shown = [demo.layer.token(int(each)).replace(" ", "␣") for each in np.argsort(-exact)[:10]]
        assert keys == shown
        first = rows(page)[0]
        assert first[2] == f"{shown[0]}·ic"
        assert number(first[4]) == pytest.approx(exact.max(), abs=0.01)
        page.locator("table.partners").first.locator("tbody a").first.click()
        page.wait_for_function(f"() => location.hash.includes('token={int(exact.argmax())}')")
        settled(page)
        assert page.locator(".chosen").inner_text().startswith(shown[0])
        page.go_back()
        page.wait_for_function("() => location.hash.includes('token=306')")


def test_a_word_of_several_tokens_shows_its_pieces(opened, demo):
    with opened() as page:
        settled(page).get_by_role("combobox").fill("␣unforgettable")
        pieces = page.locator(".pieces button")
        pieces.first.wait_for()
        expected = [demo.layer.token(each) for each in demo.layer.vocabulary.encode(" unforgettable")]
        assert pieces.all_inner_texts() == [text.replace(" ", "␣") for text in expected]
        pieces.nth(1).click()
        settled(page)
        assert page.locator(".chosen").inner_text().startswith(expected[1])


def test_both_directions_counts_and_centring(opened, demo):
    with opened("demo/#/token?head=1&token=306") as page:
        settled(page)
        looks = rows(page)
        page.locator("label").filter(has_text="as key: its queries").click()
        page.wait_for_function("() => location.hash.includes('way=looked')")
        settled(page)
        looked = rows(page)
        assert looked != looks
        assert page.get_by_role("heading", level=2).inner_text() == "Token partners: queries of a key"
        affinity = demo.layer.token_affinity(heads=[1])
        who = int((affinity.query[0] @ affinity.key[0, 306]).argmax())
        assert looked[0][1] == demo.layer.token(who).replace(" ", "␣")
        prefixes, occurrences = demo.counts.predecessors(who)
        assert number(looked[0][-1]) == int(occurrences[prefixes == 306].sum())
        page.locator("label").filter(has_text="as query: its keys").click()
        page.locator("label").filter(has_text="Tᵉᵉ centred").click()
        page.wait_for_function("() => location.hash.includes('centred=1')")
        settled(page)
        centred = demo.layer.token_affinity(centred=True, heads=[1])
        best = centred.key[0] @ centred.query[0, 306]
        assert rows(page)[0][1] == demo.layer.token(int(best.argmax())).replace(" ", "␣")
        assert number(rows(page)[0][5]) == pytest.approx(best.max(), abs=0.01)


def test_several_heads_are_compared(opened):
    with opened("demo/#/token?heads=0,3&token=306") as page:
        settled(page)
        assert page.locator("section.head h3").count() == 2
        assert page.locator("section.head svg[role=img]").count() == 2
        assert page.get_by_role("button", name="L0H3", exact=True).get_attribute("aria-pressed") == "true"


def test_an_offset_changes_partners_where_positions_are_rotary(opened, bundles):
    layer = bundles["rotary"][0].layer
    with opened("rotary/#/token?head=2&token=300") as page:
        settled(page)
        page.get_by_label("Offset i − j").fill("7")
        page.wait_for_function("() => location.hash.includes('offset=7')")
        settled(page)
        affinity = layer.token_affinity(heads=[2], offset=7)
        best = int((affinity.key[0] @ affinity.query[0, 300]).argmax())
        assert rows(page)[0][1] == layer.token(best).replace(" ", "␣")
    with opened("learned/#/token") as page:
        assert settled(page).get_by_label("Offset i − j").count() == 0


def test_a_text_shows_attention_and_why(opened, demo):
    ids = demo.layer.vocabulary.encode("The magic words")
    terms = demo.layer.terms(ids)
    with opened("demo/#/text?head=1&draw=matrix") as page:
        settled(page).get_by_label("Text", exact=True).fill("The magic words")
        page.wait_for_function("() => location.hash.includes('text=The')")
        settled(page)
        assert f"{len(ids)} tokens" in page.locator("#text-note").inner_text()
        matrix = page.get_by_role("application")
        box, cell = matrix.bounding_box(), (2, 1)
        size = box["width"] / len(ids)
        page.mouse.move(box["x"] + (cell[1] + 0.5) * size, box["y"] + (cell[0] + 0.5) * size)
        panel = page.get_by_label("Selected cell")
        page.wait_for_function("() => document.querySelector('.panel .pair').textContent.includes('(2) attends to')")
        share = number(panel.locator(".amount strong").inner_text())
        assert share == pytest.approx(terms.attention()[1][cell], abs=2e-3)
        said = panel.locator("svg.waterfall").get_attribute("aria-label")
        numbers = [number(each) for each in re.findall(r"[+−]\d+\.\d+", said)]
        expected = [terms.full(name)[1][cell] for name in terms.names]
        np.testing.assert_allclose(numbers, [*expected, sum(expected)], atol=0.02)
        text = matrix.get_attribute("aria-label")
        assert "query tokens by" in text
        assert "key (attended to)" in page.locator("main").inner_text()


def test_a_term_switched_off_changes_attention_at_once(opened, demo):
    ids = demo.layer.vocabulary.encode("The magic words")
    terms = demo.layer.terms(ids)
    with opened("demo/#/text?head=1&text=The+magic+words&cell=2,0") as page:
        settled(page)
        page.get_by_role("checkbox", name=re.compile("^Tᵉ token preferred")).uncheck()
        page.wait_for_function("() => /off=e(&|$)/.test(location.hash)")
        settled(page)
        share = number(page.locator(".panel .amount strong").inner_text())
        assert share == pytest.approx(terms.attention_without("e")[1][2, 0], abs=2e-3)
        assert "with all terms" in page.locator(".panel .amount").inner_text()
        table = list(csv.DictReader(io.StringIO(saved(page, "CSV"))))
        row = next(each for each in table if each["query_position"] == "2" and each["key_position"] == "0")
        assert float(row["attention_without_e"]) == pytest.approx(terms.attention_without("e")[1][2, 0], abs=1e-3)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("demo/#/text?text=" + "word+" * 300, r"\d+ tokens.*256"),
        ("learned/#/text?text=" + "x" * 60, r"60 tokens.*40"),
        ("demo/#/text?ids=5,99999", "99999"),
        ("learned-both-ways/#/text?ids=5,3", "has no position"),
        ("demo/#/text?text=", "type at least one"),
    ],
)
def test_a_text_that_can_not_be_read_says_why(opened, path, message):
    with opened(path) as page:
        settled(page)
        assert re.search(message, page.locator("main").inner_text(), re.S | re.I)
        assert page.get_by_role("application").count() == 0


def test_positions_follow_the_query(opened, demo):
    with opened("demo/#/positions?head=1") as page:
        settled(page)
        page.get_by_label("Query position as a number").fill("40")
        page.wait_for_function("() => location.hash.includes('query=40')")
        settled(page)
        found = page.evaluate("() => window.detoklens.positions({head: 1, query: 40, ln: true})")
        best = int(np.argmax(found["attention"]))
        assert f"From position 40, key {best} receives the most attention" in page.locator("main").inner_text()
        slider = page.get_by_label("Query position", exact=True)
        slider.focus()
        slider.press("ArrowRight")
        page.wait_for_function("() => location.hash.includes('query=41')")
        page.locator("label").filter(has_text="without LN").click()
        page.wait_for_function("() => location.hash.includes('ln=0')")
        settled(page)
        assert "without LN" in page.locator("figcaption").first.inner_text()
        rows_saved = list(csv.DictReader(io.StringIO(saved(page, "CSV"))))
        assert len(rows_saved) >= 42


def test_a_query_is_dragged(opened):
    with opened("demo/#/positions?head=1&query=40") as page:
        settled(page)
        box = page.locator("svg.draggable").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] / 2, steps=5)
        page.mouse.up()
        page.wait_for_function("() => Number(/query=(\\d+)/.exec(location.hash)?.[1]) > 120")


@pytest.mark.parametrize("kind", ["rotary", "rotary-without-biases", "alibi"])
def test_the_kernel_is_drawn_by_offset(opened, kind):
    with opened(f"{kind}/#/positions") as page:
        text = settled(page).locator("main").inner_text()
        assert "kernel by offset" in text
        assert "No “without LN”" in text
        assert page.get_by_label("without LN").count() == 0


def test_without_biases_the_plain_split_has_no_kernel(opened):
    with opened("rotary-without-biases/#/positions?split=biases") as page:
        assert "nothing depends on the position alone" in settled(page).locator("main").inner_text()


def test_heads_are_sorted_drawn_and_opened(opened, site):
    cards = json.loads((site / "learned/heads.json").read_text())
    with opened("learned/#/heads") as page:
        settled(page)
        assert cards["sentence"] in page.locator("main").inner_text()
        page.get_by_role("button", name="self match", exact=True).click()
        page.wait_for_function("() => location.hash.includes('sort=self_match')")
        order = [row.split("\t")[0] for row in page.locator("table.cards:not(.scorecard) tbody tr").all_inner_texts()]
        expected = sorted(cards["rows"], key=lambda row: -row["self_match"])
        assert order == [f"L0H{row['head']}" for row in expected]
        assert page.locator("th[aria-sort=descending]").inner_text().startswith("self match")
        page.locator("label.inline").filter(has_text=re.compile("^x")).locator("select").select_option("spectral_norm")
        page.locator("label.inline").filter(has_text=re.compile("^y")).locator("select").select_option("effective_rank")
        points = page.locator("svg.chart a")
        assert points.count() == 4
        assert "spectral norm" in points.first.get_attribute("aria-label")
        page.get_by_role("link", name="L0H2 in text").last.click()
        page.wait_for_selector("main[data-view=text]")
        assert "head=2" in page.url


def test_cards_that_are_still_computed_are_waited_for(opened, site):
    """The bundle of the rotary model has none yet; here they come while the view waits."""
    cards = site / "rotary/heads.json"
    with opened("rotary/#/heads", allowed=("404",)) as page:
        page.get_by_text("being computed").wait_for()
        cards.write_bytes((site / "learned/heads.json").read_bytes())
        settled(page)
        assert page.locator("table.cards:not(.scorecard) tbody tr").count() == 4
    cards.write_text(json.dumps({"problem": "the disk was full"}))
    with opened("rotary/#/heads") as page:
        page.get_by_text("the disk was full").wait_for()
    cards.unlink()


@pytest.mark.parametrize("view", ["token", "text", "positions", "heads"])
def test_every_view_is_taken_along(opened, view):
    with opened(f"learned/#/{view}") as page:
        settled(page)
        drawing = ElementTree.fromstring(saved(page, "SVG"))
        assert drawing.tag == f"{SVG}svg"
        assert drawing.findtext(f"{SVG}title")
        assert len(list(drawing.iter(f"{SVG}text"))) > 5
        assert not [each for each in drawing.iter() if each.tag.endswith(("script", "foreignObject"))]
        table = list(csv.reader(io.StringIO(saved(page, "CSV"))))
        assert len(table) > 4
        assert len({len(row) for row in table}) == 1


@pytest.mark.parametrize(
    "link",
    [
        "demo/#/token?heads=1,2&token=306&way=looked&centred=1&top=25",
        "demo/#/text?head=2&text=One+two&off=ee,p&cell=1,0&draw=matrix",
        "demo/#/text?heads=1,2&text=One+two&other=One+more&cell2=1,0",
        "demo/#/positions?head=3&query=77&ln=0",
        "learned/#/heads?head=3&all=1&sort=self_match&descending=1&x=spectral_norm&y=self_match",
    ],
)
def test_the_address_reproduces_the_view(opened, link):
    with opened(link) as one, opened(link) as other:
        settled(one)
        settled(other)
        assert one.url.partition("#")[2] == other.url.partition("#")[2]
        assert one.locator("main").inner_text() == other.locator("main").inner_text()
        for part in link.partition("?")[2].split("&"):
            assert part.split("=")[0] in one.url


@pytest.mark.parametrize(
    "nonsense",
    [
        "#/token?head=99&token=-1&offset=x&top=7",
        "#/text?cell=a,b&off=zz",
        "#/nowhere?%%%",
        "#/positions?query=1e9",
        "#",
    ],
)
def test_a_bad_address_falls_back(opened, nonsense):
    with opened(f"learned/{nonsense}") as page:
        assert settled(page).get_by_role("heading", level=2).count() == 1


def test_the_page_opens_on_the_scorecard(opened, site):
    """Every head with a verdict per measure, and the reasons of the chosen one; the other views in one line each."""
    cards = json.loads((site / "learned/heads.json").read_text())
    with opened("learned/") as page:
        settled(page, "heads")
        assert page.locator("table.scorecard tbody tr").count() == len(cards["rows"])
        page.locator("table.scorecard").get_by_role("button", name="L0H3").click()
        page.wait_for_function("() => location.hash.includes('head=3')")
        said = page.locator(".reasons").inner_text()
        for mark in cards["marks"]:
            if mark["head"] == 3:
                assert f"{mark['measure'].replace('_', ' ')}: {mark['verdict']}" in said
                assert mark["why"] in said
        assert page.locator(".tour li").count() == 3


def test_an_arc_shows_its_terms(opened, demo):
    ids = demo.layer.vocabulary.encode("The magic words")
    terms = demo.layer.terms(ids)
    with opened("demo/#/text?head=1&text=The+magic+words") as page:
        settled(page)
        page.locator(".arc .hit").last.dispatch_event("pointerenter")
        tip = page.locator(".tip").inner_text()
        attention = terms.attention()[1] * (1 - np.eye(len(ids)))
        best = np.unravel_index(attention.argmax(), attention.shape)
        assert number(re.search(r"\d\.\d+", tip)[0]) == pytest.approx(attention.max(), abs=2e-3)
        numbers = [number(each) for each in re.findall(r"[+−]\d+\.\d+", tip)]
        expected = [terms.full(name)[1][best] for name in terms.names]
        np.testing.assert_allclose(numbers, [*expected, sum(expected)], atol=0.02)


def test_two_heads_and_two_texts_are_compared(opened, demo):
    ids = demo.layer.vocabulary.encode("The magic words")
    attention = demo.layer.terms(ids).attention()
    with opened("demo/#/text?heads=1,2&text=The+magic+words") as page:
        settled(page)
        assert page.locator(".compared figure").count() == 2
        first = page.locator("table.differences tbody tr").first.inner_text().split("\t")
        assert abs(number(first[-1])) == pytest.approx(np.abs(attention[2] - attention[1]).max(), abs=3e-3)
        page.get_by_role("button", name="Compare with another text").click()
        page.get_by_label("Text to compare with").fill("The magic lamp")
        page.wait_for_function("() => location.hash.includes('lamp')")
        settled(page)
        assert "both texts have" in page.locator("table.differences caption").inner_text()


@pytest.mark.parametrize("view", ["heads", "token", "text?heads=0,1"])
def test_no_column_is_lost_on_a_phone(opened, view):
    wide = "() => [...document.querySelectorAll('.scroll, .arcs-drawn, table')]"
    with opened(f"learned/#/{view}", viewport={"width": 400, "height": 800}) as page:
        settled(page)
        assert page.evaluate(f"{wide}.filter((each) => each.scrollWidth > each.clientWidth + 1).length") == 0
