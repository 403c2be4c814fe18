"""Items made ahead by a thread: the same ones, errors included, and never many more than were taken."""

from __future__ import annotations

import threading

import pytest

from detoklens.corpus.count import prefetch


@pytest.mark.parametrize("places", [1, 3, 50])
def test_the_same_items_come_in_the_same_order(places):
    assert list(prefetch(iter(range(20)), places)) == list(range(20))


def test_items_are_made_by_another_thread_and_no_further_ahead_than_asked():
    made: list[int] = []
    makers = set()

    def source():
        for number in range(100):
            made.append(number)
            makers.add(threading.get_ident())
            yield number

    taken = prefetch(source(), 4)
    assert [next(taken) for _ in range(3)] == [0, 1, 2]
    taken.close()
    assert len(made) <= 3 + 4
    assert makers.isdisjoint({threading.get_ident()})


def test_an_error_comes_after_the_items_before_it():
    def source():
        yield 1
        raise OSError("no room")

    taken = prefetch(source(), 2)
    assert next(taken) == 1
    with pytest.raises(OSError, match="no room"):
        next(taken)
