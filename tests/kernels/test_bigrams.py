"""The compiled loops over token ids, beside their plain meaning."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.kernels.tokens import add_token_counts, write_pair_keys

SIZES = (7, 65_535, 256_000)


@pytest.mark.parametrize("size", SIZES)
@given(data=st.data())
def test_keys_are_suffix_times_size_plus_prefix_inside_documents(size: int, data: st.DataObject) -> None:
    token = st.integers(0, size - 1) | st.sampled_from([0, size - 1])
    documents = data.draw(st.lists(st.lists(token, max_size=10), max_size=6))
    ids = np.array([token_id for document in documents for token_id in document], np.uint32)
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    keys = np.full(len(ids) + 3, 99, np.uint32 if size**2 < 2**32 else np.uint64)
    expected = [suffix * size + prefix for document in documents for prefix, suffix in pairwise(document)]
    filled = write_pair_keys(ids, offsets, size, keys, 3)
    assert keys[:filled].tolist() == [99, 99, 99, *expected]
    totals = np.ones(size, np.int64)
    add_token_counts(ids, totals)
    np.testing.assert_array_equal(totals, 1 + np.bincount(ids, minlength=size))
