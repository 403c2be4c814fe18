"""The bytes that are kept are the bytes that were asked for, however the file is laid out and cut into pieces."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load

from detoklens.hub.session import Assembly, RemoteFile, take_wanted
from detoklens.weights.hub_checkpoint import select
from detoklens.weights.sources import TensorEntry

CONTENT = bytes(np.random.default_rng(3).integers(0, 256, 2000, dtype=np.uint8))


@st.composite
def disjoint_ranges(draw: st.DrawFn) -> list[range]:
    cuts = sorted(draw(st.lists(st.integers(0, len(CONTENT)), min_size=2, max_size=16, unique=True)))
    return [range(start, stop) for start, stop in zip(cuts[::2], cuts[1::2], strict=False)]


@st.composite
def layouts(draw: st.DrawFn) -> dict[RemoteFile, list[TensorEntry]]:
    """Some bytes tensors in one to three files, side by side or apart, in any order."""
    found = {}
    for file in range(draw(st.integers(1, 3))):
        cuts = sorted(draw(st.lists(st.integers(0, len(CONTENT)), min_size=2, max_size=12)))
        places = draw(st.permutations([*pairwise(cuts)]))[: draw(st.integers(1, 6))]
        found[RemoteFile(f"{file}.safetensors", "", len(CONTENT), f"etag{file}")] = [
            TensorEntry(f"t{file}.{number}", "U8", (stop - start,), start, stop)
            for number, (start, stop) in enumerate(places)
        ]
    return found


def bytes_beyond(selection: Assembly, done: int) -> bytes:
    return b"".join(CONTENT[part.start : part.stop] for _, ranges in selection.after(done) for part in ranges)


@given(found=layouts())
def test_the_small_file_is_valid_and_holds_each_tensor(found: dict[RemoteFile, list[TensorEntry]]) -> None:
    selection = select(found)
    small_file = selection.header + bytes_beyond(selection, len(selection.header))
    assert len(small_file) == selection.size
    assert len(selection.header) % 8 == 0  # tensors of whole words stay aligned in a memory map
    held = {name: values.tobytes() for name, values in load(small_file).items()}
    assert held == {e.name: CONTENT[e.start : e.end] for entries in found.values() for e in entries}


@given(found=layouts(), data=st.data())
def test_what_is_done_and_what_is_left_make_up_the_file(
    found: dict[RemoteFile, list[TensorEntry]], data: st.DataObject
) -> None:
    selection = select(found)
    whole = selection.header + bytes_beyond(selection, len(selection.header))
    done = data.draw(st.integers(len(selection.header), selection.size))
    assert whole[:done] + bytes_beyond(selection, done) == whole


@given(found=layouts())
def test_neighbours_are_one_request(found: dict[RemoteFile, list[TensorEntry]]) -> None:
    for _, ranges in select(found).parts:
        filled = [part for part in ranges if part]
        assert all(before.stop < after.start for before, after in pairwise(filled))


@given(ranges=disjoint_ranges(), data=st.data())
def test_the_wanted_parts_of_a_stream_cut_anywhere(ranges: list[range], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(CONTENT)), max_size=30)))
    left, kept = deque(part for part in ranges if part), b""
    for start, stop in zip([0, *cuts], [*cuts, len(CONTENT)], strict=True):
        kept += b"".join(take_wanted(left, CONTENT[start:stop], start))
    assert kept == b"".join(CONTENT[part.start : part.stop] for part in ranges)
    assert not left


REMOTE = RemoteFile("model.safetensors", "", 2000, "etag")
ENTRY = TensorEntry("t", "U8", (10,), 100, 110)
CHANGES = {
    "content": (RemoteFile("model.safetensors", "", 2000, "other"), ENTRY),
    "size": (RemoteFile("model.safetensors", "", 2001, "etag"), ENTRY),
    "place": (REMOTE, TensorEntry("t", "U8", (10,), 101, 111)),
    "name": (REMOTE, TensorEntry("u", "U8", (10,), 100, 110)),
    "type": (REMOTE, TensorEntry("t", "I8", (10,), 100, 110)),
    "shape": (REMOTE, TensorEntry("t", "U8", (2, 5), 100, 110)),
}


@pytest.mark.parametrize(("remote", "entry"), CHANGES.values(), ids=CHANGES.keys())
def test_the_key_tells_selections_apart(remote: RemoteFile, entry: TensorEntry) -> None:
    assert select({REMOTE: [ENTRY]}).key == select({REMOTE: [ENTRY]}).key
    assert select({remote: [entry]}).key != select({REMOTE: [ENTRY]}).key
