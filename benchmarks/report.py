"""How long does each step of a report take, and do page and figures take less time than the analyses?

    python benchmarks/report.py                        GPT-2 small's size, 5 million distinct bigrams, 500 documents
    python benchmarks/report.py --vocabulary 4000 --heads 4 --bigrams 200000 --documents 50 --length 256
    python benchmarks/report.py --model demo           a real model with what it brings along

Weights, counts and documents are random, frequencies like Zipf's; there is no tokenizer, so steps that spell are left
out unless a real model is named. Each step's time stands beside that of the same analysis asked alone, in the same
process and run, nothing written or kept (`--twice`): the ratio is what the report adds. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from detoklens.analyses.block_runs import Runner
from detoklens.corpus.counts import Counts
from detoklens.engines import Engine, open_engine
from detoklens.report.asking import Asked
from detoklens.report.computing import Listener, Progress
from detoklens.report.making import make_report
from detoklens.report.steps import STEPS
from detoklens.report.subject import Subject

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.layers import random_layer

SHOWING = ("figures", "partners_index", "page")


def zipf_tokens(random: np.random.Generator, vocabulary: int, shape: int | tuple[int, int]) -> np.ndarray:
    """Token ids of which the n-th is about 1/n as frequent as the first."""
    return np.minimum(vocabulary ** random.random(shape), vocabulary - 1).astype(np.int64)


def random_counts(random: np.random.Generator, vocabulary: int, bigrams: int) -> Counts:
    """About so many distinct bigrams."""
    drawn = zipf_tokens(random, vocabulary, (2, 4 * bigrams))
    pairs, occurrences = np.unique(drawn[0] * vocabulary + drawn[1], return_counts=True)
    kept = np.sort(random.permutation(len(pairs))[:bigrams])
    suffixes, prefixes = np.divmod(pairs[kept], vocabulary)
    tokens = np.bincount(drawn.ravel(), minlength=vocabulary)
    return Counts.from_arrays(
        tokens, suffixes.astype(np.uint32), prefixes.astype(np.uint32), occurrences[kept], "benchmark"
    )


def random_subject(options: argparse.Namespace) -> Subject:
    random = np.random.default_rng(0)
    layer = random_layer(
        n_heads=options.heads,
        d_head=options.d_head,
        vocab_size=options.vocabulary,
        n_positions=options.length,
        dtype="float32",
    )
    documents = list(zipf_tokens(random, options.vocabulary, (options.documents, options.length)))
    return Subject(layer, random_counts(random, options.vocabulary, options.bigrams), documents)


def named_subject(model: str) -> Subject:
    from detoklens.cli import asking, report_input, text_input

    layer = asking.open_layer(model, None)
    texts = text_input.Asked([], 200, 0, None, False, "text", False, False)
    return report_input.subject_from(layer, model, None, asking.open_counts(None, layer), None, texts, None)


def alone(step_name: str, subject: Subject, engine: Engine) -> float:
    """Seconds of one analysis asked by itself, on a layer whose factors are known already."""
    step = next(step for step in STEPS if step.name == step_name)
    started = time.perf_counter()
    step.ask(Asked(subject, {}, Runner(engine)))
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"vocabulary": 50257, "heads": 12, "d_head": 64, "length": 1024, "bigrams": 5_000_000, "documents": 500}
    for name, default in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--model", help="a real model instead, such as demo")
    parser.add_argument("--twice", action="store_true", help="also time each analysis alone")
    options = parser.parse_args()
    subject = named_subject(options.model) if options.model else random_subject(options)
    went: list[Progress] = []
    with tempfile.TemporaryDirectory() as folder, open_engine("local", None, None) as engine:
        make_report(subject, Path(folder) / "report", "page", engine, Listener(end=told_of(went)))
        summarise(went)
        if options.twice:
            print("\nagainst the same analysis asked alone:", flush=True)
            for progress in analyses_in(went):
                ratio = progress.seconds / alone(progress.step, subject, engine)
                print(f"{ratio:8.2f} times  {progress.title}", flush=True)


def told_of(went: list[Progress]) -> Callable[[Progress], None]:
    """Keep and print each step as it ends."""

    def tell(progress: Progress) -> None:
        went.append(progress)
        if not progress.missing:
            print(f"{progress.seconds:8.2f} s  {progress.title}", flush=True)

    return tell


def analyses_in(went: list[Progress]) -> list[Progress]:
    return [progress for progress in went if progress.step not in SHOWING and not progress.missing]


def summarise(went: list[Progress]) -> None:
    showing = sum(progress.seconds for progress in went if progress.step in SHOWING)
    analyses = sum(progress.seconds for progress in analyses_in(went))
    print(f"{analyses:8.2f} s  all analyses\n{showing:8.2f} s  figures, search index and page")
    print(f"page and figures take {showing / analyses:.2f} times what the analyses take", flush=True)


if __name__ == "__main__":
    main()
