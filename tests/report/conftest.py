"""One finished report of a model that spells, and one of a hostile vocabulary, shared by the tests that only look."""

from __future__ import annotations

from pathlib import Path

import pytest

from detoklens.report import drawing
from tests.command_line import run
from tests.once import once
from tests.report import made
from tests.spelled import LINES, shipping_few_words, write_spelled


@pytest.fixture(scope="session")
def spelling(tmp_path_factory) -> Path:
    return write_spelled(tmp_path_factory.mktemp("models") / "spelling")


@pytest.fixture(scope="session")
def counted(spelling, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("counted")
    (folder / "lines.txt").write_text("\n".join(LINES), encoding="utf-8")
    run("count", folder / "lines.txt", "--tokenizer", spelling, "--out", folder / "counts", "--workers", "1")
    return folder / "counts"


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    return made.documents(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="session")
def whole(spelling, counted, texts, tmp_path_factory) -> Path:
    """A report with counts and text, in all formats."""
    with shipping_few_words():
        return once(
            tmp_path_factory, "report", lambda out: made.report(spelling, out, "--counts", counted, "--text", texts)
        )


@pytest.fixture(scope="session")
def hostile(tmp_path_factory) -> Path:
    """A report of a model whose vocabulary is made of HTML and script."""
    folder = tmp_path_factory.mktemp("hostile")
    with shipping_few_words(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "FORMATS", ("svg",))
        return made.report(
            made.write_hostile(folder / "</script><script>window.injected=9<script>"[2:9]), folder / "out"
        )
