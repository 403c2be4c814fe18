"""Time each step of a report relative to the bare products, and compare the page and figures with the questions.

    python benchmarks/report.py                        GPT-2 small's size, 5 million distinct bigrams, 500 documents
    python benchmarks/report.py --qwen                 Qwen2.5-Coder-1.5B's shape: rotary, 12 heads share 2 keys
    python benchmarks/report.py --vocabulary 4000 --heads 4 --bigrams 200000 --documents 50 --length 256
    python benchmarks/report.py --model demo           a real model with its bundled counts and documents

Weights, counts and documents are random with Zipf-like frequencies. There is no tokenizer, so steps that need one are
skipped unless a real model is given. Each step is printed with its elapsed and CPU seconds, its CPU seconds relative to
H · V² · d' multiply-adds of 2048³ products in the same run, and the peak memory so far. With `--twice`, each step is
compared with the same question asked alone in the same process, without writing or caching anything: the ratio is the
overhead of the report. Elapsed times need an idle machine.

CPU seconds on the real Qwen2.5-Coder-1.5B (GGUF, 8.4 million tokens counted, 46,858 of 151,936 tokens have
positives), each question asked once with `study(…, workers=1).ask`, not with this script, on a busy AMD EPYC where the
bare products of all scores would take 530: opening 3, Tᵉᵉ of all heads 11 to 14, lexicon 44 and with means split off
36, twins 339, words 32, lookback 19, partners 12. The three AUROC questions of one head took 42 together (35 + 2 + 5)
and 54 one by one (19 + 9 + 26), start-up included in the first of each.

With 11.3 million tokens counted (49,029 tokens have positives) and two threads, on two cores that many processes
shared: `twins` of all tokens 383, and 3.2 GB at most; the three AUROC questions of all heads about 450 (extrapolated
from 365 of 908 blocks). What AUROC allocates, without the loops, comes to 3.5 GB. A whole report has not been timed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import numpy as np

from auroc import product_costs, scaled_mean, squares_in
from detoklens.corpus.counts import Counts
from detoklens.engines import open_engine
from detoklens.progress import Listener, Step
from detoklens.questions.study import Study, study
from detoklens.report.folder import ask_all, report_entries
from detoklens.report.report import make_report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.layers import as_layer, random_first_layer, with_rotary_positions

QWEN = {"vocabulary": 151_936, "heads": 12, "d_head": 128, "key_heads": 2, "bigrams": 1_500_000, "documents": 50}
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
    first_layer = random_first_layer(
        n_heads=options.heads,
        d_head=options.d_head,
        vocab_size=options.vocabulary,
        n_positions=options.length,
        dtype="float32",
    )
    if options.key_heads:
        first_layer = with_rotary_positions(first_layer, options.key_heads)
    made = RandomText(as_layer(first_layer), random_counts(random, options.vocabulary, options.bigrams))
    made.documents = list(zipf_tokens(random, options.vocabulary, (options.documents, options.length)))
    return made


class RandomText(Study):
    """A study with documents given as token ids."""

    def has(self, need: str) -> bool:
        return need == "text" or super().has(need)  # type: ignore[arg-type]


def alone(title: str, asked: Study) -> float:
    """Seconds of one question asked alone, without cached answers but with the factors already computed."""
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
    parser.add_argument("--key-heads", type=int, default=0, help="rotary positions, heads share this many keys")
    parser.add_argument("--qwen", action="store_true", help="the shape of Qwen2.5-Coder-1.5B; other sizes override it")
    parser.add_argument("--only", nargs="*", help="ask only these questions, and write no page")
    parser.add_argument("--model", help="use a real model, such as demo")
    parser.add_argument("--twice", action="store_true", help="also time each question alone")
    if parser.parse_known_args()[0].qwen:
        parser.set_defaults(**QWEN)
    options = parser.parse_args()
    asked = study(options.model, documents=200) if options.model else random_study(options)
    if options.model:
        layer = asked.layer
        options.heads, options.vocabulary, options.d_head = layer.n_heads, layer.vocab_size, layer.d_head
    listener = Listener(end=Clock(scaled_mean(product_costs(2.0), squares_in(options)).processor).tell)
    if options.only:
        with tempfile.TemporaryDirectory() as folder, patched_entries(options.only):
            ask_all(asked, Path(folder), listener)
        return
    with tempfile.TemporaryDirectory() as folder, open_engine(workers=asked.workers) as engine:
        make_report(asked, Path(folder) / "report", listener=listener, engine=engine)
        summarise(listener.passed)
        if options.twice:
            print("\nrelative to the same question asked alone:", flush=True)
            for step in questions_in(listener.passed):
                ratio = step.seconds / alone(step.title, asked)
                print(f"{ratio:8.2f} times  {step.title}", flush=True)


class Clock:
    """Prints each step when it ends: elapsed and CPU seconds, times the bare products, peak memory."""

    def __init__(self, product: float) -> None:
        self._product, self._last = product, time.process_time()
        print(f"{product:8.2f} CPU s  bare products of all scores", flush=True)

    def tell(self, step: Step) -> None:
        used, self._last = time.process_time() - self._last, time.process_time()
        if step.missing:
            return
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        times = f"{used / self._product:6.2f} times the products"
        print(f"{step.seconds:8.2f} s {used:8.2f} CPU s {times} {peak:6.2f} GB  {step.title}", flush=True)


def patched_entries(names: list[str]) -> AbstractContextManager[object]:
    """Reports of these questions alone."""
    return patch(
        "detoklens.report.folder.report_entries",
        lambda study, _layers=None: [entry for entry in report_entries(study) if entry.question.name() in names],
    )


def questions_in(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step.title not in SHOWING and not step.missing and not step.kept]


def summarise(steps: list[Step]) -> None:
    showing = sum(step.seconds for step in steps if step.title in SHOWING)
    questions = sum(step.seconds for step in questions_in(steps))
    print(f"{questions:8.2f} s  all questions\n{showing:8.2f} s  figures, search index and page")
    print(f"page and figures take {showing / questions:.2f} times as long as the questions", flush=True)


if __name__ == "__main__":
    main()
