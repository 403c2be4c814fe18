"""The heatmap's tables against Tᵉᵉ of all pairs."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from detoklens.errors import RangeError
from detoklens.loading import load
from detoklens.questions.heatmap import Heatmap
from detoklens.questions.study import Study
from tests.layers import random_first_layer, random_layer, write_gpt2
from tests.questions.faces import check_faces, shown_columns
from tests.spelled import counts_of, spelled_layer, write_spelled


def all_scores(layer, divided, centred=False):
    affinity = layer.token_affinity("mean" if divided else None, centred)
    return affinity.scores(np.arange(layer.vocab_size)).astype(np.float64)


@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.parametrize("centred", [True, False])
def test_every_column_follows_from_the_scores_of_all_pairs(divided, centred):
    layer = random_layer(n_heads=3, vocab_size=60)
    drawn = Study(layer, seed=4).ask(Heatmap(20, heads=[2, 0], centred=centred)).tables
    ids = drawn["heatmap_tokens"]["token_id"].to_numpy()
    for head in (2, 0):
        whole = all_scores(layer, divided, centred)[head]
        table = whole[np.ix_(ids, ids)]
        diagonal, other = np.diagonal(table), table[~np.eye(20, dtype=bool)]
        row = drawn["heatmap_by_head"].filter(head=head, layer_norm=divided).row(0, named=True)
        own_ranks = np.array([1 + (whole[i] > whole[i, i]).sum() for i in ids])
        expected = {
            "head": head,
            "layer_norm": divided,
            "minimum": table.min(),
            "maximum": table.max(),
            "diagonal_mean": diagonal.mean(),
            "other_mean": other.mean(),
            "diagonal_share": np.mean(table.argmax(axis=1) == np.arange(20)),
            "self_match": np.mean((diagonal - whole[ids].mean(axis=1)) / whole[ids].std(axis=1)),
            "self_first": np.mean(own_ranks == 1),
            "self_median_rank": np.median(own_ranks),
            "same_keys": whole.mean(axis=0).var() / whole.var(axis=1).mean(),
        }
        assert row == pytest.approx(expected, rel=1e-6, abs=1e-12)
        long = drawn["heatmap"].filter(head=head, layer_norm=divided).sort("query_place", "key_place")
        np.testing.assert_allclose(long["score"].to_numpy().reshape(20, 20), table, rtol=1e-5, atol=1e-5)
        assert long["query_token_id"].to_list() == np.repeat(ids, 20).tolist()
        assert long["key_token_id"].to_list() == np.tile(ids, 20).tolist()


def test_the_seed_of_the_study_decides_the_tokens():
    layer = random_layer(vocab_size=200)
    first, again, other = (
        Study(layer, seed=seed).ask(Heatmap(30, heads=[0])).tables["heatmap_tokens"]["token_id"] for seed in (1, 1, 2)
    )
    assert first.equals(again)
    assert not first.equals(other)


def test_a_constant_row_has_no_self_match():
    layer = random_layer(n_heads=1)
    layer.token_factors(0).key[:] = 0
    answer = Study(layer).ask(Heatmap(5))
    assert answer.tables["heatmap_by_head"]["self_match"].null_count() == 2
    assert answer.sentence == "Untestable: all keys have the same score in every head."
    assert Heatmap().summarize_comparison({"one": answer.tables}) == answer.sentence


def test_a_smaller_vocabulary_is_drawn_whole_and_that_is_told():
    answer = Study(random_layer()).ask(Heatmap())
    assert answer.tables["heatmap_tokens"]["token_id"].to_list() == list(range(23))
    assert answer.notes == ("the vocabulary has 23 tokens, fewer than 100; all are compared",)
    assert answer.provenance == Study(random_layer()).provenance(Heatmap(23))
    assert Study(random_layer()).ask(Heatmap(23)).notes == ()


def test_what_is_wrong_is_one_line():
    with pytest.raises(RangeError, match=r"Heatmap\(tokens=1\): at least 2 is needed"):
        Heatmap(1)
    with pytest.raises(RangeError, match="head 3 does not exist"):
        Study(random_layer()).ask(Heatmap(heads=[2, 3]))
    with pytest.raises(RangeError, match="position 11 does not exist"):
        Study(random_layer()).ask(Heatmap(scale=11))


def test_provenance_holds_seed_and_tokenizer_but_no_counts(tmp_path):
    layer = spelled_layer(tmp_path)
    plain, counted, other = (
        Study(layer, counts, seed=seed).provenance(Heatmap())
        for counts, seed in ((None, 0), (counts_of(layer), 0), (None, 1))
    )
    assert plain == counted != other
    assert plain.tokenizer_fingerprint == layer.tokenizer_fingerprint


def test_a_single_token_is_compared_with_itself(tmp_path):
    answer = Study(load(write_gpt2(tmp_path / "model", random_first_layer(vocab_size=1, dtype="float32")))).ask(
        Heatmap()
    )
    by_head = answer.tables["heatmap_by_head"]
    assert by_head["other_mean"].null_count() == by_head["self_match"].null_count() == len(by_head) == 6
    assert by_head["diagonal_mean"].to_list() == pytest.approx(by_head["minimum"].to_list())
    assert answer.sentence == "Untestable: all keys have the same score in every head."
    check_faces(answer, tmp_path)


def by_head(*self_match: float | None, same_keys: float = 0.1) -> pl.DataFrame:
    n = len(self_match)
    columns = {"self_match": self_match, "self_first": [0.25] * n, "same_keys": [same_keys + 0.1 * h for h in range(n)]}
    return pl.DataFrame({"head": range(n), "layer_norm": [True] * n, **columns})


def test_the_sentence_says_whether_a_head_looks_for_the_identical_token():
    tokens = {"heatmap_tokens": pl.DataFrame({"place": range(60)})}
    assert Heatmap().summarize({"heatmap_by_head": by_head(0.1, 4.126), **tokens}) == (
        "L0H1 matches the identical token: over 60 tokens, a token's own key scores 4.13 standard deviations above the "
        "mean key, and highest of all in 25 %. No head mostly prefers the same keys for every query."
    )
    both = by_head(2.1, 4.126, 0.0, same_keys=0.4)
    assert Heatmap().summarize({"heatmap_by_head": both, **tokens}) == (
        "L0H1 and L0H0 match the identical token, L0H1 most: over 60 tokens, a token's own key scores 4.13 standard "
        "deviations above the mean key, and highest of all in 25 %. Heads that mostly prefer the same keys for every query "
        "(share of variance): L0H2 (60 %) and L0H1 (50 %)."
    )
    assert Heatmap().summarize({"heatmap_by_head": by_head(-0.3, None), **tokens}) == (
        "No head clearly matches the identical token; the closest is L0H0: over 60 tokens, a token's own key scores 0.30 "
        "standard deviations below the mean key, and highest of all in 25 %. No head mostly prefers the same keys for every "
        "query."
    )
    compared = {"start": {"heatmap_by_head": by_head(-0.3)}, "end": {"heatmap_by_head": by_head(0.1, 4.126)}}
    assert Heatmap().summarize_comparison(compared) == (
        "Score of identical tokens against the mean key, in the best head: "
        "0.30 standard deviations below it in start (L0H0) and 4.13 standard deviations above it in end (L0H1)."
    )


@pytest.mark.parametrize("question", [{}, {"tokens": 7, "centred": True, "heads": [1]}])
def test_python_command_line_folder_and_notebook_say_the_same(tmp_path, question):
    study = Study(load(write_spelled(tmp_path / "model")), seed=5)
    check_faces(study.ask(Heatmap(**question)), tmp_path)


def test_without_a_tokenizer_the_tokens_are_known_by_their_ids(tmp_path):
    folder = write_gpt2(tmp_path / "model", random_first_layer(dtype="float32"))
    answer = Study(load(folder)).ask(Heatmap(6))
    assert answer.tables["heatmap_tokens"]["token"].null_count() == 6
    check_faces(answer, tmp_path)


def test_a_narrow_terminal_shows_ranges_and_self_match():
    answer = Study(random_layer(vocab_size=60)).ask(Heatmap())
    wanted = ["head", "layer_norm", "minimum", "maximum", "self_match", "self_first"]
    assert shown_columns(answer.views[0].frame)[:6] == wanted
    assert "score" in shown_columns(answer.question.view(answer.tables, "heatmap").frame)
