"""Golden tables: freeze the answers to all questions before a rebuild, and compare with them afterwards.

    python -m tests.golden freeze DIR
    python -m tests.golden compare DIR [--only NAME]

The models are the demo, a tiny random model of every family, and the real models in ../shared/models. `freeze` also
writes the tiny models into DIR, so that `compare` reads the same weights. If a question raises for a model, the
class of the error is frozen. New columns are only reported; an answer that was never frozen is a difference.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

import detoklens as dl
from detoklens import demo
from detoklens.questions.base import Question
from tests.verification.test_every_family import SETTINGS

SHARED = Path(__file__).resolve().parents[2] / "shared" / "models"
TOLERANCE = 1e-6

TEXTS = [
    "the priest was descending the stairs with uncertain steps, carrying a lantern and an unopened letter. " * 3,
    "Once upon a time there was a little girl who liked to play in the garden with her big brown dog. " * 3,
    "Photosynthesis is the process by which green plants and other organisms convert light into chemical energy. " * 3,
]
SPLIT_WORDS = ["embedding", "tokenizers", "unbelievably", "photosynthesis", "descending", "uncertain"]
FAMILIES = {
    name: {key: 72 if size == 30 else size for key, size in settings.items()} | {"vocab_size": 4096}
    for name, settings in SETTINGS.items()
}
"""Sizes of the tiny models: those of the tests of `verify`, with more positions and the demo's vocabulary."""

ANYWHERE = [
    dl.Partners(token_id=[500, 7], top=5),
    dl.Words(word_list=SPLIT_WORDS),
    dl.Heatmap(tokens=20),
    dl.Lexicon(top=50),
    dl.Auroc(tokens=range(260, 560), truth="words", words=SPLIT_WORDS, bootstrap=20),
    dl.Heads(),
    dl.Twins(pieces=[2], triples=50, candidates=300, bootstrap=20),
    dl.Frequency(),
    dl.Positions(query_positions=[5, 40]),
    dl.Shape(query_positions=[40]),
    dl.Variance(),
    dl.Attention(query_positions=[5, 30]),
    dl.Contributions(query_positions=[5, 30]),
    dl.Explain(token_ids=[300, 301, 400, 300, 500, 310]),
    dl.Anatomy(),
    dl.Lookback(),
    dl.Paper(),
]
TINY = [
    *ANYWHERE,
    dl.Partners(token_id=[500], top=5, offset=3, mean="vocabulary"),
    dl.Lexicon(top=50, no_self=True, direction="ahead"),
    dl.Auroc(tokens=range(260, 560), bootstrap=20),
    dl.Auroc(tokens=range(260, 320), bootstrap=20, negatives="matched", layer=1),
    dl.Positions(query_positions=[5, 40], weights="frequency"),
    dl.Attention(query_positions=[5, 30], mean="none"),
    dl.Contributions(query_positions=[5, 30], mean="none"),
    dl.Layers(triples=50, candidates=300, bootstrap=20),
]
REAL = [*ANYWHERE, dl.Layers(triples=50, candidates=300, bootstrap=20)]


def of_demo() -> list[Question]:
    """What a gallery asks, except with fewer triples and resamples, and variants of what runs in blocks."""
    quick = {dl.Layers: dl.Layers(triples=200, bootstrap=50), dl.Twins: dl.Twins(triples=200, bootstrap=50)}
    kinds = [type(question) for question in REAL]
    examples = [each for kind in kinds for each in ([quick[kind]] if kind in quick else kind.examples())]
    return [
        *examples,
        dl.Auroc(),
        dl.Auroc(negatives="matched", positives="pmi", weights="one", centred=True),
        dl.Auroc(layer=1, pieces=True, bootstrap=50),
        dl.Auroc(truth="words", controls=False),
        dl.Lexicon(centred=True, scale="bare"),
        dl.Contributions(formula="published", heads=[0, 2]),
        dl.Positions(average="mean-of-ratio", weights="frequency"),
    ]


def studies(folder: Path, workers: int) -> Iterator[tuple[str, dl.Study, list[Question]]]:
    yield "demo", dl.study("demo", workers=workers), of_demo()
    for name in FAMILIES:
        given = {"counts": demo.COUNTS, "text": TEXTS, "length": 60, "workers": workers}
        yield name, dl.study(folder / "models" / name, **given), TINY
    for path in sorted(SHARED.glob("*/tokenizer.json")):
        yield path.parent.name, dl.study(path.parent, text=TEXTS, length=60, workers=workers), REAL


