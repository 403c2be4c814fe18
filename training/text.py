"""Which documents does the recipe learn from, and which are held out?

    python training/text.py TEXT OUT/text/training.jsonl.zst --sources gutenberg inaugural

writes the documents the model learns from as one file (for counting them). A folder of text holds `.jsonl.zst` or
`.jsonl` files (one `{"id": ..., "text": ...}` per line) or `.txt` files (one document each, its path the id).
A document's source is its id up to the first `/`.
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
        """Is it kept from training? The id's hash decides, so files and their order do not matter."""
        digest = hashlib.sha256(self.id.encode()).digest()
        return int.from_bytes(digest[:8]) % 1000 < HELD_OUT_PER_THOUSAND


def documents(folder: Path, sources: Sequence[str] = ()) -> Iterator[Document]:
    """Which documents are in the folder, file by file? Only those of `sources`, if any are named."""
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
        raise RecipeError(f"{folder} has no document{wanted}; name other --sources or another folder")


def training_documents(folder: Path, sources: Sequence[str] = ()) -> Iterator[Document]:
    """Which documents does the model learn from?"""
    return (document for document in documents(folder, sources) if not document.held_out)


def write_documents(path: Path, chosen: Iterable[Document]) -> int:
    """How many documents were written to one `.jsonl.zst` file? Whole or not at all."""
    count = 0
    compressor = zstandard.ZstdCompressor(COMPRESSION)
    with whole_file(path) as part, part.open("wb") as raw, compressor.stream_writer(raw) as packed:
        for document in chosen:
            packed.write(json.dumps(document._asdict(), ensure_ascii=False).encode() + b"\n")
            count += 1
    return count


def add_sources_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sources", nargs="*", default=[], help="only documents of these sources")


def _text_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise RecipeError(f"{folder} is not a folder; name a folder of {', '.join(SUFFIXES)} files")
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
    parser.add_argument("text", type=Path, help="folder of text")
    parser.add_argument("out", type=Path, help="the .jsonl.zst file to write")
    add_sources_option(parser)
    options = parser.parse_args()
    count = write_documents(options.out, training_documents(options.text, options.sources))
    print(f"{count} documents in {options.out}")


if __name__ == "__main__":
    run_as_command(main)
