"""Run tasks on Ray, on an existing cluster or on one started for the run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from detoklens.engines.base import ATTEMPTS, Closing, Result, Task, unnumbered
from detoklens.errors import DetokLensError, MissingExtraError


class RayEngine(Closing):
    """Runs tasks on Ray, which restarts the tasks of lost workers."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self._ray = _import_ray()
        self._started_here = not self._ray.is_initialized()
        if self._started_here:
            _connect(self._ray, workers, address)
        self.workers = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], *, ordered: bool = False
    ) -> Iterator[Result]:
        return unnumbered(self._results(function, tasks), ordered)

    def close(self) -> None:
        if self._started_here:
            self._ray.shutdown()

    def _results(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        remote = self._ray.remote(function).options(max_retries=ATTEMPTS - 1, num_cpus=1)
        queue = enumerate(tasks)
        running: dict[Any, int] = {}
        try:
            while self._fill(remote, queue, running):
                finished, _ = self._ray.wait(list(running), num_returns=1)
                for reference in finished:
                    yield running.pop(reference), self._get(reference)
        finally:
            for reference in running:
                self._ray.cancel(reference, force=True)

    def _fill(self, remote: Any, queue: Iterator[tuple[int, Any]], running: dict[Any, int]) -> bool:
        """Start tasks until every worker has one; return whether any is running."""
        while len(running) < self.workers:
            following = next(queue, None)
            if following is None:
                break
            number, task = following
            running[remote.remote(task)] = number
        return bool(running)

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, DetokLensError):
                raise error.cause from error
            if isinstance(error.cause, MemoryError):
                raise MemoryError(str(error.cause)) from error  # Ray's own text is a traceback
            raise
        except self._ray.exceptions.RayError as error:
            reason = str(error).splitlines()[0]
            raise DetokLensError(
                f"Ray lost the same task {ATTEMPTS} times ({reason}); allow less memory or fewer workers and run the "
                "same again"
            ) from error


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtraError(
            "the ray engine needs Ray, which is not installed: pip install 'detoklens[ray]' (in a clone: '.[ray]')"
        ) from error


def _connect(ray: Any, workers: int | None, address: str | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    try:
        if address is None:
            ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DetokLensError(f"no Ray cluster answers at {address or 'this machine'}: {reason}") from error
