"""One browser, one server: every bundle under a path of its own, so that all tests see the page under a sub-path."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import detoklens
from detoklens.explorer import bundle as page
from detoklens.explorer.bundle import write_bundle
from detoklens.explorer.server import Server, serving
from detoklens.questions.study import Study
from tests.report.made import write_hostile

WAIT = 60_000  # milliseconds; a machine may be busy
DRAWN = "main[data-ready=true]"


@pytest.fixture(scope="session")
def demo() -> Study:
    return detoklens.study("demo")


@pytest.fixture(scope="session")
def site(bundles, plain, demo, tmp_path_factory) -> Path:
    """Bundles of every kind, of the demo model, of one without a tokenizer, and of a hostile vocabulary."""
    if not (page.PAGE / "index.html").is_file():
        pytest.fail("the explorer's page is not built; `make explorer-web` builds it")
    place = tmp_path_factory.mktemp("site")
    for kind, (_, found) in bundles.items():
        shutil.copytree(found.folder, place / kind.replace(" ", "-"))
    shutil.copytree(plain.folder, place / "plain")
    write_bundle(demo, place / "demo", cards_later=True)
    hostile = detoklens.load(write_hostile(tmp_path_factory.mktemp("hostile") / "model"))
    write_bundle(Study(hostile), place / "hostile", cards_later=True)
    return place


@pytest.fixture(scope="session")
def address(site) -> str:
    with Server(site) as server, serving(server):
        yield server.url


@pytest.fixture
def opened(browser, address) -> Callable:
    """Open a page of the site, with everything that went wrong or tried to leave; nothing of either is allowed."""

    @contextlib.contextmanager
    def opening(path: str = "demo/#/token", allowed: tuple[str, ...] = (), **context):
        with contextlib.closing(browser.new_context(accept_downloads=True, **context)) as tab:
            shown, wrong = tab.new_page(), []
            shown.set_default_timeout(WAIT)
            tab.route("**/*", lambda route: route.continue_() if _stays(route, address, wrong) else route.abort())
            shown.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
            shown.on("pageerror", lambda error: wrong.append(str(error)))
            shown.on("dialog", lambda dialog: wrong.append(dialog.message))
            shown.goto(address + path)
            yield shown
            assert [each for each in wrong if not any(known in each for known in allowed)] == []

    return opening


def _stays(route, address: str, wrong: list[str]) -> bool:
    stays = route.request.url.startswith((address, "data:", "blob:"))
    if not stays:
        wrong.append(route.request.url)
    return stays


@pytest.fixture(scope="session")
def said_of(site) -> Callable[[str], dict]:
    """What a bundle says of itself."""
    return lambda name: json.loads((site / name / "bundle.json").read_text(encoding="utf-8"))
