"""Lifts equal those of plain scores, their parts and terms add up, controls are calibrated, and bad input is refused."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import zstandard
from calibration import adversaries
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

import detoklens as dl
from detoklens import demo as demo_files
from detoklens.corpus.counts import Counts
from detoklens.errors import MissingError, RangeError, TokenError
from detoklens.parallel import Runner
from detoklens.questions.lookback.compute import (
    FARTHEST,
    Draws,
    QueryTokens,
    TextLookback,
    lifts_of,
    random_alignments,
    text_lookback,
)
from detoklens.questions.lookback.question import LOOKBACK_BY_HEAD, LOOKBACK_BY_TERM
from detoklens.questions.lookback.verdict import HeadJudgement, judge_lookback
from detoklens.questions.study import Study
from detoklens.weights.first_layer import FirstLayer
from tests.answers import sharing_answers
from tests.command_line import refuse
from tests.layers import as_layer, random_first_layer
from tests.questions.asking import assert_kept_and_read_again
from tests.questions.test_anatomy import FAMILIES, first_layer, plain_scores

WIDE = tuple(family for family in FAMILIES if "window" not in family)
N_TOKENS, N_POSITIONS = 23, 40


def wide_layer(family: str, seed: int) -> FirstLayer:
    """A random layer in which a query sees 15 tokens back, and ahead if it looks both ways."""
    return first_layer(family, seed, n_positions=N_POSITIONS)


def some_tokens(seed: int, ahead: bool = False) -> tuple[QueryTokens, np.ndarray, np.ndarray]:
    """Random classes, counts and bigrams of 23 tokens; every token has a neighbour."""
    random = np.random.default_rng(seed)
    counts, pairs = random.integers(1, 9, N_TOKENS), random.integers(0, 4, (N_TOKENS, N_TOKENS))
    pairs[np.arange(N_TOKENS), random.integers(0, N_TOKENS, N_TOKENS)] += 1
    pairs[random.integers(0, N_TOKENS, N_TOKENS), np.arange(N_TOKENS)] += 1
    suffixes, prefixes = np.nonzero(pairs)
    made = Counts.from_arrays(counts, suffixes.astype(np.uint32), prefixes.astype(np.uint32), pairs[suffixes, prefixes])
    labels = random.choice(["C", "W", "F", ""], N_TOKENS)
    labels[:2] = "C", "W"
    tokens = QueryTokens.of(labels, counts, made.bigrams, ahead)
    return tokens, counts.astype(float), (pairs.T if ahead else pairs) / (pairs.T if ahead else pairs).sum(1)[:, None]


@settings(max_examples=60)
@given(st.sampled_from(WIDE), st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([None, "vocabulary"]))
def test_parts_and_terms_add_up_to_the_lift_of_plain_scores(family: str, seed: int, ahead: bool, mean: Any) -> None:
    plain = wide_layer(family, seed)
    ahead, mean = ahead and not plain.is_causal, None if plain.positions == "learned" else mean
    layer, (tokens, counts, before) = as_layer(plain), some_tokens(seed, ahead)
    places = [17, 22] if plain.positions == "learned" else [20]
    look = {"positions": places if plain.positions == "learned" else (), "mean": mean, "ahead": ahead}
    lifts = lifts_of(layer, tokens, counts, [3, 0, 2, 1], Runner(workers=2), **look)
    sign, unigram = -1 if ahead else 1, counts / counts.sum()
    for row, head in enumerate([3, 0, 2, 1]):
        a, b, r, s = np.zeros((4, len(tokens.ids)))
        for place in places:
            scores = plain_scores(plain, head, sign * np.arange(FARTHEST + 1), place) / len(places)
            own = scores[tokens.ids]
            a += np.einsum("tu,tu->t", own[:, :, 1], before[tokens.ids])
            b += own[:, :, 1] @ unigram
            r += (own[:, :, 2:].mean(axis=2)) @ unigram
            s += own[np.arange(len(tokens.ids)), tokens.ids, 0]
        parts = lifts.parts[row].sum(axis=1)
        scale = 1e-10 * max(1.0, np.abs([a, b, r, s]).max())
        np.testing.assert_allclose(parts[0], b - r, rtol=0, atol=scale)
        np.testing.assert_allclose(lifts.over_self[row].sum(axis=0), b - s, rtol=0, atol=scale)
        known = ~np.isnan(parts[1])
        np.testing.assert_allclose(lifts.total[row], a - r, rtol=0, atol=scale)
        np.testing.assert_allclose(parts.sum(axis=0)[known], (a - r)[known], rtol=0, atol=scale)
        alone = np.bincount(tokens.groups)[tokens.groups] == 1
        assert (known == ~alone).all(), "only a token alone in its class and bin has no class part"


@pytest.mark.parametrize("family", WIDE)
def test_the_class_part_is_the_mean_over_other_tokens_of_the_class_and_bin(family: str) -> None:
    plain = wide_layer(family, 3)
    layer, (tokens, counts, before) = as_layer(plain), some_tokens(3)
    places = [20] if plain.positions == "learned" else ()
    lifts = lifts_of(layer, tokens, counts, [2], Runner(), positions=places)
    near = plain_scores(plain, 2, np.array([1]), 20)[tokens.ids, :, 0]
    expected = []
    for row in range(len(tokens.ids)):
        kin = [place for place in np.flatnonzero(tokens.groups == tokens.groups[row]) if place != row]
        others = np.mean([near[row] @ before[tokens.ids[place]] for place in kin]) if kin else np.nan
        expected.append(others - near[row] @ (counts / counts.sum()))
    np.testing.assert_allclose(lifts.parts[0, 1].sum(axis=0), expected, atol=1e-10)


@pytest.mark.parametrize("family", WIDE)
def test_each_term_is_that_of_texts_with_the_query_and_the_key_in_their_places(family: str) -> None:
    layer, (tokens, counts, before), place, head = as_layer(wide_layer(family, 9)), some_tokens(9), 20, 1
    learned, unigram = layer.positions == "learned", counts / counts.sum()
    mean = None if learned else counts
    lifts = lifts_of(layer, tokens, counts, [head], Runner(), positions=[place] if learned else (), mean=mean)
    offsets = np.arange(FARTHEST + 1)
    for row in range(0, len(tokens.ids), 5):
        scores = []  # key token, term, offset
        for key in range(N_TOKENS):
            text = np.full(place + 1, key)
            text[place] = tokens.ids[row]
            terms = layer.terms(text, mean)
            scores.append([terms.full(name)[head, place, place - offsets] for name in terms.names])
        own = np.array(scores) * layer.attention_scale
        kin = [each for each in np.flatnonzero(tokens.groups == tokens.groups[row]) if each != row]
        a, b, r = before[tokens.ids[row]] @ own[:, :, 1], unigram @ own[:, :, 1], unigram @ own[:, :, 2:].mean(axis=2)
        n = (
            np.mean([before[tokens.ids[each]] @ own[:, :, 1] for each in kin], axis=0)
            if kin
            else np.full(len(a), np.nan)
        )
        assert [str(term.name) for term in lifts.terms] == list(terms.names)
        np.testing.assert_allclose(lifts.parts[0, :, :, row], [b - r, n - b, a - n], atol=1e-9)
        np.testing.assert_allclose(lifts.over_self[0, :, row], b - own[tokens.ids[row], :, 0], atol=1e-9)


@pytest.mark.parametrize("family", [family for family in WIDE if "rotary" in family or family == "alibi"])
def test_with_the_frequency_weighted_mean_the_position_part_depends_on_the_query_through_one_term(family: str) -> None:
    layer, (tokens, counts, _) = as_layer(wide_layer(family, 7)), some_tokens(7)
    lifts = lifts_of(layer, tokens, counts, [1], Runner(), mean=counts)
    for term, values in zip(lifts.terms, lifts.parts[0, 0], strict=True):
        assert term.name == "ep" or np.ptp(values) < 1e-6, term.name
    if "rotary" in family:
        even = lifts_of(layer, tokens, counts, [1], Runner(), mean="vocabulary")
        assert np.ptp(even.parts[0, 0, [term.name for term in even.terms].index("ee")]) > 1e-3


def balanced(seed: int, n: int = 60) -> QueryTokens:
    """Tokens of three classes in two bins, each token preceded by random ones."""
    random = np.random.default_rng(seed)
    pairs = random.integers(0, 3, (n, n)) + 1
    suffixes, prefixes = np.nonzero(pairs)
    made = Counts.from_arrays(np.ones(n, int), suffixes.astype(np.uint32), prefixes.astype(np.uint32), pairs.ravel())
    return QueryTokens.of(random.permuted(np.tile(["C", "W", "F"], n // 3)), np.tile([3, 30], n // 2), made.bigrams)


@pytest.mark.parametrize("family", ["learned", "rotary", "alibi"])
def test_the_trace_is_the_difference_and_the_label_null_that_of_relabelled_tokens(family: str) -> None:
    tokens = balanced(1)
    layer = as_layer(first_layer(family, 1, n_positions=N_POSITIONS, vocab_size=60))
    counts, draws = np.ones(60), Draws(tokens, 3, 0)
    places = [20, 25] if layer.positions == "learned" else ()
    lifts = lifts_of(layer, tokens, counts, range(4), Runner(), positions=places, draws=draws)
    found = draws.estimate(lifts.by_token)
    np.testing.assert_allclose(np.trace(lifts.matrices, axis1=2, axis2=3), found.value, atol=1e-10)
    np.testing.assert_allclose(lifts.by_place.mean(axis=1), found.value[:, :-1], atol=1e-10)
    assert (found.low <= found.value + 1e-6).all()
    assert (found.high >= found.value - 1e-6).all()
    for draw in range(3):
        labels = tokens.labels.copy()
        for _, members, called, _ in draws.called:
            labels[members] = np.where(called[draw] == 1, "C", "W")
        relabelled = replace(tokens, labels=labels)
        again = lifts_of(layer, relabelled, counts, [3], Runner(), positions=places)
        expected = again.by_token[0] @ relabelled.contrast
        np.testing.assert_allclose(lifts.label_null[3, :, draw], expected, rtol=1e-4, atol=1e-4)


def test_matched_means_compare_equal_frequencies() -> None:
    """Values that depend on the frequency bin alone make no difference, however uneven the classes."""
    tokens = balanced(2)
    labels = np.where((tokens.bins > 2) & (np.arange(60) % 4 == 1), "C", tokens.labels)
    uneven = replace(tokens, labels=labels)
    assert abs(tokens.bins.astype(float) @ uneven.contrast) < 1e-12
    assert abs(uneven.contrast.sum()) < 1e-12
    assert uneven.matched("C").sum() == pytest.approx(1)


def test_random_rotations_are_exchangeable_with_random_weights() -> None:
    """p-values of random heads on structured embeddings are even: the share below 0.1 is about 0.1."""
    tokens, small = balanced(4), []
    shift = np.where(np.isin(np.arange(60), tokens.ids[tokens.labels == "C"]), 2.0, 0.0)
    for seed in range(40):
        plain = random_first_layer(n_heads=4, d_head=6, vocab_size=60, n_positions=N_POSITIONS, seed=seed)
        plain = replace(plain, token_embeddings=plain.token_embeddings + shift[:, None] * plain.norm_gain)
        matrices = lifts_of(as_layer(plain), tokens, np.ones(60), range(4), Runner(), positions=[20]).matrices
        observed, null = np.trace(matrices, axis1=2, axis2=3), random_alignments(matrices, 199, seed)
        small.append((np.abs(null) >= np.abs(observed)[..., None]).mean(axis=2) < 0.1)
    assert 0.04 < np.mean(small) < 0.17


def test_attention_without_a_term_is_that_of_the_terms() -> None:
    for family in WIDE:
        layer = as_layer(wide_layer(family, 5))
        random = np.random.default_rng(0)
        labels = random.choice(["C", "W", "F", ""], N_TOKENS)
        labels[:2] = "C", "W"
        documents = [random.integers(0, N_TOKENS, size) for size in (30, 36, 9)]
        documents[0][20:22] = 0, 1
        mean = None if layer.positions == "learned" else "vocabulary"
        found = text_lookback(layer, documents, labels, [1, 3], mean, Runner())
        assert found is not None
        assert found.sums.shape[0] == 2, "a document of 9 tokens has no query at position 16"
        for document, ids in enumerate(documents[:2]):
            terms = layer.terms(ids, mean)
            assert found.removed == ("none", *terms.names)
            for row, removed in enumerate(found.removed):
                attention = terms.attention() if removed == "none" else terms.attention_without(removed)
                for column, label in enumerate("CWF"):
                    places = [place for place in range(16, len(ids)) if labels[ids[place]] == label]
                    expected = [sum(attention[head, place, place - 1] for place in places) for head in (1, 3)]
                    np.testing.assert_allclose(found.sums[document, :, row, column], expected, rtol=1e-9, atol=1e-12)
                    assert found.places[document, column] == len(places)


@pytest.fixture(scope="module")
def demo() -> Study:
    return dl.study("demo", workers=2)


@pytest.fixture(scope="module")
def trial(demo: Study) -> dl.Answer:
    """The demo at the positions of the first trial."""
    return demo.ask(dl.Lookback(query_positions=[60, 125, 200]))


def test_the_demo_has_a_lexical_switch_in_one_head(demo: Study, trial: dl.Answer) -> None:
    assert trial.verdict is not None
    assert (trial.verdict.value, trial.verdict.heads) == ("yes", ("L0H1",))
    rows = trial.tables["lookback_by_head"].filter(head=1, contrast="previous")
    found = dict(rows.select("part", "difference").iter_rows())
    assert found["total"] == pytest.approx(0.775, abs=0.01)
    assert found["lexical"] == pytest.approx(0.605, abs=0.02)
    assert found["position"] == pytest.approx(-0.005, abs=0.01)
    for row in rows.iter_rows(named=True):
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["difference"] == pytest.approx(row["C"] - row["W"])
    text = trial.tables["lookback_text"].filter(head=1)
    gap, without = (text.filter(removed=removed).row(0, named=True) for removed in ("none", "ee"))
    assert gap["gap"] == pytest.approx(0.149, abs=0.01)
    assert gap["high"] - gap["low"] < 0.02
    assert abs(without["gap"]) < 0.01
    for label in "CWF":
        assert gap[f"attention_{label}_low"] < gap[f"attention_{label}"] < gap[f"attention_{label}_high"]
    absent = TextLookback(
        ("none",), np.ones((4, 1, 1, 3)) * [1, 1, 0], np.array([[5, 5, 0]] * 4), np.ones((1, 9)), np.ones(9, int)
    )
    means, _ = absent.estimates(0)
    assert np.isnan([means.value[0, 0, 2], means.low[0, 0, 2]]).all(), "no first piece was read"
    predicted = trial.tables["lookback_prediction"].filter(head=1).row(0, named=True)
    assert predicted["spearman"] > 0.7
    assert predicted["low"] < predicted["spearman"] < predicted["high"]
    assert "lexical" in trial.sentence
    assert "Tᵉᵉ" in trial.sentence
    assert len(trial.sentence.split()) <= 40


def test_terms_add_up_to_parts_and_parts_to_the_total(trial: dl.Answer) -> None:
    by_head = trial.tables["lookback_by_head"].filter(contrast="previous")
    by_term = trial.tables["lookback_by_term"].group_by("head", "part").agg(pl.col("difference").sum().alias("sum"))
    joined = by_head.join(by_term, on=["head", "part"])
    np.testing.assert_allclose(joined["difference"], joined["sum"], atol=1e-10)
    wide = by_head.pivot("part", index="head", values="difference")
    np.testing.assert_allclose(wide["position"] + wide["class"] + wide["lexical"], wide["total"], atol=1e-10)


@pytest.fixture(scope="module")
def over_training(demo: Study, answers_folder: Path) -> list[dl.Answer]:
    """The demo's snapshots and the demo."""
    tokens = (0, 1_048_576, 4_194_304)
    studies = [Study(dl.load(f"demo@{each}"), demo.counts) for each in tokens]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Study, "_computed", sharing_answers(answers_folder))
        return [study.ask(dl.Lookback()) for study in (*studies, demo)]


