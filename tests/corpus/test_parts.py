"""Part files: what is written is read, and merged in a stream it is the sum, however small the blocks are."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.corpus import parts
from detoklens.corpus.pairs import Run
from detoklens.corpus.parts import Part, merged_blocks, sum_of_tallies, sum_of_tokens, write_part
from detoklens.corpus.records import Tally

PAIRS = st.dictionaries(st.integers(0, 60) | st.integers(0, 2**32 - 1), st.integers(1, 2**40), max_size=40)


def as_run(pairs: dict[int, int], kind: str) -> Run:
    keys = sorted(pairs)
    return Run(np.array(keys, kind), np.array([pairs[key] for key in keys], np.int64))


@pytest.mark.parametrize("kind", ["uint32", "uint64"])
@given(counted=st.lists(PAIRS, min_size=1, max_size=6), rows=st.integers(1, 9))
def test_merged_parts_are_the_sum_in_rising_order(kind: str, counted: list[dict[int, int]], rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(parts, "BLOCK_ROWS", rows)
        opened = []
        for number, pairs in enumerate(counted):
            path = Path(folder, f"{number}.arrow")
            tally = Tally(documents=number, first_skipped=[str(number)])
            write_part(path, [as_run(pairs, kind)], np.dtype(kind), np.arange(5) * number, tally)
            opened.append(Part(path))
        found = [pair for run in merged_blocks(opened) for pair in zip(*(c.tolist() for c in run), strict=True)]
        total = sum(map(Counter, counted), Counter())
        assert found == sorted(total.items())
        expected = sum(range(len(counted)))
        assert sum_of_tokens(opened).tolist() == [token * expected for token in range(5)]
        assert sum_of_tallies(opened).documents == expected
        assert sum_of_tallies(opened).first_skipped == [str(number) for number in range(len(counted))][:3]
