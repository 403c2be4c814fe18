"""Time counting and its scaling, as ratios within one run on this machine.

    python benchmarks/counting.py texts --tokenizer gpt2
    python benchmarks/counting.py texts --tokenizers tokenizers --megabytes 36

1. One process against the published method (Hugging Face tokenizers and a Counter of tuples): same text, one core.
2. Two workers against one.
3. Twice the corpus: time and memory.
4. Tokenizers, given as folders of `*.json.zst` files, model folders, hub ids or GGUF files: tokenizing alone, with
   Hugging Face tokenizers' encode_batch against ours, on the same documents and one core. Each runs six times on
   different documents; CPU time is reported for the fastest run and for all six together (the first MB of a corpus are
   slower, because new words are slower). The token ids are compared.
5. With `--refused MODEL`, tokenizers that gigatoken does not read: this model's byte-level BPE with the regexes
   of BLOOM, StarCoder and Falcon, and a Unigram trained on the text.

Every number in 1 to 3 is for a whole command in a fresh process, from start to exit. To grow the corpus, copy k takes
every (k + 1)-th word of each document, starting from the first word, then from the second, and so on. This creates more
new bigrams than real text would.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from detoklens.loading import load_vocabulary

OPENWEBTEXT_MB = 40_000
TURNS = 2
FIRST_CORE = {min(os.sched_getaffinity(0))}

PUBLISHED_WAY = """
import io, json, os, pickle, sys
from collections import Counter
import zstandard
from tokenizers import Tokenizer
out, tokenizer, *shards = sys.argv[1:]
tokenizer = Tokenizer.from_file(tokenizer)
tokens, bigrams = Counter(), Counter()
for shard in shards:
    with open(shard, "rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8", newline="\\n")
        texts = [json.loads(line)["text"] for line in lines]
    for start in range(0, len(texts), 100):
        for row in tokenizer.encode_batch(texts[start : start + 100], add_special_tokens=False):
            tokens.update(row.ids)
            bigrams.update(zip(row.ids[:-1], row.ids[1:]))
with open(out, "wb") as file:
    pickle.dump((tokens, bigrams), file)
print(sum(tokens.values()), len(bigrams))
"""


@dataclass(frozen=True)
class Measured:
    """Cost of a command: elapsed seconds, CPU seconds of all its processes, and the largest one's peak memory in MB.

    On a busy machine, CPU seconds are still meaningful; elapsed seconds are not.
    """

    seconds: float
    core_seconds: float
    memory: float


ACCOUNT = """
import json, os, resource, subprocess, sys, time
os.sched_setaffinity(0, set(json.loads(sys.argv[1])))
begun = time.monotonic()
subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def measure(command: list[str], cores: set[int]) -> Measured:
    """Run a command on the given cores and return the system's accounting of the finished processes."""
    done = subprocess.run(
        [sys.executable, "-c", ACCOUNT, json.dumps(sorted(cores)), *command],
        env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},
        stdout=subprocess.PIPE,
        check=True,
    )
    return Measured(*json.loads(done.stdout))


def count(shards: list[Path], tokenizer: str, folder: Path, workers: int, cores: set[int]) -> Measured:
    out = folder / f"counts-{time.monotonic_ns()}"
    names = list(map(str, shards))
    options = ["--tokenizer", tokenizer, "--out", str(out), "--workers", str(workers), "--memory", "2GB"]
    return measure([sys.executable, "-m", "detoklens", "count", *names, *options], cores)


def read(shard: Path) -> list[str]:
    with shard.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file)
        return [json.loads(line)["text"] for line in io.TextIOWrapper(reader, encoding="utf-8", newline="\n")]


def strided_copy(shard: Path, target: Path, stride: int) -> Path:
    """Write the same documents with their words reordered."""
    lines = []
    for text in read(shard):
        words = text.split(" ")
        reordered = [word for first in range(stride) for word in words[first::stride]]
        lines.append(json.dumps({"text": " ".join(reordered)}, ensure_ascii=False))
    target.write_bytes(zstandard.compress("\n".join(lines).encode()))
    return target