def test_the_switch_grows_in_training_and_is_absent_before(over_training: list[dl.Answer]) -> None:
    tables = [answer.tables["lookback_by_head"].filter(head=1, contrast="previous") for answer in over_training]
    totals = [table.filter(part="total")["difference"][0] for table in tables]
    assert totals == pytest.approx([0.0, 0.056, 0.634, 0.574], abs=0.005)
    assert [table.filter(part="position")["difference"][0] for table in tables[2:]] == pytest.approx(
        [0.145, -0.166], abs=0.005
    )
    assert over_training[0].verdict is not None
    assert over_training[0].verdict.value == "no"
    assert over_training[0].sentence.startswith("No head looks back more")


def test_the_documented_example_is_what_is_printed(over_training: list[dl.Answer]) -> None:
    [view] = over_training[-1].views
    page = (Path(__file__).parents[2] / "docs" / "lookback.md").read_text(encoding="utf-8")
    shown = [line.split() for line in page.split("$ detoklens lookback demo\n")[1].split("```")[0].splitlines()[4:]]
    for row, cells in zip(view.frame.iter_rows(), shown, strict=True):
        assert [float(cell) for cell in cells[:9]] == list(row[:9])
        assert " ".join(cells[9:]) == row[9]


def test_a_previous_token_head_without_a_switch_is_named_with_its_part(tmp_path: Path) -> None:
    model = adversaries.switch("position", 3.0, 0)
    tokens = model.tensors["model.embed_tokens.weight"]
    tokens[:, :2] = tokens[:, :2][np.abs(tokens[:, 1]).argmax()]  # the planted feature in every token's query
    answer = dl.study(model.write(tmp_path), counts=model.texts.counts, workers=1).ask(dl.Lookback())
    assert answer.verdict is not None
    assert answer.verdict.value == "no"
    assert judge_lookback(answer.tables["lookback_by_head"])[0].kind == "previous token (position)"
    assert "L0H0 is a previous-token head without a switch: lift 3." in answer.sentence
    assert answer.sentence.endswith("mostly positional.")


