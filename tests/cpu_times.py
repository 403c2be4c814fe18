"""Where does the time of the tests go? `pytest -p tests.cpu_times` prints CPU seconds by file and of the slowest tests.

CPU time, also of finished child processes, says the same on a busy machine as on an idle one; `--durations` does not.
Tests that `make quick` runs although they take more than a second are named: they should be `slow`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

SHOWN = 40
QUICK = 1.0  # seconds
seconds: dict[str, float] = {}
marked_slow: set[str] = set()


def cpu_seconds() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[BEGUN] = cpu_seconds()
    return (yield)


BEGUN = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    item.user_properties.append(("cpu_seconds", cpu_seconds() - item.stash[BEGUN]))
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        seconds[report.nodeid] = dict(report.user_properties)["cpu_seconds"]
        marked_slow.update([report.nodeid] if "slow" in report.keywords else [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: Counter[str] = Counter()
    for name, taken in seconds.items():
        files[name.partition("::")[0]] += taken
    quick = Counter({name: taken for name, taken in seconds.items() if taken > QUICK and name not in marked_slow})
    tables = {"files": files, "tests": Counter(seconds), f"not slow, but more than {QUICK:g} s": quick}
    terminalreporter.section(f"{sum(seconds.values()):.0f} CPU seconds in {len(seconds):,} tests")
    for title, table in tables.items():
        terminalreporter.line(f"{title}:")
        for name, taken in table.most_common(SHOWN):
            terminalreporter.line(f"{taken:8.1f}  {name}")
