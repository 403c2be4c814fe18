"""When does a counter put runs away: before its last keys are sorted, or with them?"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from detoklens.corpus.pairs import PairCounter, Run, Spills
from detoklens.corpus.reading import Tally
from detoklens.corpus.tasks import CountTask

BEFORE, INSIDE, AFTER = "before finish", "inside finish", "after finish"
STAGES = {frozenset(), frozenset({BEFORE}), frozenset({INSIDE}), frozenset({BEFORE, INSIDE})}


@contextmanager
def noted_stages() -> Iterator[list[frozenset[str]]]:
    """The stages at which each shard that is counted in this process puts runs away."""
    seen: list[frozenset[str]] = []
    now: list[str] = [BEFORE]
    stages: set[str] = set()
    finish, put_away, run_task = PairCounter.finish, Spills.put_away, CountTask.run

    def noted_finish(counter: PairCounter) -> Run:
        now[0] = INSIDE
        run = finish(counter)
        now[0] = AFTER
        return run

    def noted_put_away(files: Spills, run: Run) -> None:
        stages.add(now[0])
        put_away(files, run)

    def noted_run(task: CountTask) -> Tally:
        now[0] = BEFORE
        stages.clear()
        tally = run_task(task)
        seen.append(frozenset(stages - {AFTER}))
        return tally

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PairCounter, "finish", noted_finish)
        patched.setattr(Spills, "put_away", noted_put_away)
        patched.setattr(CountTask, "run", noted_run)
        yield seen
