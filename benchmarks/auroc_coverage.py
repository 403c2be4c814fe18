"""Coverage of the 95 % intervals of a head's mean AUROC, on planted heads with key effects.

    python benchmarks/auroc_coverage.py                        60 vocabularies per key effect: seconds

A planted head scores key j for query q as 1 if j is a positive, plus a key effect that is the same for all queries,
plus noise. Positives are Zipf-like, so a few keys dominate. Each vocabulary has a population of 1,000 query tokens, and
the interval is computed from a sample of them. `this_vocabulary` counts the intervals that contain the mean over the
population with the same keys, which is what `auroc` claims. `any_vocabulary` counts those that contain the mean over
all vocabularies, as if the keys were a sample too, which `auroc` does not claim.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from detoklens.measures.auroc import head_means

KEY_EFFECTS = (0.0, 0.3, 0.6)
KEYS, POSITIVES, POPULATION, RESAMPLES = 150, 6, 1000, 300


def planted_aurocs(key_effect: float, random: np.random.Generator) -> np.ndarray:
    """The AUROC of each query token in the population, for one vocabulary."""
    shares = 1 / (1 + np.arange(KEYS))
    waits = random.exponential(size=(POPULATION, KEYS)) / shares
    right = waits <= np.partition(waits, POSITIVES - 1, axis=1)[:, [POSITIVES - 1]]
    scores = right + key_effect * random.standard_normal(KEYS) + random.standard_normal((POPULATION, KEYS))
    ranks = scores.argsort(axis=1).argsort(axis=1)
    won = np.where(right, ranks, 0).sum(axis=1) - POSITIVES * (POSITIVES - 1) / 2
    return won / (POSITIVES * (KEYS - POSITIVES))


def coverage(key_effect: float, vocabularies: int, queries: int, random: np.random.Generator) -> dict[str, float]:
    """Count the intervals that contain each mean."""
    ends, means = [], []
    for number in range(vocabularies):
        aurocs = planted_aurocs(key_effect, random)
        asked = random.choice(aurocs, queries, replace=False)
        seen = head_means(asked[None], np.ones(queries, np.int64), RESAMPLES, number).seen
        ends.append((seen.low[0], seen.high[0]))
        means.append(aurocs.mean())
    low, high = np.array(ends).T
    held = {"this_vocabulary": np.array(means), "any_vocabulary": np.mean(means)}
    return {name: int(((low <= mean) & (mean <= high)).sum()) for name, mean in held.items()} | {"of": vocabularies}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabularies", type=int, default=60)
    parser.add_argument("--queries", type=int, default=100)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    found = {effect: coverage(effect, options.vocabularies, options.queries, random) for effect in KEY_EFFECTS}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
