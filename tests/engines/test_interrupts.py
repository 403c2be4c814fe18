"""Ctrl-C at a bad moment waits until that is over, and is not lost."""

import os
import signal
import threading

import numpy as np
import pytest

from detoklens.corpus import pairs
from detoklens.corpus.encoding import Encoded
from detoklens.corpus.pairs import PairCounter, Run, add_all
from detoklens.engines import interrupts_deferred

pytestmark = pytest.mark.usefixtures("heard_interrupts")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_is_heard_at_the_end_of_the_block() -> None:
    done: list[str] = []

    def work() -> None:
        with interrupts_deferred():
            interrupt()
            interrupt()
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]
    with pytest.raises(KeyboardInterrupt):
        interrupt()  # at once, as before


def test_an_error_is_no_interrupt() -> None:
    with pytest.raises(ZeroDivisionError), interrupts_deferred():
        _ = 1 // 0


def test_who_ignores_interrupts_goes_on_doing_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_deferred():
            interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_threads_need_not_defer_what_they_never_hear() -> None:
    done: list[str] = []

    def work() -> None:
        with interrupts_deferred():
            done.append("all of it")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["all of it"]


@pytest.mark.parametrize("loop", ["add_token_counts", "write_pair_keys", "run_lengths", "add_runs"])
def test_no_interrupt_reaches_a_compiled_loop(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba would lose it, or end the process, where it loads the loop at that moment."""
    compiled = getattr(pairs, loop)
    finished: list[str] = []

    def interrupted(*arguments: object) -> object:
        interrupt()
        finished.append(loop)
        return compiled(*arguments)

    def count() -> None:
        counter = PairCounter(7, 10_000, lambda run: None)
        counter.add(Encoded(np.array([1, 2, 3], np.uint32), np.array([0, 3])))
        counter.finish()

    monkeypatch.setattr(pairs, loop, interrupted)
    with pytest.raises(KeyboardInterrupt):
        count()
    assert finished == [loop]


def test_no_interrupt_reaches_the_loop_that_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    added = pairs.add_runs
    run = Run(np.array([1], np.uint32), np.array([1]))
    finished: list[str] = []

    def interrupted(*arguments: object) -> object:
        interrupt()
        finished.append("added")
        return added(*arguments)

    monkeypatch.setattr(pairs, "add_runs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add_all([run, run, run, run])
    assert finished == ["added", "added"]
