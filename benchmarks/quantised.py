"""Measure the processor time of `partners` on a GGUF file, against reading and dequantising its embeddings once.

    python benchmarks/quantised.py model.gguf --token ing

The baseline is the `gguf` package's own reader and its `dequantize` of the token embeddings, the least that any answer
needs. Target: `partners`, with reading the file and its tokenizer, takes at most 8 seconds on a file of 1.1 GB.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import gguf

import detoklens as dl


def seconds_of(run: Callable[[], object]) -> float:
    """Processor time, over all threads."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def dequantise_embeddings(path: Path) -> None:
    tensor = next(each for each in gguf.GGUFReader(path).tensors if each.name == "token_embd.weight")
    gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--token", default=None, help="query token; default: the first one")
    options = parser.parse_args()
    token = 0 if options.token is None else options.token
    partners = seconds_of(lambda: dl.study(options.model, workers=1).ask(dl.Partners([token])))
    baseline = seconds_of(lambda: dequantise_embeddings(options.model))
    found = {
        "file_megabytes": round(options.model.stat().st_size / 1e6, 1),
        "partners_seconds": round(partners, 3),
        "dequantising_seconds": round(baseline, 3),
        "times_dequantising": round(partners / baseline, 2),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
