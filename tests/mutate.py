"""How strong are the tests? Change one operator, comparison or constant at a time and see whether a test fails.

    python -m tests.mutate scores --seconds 600
    python -m tests.mutate measures weights --seed 1 --mutants 50

Each mutant runs in a process of its own with the tests of its package, the slow ones too; no file is changed. Survivors
are printed as they are found: either the change makes no difference, or a test is missing.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import random
import resource
import time
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "detoklens"
OF_SCORES = ["scores", "questions/test_explanation.py", "measures/test_positions.py", "questions/test_explain.py"]
TESTS = {"scores": OF_SCORES, "measures": ["measures"], "weights": ["weights", "scores"]}
"""Files and folders in tests/ that should find a mutant of each package."""
MOST_SECONDS = 300  # of CPU time for one mutant
LIBRARIES = ("numpy", "polars", "numba", "scipy.special", "tokenizers", "transformers.models.gpt2.modeling_gpt2")
PAIRS = "Add Sub, Mult Div, MatMult Add, FloorDiv Mult, Lt LtE, Gt GtE, Eq NotEq, Is IsNot, And Or, USub UAdd"
ONE_WAY = ("MatMult", "FloorDiv", "USub")
SWAPS = {getattr(ast, one): getattr(ast, other) for one, other in (pair.split() for pair in PAIRS.split(", "))}
SWAPS |= {other: one for one, other in SWAPS.items() if one.__name__ not in ONE_WAY}


class Mutant(NamedTuple):
    """A file with one place changed."""

    path: Path
    code: str
    shown: str = ""


def places(tree: ast.AST) -> Iterator[tuple[ast.expr, str, Any]]:
    """Expressions that can be changed, each with the attribute to change and its new value."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.UnaryOp(op=op) if type(op) in SWAPS:
                yield node, "op", SWAPS[type(op)]()
            case ast.Compare(ops=[op]) if type(op) in SWAPS:
                yield node, "ops", [SWAPS[type(op)]()]
            case ast.Constant(value=bool(value)):
                yield node, "value", not value
            case ast.Constant(value=int(value) | float(value)):
                yield node, "value", value + 1


def mutants(package: str) -> Iterator[Mutant]:
    for path in sorted((SOURCE / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for number in range(len(list(places(ast.parse(text))))):
            tree = ast.parse(text)
            node, attribute, value = list(places(tree))[number]
            shown = f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
            setattr(node, attribute, value)
            yield Mutant(path, ast.unparse(tree), f"{shown}  ->  {ast.unparse(node)}")


def survives(mutant: Mutant, package: str) -> bool:
    """Whether the tests pass with the mutant, in a fork of this process, which has imported nothing of ours."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))  # a loop that no longer ends
    read, stats = SourceFileLoader.get_data, SourceFileLoader.path_stats

    def path_stats(loader: SourceFileLoader, path: str) -> Any:
        if Path(path) == mutant.path:
            raise OSError("compiled code of the file as it is would be used")
        return stats(loader, path)

    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign, assignment]
    SourceFileLoader.get_data = lambda loader, path: (  # type: ignore[method-assign]
        mutant.code.encode() if Path(path) == mutant.path else read(loader, path)
    )
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    options = ["-x", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    own = ROOT / "tests" / package / f"test_{mutant.path.stem}.py"  # the first to fail, if any does
    names = [str(own)] * own.exists() + [f"tests/{name}" for name in TESTS[package]]
    os._exit(int(importlib.import_module("pytest").main([*options, *names])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", choices=TESTS)
    for name, default in (("seed", 0), ("mutants", 1000), ("seconds", 3600)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    os.chdir(ROOT)
    for name in LIBRARIES:
        importlib.import_module(name)
    for package in options.packages:
        path = SOURCE / package / "__init__.py"
        if not survives(Mutant(path, path.read_text(encoding="utf-8")), package):
            raise SystemExit(f"the tests of {package} fail without any change")
    found = [(mutant, package) for package in options.packages for mutant in mutants(package)]
    random.Random(options.seed).shuffle(found)
    begun, tried, survivors = time.monotonic(), 0, 0
    for mutant, package in found[: options.mutants]:
        if time.monotonic() - begun > options.seconds:
            break
        tried += 1
        if survives(mutant, package):
            survivors += 1
            print(mutant.shown, flush=True)  # noqa: T201
    print(f"{survivors} of {tried} mutants survived; {len(found):,} are possible")  # noqa: T201


if __name__ == "__main__":
    main()