def against_the_published_way(shards: list[Path], megabytes: float, tokenizer: str, folder: Path) -> None:
    tokenizer_file = folder / "tokenizer.json"
    tokenizer_file.write_text(load_vocabulary(tokenizer).to_json(), encoding="utf-8")
    command = [sys.executable, "-c", PUBLISHED_WAY, str(folder / "published.pickle"), str(tokenizer_file)]
    ours = count(shards, tokenizer, folder, 1, FIRST_CORE)
    theirs = measure([*command, *map(str, shards)], FIRST_CORE)
    report("published, one core", megabytes, theirs)
    report("detoklens count, one core", megabytes, ours)
    compare("published relative to ours:", theirs, ours, "at least 20")


def report(name: str, megabytes: float, run: Measured) -> None:
    print(
        f"{name:26}: {megabytes:5.0f} MB in {run.seconds:6.1f} s elapsed ({megabytes / run.seconds:5.1f} MB/s), "
        f"{run.core_seconds:6.1f} CPU s ({megabytes / run.core_seconds:5.1f} MB/s), {run.memory:5.0f} MB",
        flush=True,
    )


def compare(what: str, one: Measured, other: Measured, asked: str) -> None:
    print(
        f"  {what} {one.seconds / other.seconds:.2f} times the time (target: {asked}; CPU time "
        f"{one.core_seconds / other.core_seconds:.2f})",
        flush=True,
    )


def growth(shards: list[Path], copies: int, megabytes: float, tokenizer: str, folder: Path) -> None:
    """Time one and two workers on the grown corpus, and one worker on half of it; the fastest run counts."""
    grown = list(shards)
    for copy in range(1, copies):
        grown += [strided_copy(shard, folder / f"{copy}-{shard.name}", copy + 1) for shard in shards]
    half = grown[: len(grown) // 2]
    cores = set(sorted(os.sched_getaffinity(0))[:2])
    asked = ((half, 1), (grown, 1), (grown, 2))
    turns = [[count(files, tokenizer, folder, workers, cores) for files, workers in asked] for _ in range(TURNS)]
    smaller, one, two = (min(runs, key=lambda run: run.seconds) for runs in zip(*turns, strict=True))
    total = copies * megabytes
    report("one worker, half the text", total / 2, smaller)
    report("one worker", total, one)
    report("two workers", total, two)
    compare("one worker relative to two:", one, two, "at least 1.6")
    compare("twice the text:", one, smaller, "at most 2.2")
    print(f"  and {one.memory / smaller.memory:.2f} times the memory (target: no more)")
    one_core = (one.core_seconds - smaller.core_seconds) / (total / 2) * OPENWEBTEXT_MB / 60
    two_cores = one_core * two.core_seconds / one.core_seconds / 2
    print(f"\nOpenWebText, {OPENWEBTEXT_MB / 1000:.0f} GB of text, extrapolated from the second half of the text:")
    print(f"  {one_core:.0f} minutes on one core of this machine, {two_cores:.0f} on two, if idle\n")


TOKENIZE = """
import json, sys, time
import numpy as np
from tokenizers import Tokenizer
from detoklens.corpus.encoding import choose_library, open_encoder
from detoklens.loading import load_vocabulary
from pathlib import Path
path, turns = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
vocabulary = load_vocabulary(path)
path.write_text(vocabulary.to_json())
library, reason, _ = choose_library(vocabulary, [text.encode() for text in turns[0]], False)
ours, theirs, speeds, same = open_encoder(library, path, False), Tokenizer.from_file(str(path)), [], True
theirs.no_truncation(), theirs.no_padding()
theirs.encode_special_tokens = True
for texts in turns:
    encoded = [text.encode() for text in texts]
    begun = time.process_time()
    found = ours.encode(encoded).ids
    between = time.process_time()
    rows = theirs.encode_batch(texts, add_special_tokens=False)
    ended = time.process_time()
    size = sum(map(len, encoded)) / 1e6
    speeds.append([size, between - begun, ended - between])
    same = same and found.tolist() == [token for row in rows for token in row.ids]
sizes, ours, theirs = np.array(speeds).T
together = float(theirs.sum() / ours.sum())
print(json.dumps([library, reason, float(max(sizes / ours)), float(max(sizes / theirs)), together, same]))
"""


def split_by(regex: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def byte_level(use_regex: bool) -> dict[str, object]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


REFUSED = {
    "BLOOM's regex": [split_by(r" ?[^(\s|[.,!?…。，、।۔،])]+"), byte_level(False)],
    "StarCoder's": [{"type": "Digits", "individual_digits": True}, byte_level(True)],
    "Falcon's": [
        {"type": "Punctuation", "behavior": "Contiguous"},
        byte_level(True),
        {"type": "Digits", "individual_digits": False},
        split_by("[0-9][0-9][0-9]"),
    ],
}


def named_tokenizers(names: list[str]) -> Iterator[tuple[str, str]]:
    """The name and tokenizer.json of each tokenizer."""
    for name in names:
        packed = sorted(Path(name).glob("*.json.zst"))
        for path in packed:
            with path.open("rb") as file:
                content = zstandard.ZstdDecompressor().stream_reader(file).read()
            yield path.name.removesuffix(".json.zst"), content.decode()
        if not packed:
            yield Path(name).name, load_vocabulary(name).to_json()


def refused_tokenizers(name: str, texts: list[str]) -> Iterator[tuple[str, str]]:
    """Tokenizers that gigatoken does not read: a byte-level BPE with other regexes, and a Unigram of these texts."""
    description = json.loads(load_vocabulary(name).to_json()) | {"normalizer": None}
    for regex, parts in REFUSED.items():
        splitter = {"type": "Sequence", "pretokenizers": parts}
        yield regex, json.dumps(description | {"pre_tokenizer": splitter})
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.NFKC()
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=8000, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    unigram.train_from_iterator(texts[:200], trainer)
    yield "Unigram", unigram.to_str()


def compare_tokenizers(tokenizers: Iterable[tuple[str, str]], texts: list[str], scratch: Path) -> None:
    """Compare each tokenizer with Hugging Face's, in MB per CPU second."""
    turns, plain = scratch / "turns.json", scratch / "tokenizer.json"
    turns.write_text(json.dumps([texts[turn::6] for turn in range(6)]))
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"\ntokenizing {size:.1f} MB on one core (target: at least 15 times as fast as tokenizers)")
    for name, tokenizer_json in tokenizers:
        plain.write_text(tokenizer_json, encoding="utf-8")
        done = subprocess.run(
            ["taskset", "-c", str(min(FIRST_CORE)), sys.executable, "-c", TOKENIZE, str(plain), str(turns)],
            env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},
            stdout=subprocess.PIPE,
            check=True,
        )
        library, reason, ours, theirs, together, same = json.loads(done.stdout)
        print(
            f"  {name:10} {library}: {ours:6.1f} MB/s, tokenizers "
            f"{theirs:4.1f} MB/s, {ours / theirs:6.1f} times, all runs together {together:.1f} times; "
            f"ids {'equal' if same else 'DIFFER'}"
            f"{'' if reason is None else f' ({reason})'}",
            flush=True,
        )