def judged_rows(head: int, c: float, w: float, p: float) -> list[dict[str, Any]]:
    """Rows of `lookback_by_head` of a head whose lift is all position."""
    found = []
    for part in ("position", "class", "lexical", "total"):
        row: dict[str, Any] = dict.fromkeys(LOOKBACK_BY_HEAD.names)
        size = part in ("position", "total")
        row |= {"head": head, "part": part, "contrast": "previous", "C": c * size, "W": w * size, "tokens": 90}
        row |= {"difference": (c - w) * size, "low": (c - w - 0.01) * size, "high": (c - w + 0.01) * size}
        found.append(row | {"null_high": 0.05, "aligned_high": 0.05, "p_labels": p, "p_alignments": p})
    return found


def summary_of(*heads: tuple[int, float, float, float]) -> str:
    rows = [row for head in heads for row in judged_rows(*head)]
    by_term = [(head, "total", "ep", c - w, 0.0, 0.0) for head, c, w, _ in heads]
    tables = {"lookback_by_head": LOOKBACK_BY_HEAD.conform(pl.DataFrame(rows, infer_schema_length=None))}
    return dl.Lookback().summarize(
        tables | {"lookback_by_term": pl.DataFrame(by_term, LOOKBACK_BY_TERM.names, orient="row")}
    )


