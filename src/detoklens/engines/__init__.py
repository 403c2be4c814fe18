"""Pure functions on processes of this machine or on a Ray cluster: counting, drawing figures, many checkpoints.

Measures of one model run on threads instead (`detoklens.parallel`). An engine has one method: `run(function, tasks)`
calls a pure, picklable function on every task and hands back the results. Another engine (Dask, Spark) is one more file
with that method and one more line in `open_engine`.
"""

from detoklens.engines.base import Engine
from detoklens.engines.choose import ENGINES, open_engine

__all__ = ["ENGINES", "Engine", "open_engine"]
