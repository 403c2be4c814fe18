"""Run tasks on Ray, on an existing cluster or on one started for the run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from detoklens.engines import ATTEMPTS, Engine
from detoklens.errors import DetokLensError, MissingExtraError, first_line


class RayEngine(Engine):
    """Runs tasks on Ray, which restarts the tasks of lost workers."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise MissingExtraError(
                "the ray engine needs Ray, which is not installed: pip install 'detoklens[ray]' (in a clone: '.[ray]')"
            ) from error
        self._started_here = not self._ray.is_initialized()
        if self._started_here:
            new = {"address": "local", "num_cpus": workers, "include_dashboard": False}
            quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
            try:
                self._ray.init(**({"address": address} if address else new), **quiet)
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = first_line(error)
                raise DetokLensError(f"no Ray cluster answers at {address or 'this machine'}: {reason}") from error
        self.workers = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def close(self) -> None:
        if self._started_here:
            self._ray.shutdown()

    def _results(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        remote = self._ray.remote(function).options(max_retries=ATTEMPTS - 1, num_cpus=1)
        queue = enumerate(tasks)
        running: dict[Any, int] = {}
        try:
            while True:
                while len(running) < self.workers and (following := next(queue, None)) is not None:
                    number, task = following
                    running[remote.remote(task)] = number
                if not running:
                    return
                for reference in self._ray.wait(list(running), num_returns=1)[0]:
                    yield running.pop(reference), self._get(reference)
        finally:
            for reference in running:
                self._ray.cancel(reference, force=True)

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
            raise DetokLensError(
                f"Ray lost the same task {ATTEMPTS} times ({first_line(error)}); allow less memory or fewer "
                "workers and run the same again"
            ) from error
