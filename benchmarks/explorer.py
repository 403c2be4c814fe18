"""Time the explorer's page in a real browser, at GPT-2 small's size with random weights.

    python benchmarks/explorer.py                              about half a minute, 190 MB of temporary files
    python benchmarks/explorer.py --vocabulary 32000 --heads 16 --d-head 128 --positions 2048     as 1.5B parameters
    python benchmarks/explorer.py --vocabulary 2000 --heads 2

Times are measured by the page itself, from input to paint. Bytes count all responses up to the first view. Memory is
that of the tab's process, as the browser's task manager counts it, after visiting every head in two views; it is
measured in a second tab, because a tab whose requests are observed keeps up to 100 MB of their answers. Each number is
printed with its limit; a number above its limit fails the benchmark. Needs Chromium, playwright and an idle machine.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from detoklens.explorer.bundle import write_bundle
from detoklens.explorer.server import Server, serving
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.first_layer import FirstLayer

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
BELOW = {
    "first_view_seconds": 2.0,
    "first_view_megabytes": 15.0,
    "token_change_milliseconds": 30.0,
    "head_change_milliseconds": 1000.0,
    "text_change_milliseconds": 100.0,
    "tab_megabytes": 300.0,
}
LETTERS = "".join("etaoinshrdlu"[number % 12] for number in range(256))  # one token each: there are no merges
WORDS = "bcdfghklmnprstvz", "aeiou"
FORGET = "(kind) => { window.detoklens.timings[kind] = null; }"
LATEST = """async (kind) => {
  const { timings } = window.detoklens;
  const begun = performance.now();
  while (timings[kind] === null) {
    if (performance.now() - begun > 60_000) throw new Error(`the page timed no change of ${kind} within 60 s`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return timings[kind];
}"""
VISIT_ALL = """(async () => {
  const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  await window.detoklens.ready;
  for (const view of ["token?", "text?draw=matrix&text=%s&"])
    for (let head = 0; head < window.detoklens.bundle.model.n_heads; head++) {
      location.hash = `#/${view}head=${head}`;
      await wait(100);
      while (document.querySelector("main").dataset.ready !== "true") await wait(5);
    }
  return location.hash;
})()"""


def random_vocabulary(size: int) -> Vocabulary:
    """A byte-level tokenizer of this size, mostly syllables."""
    random = np.random.default_rng(0)
    names = dict.fromkeys(sorted(pre_tokenizers.ByteLevel.alphabet()))
    while len(names) < size:
        syllables = "".join(random.choice(list(letters)) for letters in WORDS * int(random.integers(1, 5)))
        names["Ġ" * int(random.integers(2)) + syllables] = None
    tokenizer = Tokenizer(models.BPE({name: number for number, name in enumerate(list(names)[:size])}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return Vocabulary(tokenizer)


def random_layer(vocabulary: int, heads: int, d_head: int, positions: int) -> Layer:
    random, width = np.random.default_rng(0), heads * d_head

    def draw(*shape: int, size: float = 0.05) -> np.ndarray:
        return random.standard_normal(shape, np.float32) * np.float32(size)

    weights = {f"{side}_weight": draw(width, heads, d_head) for side in ("query", "key", "value")}
    biases = {f"{side}_bias": draw(heads, d_head) for side in ("query", "key", "value")}
    first = FirstLayer(
        token_embeddings=draw(vocabulary, width),
        position_embeddings=draw(positions, width),
        norm_gain=1 + draw(width),
        norm_bias=draw(width),
        norm_epsilon=1e-5,
        output_weight=draw(heads, d_head, width),
        output_bias=draw(width),
        attention_scale=d_head**-0.5,
        **weights,
        **biases,
    )
    return Layer(Checkpoint("random", {}, first, random_vocabulary(vocabulary), None))


class Tab:
    """The page in a browser, driven as a user would."""

    def __init__(self, browser: Any, url: str) -> None:
        self.page = browser.new_page()
        self.page.set_default_timeout(120_000)
        self.fetched = 0
        self.page.on("response", self._count)
        self.page.goto(url)
        self.page.wait_for_selector("main[data-ready=true]")
        self.page.evaluate("() => window.detoklens.ready")

    def _count(self, answer: Any) -> None:
        self.fetched += int(answer.headers.get("content-length", 0))

    def timing(self, kind: str) -> float | None:
        return self.page.evaluate("(kind) => window.detoklens.timings[kind]", kind)

    def changed(self, kind: str, act: Any) -> float:
        """Milliseconds that the page takes for one change."""
        self.page.evaluate(FORGET, kind)
        act()
        return self.page.evaluate(LATEST, kind)


def megabytes_used(browser: Any, url: str, n_heads: int) -> float:
    """Private memory of a tab's process after a visit to every head in two views.

    The tab is outside playwright's contexts, so nothing but this function talks to it.
    """
    session, answers = browser.new_browser_cdp_session(), []
    session.on("Target.receivedMessageFromTarget", lambda event: answers.append(json.loads(event["message"])))
    place = {"url": url, **session.send("Target.createBrowserContext")}
    tab = session.send("Target.attachToTarget", {**session.send("Target.createTarget", place), "flatten": False})
    visit = {"expression": VISIT_ALL % LETTERS, "awaitPromise": True, "returnByValue": True}
    asked = json.dumps({"id": 1, "method": "Runtime.evaluate", "params": visit})
    visited = ""
    while not visited.endswith(f"head={n_heads - 1}"):  # while the tab still loads, the answer is an error
        time.sleep(1)
        answers.clear()
        session.send("Target.sendMessageToTarget", {**tab, "message": asked})
        while not answers:
            time.sleep(0.2)
            processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
        visited = str(answers[0].get("result", {}).get("result", {}).get("value"))
    return max(_own_memory(int(process["id"])) for process in processes if process["type"] == "renderer") / 1e6


def _own_memory(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return 1024 * sum(int(status.split(f"{kind}:")[1].split()[0]) for kind in ("RssAnon", "VmSwap"))


def measured(tab: Tab, layer: Layer, changes: int) -> dict[str, float]:
    page = tab.page
    found = {"first_view_seconds": (tab.timing("first_view") or 0) / 1000, "first_view_megabytes": tab.fetched / 1e6}
    tokens, shown = [], None
    for number in range(changes):
        link = page.locator(f'main table tbody a:not([title="{shown}"])').nth(number % 20)
        shown = link.get_attribute("title")
        tokens.append(tab.changed("token", link.click))
    heads = [
        tab.changed("head", page.get_by_role("button", name=f"L0H{head}", exact=True).click)
        for head in range(1, layer.n_heads)
    ]
    page.get_by_role("link", name="Text", exact=True).click()
    page.wait_for_selector("main[data-view=text][data-ready=true]")
    page.locator("label").filter(has_text="matrix").click()
    tab.changed("text", lambda: page.get_by_role("textbox").first.fill(LETTERS))
    terms = page.get_by_role("checkbox", name=re.compile("^T"))
    switches = [tab.changed("text", terms.nth(number % 6).click) for number in range(changes)]
    return found | {
        "token_change_milliseconds": statistics.median(tokens),
        "fastest_token_change_milliseconds": min(tokens),
        "head_change_milliseconds": max(heads, default=0.0),
        "text_change_milliseconds": statistics.median(switches),
    }


def run(options: argparse.Namespace) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        sys.exit("Chromium was not found; install it, e.g. Debian's package chromium")
    layer = random_layer(options.vocabulary, options.heads, options.d_head, options.positions)
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        started = time.perf_counter()
        bundle = write_bundle(Study(layer), Path(folder) / "explorer", cards_later=True)
        found = {"bundle_seconds": time.perf_counter() - started}
        found["bundle_megabytes"] = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file()) / 1e6
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        with Server(bundle) as server, serving(server):
            found["tab_megabytes"] = megabytes_used(browser, server.url + "#/token", layer.n_heads)
            found |= measured(Tab(browser, server.url + "#/token"), layer, options.changes)
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--d-head", type=int, default=64)
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--changes", type=int, default=20, help="number of token changes and term changes to time")
    found = run(parser.parse_args())
    said = {name: round(value, 2) for name, value in found.items()}
    print(json.dumps(said | {f"{name}_must_be_below": limit for name, limit in BELOW.items()}, indent=1))
    above = [name for name, limit in BELOW.items() if found[name] >= limit]
    if above:
        sys.exit(f"above the limit: {', '.join(above)}")


if __name__ == "__main__":
    main()
