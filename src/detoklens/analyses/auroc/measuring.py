"""How well does each head rank each query token's positives, and what do its controls give?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int64

from detoklens.analyses.auroc.blocks import Block, Scorer, Trial, judge_block, rows_of_block, share, shared_in
from detoklens.analyses.auroc.frequency import (
    columns_by_stratum,
    frequency_ranks,
    frequency_strata,
    next_in_circle,
    permuted_within,
)
from detoklens.analyses.auroc.positives import Positives
from detoklens.analyses.block_runs import Arrays, Runner
from detoklens.errors import CountsError, RangeError
from detoklens.kernels.ranking import MEASURES
from detoklens.scores.affinity import Affinity
from detoklens.scores.layer import check_range

REAL, SHUFFLED_QUERIES, PERMUTED_KEYS = range(3)


@dataclass(frozen=True)
class Measures:
    """What was measured of each query token, NaN where undefined; the last axis is that of `kernels.ranking`."""

    query_tokens: Int64[np.ndarray, "query"]
    heads: Float[np.ndarray, "head query measure"]
    shuffled_queries: Float[np.ndarray, "head query measure"] | None
    permuted_keys: Float[np.ndarray, "head query measure"] | None
    frequency: Float[np.ndarray, "query measure"] | None


@dataclass(frozen=True)
class Judging:
    """How the measures are taken.

    `matched` compares a positive only with negatives of its own frequency stratum. `controls` adds the two nulls and
    the frequency baseline, as far as token counts are known.
    """

    k: int = 10
    matched: bool = False
    controls: bool = True
    seed: int = 0


def measure_heads(
    affinity: Affinity,
    positives: Positives,
    query_tokens: Sequence[int] | Int64[np.ndarray, "query"],
    token_counts: Int64[np.ndarray, "token"] | None = None,
    judging: Judging | None = None,
    runner: Runner | None = None,
    folder: Path | None = None,
) -> Measures:
    """AUROC and precision of every head for these query tokens against these positives.

    Blocks of query tokens run where the runner says and read shared arrays from files in `folder` (a temporary one
    where None), which all workers must see.
    """
    judging = judging or Judging()
    queries = np.asarray(query_tokens, np.int64)
    _check_sizes(affinity, positives, queries)
    seen = np.unique(queries[positives.sizes[queries] > 0])
    strata = None if token_counts is None else frequency_strata(token_counts)
    trials = _trials(seen, positives.vocab_size, strata, judging)
    baseline = token_counts if judging.controls else None
    n_scorers = affinity.n_heads + (baseline is not None)
    order, bounds = _columns(positives.vocab_size, strata, judging.matched)
    with tempfile.TemporaryDirectory(prefix="detoklens-", dir=folder) as shared:
        share(Path(shared), seen, _scorers(affinity, baseline), positives, list(trials.values()), order, bounds)
        blocks = -(-len(seen) // rows_of_block(positives.vocab_size))
        tasks = [Block(Path(shared), number, n_scorers, len(trials), judging.k) for number in range(blocks)]
        results = (runner or Runner()).run(judge_block, tasks.__getitem__, blocks)
        try:
            found = _joined(results, rows_of_block(positives.vocab_size), (n_scorers, len(trials), len(seen), MEASURES))
        finally:
            shared_in.cache_clear()  # what this process itself mapped
    return _measures(queries, positives.vocab_size, affinity.n_heads, trials, found)


def _check_sizes(affinity: Affinity, positives: Positives, queries: Int64[np.ndarray, "query"]) -> None:
    if affinity.vocab_size != positives.vocab_size:
        raise RangeError(
            f"scores of {affinity.vocab_size} tokens can't be judged by positives among {positives.vocab_size}; "
            "take both from the same tokenizer"
        )
    check_range("token id", queries, positives.vocab_size)


def _trials(
    seen: Int64[np.ndarray, "query"], vocab_size: int, strata: Int64[np.ndarray, "token"] | None, judging: Judging
) -> dict[int, Trial]:
    """The real judgement and the nulls: scores asked for another query's positives, keys exchanged for others."""
    themselves = np.arange(vocab_size)
    trials = {REAL: Trial(seen, themselves)}
    if judging.controls and len(seen) > 1:
        another = next_in_circle(seen, np.random.default_rng(judging.seed))
        trials[SHUFFLED_QUERIES] = Trial(another, themselves)
    if judging.controls and strata is not None:
        trials[PERMUTED_KEYS] = Trial(seen, permuted_within(strata, judging.seed))
    return trials


def _scorers(affinity: Affinity, token_counts: Int64[np.ndarray, "token"] | None) -> Iterator[Scorer]:
    """The heads, and after them the frequency baseline: every query prefers frequent keys."""
    for query, key in zip(affinity.query, affinity.key, strict=True):
        yield Scorer(query, key)
    if token_counts is not None:
        yield Scorer(np.ones((len(token_counts), 1), np.float32), frequency_ranks(token_counts)[:, None])


def _columns(
    vocab_size: int, strata: Int64[np.ndarray, "token"] | None, matched: bool
) -> tuple[Int64[np.ndarray, "token"], Int64[np.ndarray, "stratum_and_end"]]:
    """The order of keys and the bounds of what is compared with what: everything with everything, or by stratum."""
    if not matched:
        return np.arange(vocab_size), np.array([0, vocab_size])
    if strata is None:
        raise CountsError("frequency-matched negatives need token counts; give --counts")
    return columns_by_stratum(strata)


def _joined(
    results: Iterable[Arrays], rows: int, shape: tuple[int, int, int, int]
) -> Float[np.ndarray, "scorer trial seen measure"]:
    """What blocks found, one after the other."""
    found = np.empty(shape)
    for number, result in enumerate(results):
        found[:, :, number * rows : (number + 1) * rows] = result["measures"]
    return found


def _measures(
    queries: Int64[np.ndarray, "query"],
    vocab_size: int,
    n_heads: int,
    trials: dict[int, Trial],
    found: Float[np.ndarray, "scorer trial seen measure"],
) -> Measures:
    """Sort what blocks found by head and trial, each result to the token whose positives it is about."""
    about = {
        kind: _about(queries, found[:, number], trial.asked, vocab_size)
        for number, (kind, trial) in enumerate(trials.items())
    }
    heads = {kind: values[:n_heads] for kind, values in about.items()}
    return Measures(
        query_tokens=queries,
        heads=heads[REAL],
        shuffled_queries=heads.get(SHUFFLED_QUERIES),
        permuted_keys=heads.get(PERMUTED_KEYS),
        frequency=about[REAL][n_heads] if len(found) > n_heads else None,
    )


def _about(
    queries: Int64[np.ndarray, "query"],
    found: Float[np.ndarray, "scorer seen measure"],
    asked: Int64[np.ndarray, "seen"],
    vocab_size: int,
) -> Float[np.ndarray, "scorer query measure"]:
    """What was found when each query's positives were asked for; NaN where it has none."""
    row_of = np.full(vocab_size, -1)
    row_of[asked] = np.arange(len(asked))
    rows = row_of[queries]
    about = np.full((len(found), len(queries), MEASURES), np.nan)
    about[:, rows >= 0] = found[:, rows[rows >= 0]]
    return about
