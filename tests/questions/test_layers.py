"""A planted model is found with its layer, head and MLP; random weights show none; interrupted work goes on."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from tokenizers import Tokenizer, models

import detoklens as dl
from detoklens import demo
from detoklens.errors import CheckpointError, MissingError, MissingExtraError, RangeError, TokenError
from detoklens.measures.twins import chains, geometric_means, merge_splits, partner_words, word_tokens
from detoklens.model.first_blocks import open_blocks
from detoklens.parallel import Runner
from detoklens.questions.layers.compute import Measuring, best_layer
from detoklens.questions.twins.compute import Words
from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary
from tests.command_line import refuse, run
from tests.questions.asking import assert_kept_and_read_again, same_tables
from tests.questions.planted_blocks import write_planted
from tests.questions.rotary_model import rotary_model, write_folder
from tests.questions.twin_adversaries import spelled

SHORT = dl.Layers(triples=400, bootstrap=200)


@pytest.fixture(scope="module")
def on_demo():
    return dl.study("demo", workers=2).ask(SHORT)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return dl.study(write_planted(tmp_path_factory.mktemp("planted"))).ask(dl.Layers())


@pytest.fixture(scope="module")
def random_model(tmp_path_factory) -> Path:
    """A rotary model of random weights with the demo's tokenizer."""
    return write_folder(tmp_path_factory.mktemp("random"))


def test_a_planted_model_is_found_in_its_layer_with_its_head_and_mlp(planted):
    by_layer = {(row["layer"], row["condition"]): row for row in planted.tables["twins_by_layer"].to_dicts()}
    assert by_layer[1, "whole"]["median_rank"] == by_layer[1, "whole"]["first"] == 1
    assert by_layer[0, "whole"]["first"] == 0
    assert by_layer[1, "null"]["rank_ratio_low"] > 2
    off = planted.tables["twins_by_component"]
    assert off["after"].unique().to_list() == [1]
    assert sorted(off.filter("matters")["component"]) == ["L1H1", "MLP1"]
    assert off.filter(component="L1H1")["attention"].item() > 0.99
    assert off.filter(pl.col("head").is_in([0, 2]))["attention"].max() < 0.5
    assert planted.sentence.startswith("The model writes words after layer 1: after layer 1 the word ranks ")
    assert (planted.verdict.value, planted.verdict.heads) == ("yes", ("L1H1",))
    assert planted.verdict.reason.startswith("after layer 1: all four controls are clearly worse; the closest is ")
    assert "L0" not in planted.sentence


def test_without_that_heads_values_there_is_nothing(tmp_path):
    answer = dl.study(write_planted(tmp_path, has_values=False)).ask(dl.Layers())
    assert answer.sentence.startswith("Layers 0–1 write no words: ")
    assert (answer.verdict.value, answer.verdict.heads) == ("no", ())
    assert not answer.tables["twins_by_component"]["matters"].any()


def test_random_weights_show_no_layer_and_no_head(random_model):
    answer = dl.study(random_model).ask(dl.Layers(triples=300, candidates=1000))
    assert answer.sentence.startswith("Layers 0–2 write no words: ")
    assert not answer.tables["twins_by_component"]["matters"].any()


def test_random_blocks_on_spelled_embeddings_write_nothing(tmp_path):
    model, vocabulary = rotary_model(1), dl.load("demo").vocabulary
    width = model.config.hidden_size
    with torch.no_grad():
        embeddings = spelled(vocabulary, width, np.random.default_rng(0))
        model.embed_tokens.weight[:] = torch.from_numpy(embeddings / embeddings.std())
    model.save_pretrained(tmp_path)
    shutil.copy(demo.CHECKPOINT / "tokenizer.json", tmp_path)
    answer = dl.study(tmp_path).ask(dl.Layers(up_to=2, triples=200, candidates=600, bootstrap=100))
    assert answer.verdict.value == "no"


def test_on_the_demo_it_names_the_head_that_auroc_names(on_demo):
    off = on_demo.tables["twins_by_component"]
    assert off.filter("matters")["component"].to_list() == ["L0H1"]
    assert (on_demo.verdict.value, on_demo.verdict.heads) == ("no", ("L0H1",))
    assert on_demo.sentence.startswith("Layers 0–2 write no words: after layer 2 the word ranks ")
    assert on_demo.sentence.endswith(" Needed to carry pieces: L0H1. BOS: <|endoftext|>.")
    assert off.sort("attention", nulls_last=True, descending=True)["component"][0] == "L0H1"
    assert len(off) == 3 * 5
    assert off["needed"].is_sorted(descending=True)