def test_heads_that_look_back_without_a_switch_are_named_next_to_one_in_at_most_40_words() -> None:
    said = summary_of((0, 3.0, 2.0, 0.001), (1, 4.0, 3.0, 0.01), (2, 9.0, 9.05, 0.9))
    assert said.startswith(
        "L0H0 looks back 1.00 [0.99, 1.01] nats more from continuation tokens than from whole words "
        "(position +1.00, rest +0.00)"
    )
    assert said.endswith(", carried by Tᵉᵖ. L0H1 also looks back more. L0H2 (position) looks back from both.")
    many = summary_of(
        *((head, 3.0, 2.0, 0.001) for head in range(9)), *((head, 9.0, 9.0, 0.9) for head in range(9, 20))
    )
    assert len(many.split()) <= 40
    assert "L0H1, L0H2, L0H3, L0H4 and 4 more also look back more." in many


def test_a_head_that_looks_back_more_from_whole_words_is_said_to() -> None:
    assert summary_of((0, 0.2, 0.5, 0.001)).endswith("with −0.30 nats: it looks back more from whole words.")
    assert summary_of((0, 0.52, 0.5, 0.001)).endswith("with 0.02 nats: we require 0.1 nats.")


def test_the_condition_that_fails_is_the_one_named() -> None:
    rows = {row["part"]: row for row in judged_rows(0, 3.0, 2.0, 0.5)}
    parts = {part: rows[part] for part in ("position", "class", "lexical")}
    assert HeadJudgement(0, rows["total"], parts).why_not == "permuted labels give as much (p = 0.5)"
    doubtful = rows["total"] | {"p_labels": 0.001, "low": -0.2}
    assert HeadJudgement(0, doubtful, parts).why_not == "its interval reaches 0"


