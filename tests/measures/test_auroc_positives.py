"""Which pairs of a corpus are right: all that it holds, or those above chance; each weighs its count."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from detoklens.measures.positives import from_pairs, more_than_chance, seen_pairs
from tests.measures.auroc_oracle import as_dict, random_bigrams


def test_seen_pairs_weigh_their_count() -> None:
    pairs, counts = random_bigrams()
    positives = seen_pairs(counts.bigrams)
    assert as_dict(positives) == dict(pairs)
    totals = Counter()
    for (suffix, _), times in pairs.items():
        totals[suffix] += times
    assert positives.totals.tolist() == [totals[token] for token in range(30)]
    assert set(as_dict(positives.equally_weighted()).values()) == {1}


@pytest.mark.parametrize("above", [-1.0, 0.0, 0.7])
def test_more_than_chance_is_pmi(above: float) -> None:
    pairs, counts = random_bigrams()
    before, after, total = Counter(), Counter(), sum(pairs.values())
    for (suffix, prefix), times in pairs.items():
        before[prefix] += times
        after[suffix] += times
    pmi = {pair: math.log2(times * total / (after[pair[0]] * before[pair[1]])) for pair, times in pairs.items()}
    expected = {pair: pairs[pair] for pair in pairs if pmi[pair] > above}
    assert as_dict(more_than_chance(counts.bigrams, above)) == expected
    assert 0 < len(expected) < len(pairs)


def test_pairs_given_twice_weigh_two() -> None:
    assert as_dict(from_pairs([(3, 1), (0, 2), (3, 1)], 5)) == {(0, 2): 1, (3, 1): 2}
