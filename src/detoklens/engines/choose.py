"""Open the engine that the user asked for."""

from __future__ import annotations

from detoklens.engines.base import Engine
from detoklens.errors import DetokLensError
from detoklens.parallel import available_cores

ENGINES = ("local", "ray")


def open_engine(name: str = "local", workers: int | None = None, ray_address: str | None = None) -> Engine:
    """Start the named engine; None means as many workers as the machine or the cluster has cores."""
    if name not in ENGINES:
        raise DetokLensError(f"unknown engine {name!r}; accepted are {', '.join(ENGINES)}")
    if workers is not None and workers < 1:
        raise DetokLensError(f"{workers} workers were requested; pass at least 1")
    if name == "ray":
        from detoklens.engines.ray import RayEngine

        return RayEngine(workers, ray_address)
    if ray_address is not None:
        raise DetokLensError(
            "a Ray address was given with the local engine; choose the ray engine, or omit the address"
        )
    from detoklens.engines.local import LocalEngine

    return LocalEngine(workers or available_cores())