def test_thresholds_and_pairs_spelled_alike_agree_with_the_whole(trial: dl.Answer) -> None:
    swept = trial.tables["lookback_by_threshold"].filter(head=1)
    assert len(swept) == 9
    np.testing.assert_allclose(swept["difference"], 0.775, atol=0.25)
    alike = trial.tables["lookback_by_head"].filter(head=1, contrast="spelled_alike").row(0, named=True)
    assert alike["low"] > 0
    assert alike["tokens"] >= 20


def test_an_answer_is_kept_drawn_and_shown(demo: Study, trial: dl.Answer, tmp_path: Path) -> None:
    assert_kept_and_read_again(demo, dl.Lookback(query_positions=[60, 125, 200]), tmp_path)
    assert trial.figure("lookback", heads=[1]).axes
    assert [head.kind for head in judge_lookback(trial.tables["lookback_by_head"])][1] == "lexical switch"


def test_the_seed_and_workers_change_no_difference(demo: Study, trial: dl.Answer) -> None:
    other = dl.study("demo", workers=1, seed=0).ask(dl.Lookback(query_positions=[60, 125, 200]))
    assert other.tables["lookback_by_head"].equals(trial.tables["lookback_by_head"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--query-positions", "9"], "a query sees at most 10 tokens from position 9"),
        (["--query-positions", "300"], "position 300 does not exist"),
        (["--continuation", "1.5"], "is not a share"),
        (["--whole-word", "0.6"], "could be both"),
        (["--fewest", "100000000"], "no frequency bin has 5 of each"),
        (["--mean", "none"], "learned positions have no mean"),
    ],
)
def test_bad_options_are_refused_in_one_line(options: list[str], says: str) -> None:
    assert says in refuse("lookback", "demo", *options)


