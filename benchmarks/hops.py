"""Count the functions, modules and package changes that one command passes through.

    python benchmarks/hops.py              # auroc demo
    python benchmarks/hops.py twins demo --list
    python benchmarks/hops.py count texts --out new-folder --workers 1

A hop is the first call of a detoklens function; a package change is a hop into a package other than the previous hop's.
Imports, lambdas, comprehensions and generated methods don't count.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import detoklens

ROOT = Path(detoklens.__file__).parent
GENERATED = ("<", "__create_fn__")


def hops_of(command: list[str]) -> list[tuple[str, str]]:
    """Module and function of every hop, in order."""
    from detoklens.__main__ import main

    found: dict[tuple[str, str], None] = {}
    known: set[CodeType] = set()
    importing = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>" and event in ("call", "return"):
            importing += 1 if event == "call" else -1
        if event != "call" or importing or code in known:
            return
        known.add(code)
        path = Path(code.co_filename)
        if not code.co_name.startswith(GENERATED) and path.suffix == ".py" and path.is_relative_to(ROOT):
            found[".".join(path.relative_to(ROOT).with_suffix("").parts), code.co_qualname] = None

    sys.argv = ["detoklens", *command]
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return list(found)


def main() -> None:
    arguments = [word for word in sys.argv[1:] if word != "--list"] or ["auroc", "demo"]
    listing = "--list" in sys.argv
    with tempfile.TemporaryDirectory() as scratch:  # compiles kernels; its output would shorten the measured run
        named = zip(["", *arguments], arguments, strict=False)
        elsewhere = [f"{scratch}/out" if option == "--out" else word for option, word in named]
        subprocess.run([sys.executable, "-m", "detoklens", *elsewhere], check=True, capture_output=True)
    hops = hops_of(arguments)
    packages = [module.partition(".")[0] for module, _ in hops]
    changes = sum(before != after for before, after in itertools.pairwise(packages))
    if listing:
        print("\n".join(f"{module}:{name}" for module, name in hops))
    print(
        f"{' '.join(arguments)}: {len(hops)} functions in {len({module for module, _ in hops})} modules, "
        f"{changes} package changes"
    )


if __name__ == "__main__":
    main()
