"""Bundles of every kind of small layer, made once for the tests that only look."""

from __future__ import annotations

from pathlib import Path

import pytest

from detoklens.explorer import bundle as page
from detoklens.explorer.bundle import write_bundle
from detoklens.questions.study import Study
from detoklens.tokens import Vocabulary
from tests.explorer.kinds import KINDS, study_of, vocabulary
from tests.explorer.reading import Bundle
from tests.layers import random_layer
from tests.spelled import shipping_few_words


@pytest.fixture(scope="session")
def tokens(tmp_path_factory) -> Vocabulary:
    return vocabulary(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def bundles(tokens, tmp_path_factory) -> dict[str, tuple[Study, Bundle]]:
    """Each kind's study and its bundle; head cards in the first alone, of few words: they take the longest."""
    place, found = tmp_path_factory.mktemp("bundles"), {}
    with shipping_few_words():
        for kind in KINDS:
            study = study_of(kind, tokens)
            folder = write_bundle(study, place / kind.replace(" ", "-"), cards_later=kind != "learned")
            found[kind] = study, Bundle(folder)
    return found


@pytest.fixture(scope="session")
def plain(tmp_path_factory) -> Bundle:
    """The bundle of a model without a tokenizer."""
    study = Study(random_layer(vocab_size=60, dtype="float32"))
    return Bundle(write_bundle(study, tmp_path_factory.mktemp("plain") / "out"))


@pytest.fixture(scope="session", autouse=True)
def a_page(tmp_path_factory):
    """A stand-in where the page is not built, so that the rest can be tested."""
    if (page.PAGE / "index.html").is_file():
        yield
        return
    folder: Path = tmp_path_factory.mktemp("page")
    (folder / "index.html").write_text("<!doctype html><title>stand-in</title>")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "PAGE", folder)
        yield
