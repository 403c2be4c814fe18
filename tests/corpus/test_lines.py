"""Ranges of a file share out its lines: each line once, whatever the ranges and the chunks."""

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.corpus import reading
from detoklens.corpus.reading import lines_before, read_lines
from detoklens.errors import CorpusError

CONTENT = st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\r", b"\xef\xbb\xbf", b"long line"]), max_size=30).map(
    b"".join
)


@given(content=CONTENT, cuts=st.lists(st.integers(0, 80), max_size=6), chunk=st.integers(1, 12))
def test_ranges_share_out_the_lines(content: bytes, cuts: list[int], chunk: int) -> None:
    expected = content.removesuffix(b"\n").split(b"\n") if content else []
    expected = [line.removeprefix(b"\xef\xbb\xbf") if place == 0 else line for place, line in enumerate(expected)]
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < len(content)), len(content)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "CHUNK", chunk)
        path = Path(folder, "t.txt")
        path.write_bytes(content)
        found: list[bytes] = []
        for start, stop in pairwise(bounds):
            assert start == len(content) or lines_before(str(path), start) == len(found)
            found.extend(read_lines("t.txt", str(path), None, start, stop, 1000))
        assert found == expected


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"x" * 5_000_000)
    with pytest.raises(CorpusError, match=r"t\.jsonl: has a document of more than 2 MB.*more memory or fewer workers"):
        list(read_lines("t.jsonl", str(path), None, 0, None, 2 << 20))
