"""One engine of each kind for all tests: starting a Ray cluster takes seconds."""

import signal
from collections.abc import Iterator

import pytest

from detoklens.engines import Engine, open_engine


@pytest.fixture(scope="package", params=["local", "ray"])
def two_workers(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "ray":
        pytest.importorskip("ray", reason="Ray is not installed: the ray engine is NOT TESTED")
    with open_engine(request.param, 2) as engine:
        yield engine


@pytest.fixture(params=["one process", "two workers"])
def engine(request: pytest.FixtureRequest, two_workers: Engine) -> Iterator[Engine]:
    if request.param == "two workers":
        yield two_workers
    else:
        with open_engine("local", 1) as one:
            yield one


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """Ctrl-C is heard, as at a terminal: what a shell starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
