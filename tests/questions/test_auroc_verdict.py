"""The one rule by which a head is called lexical: on made-up numbers, and on planted heads of every kind."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest
from calibration.texts import small_texts

from detoklens.measures.auroc import RankingOptions, measure_heads
from detoklens.measures.positives import Positives, from_pairs, predecessor_clusters, seen_pairs
from detoklens.measures.token_classes import orthographic_classes
from detoklens.questions.auroc.compute import AUROC_CONTROLS, MARGINS, controls_by_head
from detoklens.questions.auroc.verdict import FEWEST_TOKENS, auroc_verdict, compare_heads, judge_heads, summarize_heads
from detoklens.scores.affinity import Affinity

GOOD = {"auroc": 0.8, "auroc_low": 0.79, "auroc_high": 0.81, "above_null": 0.2, "above_null_low": 0.19}
GOOD |= {"above_within_class": 0.15, "above_within_class_low": 0.14, "within_class_tokens": 100, "frequency": 0.9}
GOOD |= {"above_within_class_high": 0.16, "above_within_cluster_high": 0.13, "above_null_high": 0.21}
GOOD |= {
    "matched_above_null_high": 0.11,
    "above_within_cluster": 0.12,
    "above_within_cluster_low": 0.11,
    "within_cluster_tokens": 90,
}
GOOD |= {"matched": 0.7, "matched_above_null": 0.1, "matched_above_null_low": 0.09, "matched_frequency": 0.6}
MOST_WORDS = 40


def heads(*rows: dict[str, float | None]) -> pl.DataFrame:
    empty = dict.fromkeys(AUROC_CONTROLS.names)
    return AUROC_CONTROLS.conform(pl.DataFrame([empty | GOOD | row | {"head": head} for head, row in enumerate(rows)]))


@pytest.mark.parametrize(
    ("changed", "level", "said"),
    [
        ({}, "lexical", "L0H0 detokenizes: AUROC 0.800 [0.790, 0.810] on all tokens; 0.100 [0.090, 0.110] above its"),
        (
            {"auroc_low": 0.499},
            "none",
            "the closest, L0H0, has AUROC 0.800 [0.499, 0.810] on all tokens; it is not above",
        ),
        (
            {"above_null_low": -0.001},
            "none",
            "exceeds the plain null by 0.200 [−0.001, 0.210], but the interval reaches 0.",
        ),
        ({"above_null": 0.049}, "none", "exceeds the plain null by 0.049 [0.190, 0.210]; we require more than 0.05."),
        (
            {"above_null": -0.02, "above_null_low": -0.03},
            "none",
            "does not exceed the plain null (−0.020 [−0.030, 0.210]).",
        ),
        (
            {"matched_above_null_low": 0.0},
            "none",
            "exceeds the frequency-matched null by 0.100 [0.000, 0.110], but the",
        ),
        (
            {"above_within_class": 0.03},
            "class-level",
            "L0H0 is class-level, not lexical: AUROC 0.800 [0.790, 0.810] on all",
        ),
        (
            {"above_within_class_low": 0.0},
            "class-level",
            "exceeds the within-class null by 0.150 [0.000, 0.160], but the",
        ),
        ({"above_within_cluster": 0.03}, "class-level", "exceeds the within-cluster null by 0.030 [0.110, 0.130]; we"),
        (
            {"above_within_cluster_low": 0.0},
            "class-level",
            "exceeds the within-cluster null by 0.120 [0.000, 0.130], but the interval",
        ),
        (
            {"above_within_cluster": None, "within_cluster_tokens": 0},
            "untestable",
            "0 query tokens can be exchanged within a cluster; at",
        ),
        (
            {"above_within_cluster": None, "within_cluster_tokens": None},
            "lexical",
            "keys. Clusters were not controlled.",
        ),
        (
            {"above_within_class": 0.03, "above_null": 0.04},
            "none",
            "exceeds the within-class null by 0.030 [0.140, 0.160]; we require",
        ),
        ({"matched_above_null": None}, "untestable", "Untestable: without counts, frequency is not controlled."),
        ({"above_within_class": None}, "untestable", "Untestable: the within-class null needs a tokenizer"),
        (
            {"within_class_tokens": FEWEST_TOKENS - 1},
            "untestable",
            "19 query tokens can be exchanged within a class; at",
        ),
        ({"above_null": 0.01, "matched_above_null": None}, "none", "exceeds the plain null by 0.010"),
        (
            dict.fromkeys(name for name in GOOD if name.endswith(("_low", "_high"))),
            "untestable",
            "Untestable: intervals need bootstrap resamples. The strongest head is L0H0: AUROC 0.800 on all",
        ),
    ],
)
def test_every_control_must_be_exceeded(changed: dict[str, float | None], level: str, said: str) -> None:
    frame = heads(changed)
    assert judge_heads(frame)[0].level == level
    summary = summarize_heads(frame, "on all tokens")
    assert said in summary
    assert len(summary.split()) <= MOST_WORDS
    value = {"lexical": "yes", "untestable": "untestable"}.get(level, "no")
    found = auroc_verdict(frame)
    assert (found.value, found.heads) == (value, ("L0H0",) if value == "yes" else ())
    assert found.reason


def test_without_any_null_nothing_is_claimed() -> None:
    bare = dict.fromkeys(("above_null", "above_within_class", "above_within_cluster", "matched_above_null"))
    found = auroc_verdict(heads(bare))
    assert (found.value, found.reason) == ("untestable", "no null was computed")
    assert "The strongest head is L0H0: AUROC 0.800" in summarize_heads(heads(bare), "on all tokens")
    assert auroc_verdict(heads({"auroc": None})).reason == "no query token has both positives and negatives"
    assert compare_heads({"a": heads(bare)}, "on all tokens") == ""


def test_lexical_heads_come_first_and_all_are_in_the_verdict() -> None:
    by_class = {"above_null": 0.4, "above_within_class": 0.04}
    higher = {"matched_above_null": 0.3}
    assert [each.head for each in judge_heads(heads(by_class, {}, higher))] == [2, 1, 0]
    assert auroc_verdict(heads(by_class, {}, higher), layer=3).heads == ("L3H1", "L3H2")
    assert "L0H2 detokenizes (so does L0H1): " in summarize_heads(heads(by_class, {}, higher), "on all tokens")
    compared = compare_heads({"a": heads({}, higher), "b": heads(by_class)}, "on all tokens")
    assert compared == (
        "Heads that detokenize on all tokens: L0H0 and L0H1 (L0H1 +0.120 above its strongest control) in a and "
        "none (L0H0: class-level only, +0.040 above its strongest control) in b."
    )


def test_heads_that_are_not_clearly_behind_the_best_are_tied() -> None:
    """By the interval of the difference, and only heads of the same level."""
    best, close = {"behind": 0.0, "behind_low": 0.0}, {"matched_above_null": 0.09, "behind": 0.01}
    tied, behind = {**close, "behind_low": -0.001}, {**close, "behind_low": 0.001}
    by_class = {"above_within_class": 0.04, "behind": 0.06, "behind_low": -0.1}
    said = summarize_heads(heads(tied, behind, best, by_class), "on all tokens")
    assert said.startswith("L0H2 (tied: L0H0) detokenizes (so does L0H1): AUROC 0.800 [0.790, 0.810] on all tokens")
    low, higher = {**tied, "above_null": 0.01}, {**best, "above_null": 0.02}
    said = summarize_heads(heads(*[low] * 5, higher), "on continuation tokens", " against words")
    assert said.startswith("No head detokenizes: the closest, L0H5 (tied: L0H0, L0H1 and 3 more), has AUROC 0.800")
    assert len(said.split()) <= MOST_WORDS


def test_a_tie_is_the_paired_difference_of_the_smallest_margins() -> None:
    frame = judged_together("pairs", "pairs", "noise")
    first, second, noise = frame.to_dicts()
    assert sorted([first["behind"], second["behind"]])[0] == 0
    assert max(first["behind_low"], second["behind_low"]) <= 0, "two heads that differ by noise alone"
    assert noise["behind_low"] > 0.05
    least = [min(row[name] for name in MARGINS) for row in (first, second, noise)]
    np.testing.assert_allclose([row["behind"] for row in (first, second, noise)], max(least) - np.array(least))


def test_what_frequency_alone_does_is_said() -> None:
    assert summarize_heads(heads({}), "").endswith(
        "Frequency alone ranks keys better (0.900), but not among equally frequent keys."
    )
    assert summarize_heads(heads({"frequency": 0.7}), "").endswith(
        "Frequency alone has 0.700; among equally frequent keys 0.600, the head 0.700."
    )
    assert summarize_heads(heads({"matched_frequency": 0.75}), "").endswith("ranks keys better (0.900).")


SIZE, QUERIES = 600, 512


@cache
def corpus(n_clusters: int, seed: int, bigrams: int) -> tuple[Positives, np.ndarray, np.ndarray, np.ndarray]:
    """Pairs by the query's cluster and the key's frequency: positives, counts, clusters, log preferences by cluster."""
    random = np.random.default_rng(seed)
    counts = (2 ** np.linspace(13, 4, SIZE)).astype(np.int64)
    clusters = random.integers(n_clusters, size=SIZE)
    preferred = counts * np.where(random.random((n_clusters, SIZE)) < 0.1, 30.0, 1.0)
    shares = preferred / preferred.sum(axis=1, keepdims=True)
    asked = random.permutation(SIZE)[:QUERIES]
    sizes = np.maximum(random.poisson(random.lognormal(np.log(bigrams), 1, SIZE)), 1)
    pairs = [(query, key) for query in asked for key in random.choice(SIZE, sizes[query], p=shares[clusters[query]])]
    return from_pairs(pairs, SIZE), counts, clusters, np.log(preferred / counts)


def planted(kind: str, n_clusters: int, seed: int, strength: float, bigrams: int) -> Affinity:
    """Tᵉᵉ of a head that does one thing alone, over noise: identity queries, and what each finds as keys."""
    positives, counts, clusters, preferences = corpus(n_clusters, seed, bigrams)
    scores = np.random.default_rng(1000 + seed).standard_normal((SIZE, SIZE))
    match kind:
        case "frequency":
            scores += 2 * np.log2(counts)
        case "against frequency":
            scores -= 2 * np.log2(counts)
        case "itself":
            scores += 20 * np.eye(SIZE)
        case "clusters":
            scores += strength * preferences[clusters]
        case "pairs" | "pairs and frequency":
            queries = np.repeat(np.arange(SIZE), positives.sizes)
            scores[queries, positives.keys] += strength
            scores += np.log2(counts) if kind.endswith("frequency") else 0
    return Affinity(np.eye(SIZE, dtype=np.float32)[None], scores.T.astype(np.float32)[None])


def judged(
    kind: str, n_clusters: int = 1, seed: int = 0, strength: float = 3.0, bigrams: int = 60, clusters: bool = True
) -> pl.DataFrame:
    """The controls of a planted head whose tokens all look alike: only clusters of predecessors tell them apart."""
    positives, counts, _, _ = corpus(n_clusters, seed, bigrams)
    groups = {"within_class": np.zeros(SIZE, np.int64)}
    if clusters:
        groups["within_cluster"] = predecessor_clusters(positives, seed)
    affinity = planted(kind, n_clusters, seed, strength, bigrams)
    measures = measure_heads(affinity, positives, range(SIZE), counts, RankingOptions(seed=seed), groups=groups)
    return controls_by_head(measures, [0], 200, seed)


def judged_together(*kinds: str) -> pl.DataFrame:
    """The controls of several planted heads in one layer."""
    positives, counts, _, _ = corpus(1, 0, 60)
    keys = [planted(kind, 1, 0, 0.8, 60).key[0] for kind in kinds]
    noise = np.random.default_rng(5).standard_normal((len(kinds), SIZE, SIZE)).astype(np.float32) / 10
    queries = np.repeat(np.eye(SIZE, dtype=np.float32)[None], len(kinds), axis=0)
    affinity = Affinity(queries, np.stack(keys) + noise)
    groups = {"within_class": np.zeros(SIZE, np.int64), "within_cluster": predecessor_clusters(positives, 0)}
    measures = measure_heads(affinity, positives, range(SIZE), counts, RankingOptions(), groups=groups)
    return controls_by_head(measures, range(len(kinds)), 200, 0)


@pytest.mark.parametrize("kind", ["pairs", "pairs and frequency", "frequency", "against frequency", "itself", "noise"])
def test_planted_heads_are_told_apart_whatever_the_draw(kind: str) -> None:
    levels = {judge_heads(judged(kind, seed=seed))[0].level for seed in range(2)}
    assert levels == {"lexical" if kind.startswith("pairs") else "none"}


@pytest.mark.parametrize("n_clusters", [6, 16])
@pytest.mark.parametrize("seed", range(3))
def test_a_head_that_knows_clusters_and_no_pair_is_class_level(n_clusters: int, seed: int) -> None:
    frame = judged("clusters", n_clusters, seed, 2.0)
    assert frame["above_null"][0] > 0.1
    assert judge_heads(frame)[0].level == "class-level", frame.to_dicts()


@pytest.mark.parametrize("bigrams", [3, 15, 30])
@pytest.mark.parametrize("n_clusters", [6, 16])
def test_on_a_sparse_corpus_a_cluster_head_is_never_lexical(n_clusters: int, bigrams: int) -> None:
    for seed in range(2):
        frame = judged("clusters", n_clusters, seed, 2.0, bigrams)
        assert judge_heads(frame)[0].level != "lexical", frame.to_dicts()


def test_the_class_null_alone_would_call_a_cluster_head_lexical() -> None:
    assert judge_heads(judged("clusters", 16, strength=2.0, clusters=False))[0].level == "lexical"


@pytest.mark.parametrize("strength", [0.8, 2.0])
def test_a_head_that_knows_pairs_is_lexical_within_clusters_too(strength: float) -> None:
    frame = judged("pairs", 16, strength=strength)
    assert auroc_verdict(frame).heads == ("L0H0",), frame.to_dicts()


@pytest.mark.parametrize("kept", [1.0, 0.2, 0.05])
@pytest.mark.parametrize("n_clusters", [6, 16])
def test_a_cluster_head_of_a_real_vocabulary_is_never_lexical(n_clusters: int, kept: float) -> None:
    """On all tokens and on continuation tokens, by the whole corpus and by samples of its bigrams."""
    texts, seed = small_texts(), 100 * n_clusters + int(100 * kept)
    known = texts.clusters(n_clusters)
    belongs = np.eye(n_clusters, dtype=np.float32)[known]
    knows = (belongs @ texts.cluster_association(known)).astype(np.float32)
    pairs = seen_pairs(texts.counts.bigrams)
    drawn = np.random.default_rng(seed).binomial(pairs.weights, kept)
    sample = Positives(pairs.indptr, pairs.keys, drawn).where(drawn > 0)
    groups = {
        "within_class": orthographic_classes(texts.vocabulary, texts.size),
        "within_cluster": predecessor_clusters(sample, seed),
    }
    for asked in (range(texts.size), texts.vocabulary.word_internal()):
        measures = measure_heads(
            Affinity(knows[None], belongs[None]), sample, asked, sample.totals, RankingOptions(seed=seed), groups=groups
        )
        frame = controls_by_head(measures, [0], 200, seed)
        assert frame["above_null"][0] > 0.05
        assert judge_heads(frame)[0].level != "lexical", frame.to_dicts()