def test_missing_counts_and_missing_tokenizer_are_named() -> None:
    layer = as_layer(wide_layer("rotary", 0))
    with pytest.raises(MissingError, match="counts"):
        Study(layer).ask(dl.Lookback())
    counts = Counts.from_arrays(np.ones(N_TOKENS, int), *(np.zeros(1, np.uint32),) * 2, np.ones(1, int))
    with pytest.raises(MissingError, match="tokenizer"):
        Study(layer, counts).ask(dl.Lookback())


def test_a_query_that_sees_fewer_than_16_tokens_is_refused(demo: Study) -> None:
    weights, short = demo.layer.weights, {"window": 8}
    cases = {
        "sees at most 8 tokens": short,
        "sees at most 12 tokens": {"position_embeddings": weights.position_embeddings[:12], "longest_text": 12},
        "sees at most 15 tokens from position 20": {"position_embeddings": weights.position_embeddings[:35],
                                                   "longest_text": 35, "is_causal": False},
    }  # fmt: skip
    for says, change in cases.items():
        layer = type(demo.layer)(replace(demo.layer.checkpoint, first_layer=replace(weights, **change)))
        asked = dl.Lookback(query_positions=[20] if "from" in says else None)
        with pytest.raises(RangeError, match=says):
            Study(layer, demo.counts).ask(asked)


