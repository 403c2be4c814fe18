"""Where does the work run? The same pure functions, on this machine's processes or on a cluster.

An engine does one thing: `run(function, tasks)` calls a pure, picklable function on every task and hands the results
back. Another engine (Dask, Spark) is one more file with that method and one more line in `open_engine`.
"""

from detoklens.engines.base import Engine
from detoklens.engines.choose import ENGINES, open_engine

__all__ = ["ENGINES", "Engine", "open_engine"]