def first_texts(shards: list[Path], megabytes: float) -> list[str]:
    texts, size = [], 0.0
    for text in (text for shard in shards for text in read(shard)):
        texts.append(text)
        size += len(text.encode()) / 1e6
        if size >= megabytes:
            break
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="folder of .jsonl.zst shards")
    parser.add_argument("--tokenizer", help="model for benchmarks 1 to 3, as in detoklens count")
    parser.add_argument(
        "--tokenizers", nargs="+", default=[], help="models, GGUF files or folders of *.json.zst for benchmark 4"
    )
    parser.add_argument("--refused", metavar="MODEL", help="model with a byte-level BPE for benchmark 5")
    parser.add_argument("--megabytes", type=float, default=24, help="MB of text per tokenizer")
    parser.add_argument("--shards", type=int, default=None, help="use only the first N shards")
    parser.add_argument("--copies", type=int, default=12, help="size of the grown corpus, in copies")
    arguments = parser.parse_args()
    shards = sorted(arguments.corpus.glob("*.jsonl.zst"))[: arguments.shards]
    megabytes = sum(len(text.encode()) for shard in shards for text in read(shard)) / 1e6
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{len(shards)} shards, {megabytes:.0f} MB of text, load average {os.getloadavg()[0]:.1f}\n")
        if arguments.tokenizer:
            count(shards[:1], arguments.tokenizer, folder, 1, FIRST_CORE)  # compiles the loops, as any first run does
            growth(shards, arguments.copies, megabytes, arguments.tokenizer, folder)
            against_the_published_way(shards, megabytes, arguments.tokenizer, folder)
        texts = first_texts(shards, arguments.megabytes)
        if arguments.tokenizers:
            compare_tokenizers(named_tokenizers(arguments.tokenizers), texts, folder)
        if arguments.refused:
            compare_tokenizers(refused_tokenizers(arguments.refused, texts), texts, folder)


if __name__ == "__main__":
    main()
