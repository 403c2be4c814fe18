"""What the commands about tokens say of trained models: the demo detokenizes, a speech decoder does not."""

from __future__ import annotations

import pytest

import detoklens
from detoklens import demo
from detoklens.kernels.ranking import AUROC
from detoklens.measures.auroc import head_means, measure_heads
from detoklens.measures.positives import seen_pairs


@pytest.fixture(scope="module")
def demo_layer():
    if not demo.CHECKPOINT.is_dir():
        pytest.skip("NOT TESTED ON THE DEMO: its checkpoint is missing from the package")
    return detoklens.load(demo.CHECKPOINT)


def test_the_demos_best_head_stands_above_its_null_and_above_frequency(demo_layer):
    """Over pieces of words, with bootstrap intervals that do not overlap; which head it is may differ by seed."""
    counts = detoklens.Counts.open(demo.COUNTS, demo_layer.vocabulary.fingerprint)
    pairs, pieces = seen_pairs(counts.bigrams), demo_layer.vocabulary.word_internal()
    measured = measure_heads(demo_layer.token_affinity(), pairs, pieces, counts.tokens)

    def interval(values):
        return head_means(values[..., AUROC], pairs.totals[measured.query_tokens]).seen

    heads, null, frequency = map(interval, (measured.heads, measured.shuffled_queries, measured.frequency[None]))
    best = (heads.value - null.value).argmax()
    assert heads.low[best] > null.high[best] + 0.1
    assert heads.low[best] > frequency.high[0] + 0.03
