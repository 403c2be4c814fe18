"""The six shares are those of the whole table of scores, planted heads get what was planted, and bad input is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import detoklens as dl
from detoklens.errors import RangeError
from detoklens.parallel import Runner
from detoklens.questions.anatomy.compute import SHARES, anatomies, visible_offsets
from detoklens.questions.study import Study
from detoklens.weights.first_layer import FirstLayer
from tests.command_line import refuse, run
from tests.layers import as_layer, random_first_layer
from tests.measures.test_trained_range import partly_trained
from tests.questions.asking import assert_kept_and_read_again, shown_lines

FAMILIES = (
    "learned",
    "learned with a window",
    "encoder",
    "rotary",
    "rotary with norms",
    "rotary encoder",
    "rotary with a window",
    "alibi",
)


def first_layer(family: str, seed: int = 0, dtype: str = "float64", **sizes: int) -> FirstLayer:
    """A random layer of a kind of positions: four heads, where they are rotary two to a key."""
    plain = random_first_layer(n_heads=4, d_head=6, seed=seed, dtype=dtype, **({"n_positions": 17} | sizes))
    if family in ("learned", "learned with a window", "encoder"):
        return replace(plain, window=3 if "window" in family else None, is_causal=family != "encoder")
    unplaced = replace(plain, position_embeddings=plain.position_embeddings[:0], longest_text=40)
    if family == "alibi":
        return replace(unplaced, alibi_slopes=np.array([0.5, 0.25, 0.1, 0.02]))
    gains = np.random.default_rng(seed).normal(1.0, 0.3, (2, 6))
    return replace(
        unplaced,
        key_weight=plain.key_weight[:, :2],
        key_bias=plain.key_bias[:2],
        value_weight=plain.value_weight[:, :2],
        value_bias=plain.value_bias[:2],
        norm_kind="rms",
        norm_bias=0 * plain.norm_bias,
        rotary_frequencies=np.array([1.1, 0.3]),
        rotary_factor=1.2,
        is_causal=family != "rotary encoder",
        window=4 if "window" in family else None,
        query_norm_gain=gains[0] if "norms" in family else None,
        key_norm_gain=gains[1] if "norms" in family else None,
    )


def plain_scores(layer: FirstLayer, head: int, offsets: np.ndarray, query_position: int) -> np.ndarray:
    """The scaled score of every query token, key token and offset, by the model's own steps: nothing is folded."""
    own_keys = head // layer.heads_per_key
    query = _vectors(layer, query_position, layer.query_weight[:, head], layer.query_bias[head], layer.query_norm_gain)
    found = []
    for offset in offsets:
        weight, bias = layer.key_weight[:, own_keys], layer.key_bias[own_keys]
        key = _vectors(layer, query_position - offset, weight, bias, layer.key_norm_gain)
        scores = query @ key.T * layer.attention_scale
        found.append(scores if layer.alibi_slopes is None else scores - layer.alibi_slopes[head] * offset)
    return np.stack(found, axis=2)


def _vectors(layer: FirstLayer, position: int, weight: np.ndarray, bias: np.ndarray, gain: Any) -> np.ndarray:
    stream = layer.token_embeddings
    if layer.positions == "learned":
        stream = stream + layer.position_embeddings[position]
    vectors = _normed(stream, layer) * layer.norm_gain @ weight + layer.norm_bias @ weight + bias
    if gain is not None:
        vectors = gain * vectors / np.sqrt(np.mean(vectors**2, axis=1, keepdims=True) + layer.norm_epsilon)
    if layer.rotary_frequencies is None:
        return vectors
    n, turn = len(layer.rotary_frequencies), np.exp(1j * position * layer.rotary_frequencies)
    turned = (vectors[:, :n] + 1j * vectors[:, n : 2 * n]) * turn
    return np.concatenate([turned.real, turned.imag, vectors[:, 2 * n :]], axis=1) * np.where(
        np.arange(vectors.shape[1]) < 2 * n, layer.rotary_factor, 1.0
    )


def _normed(stream: np.ndarray, layer: FirstLayer) -> np.ndarray:
    if layer.norm_kind == "none":
        return stream
    centred = stream if layer.norm_kind == "rms" else stream - stream.mean(axis=1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + layer.norm_epsilon)


