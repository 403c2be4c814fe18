"""Is this valid UTF-8, and if not, how is it mended?

Bytes that are no UTF-8 and surrogates without their other half become U+FFFD, one for each that is undecodable, and are
counted; text that is valid passes through unchanged.
"""

from __future__ import annotations

import re

from detoklens.corpus.records import Tally

REPLACEMENT = "\ufffd"
REPLACEMENT_BYTES = REPLACEMENT.encode()
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def repaired_bytes(raw: bytes, tally: Tally) -> bytes:
    """The bytes where they are UTF-8, else with what is not replaced."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return _replaced(raw, tally).encode()
    return raw


def decoded(raw: bytes, tally: Tally) -> str:
    """The text of the bytes, with what is no UTF-8 replaced."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _replaced(raw, tally)


def _replaced(raw: bytes, tally: Tally) -> str:
    mended = raw.decode(errors="replace")
    tally.replaced(mended.count(REPLACEMENT) - raw.count(REPLACEMENT_BYTES))
    return mended


def encoded(text: str, tally: Tally) -> bytes:
    """The text as UTF-8, lone surrogates (a JSON file may hold them) replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        mended, characters = LONE_SURROGATE.subn(REPLACEMENT, text)
        tally.replaced(characters)
        return mended.encode()
