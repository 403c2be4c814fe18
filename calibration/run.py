"""Compute every verdict for every calibration model, several models at a time, and cache the results.

Each finished model is a file in build/calibration/<fingerprint>, so an interrupted run resumes. The fingerprint covers
the code of detoklens and of this folder; any change to either reruns everything.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "calibration"
PAGE = ROOT / "docs" / "calibration.md"
EACH = 12  # models per kind with random weights; all other kinds get half as many
PERMUTATIONS = 10  # times as many models with permuted labels, which answer one question only
VERDICTS = ("twins", "layers", "auroc", "auroc --pieces", "heads", "words", "lookback", "frequency", "shape")
RANDOM = ("random, ", "rotary, ", "ALiBi, ", "encoder, ")
PERMUTED = "permuted labels, "
JUDGED_SEEDS = 2_000_000  # all rules were chosen on smaller seeds
ASKED = {  # for planted models: the verdicts that their ground truth determines
    "lexical": ("auroc", "auroc --pieces", "heads", "words"),
    "writer": ("twins", "layers"),
    "frequency bias": ("frequency",),
    "wave": ("shape",),
    **{f"{part} switch": ("lookback",) for part in ("position", "class", "lexical")},
}
SCORES_ONLY = ("6 clusters", "16 clusters", "frequency × frequency", "same token")
"""Kinds whose scores depend on what the query is, so that they may look back from some classes more than others."""


def asked_of(kind: str) -> tuple[str, ...]:
    """The verdicts that the ground truth of a kind of model determines."""
    if kind.startswith(PERMUTED):
        return ("lookback",)
    everything = tuple(verdict for verdict in VERDICTS if verdict != "lookback" or kind not in SCORES_ONLY)
    return ASKED.get(kind, everything)


@dataclass(frozen=True)
class Task:
    """One model: its kind, the strength of the planted effect (None without one), and its seed."""

    kind: str
    strength: float | None
    seed: int

    @property
    def file(self) -> str:
        strength = "" if self.strength is None else f" {self.strength:g}"
        return f"{self.kind}{strength} {self.seed}.json".replace(" ", "-").replace(",", "")


def tasks(each: int = EACH) -> list[Task]:
    """All models, identical in every run; seeds differ between kinds."""
    from calibration.adversaries import NULLS, PLANTED, RELABELLED, STRENGTHS

    kinds: list[tuple[str, float | None]] = [(kind, None) for kind in NULLS]
    kinds += [(kind, strength) for kind in PLANTED for strength in STRENGTHS[kind]]
    kinds += [(kind, None) for kind in RELABELLED]

    def number(kind: str) -> int:
        return PERMUTATIONS * each if kind in RELABELLED else each if kind.startswith(RANDOM) else (each + 1) // 2

    return [
        Task(kind, strength, JUDGED_SEEDS + 1000 * place + seed)
        for seed in range(PERMUTATIONS * each)
        for place, (kind, strength) in enumerate(kinds)
        if seed < number(kind)
    ]


def questions(task: Task) -> dict[str, Any]:
    """The question behind each verdict, by its command."""
    import detoklens as dl

    if task.kind.startswith(PERMUTED):
        return {"lookback": permuted_lookback(task.seed)}
    return {
        "twins": dl.Twins(),
        "layers": dl.Layers(),
        "auroc": dl.Auroc(),
        "auroc --pieces": dl.Auroc(pieces=True),
        "heads": dl.Heads(),
        "words": dl.Words(),
        "lookback": dl.Lookback(),
        "frequency": dl.Frequency(),
        "shape": dl.Shape(),
    }


def permuted_lookback(seed: int) -> Any:
    """`lookback` with the labels C and W permuted within the frequency bins of its controls."""
    import numpy as np

    import detoklens as dl

    class Permuted(dl.Lookback):
        def classes(self, *given: Any) -> np.ndarray:
            labels, counts = super().classes(*given), given[1].tokens
            bins, random = np.log2(np.maximum(counts, 1)).astype(int), np.random.default_rng(seed)
            for number in np.unique(bins):
                members = np.flatnonzero((bins == number) & np.isin(labels, ["C", "W"]))
                labels[members] = random.permutation(labels[members])
            return labels

    return Permuted()


def answer(task: Task) -> dict[str, Any]:
    """Compute every verdict for one model; a question that raises is "untestable", with the error message."""
    import detoklens as dl
    from calibration.adversaries import NULLS, PLANTED, RELABELLED

    started, found = time.perf_counter(), dict[str, Any]()
    if task.strength is None:
        model = (NULLS | RELABELLED)[task.kind](task.seed)
    else:
        model = PLANTED[task.kind](task.strength, task.seed)
    with tempfile.TemporaryDirectory() as folder:
        study = dl.study(model.write(Path(folder)), counts=model.texts.counts, workers=1)
        for name, question in questions(task).items():
            if name not in asked_of(task.kind):
                continue
            try:
                verdict = study.ask(question).verdict
                found[name] = None if verdict is None else verdict.to_dict()
            except dl.DetokLensError as error:
                found[name] = {"value": "untestable", "heads": [], "reason": f"refused: {error}"}
    seconds = time.perf_counter() - started
    return {"kind": task.kind, "strength": task.strength, "seed": task.seed, "seconds": seconds, "verdicts": found}


def run(chosen: list[Task], kept: Path, workers: int) -> Iterator[dict[str, Any]]:
    """Yield the results of all models, cached ones first."""
    kept.mkdir(parents=True, exist_ok=True)
    finished = [task for task in chosen if (kept / task.file).is_file()]
    yield from (json.loads((kept / task.file).read_text(encoding="utf-8")) for task in finished)
    left = [task for task in chosen if task not in set(finished)]
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_one_thread) as pool:
        running = {pool.submit(answer, task): task for task in left}
        for done in as_completed(running):
            _write(kept / running[done].file, done.result())
            yield done.result()


def _one_thread() -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def _write(path: Path, found: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
    part.replace(path)


def fingerprint() -> str:
    """Hash all code that affects a verdict: everything except the rendering of the tables."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "calibration").glob("*.py")]):
        if path.name != "table.py" or path.parent.name != "calibration":
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def main() -> None:
    import detoklens as dl
    from calibration.table import write_tables

    options = argparse.ArgumentParser(prog="python -m calibration.run", description="Calibrate every verdict.")
    options.add_argument("--each", type=int, default=EACH, help="random models of each kind (default: %(default)s)")
    options.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one per core)")
    options.add_argument("--kept", type=Path, default=KEPT / fingerprint(), help="cache folder for finished models")
    options.add_argument("--page", type=Path, default=PAGE, help="page whose tables to replace")
    given = options.parse_args()
    chosen, found = tasks(given.each), []
    for number, one in enumerate(run(chosen, given.kept, given.workers), start=1):
        found.append(one)
        print(f"{number} of {len(chosen)} models", end="\r", file=sys.stderr, flush=True)
    minutes = sum(one["seconds"] for one in found) / 60 / given.workers
    made = f"detoklens {dl.__version__}, code {fingerprint()}, {datetime.date.today()}"
    print(write_tables(found, given.page, f"{made}, {minutes:.0f} minutes on {given.workers} cores"))


if __name__ == "__main__":
    main()