def plain_shares(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The six variances of a table of scores [query token, key token, offset], by averaging and subtracting."""
    even = np.full(scores.shape[2], 1 / scores.shape[2])

    def mean(over: str) -> np.ndarray:
        averaged = scores
        for axis, shares in enumerate((weights, weights, even)):
            if "tud"[axis] in over:
                averaged = np.average(averaged, axis=axis, weights=shares, keepdims=True)
        return averaged

    whole = mean("tud")
    offset, key, query = mean("tu") - whole, mean("td") - whole, mean("ud") - whole
    key_offset, query_offset = mean("t") - whole - offset - key, mean("u") - whole - offset - query
    query_key = mean("d") - whole - key - query
    rest = scores - whole - offset - key - query - key_offset - query_offset - query_key
    joint = weights[:, None, None] * weights[:, None] * even
    return np.array([np.sum(joint * part**2) for part in (offset, key, key_offset, query_offset, query_key, rest)])


def token_weights(n_tokens: int, seed: int) -> np.ndarray:
    """Uneven frequencies, some of them 0."""
    counts = np.random.default_rng(seed).integers(0, 9, n_tokens).astype(float)
    counts[0] += 1
    return counts / counts.sum()


@settings(max_examples=60)
@given(st.sampled_from(FAMILIES), st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 16))
def test_shares_are_those_of_the_whole_table_of_scores(family: str, seed: int, n_offsets: int, position: int) -> None:
    plain = first_layer(family, seed)
    layer, weights = as_layer(plain), token_weights(23, seed)
    placed = position if layer.positions == "learned" else None
    offsets = visible_offsets(layer, n_offsets, placed)
    found = anatomies(layer, range(4), weights, n_offsets, placed, Runner())
    for head in range(4):
        scores = plain_scores(plain, head, offsets, position)
        expected = plain_shares(scores, weights)
        variances = found[head].shares * found[head].sd ** 2
        np.testing.assert_allclose(variances, expected, rtol=1e-8, atol=1e-10 * expected.sum())
        within_rows = scores.reshape(23, -1)
        joint = np.outer(weights, np.full(len(offsets), 1 / len(offsets))).ravel()
        variance = (within_rows - (within_rows @ joint)[:, None]) ** 2 @ joint
        assert found[head].sd ** 2 == pytest.approx(weights @ variance, rel=1e-9), "what a softmax row sees"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_lexical_strength_is_that_at_offset_1(family: str) -> None:
    plain, weights = first_layer(family), token_weights(23, 3)
    layer = as_layer(plain)
    placed = 9 if layer.positions == "learned" else None
    for n_offsets in (1, 8):
        found = anatomies(layer, [3, 1], weights, n_offsets, placed, Runner())
        for each, head in zip(found, (3, 1), strict=True):
            expected = plain_shares(plain_scores(plain, head, np.array([1]), 9), weights)
            assert each.lexical_sd == pytest.approx(np.sqrt(expected[4]), rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_single_precision_gives_the_same_shares(family: str) -> None:
    placed = 9 if first_layer(family).positions == "learned" else None
    double, single = (
        anatomies(as_layer(first_layer(family, dtype=dtype)), [2], token_weights(23, 1), 8, placed, Runner())[0]
        for dtype in ("float64", "float32")
    )
    np.testing.assert_allclose(single.shares, double.shares, atol=1e-5)


@settings(max_examples=25)
@given(st.sampled_from(FAMILIES), st.permutations(range(23)))
def test_the_order_of_the_vocabulary_does_not_matter(family: str, order: list[int]) -> None:
    plain, weights = first_layer(family), token_weights(23, 5)
    moved = replace(plain, token_embeddings=plain.token_embeddings[order])
    placed = 9 if plain.positions == "learned" else None
    one = anatomies(as_layer(plain), range(4), weights, 8, placed, Runner())
    other = anatomies(as_layer(moved), range(4), weights[order], 8, placed, Runner(workers=2))
    for before, after in zip(one, other, strict=True):
        np.testing.assert_allclose([after.sd, *after.shares], [before.sd, *before.shares], rtol=1e-9, atol=1e-13)


def test_a_constant_scale_gives_the_bilinear_case() -> None:
    """Without a norm keys are a token's part plus a position's: no key × offset and no three-way share."""
    norm = {"norm_kind": "none", "norm_gain": np.ones(24), "norm_bias": np.zeros(24)}
    plain, weights = replace(first_layer("learned"), **norm), token_weights(23, 2)
    (found,) = anatomies(as_layer(plain), [2], weights, 6, 9, Runner())
    query = (plain.token_embeddings + plain.position_embeddings[9]) @ plain.query_weight[:, 2] + plain.query_bias[2]
    key, places = (table @ plain.key_weight[:, 2] for table in (plain.token_embeddings, plain.position_embeddings))
    mean, of_queries, of_keys = weights @ query, *(np.cov(side.T, aweights=weights, ddof=0) for side in (query, key))
    of_places = np.cov(places[4:10].T, ddof=0)
    expected = [
        mean @ of_places @ mean,
        mean @ of_keys @ mean,
        0.0,
        np.trace(of_queries @ of_places),
        np.trace(of_queries @ of_keys),
        0.0,
    ]
    total = sum(expected)
    np.testing.assert_allclose(found.shares, np.array(expected) / total, atol=1e-12)
    assert found.sd == pytest.approx(plain.attention_scale * np.sqrt(total))


NOISE = 0.01


def planted(share: str, seed: int = 0) -> FirstLayer:
    """A rotary head with one coordinate pair that turns once in eight tokens, one coordinate that doesn't, and noise.

    Queries and keys have a constant (bias) or depend on the token with mean 0, in the turning pair or the other
    coordinate: that decides the share.
    """
    random = np.random.default_rng(seed)
    tokens = random.normal(size=(400, 4))
    tokens -= tokens.mean(axis=0)
    turning, still = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
    place = turning if share in ("offset", "key_offset", "query_offset", "three_way") else still
    query, key = (NOISE * random.normal(size=(4, 1, 3)) for _ in range(2))
    query_bias, key_bias = np.zeros((1, 3)), np.zeros((1, 3))
    if share in ("query_offset", "query_key", "three_way"):
        query[0, 0] += place
    else:
        query_bias[0] = place
    if share in ("key", "key_offset", "query_key", "three_way"):
        key[1, 0] += place
    else:
        key_bias[0] = place
    zeros = np.zeros((4, 1, 3))
    return FirstLayer(
        token_embeddings=tokens,
        position_embeddings=np.zeros((0, 4)),
        norm_gain=np.ones(4),
        norm_bias=np.zeros(4),
        norm_epsilon=0.0,
        query_weight=query,
        query_bias=query_bias,
        key_weight=key,
        key_bias=key_bias,
        value_weight=zeros,
        value_bias=np.zeros((1, 3)),
        output_weight=zeros.transpose(1, 2, 0),
        output_bias=np.zeros(4),
        attention_scale=3**-0.5,
        norm_kind="none",
        rotary_frequencies=np.array([2 * np.pi / 8]),
        longest_text=100,
    )


@pytest.mark.parametrize("share", SHARES)
def test_a_planted_head_gets_the_planted_share(share: str) -> None:
    answer = Study(as_layer(planted(share))).ask(dl.Anatomy())
    row = answer.tables["anatomy_by_head"].row(0, named=True)
    assert row[share] >= 0.95
    assert sum(row[name] for name in SHARES) == pytest.approx(1)
    assert max(row[name] for name in SHARES if name != share) < 0.05


def test_the_offset_share_of_a_rotary_head_splits_into_its_pairs() -> None:
    plain = first_layer("rotary")
    table = Study(as_layer(plain)).ask(dl.Anatomy(offsets=20)).tables["anatomy_by_rotary_pair"]
    assert table.columns == ["head", "pair", "period", "sd", "share"]
    assert table["period"].to_list() == pytest.approx([2 * np.pi / 1.1, 2 * np.pi / 0.3] * 4)
    np.testing.assert_allclose(table.group_by("head").agg(pl.col("share").sum())["share"], 1.0)
    for head in range(4):
        one, other, both = (
            plain_scores(replace(plain, rotary_frequencies=np.array(pair)), head, np.arange(20), 30).mean(axis=(0, 1))
            for pair in ([1.1, 0.0], [0.0, 0.3], [1.1, 0.3])
        )
        rows = table.filter(head=head)
        np.testing.assert_allclose(rows["sd"], [one.std(), other.std()], rtol=1e-9)
        np.testing.assert_allclose(
            rows["share"], [np.cov(wave, both)[0, 1] / both.var(ddof=1) for wave in (one, other)]
        )


def test_a_kernel_that_does_not_vary_has_no_shares_by_pair() -> None:
    plain = planted("query_key")
    table = Study(as_layer(replace(plain, query_weight=0 * plain.query_weight))).ask(dl.Anatomy()).tables
    assert table["anatomy_by_rotary_pair"]["share"].to_list() == [None]
    assert table["anatomy_by_head"].row(0)[1:] == (0.0, *[None] * 6, 0.0)


def test_heads_that_do_not_vary_are_said_so() -> None:
    plain = planted("key")
    answer = Study(as_layer(replace(plain, query_bias=0 * plain.query_bias, query_weight=0 * plain.query_weight))).ask(
        dl.Anatomy()
    )
    assert answer.sentence == "No score varies."
    assert answer.figure()


def test_only_what_a_query_sees_counts() -> None:
    seen = {family: visible_offsets(as_layer(first_layer(family)), 5, None) for family in FAMILIES if "rot" in family}
    assert seen["rotary"].tolist() == [0, 1, 2, 3, 4]
    assert seen["rotary with a window"].tolist() == [0, 1, 2, 3]
    assert sorted(seen["rotary encoder"]) == list(range(-4, 5))
    learned, encoder = as_layer(first_layer("learned")), as_layer(first_layer("encoder"))
    assert visible_offsets(learned, 5, 2).tolist() == [0, 1, 2]
    assert sorted(visible_offsets(encoder, 5, 15)) == [-1, 0, 1, 2, 3, 4]
    assert visible_offsets(as_layer(first_layer("learned with a window")), 9, 9).tolist() == [0, 1, 2]
    assert len(visible_offsets(as_layer(replace(first_layer("alibi"), longest_text=3)), 9, None)) == 3


def test_notes_say_what_was_done_without() -> None:
    capped = replace(first_layer("rotary with a window"), softcap=20.0)
    assert Study(as_layer(capped)).ask(dl.Anatomy()).notes == (
        "a query sees only 4 offsets, not 32",
        "no corpus counts: every token has the same weight",
        "scores are taken before softcapping",
    )
    assert dl.study("demo").ask(dl.Anatomy()).notes == ()


def test_a_hidden_offset_1_leaves_the_lexical_strength_undefined() -> None:
    answer = Study(as_layer(first_layer("learned"))).ask(dl.Anatomy(query_position=0))
    assert answer.tables["anatomy_by_head"]["lexical_sd"].to_list() == [None] * 4
    assert answer.tables["anatomy_by_head"]["offset"].to_list() == [0.0] * 4
    assert answer.figure()


def test_the_query_stands_in_the_middle_of_the_trained_range() -> None:
    layer = partly_trained(100, 300)
    asked, explicit = (Study(layer).ask(question) for question in (dl.Anatomy(), dl.Anatomy(query_position=50)))
    assert asked.tables["anatomy_by_head"].equals(explicit.tables["anatomy_by_head"])
    assert asked.provenance == explicit.provenance
    assert "anatomy_by_rotary_pair" not in asked.tables


def test_a_position_is_refused_where_there_is_none() -> None:
    with pytest.raises(RangeError, match="the score depends on the offset only; leave query_position out"):
        Study(as_layer(first_layer("alibi"))).ask(dl.Anatomy(query_position=3))
    assert "position 4096 does not exist" in refuse("anatomy", "demo", "--query-position", "4096")


def test_counts_weight_the_vocabulary() -> None:
    study = dl.study("demo")
    assert study.counts is not None
    table = study.ask(dl.Anatomy(heads=[1])).tables["anatomy_by_head"]
    weights = study.counts.tokens / study.counts.tokens.sum()
    (expected,) = anatomies(study.layer, [1], weights, 32, study.layer.n_positions // 2, Runner())
    assert table.row(0)[1:8] == pytest.approx((expected.sd, *expected.shares))
    even = Study(study.layer).ask(dl.Anatomy(heads=[1])).tables["anatomy_by_head"]
    assert abs(even["sd"][0] - table["sd"][0]) > 0.01


def test_the_demo_on_the_command_line_and_in_words(tmp_path) -> None:
    printed = run("anatomy", "demo", "--format", "csv", "--out", tmp_path, "--figure", tmp_path / "anatomy.svg")
    table = pl.read_csv(printed.stdout.encode())
    np.testing.assert_allclose(table.select(pl.sum_horizontal(SHARES)).to_series(), 1.0)
    answer = dl.study("demo").ask(dl.Anatomy())
    assert answer.sentence == (
        "The score varies most with key in 3 of 4 heads (L0H3: 88 %) and with offset in 1 (L0H1: 80 %). The strongest "
        "head is L0H1 (sd 2.1)."
    )
    assert max(map(len, shown_lines(answer))) <= 80
    compared = dl.compare({"start": "demo@0", "end": "demo"}, dl.Anatomy())
    assert compared.sentence.startswith("Heads whose score varies most: L0H")
    assert compared.sentence.endswith(" and L0H1 in end (sd 2.1, 80 % offset).")


def test_an_answer_is_kept_and_read_again(tmp_path) -> None:
    assert_kept_and_read_again(dl.study("demo"), dl.Anatomy(offsets=16, heads=[2, 0]), tmp_path)


def test_a_map_of_heads_has_one_point_per_head_for_one_model_and_for_several() -> None:
    one = dl.study("demo").ask(dl.Anatomy()).figure("head_map", heads=[1, 2])
    assert len(one.axes[0].collections[0].get_offsets()) == 2
    assert one.axes[0].get_title(loc="left") == "", "one model needs no label"
    several = dl.compare({"start": "demo@0", "end": "demo"}, dl.Anatomy()).figure("compare_head_maps")
    assert [axes.get_title(loc="left") for axes in several.axes] == ["start", "end"]
    areas = [axes.collections[0].get_sizes().max() for axes in several.axes]
    assert areas[0] < areas[1], "areas have one scale: the untrained heads are weak"


def test_shuffled_frequencies_and_random_weights_change_the_anatomy() -> None:
    """Two controls: what is trained lies in which tokens are frequent, and in how queries meet keys."""
    study = dl.study("demo")
    assert study.counts is not None
    frequencies, random = study.counts.tokens.astype(float), np.random.default_rng(0)
    weights = study.layer.weights

    def strength(layer: Any, counts: np.ndarray) -> tuple[float, float]:
        found = anatomies(layer, [1], counts / counts.sum(), 32, 128, Runner())[0]
        return found.sd, found.shares[0]

    def same_norm(matrix: np.ndarray) -> np.ndarray:
        drawn = random.normal(size=matrix.shape)
        return (drawn * np.linalg.norm(matrix) / np.linalg.norm(drawn)).astype(matrix.dtype)

    drawn = {name: same_norm(getattr(weights, name)) for name in ("query_weight", "key_weight")}
    plain = strength(study.layer, frequencies)
    shuffled = strength(study.layer, random.permutation(frequencies))
    at_random = strength(as_layer(replace(weights, **drawn)), frequencies)
    assert plain[1] > 0.75
    assert abs(shuffled[0] - plain[0]) > 0.02
    assert at_random[1] < 0.3, "random weights of the same norm are not positional"


def test_a_sample_of_scores_has_the_variance_of_the_closed_form() -> None:
    """Monte Carlo: within five standard errors for every family."""
    random = np.random.default_rng(0)
    for family in FAMILIES:
        plain, weights = first_layer(family), token_weights(23, 6)
        layer = as_layer(plain)
        placed = 9 if layer.positions == "learned" else None
        offsets = visible_offsets(layer, 8, placed)
        scores = plain_scores(plain, 1, offsets, 9)
        rows = scores - np.einsum("tud,u->t", scores, weights)[:, None, None] / len(offsets)
        tokens = random.choice(23, size=(2, 20_000), p=weights)
        sample = rows[tokens[0], tokens[1], random.integers(len(offsets), size=20_000)] ** 2
        (found,) = anatomies(layer, [1], weights, 8, placed, Runner())
        assert abs(sample.mean() - found.sd**2) < 5 * sample.std() / np.sqrt(len(sample)), family
