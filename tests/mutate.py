"""How strong are the tests? Change one operator, comparison or constant at a time and see whether a test fails.

    python -m tests.mutate scores --seconds 600
    python -m tests.mutate measures weights --seed 1 --mutants 50

Each mutant runs in a process of its own with the tests of its package; no file is changed. Survivors are printed as they
are found: either the change makes no difference, or a test is missing.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "detoklens"
TESTS = {"scores": ["scores", "explorer/test_bundle.py"], "measures": ["measures", "scores"], "weights": ["weights"]}
"""The tests that are to find a mutant, by package: files and folders in tests/."""
LIBRARIES = ("numpy", "polars", "numba", "scipy.special", "hypothesis", "jaxtyping", "pytest", "tokenizers")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.MatMult: ast.Add,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.USub: ast.UAdd,
}


@dataclass(frozen=True)
class Mutant:
    """One changed place of a file."""

    path: Path
    line: int
    before: str
    after: str
    code: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.before}  ->  {self.after}"


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
            before = ast.unparse(node)
            setattr(node, attribute, value)
            with contextlib.suppress(ValueError):  # inside an f-string
                yield Mutant(path, node.lineno, before, ast.unparse(node), ast.unparse(tree))


def survives(mutant: Mutant, tests: list[str]) -> bool:
    """Whether the tests pass with the mutant, in a fork of this process, which has imported nothing of ours."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    read, stats = SourceFileLoader.get_data, SourceFileLoader.path_stats

    def path_stats(loader: SourceFileLoader, path: str) -> Any:
        if Path(path) == mutant.path:
            raise OSError("compiled code of the file as it is would be used")
        return stats(loader, path)

    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign, assignment]
    SourceFileLoader.get_data = lambda loader, path: (  # type: ignore[method-assign]
        mutant.code.encode() if Path(path) == mutant.path else read(loader, path)
    )
    with open(os.devnull, "w") as silence:
        os.dup2(silence.fileno(), 1)
        os.dup2(silence.fileno(), 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    os._exit(int(importlib.import_module("pytest").main([*options, *tests])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", choices=TESTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutants", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    os.chdir(ROOT)
    for name in LIBRARIES:
        importlib.import_module(name)
    found = [(mutant, package) for package in options.packages for mutant in mutants(package)]
    random.Random(options.seed).shuffle(found)
    begun, tried, survivors = time.monotonic(), 0, 0
    for mutant, package in found[: options.mutants]:
        if time.monotonic() - begun > options.seconds:
            break
        tests = [f"tests/{name}" for name in TESTS[package]]
        tried += 1
        if survives(mutant, tests):
            survivors += 1
            print(mutant, flush=True)
    print(f"{survivors} of {tried} mutants survived; {len(found):,} are possible")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
