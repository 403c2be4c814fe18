"""Read a folder's tokenizer files into a `tokenizers.Tokenizer`.

`tokenizer.json` is read directly. Older checkpoints have `vocab.json` and `merges.txt`: GPT-2's byte-level BPE.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from detoklens.errors import CheckpointError, DetokLensError, first_line, parse_json

STDERR = 2
PANIC = re.compile(rb"\n?thread '[^\n]*' [^\n]*panicked at .*", re.DOTALL)
"""A panic message and everything after it: a panic is the last thing that a call writes."""


@contextmanager
def library_call(refusal: Callable[[str], DetokLensError]) -> Iterator[None]:
    """Turn any failure of a tokenizer library, panics included, into the error that `refusal` makes of its reason."""
    try:
        with _held_stderr:
            yield
    except (DetokLensError, OSError, MemoryError):
        raise
    except BaseException as error:
        # each library has its own panic class, which can't be imported, so it is recognised by name
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise refusal(first_line(error)) from error
        raise


class _HeldStderr:
    """Redirects descriptor 2 to a file in memory, from the first thread that enters until the last one leaves."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._own: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                try:
                    self._own = os.dup(STDERR)
                except OSError:  # closed: a panic message would not be shown anyway
                    self._own = None
                else:
                    os.dup2(_unnamed_file(os.getpid()), STDERR)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._own is not None:
                held = _unnamed_file(os.getpid())
                size = os.lseek(held, 0, os.SEEK_CUR)
                written = PANIC.sub(b"", os.pread(held, size, 0)) if size else b""
                os.lseek(held, 0, os.SEEK_SET)
                os.dup2(self._own, STDERR)
                os.close(self._own)
                while written:
                    written = written[os.write(STDERR, written) :]


_held_stderr = _HeldStderr()


@lru_cache(maxsize=1)
def _unnamed_file(_process: int) -> int:
    """One file per process: forked processes must not share a file position."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


END_OF_TEXT = "<|endoftext|>"
LARGEST_ID = 2_000_000  # the largest vocabularies in use have some 900,000 tokens
TRIAL = "A trial, été 2\n\t東京 🤦"  # exercises letters, a digit, white space, and characters of two to four bytes


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The folder's tokenizer without padding or truncation, or None if there is none."""
    if (folder / "tokenizer.json").is_file():
        return read_tokenizer_file(folder / "tokenizer.json")
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        with _readable(f"{folder}: vocab.json and merges.txt can't be read ({{}}); download them again"):
            return checked_tokenizer(_from_vocab_and_merges(folder), str(folder))
    return None


def read_tokenizer_file(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json, without padding or truncation."""
    with _readable(f"{path}: not a tokenizer that can be read ({{}}); download it again"):
        return checked_tokenizer(Tokenizer.from_str(path.read_text(encoding="utf-8")), str(path))


def _readable(message: str) -> AbstractContextManager[None]:
    """`library_call` with a message whose {} is the reason."""
    return library_call(lambda reason: CheckpointError(message.replace("{}", reason)))


def checked_tokenizer(tokenizer: Tokenizer, where: str) -> Tokenizer:
    """Check an untrusted tokenizer (unique ids in range) and make it deterministic."""
    ids = tokenizer.get_vocab(with_added_tokens=True)
    largest = max(ids.values(), default=0)
    if largest > LARGEST_ID:
        raise CheckpointError(f"{where}: token id {largest} is beyond any supported vocabulary; download it again")
    if len(set(ids.values())) < len(ids):
        shared, _ = Counter(ids.values()).most_common(1)[0]
        first, second, *_ = sorted(token for token, token_id in ids.items() if token_id == shared)
        raise CheckpointError(f"{where}: the tokens {first!r} and {second!r} share the id {shared}; download it again")
    _check_added_tokens(tokenizer, where)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if getattr(tokenizer.model, "dropout", None) is not None:
        tokenizer.model.dropout = None  # merges left out by chance: for training only
    with suppress(Exception):  # a vocabulary of words need not know these; a panic is no Exception
        tokenizer.encode(TRIAL, add_special_tokens=False)
    return tokenizer


def _check_added_tokens(tokenizer: Tokenizer, where: str) -> None:
    """Refuse added tokens that the normalizer makes equal (<PAD> and <pad>): the library takes either, by chance."""
    found: dict[str, str] = {}
    for token in tokenizer.get_added_tokens_decoder().values():
        if token.normalized and tokenizer.normalizer is not None:
            other = found.setdefault(tokenizer.normalizer.normalize_str(token.content), token.content)
            if other != token.content:
                raise CheckpointError(
                    f"{where}: the added tokens {other!r} and {token.content!r} are the same text after normalization; "
                    "remove one of them, or mark them as not normalized"
                )


def _from_vocab_and_merges(folder: Path) -> Tokenizer:
    vocab = parse_json((folder / "vocab.json").read_text(encoding="utf-8"))
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    tokenizer = Tokenizer(models.BPE(vocab, [(left, right) for left, right in pairs]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if END_OF_TEXT in vocab:
        tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return tokenizer
