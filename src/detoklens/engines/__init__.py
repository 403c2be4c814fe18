"""Run pure functions in local processes or on a Ray cluster: counting, drawing figures, many checkpoints.

Measures of one model run on threads instead (`detoklens.parallel`). An engine has one method: `run(function, tasks)`
calls a pure, picklable function on every task and returns the results. To add an engine (Dask, Spark), write a module
with that method and add it to `open_engine`.
"""

from detoklens.engines.base import Engine
from detoklens.engines.choose import ENGINES, open_engine

__all__ = ["ENGINES", "Engine", "open_engine"]
