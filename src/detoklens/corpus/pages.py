"""How much memory would the pages of a parquet column take? Their headers say so before anything is uncompressed.

A column chunk is a row of pages, the dictionary's first where there is one. A page is a header, a Thrift struct in the
compact protocol, and its compressed bytes. A few kB may stand for GB, so the sizes are read first.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

UNCOMPRESSED_SIZE, COMPRESSED_SIZE = 2, 3  # the numbers of these fields in a page's header
STOP, NO_CONTENT, ONE_BYTE, NUMBERS, EIGHT_BYTES, BYTES, STRUCT = 0, (1, 2), 3, (4, 5, 6), 7, 8, 12
DEEPEST = 8
"""Structs in structs: a header has two levels."""


class BrokenHeader(Exception):
    """Bytes that are no page header."""


def largest_page(path: str, column: Any) -> int:
    """The bytes of the largest page of a column chunk, uncompressed."""
    starts = [place for place in (column.dictionary_page_offset, column.data_page_offset) if place]
    place = min(starts, default=0)
    end = place + column.total_compressed_size
    largest = 0
    with open(path, "rb") as file:
        while place < end:
            file.seek(place)
            sizes = _numbers_of_struct(file)
            uncompressed, compressed = sizes.get(UNCOMPRESSED_SIZE, -1), sizes.get(COMPRESSED_SIZE, -1)
            if uncompressed < 0 or compressed < 0:
                raise BrokenHeader("a page without a size")
            largest = max(largest, uncompressed)
            place = file.tell() + compressed
    return largest


def _numbers_of_struct(file: BinaryIO, depth: int = 0) -> dict[int, int]:
    """The whole numbers among the fields of a struct; everything else is passed over."""
    if depth == DEEPEST:
        raise BrokenHeader("structs nested too deeply")
    numbers: dict[int, int] = {}
    field = 0
    while (head := _byte(file)) != STOP:
        step, kind = divmod(head, 16)
        field = field + step if step else _signed(_varint(file))
        if kind in NUMBERS:
            numbers[field] = _signed(_varint(file))
        elif kind == STRUCT:
            _numbers_of_struct(file, depth + 1)
        else:
            _pass_over(file, kind)
    return numbers


def _pass_over(file: BinaryIO, kind: int) -> None:
    if kind in NO_CONTENT:  # true and false
        return
    lengths = {ONE_BYTE: 1, EIGHT_BYTES: 8}
    if kind != BYTES and kind not in lengths:
        raise BrokenHeader(f"a field of kind {kind}")
    file.seek(_varint(file) if kind == BYTES else lengths[kind], os.SEEK_CUR)


def _byte(file: BinaryIO) -> int:
    byte = file.read(1)
    if not byte:
        raise BrokenHeader("the file ends in a header")
    return byte[0]


def _varint(file: BinaryIO) -> int:
    """Seven bits a byte, the lowest first; the last byte has no eighth bit."""
    value = 0
    for shift in range(0, 64, 7):
        byte = _byte(file)
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise BrokenHeader("a number of more than 64 bits")


def _signed(number: int) -> int:
    """0, -1, 1, -2, … of 0, 1, 2, 3, …"""
    return number >> 1 ^ -(number & 1)