def test_after_the_first_block_it_is_what_weights_alone_say(on_demo):
    """`twins` computes the first block itself, and shares no step with the real model's."""
    twins = dl.study("demo").ask(dl.Twins(pieces=[2], triples=400, bootstrap=0, heads=[1]))
    closed = {row["condition"]: row for row in twins.tables["twins_by_condition"].filter(place="block").to_dicts()}
    for row in on_demo.tables["twins_by_layer"].filter(layer=0).to_dicts():
        for name in ("median_rank", "first_ten", "rank_ratio"):
            expected = pytest.approx(
                closed[row["condition"]][name], rel=0.01, abs=1 / 300
            )  # one word among the first ten
            assert row[name] == expected, (row["condition"], name)


def test_the_tables_are_the_same_whatever_the_number_of_workers(on_demo):
    assert same_tables(on_demo, dl.study("demo", workers=1).ask(SHORT))


def test_a_head_off_is_that_heads_output_off(random_model):
    """The columns, from ranks that are computed here by running the model twice."""
    question = dl.Layers(triples=40, candidates=300, after=2, bootstrap=0)
    answer = dl.study(random_model, workers=1).ask(question)
    off = answer.tables["twins_by_component"]
    row = off.filter(component="L1H2").row(0, named=True)
    assert row["needed"] == pytest.approx(row["rank_ratio"] / row["null_ratio"])
    assert (row["layer"], row["head"], row["after"], row["needed_low"]) == (1, 2, 2, None)
    assert off.filter(component="MLP1")["head"].item() is None


def test_interrupted_work_goes_on(tmp_path, monkeypatch):
    """What was finished is neither lost nor done again, and nothing is left when all is written."""
    question, done = dl.Layers(triples=40, candidates=200, bootstrap=20, up_to=2), []
    true = Measuring._ranks

    def counted(self, states, layer):
        done.append(layer)
        if len(done) == 12:
            raise KeyboardInterrupt
        return true(self, states, layer)

    monkeypatch.setattr(Measuring, "_ranks", counted)
    study = dl.study("demo", workers=1)
    with pytest.raises(KeyboardInterrupt):
        study.ask(question, tmp_path)
    kept = list(tmp_path.glob(".layers-*.parts/*/*.npz"))
    assert len(kept) > 3
    answer, before = study.ask(question, tmp_path), len(done)
    assert before - 12 == 2 * 5 + 2 * len(answer.tables["twins_by_component"]) - 10
    assert same_tables(answer, dl.study("demo", workers=1).ask(question))
    assert not list(tmp_path.glob(".layers-*"))


def test_an_answer_is_kept_and_its_command_gives_it_again(tmp_path):
    question = dl.Layers(up_to=1, triples=40, candidates=200, bootstrap=20)
    assert_kept_and_read_again(dl.study("demo"), question, tmp_path)
    said = run(*question_words(question), "--out", tmp_path / "again").stderr
    assert "writes no words" in said
    one, other = (pl.read_parquet(tmp_path / place / "twins_by_component.parquet") for place in (".", "again"))
    assert one.equals(other)


def test_another_activation_is_another_provenance():
    """It is in no tensor, and changes what every block gives."""
    study = dl.study("demo")
    checkpoint = study.layer.checkpoint
    other = dl.study(Layer(replace(checkpoint, config=checkpoint.config | {"activation_function": "relu"})))
    for question in (SHORT, dl.Auroc(layer=1)):
        one, two = (each.provenance(question) for each in (study, other))
        assert one.options["blocks"] == two.options["blocks"]
        assert one.to_json() != two.to_json()


def question_words(question: dl.Layers) -> list[str]:
    return dl.study("demo").command(question).split()[1:]


def test_models_are_compared_by_where_the_word_is(on_demo, planted):
    said = SHORT.summarize_comparison({"demo": on_demo.tables, "planted": planted.tables})
    assert ", needs L0H1)" in said
    assert "planted after layer 1 (null " in said


def test_few_words_have_no_intervals_and_name_nothing(tmp_path):
    from tests.questions.planted_words import WORDS

    answer = dl.study(write_planted(tmp_path)).ask(dl.Layers(words=WORDS[:9]))
    assert answer.sentence.endswith(": 9 words are too few for intervals; at least 30 are needed. BOS: <s>.")
    assert answer.verdict.value == "untestable"
    matters = answer.tables["twins_by_component"]["matters"]
    assert matters.null_count() == len(matters)


def test_the_best_layer_is_furthest_above_both():
    ranks = np.array([[[4, 4], [40, 40], [5, 5]], [[4, 4], [12, 12], [12, 12]], [[4, 4], [5, 5], [90, 90]]])
    assert best_layer(ranks) == 1
    additive = np.array([[[60, 60]], [[4, 4]], [[60, 60]]])
    assert best_layer(np.concatenate([ranks, additive], axis=1)) == 0


