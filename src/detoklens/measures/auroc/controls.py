"""Each head's margin above its nulls, with bootstrap intervals over query tokens, and ROC curves.

A head, its nulls and the frequency baseline share their query tokens, so a resample gives a paired difference, whose
interval is much narrower than those of the two means.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int64

from detoklens.kernels.ranking import AUROC
from detoklens.measures.auroc.means import Interval, interval, resampled
from detoklens.measures.auroc.measuring import Measured
from detoklens.measures.auroc.positives import Positives
from detoklens.measures.ranking import scores_of
from detoklens.parallel import one_core_each
from detoklens.scores.affinity import Affinity

Points = dict[str, np.ndarray]


def roc_curves(affinity: Affinity, positives: Positives, token: int) -> list[Points]:
    """The corners of each head's ROC curve, without points on a straight line.

    The token must have both positives and negatives.
    """
    keys, weights = positives.of(token)
    weight = np.zeros(positives.vocab_size, np.int64)
    weight[keys] = weights
    return [_curve(scores, weight) for scores in scores_of(affinity.single(), token)]


def _curve(scores: Float[np.ndarray, "token"], weight: Int64[np.ndarray, "token"]) -> Points:
    """Thresholds from above all scores down to the lowest, with both rates at each."""
    order = np.argsort(-scores, kind="stable")
    last_of_tie = np.append(np.diff(scores[order]) != 0, True)
    found = np.concatenate([[0], np.cumsum(weight[order])[last_of_tie]])
    wrong = np.concatenate([[0], np.cumsum(weight[order] == 0)[last_of_tie]])
    corner = _corners(found, wrong)
    thresholds = np.concatenate([[np.nan], scores[order][last_of_tie]])
    return {
        "threshold": thresholds[corner],
        "false_positive_rate": wrong[corner] / wrong[-1],
        "true_positive_rate": found[corner] / found[-1],
    }


def _corners(found: Int64[np.ndarray, "point"], wrong: Int64[np.ndarray, "point"]) -> Bool[np.ndarray, "point"]:
    bends = np.diff(found)[:-1] * np.diff(wrong)[1:] != np.diff(found)[1:] * np.diff(wrong)[:-1]
    return np.concatenate([[True], bends, [True]])


Sampled = dict[str, Float[np.ndarray, "sample head"]]


def beside_controls(measured: Measured, resamples: int = 1000, seed: int = 0) -> dict[str, Interval]:
    """Each head's mean over query tokens with positives, the means of its controls, and its margins above them.

    `null` is the larger of the two plain nulls in each resample. The margin above a null within groups is a mean over
    the query tokens that have one.
    """
    found = _sampled(measured, resamples, seed)
    found["null"] = np.fmax(found["shuffled_queries"], found["permuted_keys"])
    found["above_null"] = found["auroc"] - found["null"]
    for name in measured.within:
        found[f"above_{name}"] = found.pop(f"auroc_{name}") - found[name]
    found["above_frequency"] = found["auroc"] - found["frequency"]
    return {name: interval(samples[0], samples[1:]) for name, samples in found.items()}


def _sampled(measured: Measured, resamples: int, seed: int) -> Sampled:
    """Means over all query tokens in the first row, over resamples in the others."""
    n_heads, n_queries = measured.heads.shape[:2]
    given = {
        "auroc": measured.heads,
        "shuffled_queries": measured.shuffled_queries,
        "permuted_keys": measured.permuted_keys,
        "frequency": None if measured.frequency is None else measured.frequency[None],
    }
    known = {name: values[..., AUROC] for name, values in given.items() if values is not None}
    for name, null in measured.within.items():
        known[name], known[f"auroc_{name}"] = null, np.where(np.isnan(null), np.nan, measured.heads[..., AUROC])
    together = np.concatenate(list(known.values()))
    defined = ~np.isnan(together)
    known_values, counted = np.where(defined, together, 0.0).T, defined.T.astype(np.float64)
    every_time = [np.ones((1, n_queries)), *resampled(n_queries, resamples, seed)]
    with np.errstate(invalid="ignore"), one_core_each():
        means = np.concatenate([(times @ known_values) / (times @ counted) for times in every_time])
    parts = np.split(means, np.cumsum([len(values) for values in known.values()])[:-1], axis=1)
    unknown = np.full((len(means), n_heads), np.nan)
    return dict.fromkeys(given, unknown) | {
        name: np.broadcast_to(part, unknown.shape) for name, part in zip(known, parts, strict=True)
    }