@pytest.mark.parametrize(
    ("spell", "says"),
    [
        ("{}", r"no token of letters starts with a space, so whole words \(W\) and first pieces \(F\)"),
        (" {}", "no token continues a word, so class C"),
    ],
)
def test_a_vocabulary_that_can_not_fill_a_class_is_refused(spell: str, says: str) -> None:
    letters = [spell.format(chr(97 + place // 26) + chr(97 + place % 26)) for place in range(N_TOKENS)]
    vocabulary = dl.Vocabulary(Tokenizer(models.WordLevel({text: place for place, text in enumerate(letters)})))
    layer = as_layer(wide_layer("rotary", 0))
    spelled = type(layer)(replace(layer.checkpoint, vocabulary=vocabulary))
    pairs = np.arange(N_TOKENS, dtype=np.uint32)
    counts = Counts.from_arrays(
        np.full(N_TOKENS, 50), pairs, pairs[::-1].copy(), np.ones(N_TOKENS, int), vocabulary.fingerprint
    )
    with pytest.raises(TokenError, match=says):
        Study(spelled, counts).ask(dl.Lookback())


def with_counts(folder: Path) -> Study:
    """A real model with counts of the demo's documents by its own tokenizer, and some of them as text."""
    with demo_files.DOCUMENTS.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().decode().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    layer = dl.load(folder)
    tokens, pairs = np.zeros(layer.vocab_size, np.int64), Counter[tuple[int, int]]()
    for text in texts:
        ids = layer.vocabulary.encode(text)
        np.add.at(tokens, ids, 1)
        pairs.update(pairwise(ids))
    prefixes, suffixes = np.array(list(pairs), np.uint32).T
    amounts, fingerprint = np.array(list(pairs.values())), layer.vocabulary.fingerprint
    counts = Counts.from_arrays(tokens, suffixes, prefixes, amounts, fingerprint)
    return dl.study(layer, counts=counts, text=texts[:8], length=100, workers=2)


def test_a_real_rotary_model_answers(stories_folder: Path) -> None:
    answer = with_counts(stories_folder).ask(dl.Lookback(fewest=5))
    assert answer.verdict is not None
    assert set(answer.tables["lookback_by_term"]["term"]) == {"ee", "e", "ep", "p"}
    assert "lookback_by_position" not in answer.tables
    assert answer.sentence.endswith(".")


def test_a_real_model_that_looks_both_ways_answers_in_both_directions(minilm_folder: Path) -> None:
    answer = with_counts(minilm_folder).ask(dl.Lookback(fewest=5, query_positions=[40]))
    contrasts = set(answer.tables["lookback_by_head"]["contrast"])
    assert {"previous", "next", "self"} <= contrasts
    ahead = answer.tables["lookback_by_head"].filter(contrast="next")
    assert ahead["p_labels"].null_count() == ahead["aligned_high"].null_count() == 0
    assert set(answer.tables["lookback_by_token"].filter(pl.col("class") == "C")["token"].str.slice(0, 2)) == {"##"}
    assert answer.sentence.endswith(".")
