"""How do files get damaged, and what do strangers put into them? Chance taken from the case, for any JSON or bytes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**64,
    -(2**63),
    10**40,
    0.5,
    1e308,
    float("nan"),
    "",
    "x",
    "\x1b[2J\r\n",
    "\u202e" * 99,
    "x" * 100_000,
    [],
    {},
    [[]],
    {"type": "ByteLevel"},
    [0] * 1000,
)


def flipped(random: Random, content: bytes, flips: int) -> bytes:
    """Some bits the other way round."""
    damaged = bytearray(content)
    for _ in range(flips):
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def cut_or_doubled(random: Random, content: bytes) -> bytes:
    """A piece of the file left out, or there twice."""
    begin, end = sorted(random.randrange(len(content) + 1) for _ in range(2))
    return content[:begin] + content[end:] if random.random() < 0.5 else content[:end] + content[begin:]


def damaged(random: Random, content: bytes) -> bytes:
    """One flipped bit, a file cut off, emptied or with zeros at its end, or a piece of it left out or there twice."""
    place = random.randrange(len(content))
    match random.randrange(8):
        case 0:
            return content[:place]
        case 1:
            return content[:place] + bytes(len(content) - place)
        case 2:
            return cut_or_doubled(random, content)
        case 3 if random.random() < 0.2:
            return b""
        case _:
            return flipped(random, content, 1)


def changed_json(random: Random, value: Any, changes: int) -> Any:
    """The same JSON with some fields dropped, replaced or renamed, at any depth."""
    changed = copy.deepcopy(value)
    for _ in range(changes):
        places = list(_places(changed))
        if places:
            _change(random, *random.choice(places))
    return changed


def deeply_nested(random: Random, content: bytes, place: bytes) -> bytes:
    """What stands at `place` becomes a list, or an object, of hundreds or a hundred thousand levels."""
    depth = random.choice([120, 500, 990, 5_000, 100_000])
    opening, closing = random.choice([(b"[", b"]"), (b'{"a":', b"}")])
    return content.replace(place, opening * depth + b"0" + closing * depth, 1)


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every field of a JSON value; of a long list or object only some, so that small settings have their chance."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    for key in keys[:: max(1, len(keys) // 12)]:
        yield value, key
        if isinstance(value[key], dict | list) and value[key]:
            yield from _places(value[key])


def _change(random: Random, holder: Any, key: Any) -> None:
    match random.randrange(3):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}{random.choice(['s', ' ', chr(0)])}"] = holder.pop(key)
        case _:
            holder[key] = copy.deepcopy(random.choice(ODD_VALUES))