def test_the_additive_control_after_a_block_equals_its_plain_formula(random_model):
    """Each text run by itself, and the means taken word by word."""
    study = dl.study(random_model)
    vocabulary = study.layer.vocabulary
    splits = merge_splits(vocabulary)
    chains_of_two = chains(splits, word_tokens(vocabulary, splits), 2).sample(20, 0)
    partners = partner_words(chains_of_two.pieces, 0)
    blocks = open_blocks(study.layer.checkpoint, 2, study.layer.n_heads)
    words = Words(chains_of_two, chains_of_two.pieces, partners)
    measuring = Measuring(blocks, words, np.arange(study.layer.vocab_size), (0,), Runner())

    def x(*text: int) -> np.ndarray:
        return blocks.run(np.array([[0, *text]])).last_places(1)[0]

    for word in (0, 7):
        (a, b), others = chains_of_two.pieces[word], chains_of_two.pieces[partners[word]]
        plain = [x(a, last) + x(first, b) - x(first, last) for first, last in others]
        np.testing.assert_allclose(measuring._additive[1][word], np.mean(plain, axis=0), atol=1e-4)


def test_the_beginning_of_text_token_can_be_chosen():
    question = dl.Layers(up_to=1, triples=40, candidates=100, bootstrap=0, bos="none")
    answer = dl.study("demo", workers=1).ask(question)
    assert answer.provenance.options["bos"] == []
    assert answer.tables["twins_by_layer"]["bos"].is_null().all()
    with pytest.raises(TokenError, match=r"BOS token 4096: token id 4096 does not exist"):
        dl.study("demo").ask(dl.Layers(bos=4096))


def test_geometric_means_and_their_intervals():
    ratios = np.random.default_rng(0).lognormal(size=(2, 50))
    found = geometric_means(ratios, 300, 1)
    np.testing.assert_allclose(found.value, np.exp(np.log(ratios).mean(axis=1)))
    random = np.random.default_rng(1)
    samples = [np.exp(np.log(ratios[:, random.integers(50, size=50)]).mean(axis=1)) for _ in range(300)]
    np.testing.assert_allclose(found.low, np.quantile(samples, 0.025, axis=0), rtol=1e-2)
    assert (found.low < found.value).all()
    assert (found.value < found.high).all()
    assert np.isnan(geometric_means(ratios[:, :29]).low).all()


def test_what_can_not_be_asked_is_refused_in_one_line(tmp_path, monkeypatch):
    study = dl.study("demo")
    with pytest.raises(RangeError, match="9 blocks were requested, but demo has 3; pass 3 or fewer"):
        study.ask(dl.Layers(up_to=9))
    with pytest.raises(RangeError, match="layer 2 is not among the first 2 blocks, 0 to 1; choose one"):
        study.ask(dl.Layers(up_to=2, after=2))
    with pytest.raises(CheckpointError, match=r"demo@0: tensor .* is missing"):
        dl.study("demo@0").ask(dl.Layers())
    ids = {letter: number for number, letter in enumerate("abcdefghij")}
    letters = Vocabulary(Tokenizer(models.WordLevel(ids, unk_token="a")))
    shutil.copytree(demo.CHECKPOINT, tmp_path / "letters")
    (tmp_path / "letters" / "tokenizer.json").write_text(letters.to_json())
    with pytest.raises(TokenError, match="has a twin: its tokenizer has no merges"):
        dl.study(tmp_path / "letters").ask(dl.Layers())
    (tmp_path / "letters" / "tokenizer.json").unlink()
    with pytest.raises(MissingError, match="needs a tokenizer"):
        dl.study(tmp_path / "letters").ask(dl.Layers())
    monkeypatch.setattr("detoklens.model.checks.machine_memory", lambda: 10_000_000)
    with pytest.raises(RangeError, match=r"candidates of width 128 after 3 blocks need .* ask for fewer candidates"):
        study.ask(dl.Layers())


def test_without_the_extra_the_line_to_install_it_is_said(monkeypatch):
    monkeypatch.setattr("detoklens.model.checks.find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError):
        dl.study("demo").ask(dl.Layers())
    said = refuse("layers", "demo")
    assert "needs torch and transformers: pip install 'detoklens[model]' (in a clone: '.[model]')" in said
    assert "pip install" in refuse("auroc", "demo", "--layer", "1")


def test_a_report_asks_for_layers_where_that_is_wanted(tmp_path):
    from detoklens.report.folder import report_entries

    questions = [entry.question for entry in report_entries(dl.study("demo"), layers=2)]
    (asked,) = [question for question in questions if isinstance(question, dl.Layers)]
    assert (asked.report_section, asked.up_to) == ("Words written by the layer", 2)
    assert not any(isinstance(entry.question, dl.Layers) for entry in report_entries(dl.study("demo")))
    said = refuse("report", "demo", "--layers", "9", "--out", tmp_path / "report")
    assert "9 blocks were requested, but demo has 3" in said
