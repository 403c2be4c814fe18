"""The compiled loops over sorted runs, beside their plain meaning in numpy."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.kernels.tokens import add_runs, run_lengths

KINDS = [np.uint32, np.uint64]
KEYS = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 5), max_size=60)


@pytest.mark.parametrize("kind", KINDS)
@given(keys=KEYS)
def test_run_lengths_are_those_of_unique(kind: type[np.unsignedinteger], keys: list[int]) -> None:
    expected, counts = np.unique(np.array(keys, kind), return_counts=True)
    found = run_lengths(np.sort(np.array(keys, kind)))
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], counts)
    assert found[0].dtype == kind
    assert found[1].dtype == np.int64


@pytest.mark.parametrize("kind", KINDS)
@given(
    left=st.dictionaries(st.integers(0, 40) | st.integers(0, 2**32 - 1), st.integers(1, 2**40), max_size=40),
    data=st.data(),
)
def test_added_runs_are_added_counters(
    kind: type[np.unsignedinteger], left: dict[int, int], data: st.DataObject
) -> None:
    right = data.draw(st.dictionaries(st.sampled_from([*left, 7, 8, 9]), st.integers(1, 2**40), max_size=40))
    keys, counts = add_runs(*as_run(left, kind), *as_run(right, kind))
    expected = Counter(left) + Counter(right)
    assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == expected
    assert keys.tolist() == sorted(expected)
    assert keys.dtype == kind


def as_run(counts: dict[int, int], kind: type[np.unsignedinteger]) -> tuple[np.ndarray, np.ndarray]:
    keys = sorted(counts)
    return np.array(keys, kind), np.array([counts[key] for key in keys], np.int64)
