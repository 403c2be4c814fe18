"""Training and held-out documents.

    python training/text.py TEXT OUT/text/training.jsonl.zst --sources gutenberg inaugural

writes the training documents to one file, to be counted. A text folder contains `.jsonl.zst` or `.jsonl` files (one
`{"id": ..., "text": ...}` per line) or `.txt` files (one document each, with its path as the id).
A document's source is the part of its id before the first `/`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import zstandard

from failure import RecipeError, run_as_command
from writing import whole_file

HELD_OUT_PER_THOUSAND = 10
SUFFIXES = (".jsonl.zst", ".jsonl", ".txt")
COMPRESSION = 10


class Document(NamedTuple):
    id: str
    text: str

    @property
    def source(self) -> str:
        return self.id.split("/", 1)[0]

    @property
    def held_out(self) -> bool:
        """Whether the document is held out, decided by its id's hash, so files and their order don't matter."""
        digest = hashlib.sha256(self.id.encode()).digest()
        return int.from_bytes(digest[:8]) % 1000 < HELD_OUT_PER_THOUSAND


def documents(folder: Path, sources: Sequence[str] = ()) -> Iterator[Document]:
    """Read the folder's documents, file by file; only those from `sources`, if given."""
    left_out: set[str] = set()
    found = False
    for path in _text_files(folder):
        for document in _read(path, folder):
            if sources and document.source not in sources:
                left_out.add(document.source)
                continue
            found = True
            yield document
    if not found:
        wanted = f" of the sources {', '.join(sources)} (it has {', '.join(sorted(left_out))})" if left_out else ""
        raise RecipeError(f"{folder} has no document{wanted}; pass other --sources or another folder")


def training_documents(folder: Path, sources: Sequence[str] = ()) -> Iterator[Document]:
    """The documents to train on."""
    return (document for document in documents(folder, sources) if not document.held_out)


def write_documents(path: Path, chosen: Iterable[Document]) -> int:
    """Write documents to a `.jsonl.zst` file, atomically, and return their number."""
    count = 0
    compressor = zstandard.ZstdCompressor(COMPRESSION)
    with whole_file(path) as part, part.open("wb") as raw, compressor.stream_writer(raw) as packed:
        for document in chosen:
            packed.write(json.dumps(document._asdict(), ensure_ascii=False).encode() + b"\n")
            count += 1
    return count


def add_sources_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sources", nargs="*", default=[], help="use only documents from these sources")


def _text_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise RecipeError(f"{folder} is not a folder; pass a folder of {', '.join(SUFFIXES)} files")
    files = sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())
    if not files:
        raise RecipeError(f"{folder} has no text to train on; put {', '.join(SUFFIXES)} files there")
    return files


def _read(path: Path, folder: Path) -> Iterator[Document]:
    try:
        if path.suffix == ".txt":
            yield Document(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
        else:
            yield from _read_lines(path)
    except (zstandard.ZstdError, UnicodeDecodeError) as problem:
        raise RecipeError(f"{path} cannot be read as UTF-8 text: {problem}") from None


def _read_lines(path: Path) -> Iterator[Document]:
    with path.open("rb") as raw:
        stream = zstandard.ZstdDecompressor().stream_reader(raw) if path.suffix == ".zst" else raw
        with io.TextIOWrapper(stream, encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                yield _document(line, path, number)


def _document(line: str, path: Path, number: int) -> Document:
    try:
        record = json.loads(line)
        return Document(str(record["id"]), str(record["text"]))
    except (ValueError, KeyError, TypeError):
        raise RecipeError(f'{path}, line {number}: not {{"id": ..., "text": ...}} as JSON') from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("text", type=Path, help="text folder")
    parser.add_argument("out", type=Path, help="output file (.jsonl.zst)")
    add_sources_option(parser)
    options = parser.parse_args()
    count = write_documents(options.out, training_documents(options.text, options.sources))
    print(f"{count} documents in {options.out}")


if __name__ == "__main__":
    run_as_command(main)
