"""Heads that share keys are ranked head by head: the same as if each had its own, and never copied all at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detoklens.measures.ranking import pair_ranks, scores_of
from detoklens.questions.partners import partners_of
from detoklens.report.search import find_partners
from detoklens.scores.affinity import Affinity
from tests.measures.test_top_pairs import find_pairs

TOKENS = np.arange(7)


class NeverCopied(Affinity):
    @property
    def key(self) -> np.ndarray:
        raise AssertionError("the keys of all heads were copied")


@pytest.fixture
def both() -> tuple[Affinity, Affinity]:
    random = np.random.default_rng(0)
    query, shared = (random.normal(size=(heads, 40, 6)).astype(np.float32) for heads in (4, 2))
    own_keys = (0, 0, 1, 1)
    return NeverCopied(query, shared, own_keys), Affinity(query, shared[list(own_keys)])


@pytest.mark.parametrize(
    "measured",
    [
        lambda affinity: partners_of(
            replace(affinity, query=affinity.query[:, TOKENS]), range(4), TOKENS, 3
        ).to_numpy(),
        lambda affinity: find_partners(affinity, TOKENS, 3),
        lambda affinity: scores_of(affinity, 5),
        lambda affinity: pair_ranks(affinity, TOKENS, TOKENS[None, ::-1])[0],
        lambda affinity: np.stack([np.stack(list(pairs.values())) for pairs in find_pairs(affinity, 5)]),
    ],
    ids=["partners_of", "find_partners", "scores_of", "pair_ranks", "largest_pairs"],
)
def test_shared_keys_are_ranked_as_each_heads_own(measured, both):
    shared, own = both
    np.testing.assert_array_equal(measured(shared), measured(own))
