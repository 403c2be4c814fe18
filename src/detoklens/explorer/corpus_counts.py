"""How does a page find how often two tokens stand together? Rows of pairs in files of bounded size, both ways round.

Pairs are kept by query and by key: a page asks for one token's row and gets a file or two. Where there are too many,
rare ones are left out, and the page says "fewer than".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt32

from detoklens.corpus.counts import Counts

FOLDER = "counts"
MOST_PAIRS = 4 << 20  # kept each way: 32 MB
PAIRS_PER_SHARD = 1 << 16  # 512 kB a file
LARGEST = 2**32 - 1


def write_counts(counts: Counts, vocab_size: int, folder: Path, most: int = MOST_PAIRS) -> dict[str, Any]:
    """Write the pairs both ways round; what bundle.json says of them."""
    (folder / FOLDER).mkdir()
    bigrams = counts.bigrams
    threshold = _threshold(bigrams.counts, most)
    kept = (bigrams.counts >= threshold) & (bigrams.prefixes < vocab_size) & (bigrams.suffixes < vocab_size)
    keys, queries, found = bigrams.prefixes[kept], bigrams.suffixes[kept], bigrams.counts[kept]
    order = np.lexsort((queries, keys))
    return {
        "threshold": threshold,
        "pairs": len(found),
        "pairs_per_shard": PAIRS_PER_SHARD,
        "total_tokens": int(counts.tokens.sum()),
        "total_pairs": len(bigrams.counts),
        "by_query": _write_rows(folder, "by_query", queries, keys, found, vocab_size),
        "by_key": _write_rows(folder, "by_key", keys[order], queries[order], found[order], vocab_size),
    }


def token_counts(counts: Counts, vocab_size: int) -> Int64[np.ndarray, "token"]:
    """How often each token of the model occurs; those that the tokenizer does not have never do."""
    padded = np.zeros(vocab_size, np.int64)
    known = counts.tokens[:vocab_size]
    padded[: len(known)] = known
    return padded


def _threshold(found: Int64[np.ndarray, "pair"], most: int) -> int:
    """The smallest count of which, and above, there are no more pairs than can be kept."""
    if len(found) <= most:
        return 1
    place = len(found) - most
    least = int(np.partition(found, place)[place])
    return least if int(np.count_nonzero(found >= least)) <= most else least + 1


def _write_rows(
    folder: Path,
    name: str,
    rows: UInt32[np.ndarray, "pair"],
    others: UInt32[np.ndarray, "pair"],
    found: Int64[np.ndarray, "pair"],
    vocab_size: int,
) -> dict[str, int]:
    """One index of rows, and the pairs in order in files of equal length."""
    index = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=vocab_size))]).astype("<u4")
    (folder / FOLDER / f"{name}.index.bin").write_bytes(index.tobytes())
    shards = range(0, len(rows), PAIRS_PER_SHARD)
    for number, begin in enumerate(shards):
        pairs = slice(begin, begin + PAIRS_PER_SHARD)
        counted = np.minimum(found[pairs], LARGEST)
        stored = np.concatenate([others[pairs], counted]).astype("<u4")
        (folder / FOLDER / f"{name}-{number:03}.bin").write_bytes(stored.tobytes())
    return {"shards": len(shards)}
