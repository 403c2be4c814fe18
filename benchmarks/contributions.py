"""Time contributions and attention on text relative to the obvious ways to compute them.

    python benchmarks/contributions.py

All numbers are ratios within one run, at GPT-2 small's size, with random weights and documents of 1,024 random tokens:

* contributions, with one worker per core, against the published method, reimplemented here: a Python loop over heads,
  positions and terms with torch.nn.functional.kl_div;
* the time for twice as many documents;
* attention at three query positions, against a forward pass of transformers' 12-layer GPT-2 (eager) that is run only to
  get layer 0's attention.

detoklens runs in a separate process without torch, where peak memory is measured over all processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

LENGTH, QUERIES = 1024, [50, 500, 1000]
BATCHES = (16, 32, 64)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = random_gpt2(Path(folder))
        ours = json.loads(subprocess.run([sys.executable, __file__, folder], stdout=subprocess.PIPE, check=True).stdout)
        loop = published_loop_seconds(Path(folder))
        forward = forward_pass_seconds(model)
    report(ours, loop, forward)


def report(ours: dict[str, Any], loop: tuple[float, float], forward: float) -> None:
    seconds = {int(number): float(value) for number, value in ours["contributions"].items()}
    each, work = seconds[BATCHES[-1]] / BATCHES[-1], ours["work"] / BATCHES[-1]
    print(f"published loop                       {loop[0]:9.3f} s/document, {loop[1]:.3f} CPU s")
    print(f"contributions                        {each:9.3f} s/document, {work:.3f} CPU s")
    print(f"  ratio                              {loop[0] / each:9.0f} x   (target: 30)")
    print(f"  ratio of CPU time                  {loop[1] / work:9.0f} x   (independent of other load)")
    print(f"  cores busy                         {work / each:9.2f}")
    for fewer, more in pairwise(BATCHES):
        ratio = seconds[more] / seconds[fewer]
        print(f"  time for {more} documents / for {fewer}     {ratio:9.2f} x   (linear: {more / fewer:.2f})")
    print(f"  peak memory of all processes       {ours['memory'] / 2**20:9.0f} MB  (target: below 2,048)")
    print(f"forward pass of transformers         {forward:9.3f} s/document")
    print(f"attention                            {ours['attention']:9.4f} s/document")
    print(f"  ratio                              {forward / ours['attention']:9.0f} x   (target: 5)")


def random_gpt2(folder: Path) -> Any:
    """A random GPT-2 small without trivial weights, in memory and on disk."""
    import torch
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    return model


def random_documents(number: int) -> list[np.ndarray]:
    """Token ids with a text-like distribution: few frequent, many rare."""
    random = np.random.default_rng(0)
    return [np.minimum(random.zipf(1.2, LENGTH), 50_257) - 1 for _ in range(number)]


def published_loop_seconds(folder: Path) -> tuple[float, float]:
    """Elapsed and CPU seconds of one document in the published loop; computing the terms is not timed."""
    import torch

    import detoklens

    terms = detoklens.load(folder).terms(random_documents(1)[0])
    total = torch.from_numpy(terms.total())
    without = {name: torch.from_numpy(terms.without(name)) for name in terms.parts}

    def loop() -> None:
        for head in range(total.shape[0]):
            for query in range(LENGTH):
                whole = torch.softmax(total[head, query, : query + 1], dim=-1)
                for scores in without.values():
                    removed = torch.softmax(scores[head, query, : query + 1], dim=-1)
                    torch.nn.functional.kl_div(removed.log(), whole, reduction="none").mean().item()

    before = time.process_time()
    return seconds_of(loop), time.process_time() - before


def forward_pass_seconds(model: Any, times: int = 3) -> float:
    """Seconds to run one document through all twelve layers, only to get layer 0's attention."""
    import torch

    documents = [torch.from_numpy(ids)[None] for ids in random_documents(times + 1)]

    def forward(ids: torch.Tensor) -> None:
        with torch.no_grad():
            attention = model(ids, output_attentions=True).attentions[0]
        attention[0, :, QUERIES].numpy()

    forward(documents[0])
    return seconds_of(lambda: [forward(ids) for ids in documents[1:]]) / times


def seconds_of(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def measure_ours(folder: Path) -> dict[str, Any]:
    """Seconds for each batch size, CPU time of the last, peak memory, and attention's seconds per document."""
    import detoklens
    from detoklens.measures.contributions import contributions
    from detoklens.parallel import Runner, available_cores

    layer, documents = detoklens.load(folder), random_documents(BATCHES[-1])
    runner = Runner(available_cores())
    contributions(layer, documents[:4], runner=runner)  # compile the kernels
    seconds, work = {}, 0.0
    for number in BATCHES:
        before = processor_seconds()
        seconds[number] = seconds_of(lambda n=number: contributions(layer, documents[:n], runner=runner))
        work = processor_seconds() - before
    memory = peak_memory()
    return {"contributions": seconds, "work": work, "memory": memory, "attention": attention_seconds(layer, documents)}


def attention_seconds(layer: Any, documents: list[np.ndarray]) -> float:
    """Time layer 0's attention rows from token ids, in this process."""
    from detoklens.measures.attention import attention_rows
    from detoklens.measures.documents import DocumentTerms, in_blocks

    def attend(ids: list[np.ndarray]) -> None:
        terms = DocumentTerms(layer, list(range(layer.n_heads)), ids)
        for block in in_blocks(ids):
            attention_rows(terms, block, QUERIES)

    attend(documents[:4])
    return seconds_of(lambda: attend(documents)) / len(documents)


def processes() -> list[Path]:
    """The /proc folders of this process and its children."""
    own = Path("/proc/self")
    children = (own / "task" / own.resolve().name / "children").read_text().split()
    return [own, *(Path("/proc") / child for child in children)]


def processor_seconds() -> float:
    ticks = 0
    for process in processes():
        user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
        ticks += int(user) + int(system)
    return ticks / 100


def peak_memory() -> int:
    """Sum of every process's peak memory, in bytes."""
    lines = [line for process in processes() for line in (process / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure_ours(Path(sys.argv[1]))))
    else:
        main()
