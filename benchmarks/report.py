"""Time each step of a report, and compare the page and figures with the questions.

    python benchmarks/report.py                        GPT-2 small's size, 5 million distinct bigrams, 500 documents
    python benchmarks/report.py --vocabulary 4000 --heads 4 --bigrams 200000 --documents 50 --length 256
    python benchmarks/report.py --model demo           a real model with its bundled counts and documents

Weights, counts and documents are random with Zipf-like frequencies. There is no tokenizer, so steps that need one are
skipped unless a real model is given. With `--twice`, each step is compared with the same question asked alone in the
same process, without writing or caching anything: the ratio is the overhead of the report. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from detoklens.corpus.counts import Counts
from detoklens.engines import open_engine
from detoklens.questions.study import Study, study
from detoklens.report.content import Listener, Step
from detoklens.report.report import make_report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.layers import random_layer

SHOWING = ("Draw the figures", "Rank the partners of every token", "Write the page")


def zipf_tokens(random: np.random.Generator, vocabulary: int, shape: int | tuple[int, int]) -> np.ndarray:
    """Token ids in which the n-th is about 1/n as frequent as the first."""
    return np.minimum(vocabulary ** random.random(shape), vocabulary - 1).astype(np.int64)


def random_counts(random: np.random.Generator, vocabulary: int, bigrams: int) -> Counts:
    """About this many distinct bigrams."""
    drawn = zipf_tokens(random, vocabulary, (2, 4 * bigrams))
    pairs, occurrences = np.unique(drawn[0] * vocabulary + drawn[1], return_counts=True)
    kept = np.sort(random.permutation(len(pairs))[:bigrams])
    suffixes, prefixes = np.divmod(pairs[kept], vocabulary)
    tokens = np.bincount(drawn.ravel(), minlength=vocabulary)
    return Counts.from_arrays(
        tokens, suffixes.astype(np.uint32), prefixes.astype(np.uint32), occurrences[kept], "benchmark"
    )


def random_study(options: argparse.Namespace) -> Study:
    """A model of this size with random weights, counts and documents."""
    random = np.random.default_rng(0)
    layer = random_layer(
        n_heads=options.heads,
        d_head=options.d_head,
        vocab_size=options.vocabulary,
        n_positions=options.length,
        dtype="float32",
    )
    made = RandomText(layer, random_counts(random, options.vocabulary, options.bigrams))
    made.documents = list(zipf_tokens(random, options.vocabulary, (options.documents, options.length)))
    return made


class RandomText(Study):
    """A study with documents given as token ids."""

    def has(self, need: str) -> bool:
        return need == "text" or super().has(need)  # type: ignore[arg-type]


def alone(title: str, asked: Study) -> float:
    """Seconds of one question asked alone, without cached answers but with the factors already computed."""
    from detoklens.report.folder import report_entries

    fresh = RandomText(asked.layer, asked.counts, asked.texts, asked.seed, asked.work)
    if asked.has("text"):
        fresh.documents = asked.documents
    question = next(entry.question for entry in report_entries(fresh) if entry.title == title)
    started = time.perf_counter()
    fresh.ask(question)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"vocabulary": 50257, "heads": 12, "d_head": 64, "length": 1024, "bigrams": 5_000_000, "documents": 500}
    for name, default in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--model", help="use a real model, such as demo")
    parser.add_argument("--twice", action="store_true", help="also time each question alone")
    options = parser.parse_args()
    asked = study(options.model, documents=200) if options.model else random_study(options)
    listener = Listener(end=tell)
    with tempfile.TemporaryDirectory() as folder, open_engine(workers=asked.workers) as engine:
        make_report(asked, Path(folder) / "report", listener=listener, engine=engine)
        summarise(listener.passed)
        if options.twice:
            print("\nrelative to the same question asked alone:", flush=True)
            for step in questions_in(listener.passed):
                ratio = step.seconds / alone(step.title, asked)
                print(f"{ratio:8.2f} times  {step.title}", flush=True)


def tell(step: Step) -> None:
    """Print each step when it ends."""
    if not step.missing:
        print(f"{step.seconds:8.2f} s  {step.title}", flush=True)


def questions_in(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step.title not in SHOWING and not step.missing and not step.kept]


def summarise(steps: list[Step]) -> None:
    showing = sum(step.seconds for step in steps if step.title in SHOWING)
    questions = sum(step.seconds for step in questions_in(steps))
    print(f"{questions:8.2f} s  all questions\n{showing:8.2f} s  figures, search index and page")
    print(f"page and figures take {showing / questions:.2f} times as long as the questions", flush=True)


if __name__ == "__main__":
    main()