def write_models(folder: Path) -> None:
    from tests.weights.families.tiny import tiny

    for name, settings in FAMILIES.items():
        tiny(name, **settings).save_pretrained(folder / name)
        shutil.copy(demo.CHECKPOINT / "tokenizer.json", folder / name)


def tables_of(study: dl.Study, question: Question) -> dict[str, pl.DataFrame]:
    try:
        return dict(study.ask(question).tables)
    except Exception as error:  # a crash is frozen too: a rebuild may only mend it
        return {"refused": pl.DataFrame({"by": [type(error).__name__]})}


def answers(folder: Path, workers: int, only: str | None) -> Iterator[tuple[str, dict[str, pl.DataFrame]]]:
    """Tables by `model/number-question`; the number is that of the question in its list."""
    for model, study, questions in studies(folder, workers):
        for number, question in enumerate(questions):
            name = f"{model}/{number:02}-{question.name()}"
            if only is None or only in name:
                begun = time.perf_counter()
                tables = tables_of(study, question)
                sys.stderr.write(f"{name}: {time.perf_counter() - begun:.2f} s\n")
                yield name, tables


def freeze(folder: Path, workers: int, only: str | None) -> int:
    if not (folder / "models").exists():
        write_models(folder / "models")
    for name, tables in answers(folder, workers, only):
        shutil.rmtree(folder / "tables" / name, ignore_errors=True)
        (folder / "tables" / name).mkdir(parents=True)
        for table, frame in tables.items():
            frame.write_parquet(folder / "tables" / name / f"{table}.parquet")
    return 0


def compare(folder: Path, workers: int, only: str | None) -> int:
    verdicts = []
    for name, tables in answers(folder, workers, only):
        frozen = {path.stem: pl.read_parquet(path) for path in sorted((folder / "tables" / name).glob("*.parquet"))}
        for table in sorted(frozen.keys() | tables.keys()):
            is_good, said = compare_tables(frozen.get(table), tables.get(table))
            verdicts.append(is_good)
            if said != "equal":
                sys.stdout.write(f"{name}/{table}: {said}\n")
    sys.stdout.write(f"{len(verdicts)} tables, {verdicts.count(False)} different\n")
    return int(not verdicts or not all(verdicts))


def compare_tables(frozen: pl.DataFrame | None, found: pl.DataFrame | None) -> tuple[bool, str]:
    """Whether a table is the frozen one, and what is to be said of it."""
    if frozen is None or found is None:
        return False, "NEVER FROZEN" if frozen is None else "MISSING"
    if frozen.equals(found):
        return True, "equal"
    gone = [column for column in frozen.columns if column not in found.columns]
    if gone or len(frozen) != len(found):
        return False, f"DIFFERENT: {len(frozen)} rows, now {len(found)}; columns gone: {gone}"
    largest = {column: difference(frozen[column], found[column]) for column in frozen.columns}
    bad = {column: value for column, value in largest.items() if not value <= TOLERANCE}
    if bad:
        return False, f"DIFFERENT: largest difference by column {bad}"
    new = [column for column in found.columns if column not in frozen.columns]
    return True, f"largest difference {max(largest.values(), default=0.0):.1e}" + (
        f"; new columns {new}" if new else ""
    )


def difference(frozen: pl.Series, found: pl.Series) -> float:
    """The largest difference relative to 1 or the frozen value, whichever is larger; infinite for anything else."""
    if frozen.equals(found):
        return 0.0
    if frozen.dtype != found.dtype or not frozen.dtype.is_float() or not frozen.is_null().equals(found.is_null()):
        return float("inf")
    one, other = (column.drop_nulls().to_numpy().astype(np.float64) for column in (frozen, found))
    with np.errstate(invalid="ignore"):
        apart = np.where(one == other, 0.0, np.abs(one - other) / np.maximum(1.0, np.abs(one)))
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["freeze", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", metavar="NAME", help="only answers with this in their name, e.g. demo or auroc")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    return (freeze if given.do == "freeze" else compare)(given.folder, given.workers, given.only)


if __name__ == "__main__":
    raise SystemExit(main())
