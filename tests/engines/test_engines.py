"""Every engine gives the same results, starts a lost worker's task again, and passes errors on."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from detoklens.engines import Engine, open_engine
from detoklens.errors import CorpusError, DetokLensError, MissingExtraError
from tests.engines import work_to_do


def test_each_task_has_its_result(engine: Engine) -> None:
    assert sorted(engine.run(work_to_do.square, range(20))) == [number * number for number in range(20)]


def test_a_function_may_be_partial(engine: Engine) -> None:
    assert sorted(engine.run(partial(pow, exp=3), range(5))) == [number**3 for number in range(5)]


def test_no_tasks_give_no_results(engine: Engine) -> None:
    assert list(engine.run(work_to_do.square, [])) == []


def test_results_come_as_completed(two_workers: Engine, tmp_path: Path) -> None:
    tasks = [(str(tmp_path), number, 6) for number in range(6)]
    results = list(two_workers.run(work_to_do.first_waits_for_last, tasks))
    assert sorted(results) == list(range(6))
    assert results[0] != 0


def test_tasks_are_pulled_only_when_a_worker_is_free(engine: Engine) -> None:
    """So a generator can decide by the results so far what comes next."""
    pulled: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(50):
            pulled.append(number)
            yield number

    results = engine.run(work_to_do.square, tasks())
    next(results)
    assert len(pulled) <= engine.workers + 1
    assert len(list(results)) == 49


def test_a_lost_workers_task_is_started_again(two_workers: Engine, tmp_path: Path) -> None:
    marks = [str(tmp_path / f"task{number}") for number in range(3)]
    assert sorted(two_workers.run(work_to_do.die_once, marks)) == ["task0", "task1", "task2"]


@pytest.mark.parametrize("task", [work_to_do.die_always, work_to_do.end_always])
def test_a_task_that_kills_every_worker_ends_the_run_with_one_line(task: Callable, two_workers: Engine) -> None:
    with pytest.raises(DetokLensError, match="3 times") as error:
        list(two_workers.run(task, [1]))
    assert "\n" not in str(error.value)
    assert sorted(two_workers.run(work_to_do.square, [1, 2])) == [1, 4]


def test_an_error_of_a_task_is_the_error_of_the_run(engine: Engine) -> None:
    with pytest.raises(CorpusError, match=r"^task 3 is bad$"):
        list(engine.run(work_to_do.refuse, range(8)))


def test_a_bug_in_a_task_keeps_its_name(engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError, match="task 7"):
        list(engine.run(work_to_do.break_down, [7]))


def test_an_engine_can_be_used_after_a_run_was_given_up(engine: Engine) -> None:
    results = engine.run(work_to_do.square, range(10))
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert sorted(engine.run(work_to_do.square, range(3))) == [0, 1, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dask",), "accepted are local, ray"),
        (("local", 0), "at least 1"),
        (("local", 1, "auto"), "choose the ray engine"),
    ],
)
def test_what_can_not_be_started_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(DetokLensError, match=message):
        open_engine(*arguments)  # type: ignore[arg-type]


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"detoklens\[ray\]"):
        open_engine("ray")


def test_too_little_memory_is_told_in_one_line_wherever_it_is_found(engine: Engine) -> None:
    with pytest.raises(MemoryError, match=r"^Unable to allocate 1.00 PiB for an array with shape .*$"):
        list(engine.run(work_to_do.ask_too_much, range(3)))
