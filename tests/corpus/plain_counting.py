"""The plain way: tokenizers and a Counter over tuples. Everything fast is compared with this."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from detoklens.corpus.counts import Counts
from detoklens.corpus.counts_folder import json_text
from detoklens.corpus.documents import cut_into_shards
from detoklens.corpus.inputs import find_inputs
from detoklens.corpus.reading import ReadingOptions, Tally, read_texts, where
from detoklens.tokens import Vocabulary


def located_texts(inputs: Sequence[str | Path], limit: int | None = None) -> list[tuple[str, str]]:
    """Each document's place, as errors name it, and its text."""
    options = ReadingOptions()
    return [
        (where(piece, number, options), text.decode())
        for shard in cut_into_shards(find_inputs(inputs), options, limit)
        for piece in shard.pieces
        for number, text in read_texts(piece, options, Tally(), 1 << 20)
    ]


def without_special_parsing(vocabulary: Vocabulary) -> Tokenizer:
    tokenizer = Tokenizer.from_str(vocabulary.to_json())
    tokenizer.encode_special_tokens = True
    return tokenizer


def plain_counts(texts: Iterable[str], tokenizer: Tokenizer) -> tuple[Counter[int], Counter[tuple[int, int]]]:
    """Token counts and counts of (suffix, prefix); two halves of a surrogate are one character, one alone is U+FFFD."""
    tokens: Counter[int] = Counter()
    bigrams: Counter[tuple[int, int]] = Counter()
    for text in texts:
        mended = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        ids = tokenizer.encode(mended, add_special_tokens=False).ids
        tokens.update(ids)
        bigrams.update(zip(ids[1:], ids[:-1], strict=True))
    return tokens, bigrams


def as_counters(counts: Counts) -> tuple[Counter[int], Counter[tuple[int, int]]]:
    """Counts in the plain form."""
    present = np.flatnonzero(counts.tokens)
    rows = zip(counts.bigrams.suffixes, counts.bigrams.prefixes, counts.bigrams.counts, strict=True)
    tokens = Counter({int(token): int(counts.tokens[token]) for token in present})
    return tokens, Counter({(int(suffix), int(prefix)): int(count) for suffix, prefix, count in rows})


def write_jsonl(path: Path, texts: Iterable[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="ascii")
    return path


def edit_sealed(path: Path, changes: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest or plan as a forger would, or another version of the program: its checksum is right again."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("checksum")
    changes(content)
    path.write_text(json_text(content), encoding="utf-8")


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
