"""Which engine did the user ask for?"""

from __future__ import annotations

from detoklens.engines.base import Engine
from detoklens.errors import DetokLensError
from detoklens.parallel import available_cores

ENGINES = ("local", "ray")


def open_engine(name: str = "local", workers: int | None = None, ray_address: str | None = None) -> Engine:
    """Start the named engine with this many workers (as many as the machine, or the cluster, has where None)."""
    if name not in ENGINES:
        raise DetokLensError(f"engine {name!r} is not known; accepted are {', '.join(ENGINES)}")
    if workers is not None and workers < 1:
        raise DetokLensError(f"{workers} workers were asked for; at least 1 is needed")
    if name == "ray":
        from detoklens.engines.ray import RayEngine

        return RayEngine(workers, ray_address)
    if ray_address is not None:
        raise DetokLensError("a Ray address was given with the local engine; ask for the engine ray, or leave it out")
    from detoklens.engines.local import LocalEngine

    return LocalEngine(workers or available_cores())
