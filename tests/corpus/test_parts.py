"""Part files: what is written is read, and merged in a stream it is the sum, however small the blocks are."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.corpus import pairs as parts
from detoklens.corpus.pairs import Run, add_parts, write_part
from detoklens.corpus.reading import Tally
from detoklens.errors import CountsError

PAIRS = st.dictionaries(st.integers(0, 60) | st.integers(0, 2**32 - 1), st.integers(1, 2**40), max_size=40)


def as_run(pairs: dict[int, int], kind: str) -> Run:
    keys = sorted(pairs)
    return Run(np.array(keys, kind), np.array([pairs[key] for key in keys], np.int64))


def tally_of(tokens: np.ndarray, pairs: dict[int, int], **others: Any) -> Tally:
    """What must have been read where these are the counts."""
    read = int(tokens.sum())
    return Tally(tokens=read, documents_with_tokens=read - sum(pairs.values()), **others)


@pytest.mark.parametrize("kind", ["uint32", "uint64"])
@given(counted=st.lists(PAIRS, min_size=1, max_size=6), rows=st.integers(1, 9))
def test_merged_parts_are_the_sum_in_rising_order(kind: str, counted: list[dict[int, int]], rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(parts, "BLOCK_ROWS", rows)
        paths = []
        for number, pairs in enumerate(counted):
            path = Path(folder, f"{number}.arrow")
            tokens = np.arange(5) * number
            tally = tally_of(tokens, pairs, documents=number, first_skipped=[str(number)])
            write_part(path, [as_run(pairs, kind)], np.dtype(kind), tokens, tally)
            paths.append(path)
        runs, tokens, tally = add_parts(paths)
        found = [pair for run in runs for pair in zip(*(c.tolist() for c in run), strict=True)]
        total = sum(map(Counter, counted), Counter())
        assert found == sorted(total.items())
        expected = sum(range(len(counted)))
        assert tokens.tolist() == [token * expected for token in range(5)]
        assert tally.documents == expected
        assert tally.first_skipped == [str(number) for number in range(len(counted))][:3]


PAIRS_OF_FOUR_TOKENS = {3: 2, 7: 1}


@pytest.mark.parametrize(
    ("tokens", "pairs", "message"),
    [
        ([4, 0], {3: 2}, "part: counted 2 bigrams, expected 3"),
        ([4, 0], {}, "part: counted 0 bigrams, expected 3"),
        ([4, 0], {3: 2, 7: 2}, "part: counted 4 bigrams, expected 3"),
        ([3, 0], PAIRS_OF_FOUR_TOKENS, "part: counted 3 tokens, expected 4"),
    ],
)
def test_a_part_that_is_not_all_of_its_text_is_not_written(
    tokens: list[int], pairs: dict[int, int], message: str, tmp_path: Path
) -> None:
    tally = tally_of(np.array([4]), PAIRS_OF_FOUR_TOKENS)
    with pytest.raises(CountsError, match=message):
        write_part(tmp_path / "part", [as_run(pairs, "uint32")], np.dtype("uint32"), np.array(tokens), tally)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["uint32", "uint64"])
def test_no_flipped_bit_of_a_part_is_believed(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "part"
    tally = tally_of(np.array([4]), PAIRS_OF_FOUR_TOKENS)
    write_part(path, [as_run(PAIRS_OF_FOUR_TOKENS, kind)], np.dtype(kind), np.array([4, 0]), tally)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(CountsError, match="part: damaged; delete it"):
            add_parts([path])
    for length in (0, 1, 31, 32, 33, len(whole) - 32, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CountsError, match="part: damaged; delete it"):
            add_parts([path])
