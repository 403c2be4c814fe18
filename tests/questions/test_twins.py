"""A planted model that writes words is found out, the demo's head too, and what writes none is said to write none."""

from __future__ import annotations

import shlex
from dataclasses import replace

import polars as pl
import pytest
from tokenizers import Tokenizer, models

import detoklens as dl
from detoklens.errors import MissingError, RangeError, TokenError
from detoklens.questions.study import Study
from detoklens.questions.texts import find_beginning
from detoklens.questions.twins.verdict import fewest_pieces
from detoklens.scores.block import LastPlace
from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary
from detoklens.weights.checkpoint import no_mlp
from detoklens.wording import token_shown
from tests.command_line import refuse, run
from tests.layers import random_layer
from tests.questions.planted_words import WORDS, planted_layer
from tests.questions.twin_adversaries import EMBEDDINGS, copier, random_block

NO = "The first layer does not write words: the word ranks "
SHORT = dl.Twins(pieces=[2], triples=300, bootstrap=200)


def by_condition(answer) -> dict[str, dict]:
    """The rows of the last place, by condition."""
    return dict(fewest_pieces(answer.tables["twins_by_condition"]).rows)


@pytest.fixture(scope="module")
def planted():
    return Study(planted_layer()).ask(SHORT)


@pytest.fixture(scope="module")
def demo():
    return dl.study("demo").ask(SHORT)


def test_a_planted_model_is_found_with_the_right_head_and_rank_1(planted):
    rows = by_condition(planted)
    assert rows["whole"]["words"] == len(WORDS) == 34
    assert (rows["whole"]["median_rank"], rows["whole"]["first"], rows["whole"]["mean_reciprocal_rank"]) == (1, 1, 1)
    assert [name for name, row in rows.items() if row["first"] < 1] == [
        *("null", "last_piece", "first_piece", "additive", "cut_L0H1", "without_pp"),
        *("only_ee", "only_pe", "only_ep", "only_e", "only_p"),
    ]
    assert planted.sentence.startswith("The first layer writes words: the word ranks ")
    assert " Needed: L0H1 and Tᵖᵖ. " in planted.sentence
    assert (planted.verdict.value, planted.verdict.heads) == ("yes", ("L0H1",))
    assert rows["additive"]["rank_ratio_low"] > 1.2


def test_without_that_heads_values_there_is_the_null():
    answer = Study(planted_layer(has_values=False)).ask(SHORT)
    rows = by_condition(answer)
    assert rows["whole"]["first"] == 0
    assert rows["null"]["rank_ratio_low"] <= 1 or rows["last_piece"]["rank_ratio_low"] <= 1
    assert answer.sentence.startswith("The first layer does not write words: ")
    assert (answer.verdict.value, answer.verdict.heads) == ("no", ())


def test_a_copier_carries_the_first_piece_and_writes_nothing():
    answer = Study(copier()).ask(SHORT)
    rows = by_condition(answer)
    assert min(rows[name]["rank_ratio"] for name in ("null", "last_piece", "first_piece")) > 2
    assert rows["additive"]["rank_ratio"] == pytest.approx(1, abs=0.01)
    assert answer.verdict.value == "no"
    assert answer.verdict.heads == ("L0H1",)
    assert " words: the word ranks 1.00 [1.00, 1.00] times better than the sum of its pieces; " in answer.sentence
    assert " Needed to carry pieces: L0H1" in answer.sentence


@pytest.mark.parametrize("query_scale", [0.01, 1.0])
@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_random_weights_on_structured_embeddings_write_nothing(kind, query_scale):
    layer = random_block(kind, query_scale)
    answer = Study(layer).ask(dl.Twins(pieces=[2], triples=200, candidates=800, bootstrap=100, heads=[0]))
    assert answer.verdict.value == "no"
    assert "writes words" not in answer.sentence


def test_the_tables_say_what_was_looked_for(planted):
    words = planted.tables["twins"]
    assert set(words["place"]) == {"attention", "block"}
    row = words.filter(token="ag", place="block").row(0, named=True)
    assert (row["split"], row["pieces"], row["rank"]) == ("a|g", 2, 1)
    assert row["null_rank"] > 1
    table = planted.tables["twins_by_condition"]
    medians = words.group_by("place").agg(pl.col("null_rank").median())
    for place, median in medians.iter_rows():
        assert table.filter(place=place, condition="null")["median_rank"].item() == median


def test_on_the_demo_one_head_carries_the_piece_and_no_word_is_written(demo):
    rows = by_condition(demo)
    assert rows["null"]["rank_ratio"] > 1.3
    assert rows["last_piece"]["rank_ratio"] > 1.3
    assert rows["additive"]["rank_ratio"] == pytest.approx(1.08, abs=0.06)
    assert rows["cut_L0H1"]["rank_ratio_low"] > 1.2
    assert max(rows[f"cut_L0H{head}"]["rank_ratio"] for head in (0, 2, 3)) < 1.1
    assert (demo.verdict.value, demo.verdict.heads) == ("no", ("L0H1",))
    assert demo.sentence.startswith(NO)
    assert " Needed to carry pieces: L0H1" in demo.sentence
    assert demo.sentence.endswith(" BOS: <|endoftext|>.")


@pytest.mark.parametrize(("model", "additive"), [("whisper_folder", 1.06), ("minilm_folder", 1.03)])
def test_trained_models_write_no_words_in_their_first_attention(model, additive, request):
    folder = request.getfixturevalue(model)
    question = dl.Twins(pieces=[2], triples=300, candidates=3000, bootstrap=200, heads=[0])
    answer = dl.study(folder).ask(question)
    assert by_condition(answer)["additive"]["rank_ratio"] == pytest.approx(additive, abs=0.08)
    assert answer.verdict.value == "no"
    assert answer.sentence.startswith("The first layer's attention does not write words: the word ranks ")
    assert " carries the first piece" in answer.sentence or " to carry pieces: " in answer.sentence


def test_an_untrained_snapshot_writes_nothing():
    answer = dl.study("demo@0").ask(SHORT)
    assert answer.sentence.startswith("The first layer's attention does not write words: ")
    assert any("results are only available after the attention, not after the block" in note for note in answer.notes)


def test_longer_words_keep_their_last_piece(demo):
    answer = dl.study("demo").ask(dl.Twins(pieces=[3], triples=100, bootstrap=50, heads=[1]))
    assert answer.sentence.startswith("The first layer")
    assert set(answer.tables["twins"]["pieces"]) == {3}
    assert "cut_L0H0" not in answer.tables["twins_by_condition"]["condition"]


def test_the_tables_are_the_same_whatever_the_number_of_workers(demo):
    alone = dl.study("demo", workers=1).ask(SHORT)
    for name, table in demo.tables.items():
        assert table.equals(alone.tables[name])


def test_nulls_and_samples_are_drawn_by_the_seed(demo):
    other = dl.study("demo", seed=1).ask(SHORT)
    assert not other.tables["twins"]["token_id"].equals(demo.tables["twins"]["token_id"])
    assert other.provenance.options["seed"] == 1


def test_a_sample_of_candidates_holds_every_twin():
    answer = dl.study("demo").ask(dl.Twins(pieces=[2], triples=50, candidates=200, bootstrap=0, heads=[1]))
    candidates = answer.tables["twins_by_condition"]["candidates"][0]
    assert 200 <= candidates <= 250
    assert answer.tables["twins"]["rank"].max() <= candidates


def test_few_words_have_no_intervals_and_that_is_said():
    answer = Study(planted_layer()).ask(dl.Twins(words=WORDS[:9], pieces=[2]))
    rows = by_condition(answer)
    assert rows["whole"]["words"] == 9
    assert rows["whole"]["median_rank_low"] is None
    assert answer.sentence.endswith(": 9 words are too few for intervals; at least 30 are needed. BOS: <s>.")
    assert answer.verdict.value == "untestable"
    assert "9 words in 2 pieces: too few for intervals" in answer.notes
    assert any(note.startswith("9 words in 2 pieces: too few for the additive control") for note in answer.notes)
    assert "additive" not in rows
    assert answer.tables["twins"]["additive_rank"].null_count() == len(answer.tables["twins"])


def test_a_model_without_a_beginning_does_without_and_says_so():
    layer = planted_layer(begins=False)
    unnamed = Vocabulary(Tokenizer.from_str(layer.vocabulary.to_json().replace('"<s>"', '"~"')))
    answer = Study(Layer(replace(layer.checkpoint, vocabulary=unnamed))).ask(SHORT)
    assert by_condition(answer)["whole"]["first"] == 1
    assert "planted has no beginning-of-text token: words are at the very start of the text" in answer.notes


def test_the_beginning_of_text_token_is_named_and_can_be_chosen(demo, tmp_path):
    question = replace(SHORT, triples=60, bootstrap=20, heads=[0])
    own = "beginning-of-text token: <|endoftext|> (id 0), the checkpoint's bos_token_id"
    assert own in demo.notes
    assert demo.provenance.options["bos"] == [0]
    study = dl.study("demo")
    for bos, ids in ((" the", [study.layer.token_id(" the")]), (7, [7]), ("7", [7]), ("none", [])):
        answer = study.ask(replace(question, bos=bos))
        assert answer.provenance.options["bos"] == ids
        shown = answer.tables["twins_by_condition"]["bos"].unique().to_list()
        assert shown == ([None] if not ids else [token_shown(study.layer.token(ids[0]))])
    run(*shlex.split(answer.command)[1:], "--out", tmp_path)
    assert pl.read_parquet(tmp_path / "twins.parquet").equals(answer.tables["twins"])
    for bos in (" the the", 4096, "4096", "~~~"):
        with pytest.raises(TokenError, match="BOS token "):
            study.ask(replace(question, bos=bos))
    assert "is 2 tokens" in refuse("twins", "demo", "--bos", " the the")


def test_a_fallback_for_the_beginning_is_said():
    layer = planted_layer(begins=False)
    answer = Study(layer).ask(replace(SHORT, bootstrap=0, heads=[0]))
    said = "beginning-of-text token: <s> (id 0), a fallback, chosen by its name, because the checkpoint has no bos_token_id"
    assert said in answer.notes
    ends = Layer(replace(layer.checkpoint, config=layer.checkpoint.config | {"eos_token_id": 3, "bos_token_id": 999}))
    assert find_beginning(ends).token_id == 3
    assert "a fallback" in find_beginning(ends).source


def test_a_speech_decoder_is_asked_after_its_attention_only(whisper_folder):
    answer = dl.study(whisper_folder).ask(dl.Twins(pieces=[2], triples=60, candidates=500, bootstrap=20, heads=[0]))
    assert set(answer.tables["twins_by_condition"]["place"]) == {"attention"}
    assert any("results are only available after the attention, not after the block" in note for note in answer.notes)


@pytest.mark.parametrize("letters", ["abcdefghij", "ACDEFGHIKLMNPQRSTVWY"])
def test_a_vocabulary_of_letters_is_refused(letters):
    ids = {letter: number for number, letter in enumerate(letters)}
    for model in (models.BPE(ids, []), models.WordLevel(ids, unk_token=letters[0])):
        bare = random_layer(vocab_size=len(letters)).checkpoint
        layer = Layer(replace(bare, name="letters", vocabulary=Vocabulary(Tokenizer(model))))
        for question in (SHORT, replace(SHORT, words=["ab", "cde"])):
            study = Study(layer)
            with pytest.raises(TokenError, match="no word of letters has a twin: its tokenizer has no merges"):
                study.ask(question)
            assert not any("too few" in note for note in study.notes)


def test_what_can_not_be_asked_is_refused_in_one_line(monkeypatch):
    study = Study(planted_layer())
    with pytest.raises(TokenError, match="fewer than two words of the list are tokens of planted"):
        study.ask(dl.Twins(words=["zz", "abc"], pieces=[2]))
    with pytest.raises(TokenError, match="into this many pieces; ask for fewer"):
        study.ask(dl.Twins(pieces=[3]))
    with pytest.raises(RangeError, match="a word has at least 2 pieces, not 1"):
        dl.Twins(pieces=[1])
    with pytest.raises(RangeError, match="a word has at least 2 pieces, not none"):
        dl.Twins(pieces=[])
    with pytest.raises(MissingError, match="needs a tokenizer"):
        Study(random_layer()).ask(SHORT)
    with pytest.raises(RangeError, match="head 3 does not exist"):
        study.ask(dl.Twins(heads=[3]))
    for memory, remedy in ((520_000, "rank 17 candidates or fewer"), (400_000, "ask about fewer words")):
        monkeypatch.setattr("detoklens.model.checks.machine_memory", lambda memory=memory: memory)
        needed = r"53 candidates of width 63 and the ablations of 34 words need 0\.0 GB, more than 75 % "
        with pytest.raises(RangeError, match=f"{needed}.*; {remedy}"):
            study.ask(SHORT)
    assert "a word has at least 2 pieces" in refuse("twins", "demo", "--pieces", "1")


def test_a_text_that_is_too_long_for_the_model_is_refused():
    layer = dl.load("demo")
    short = replace(layer.weights, position_embeddings=layer.weights.position_embeddings[:3])
    study = Study(Layer(replace(layer.checkpoint, first_layer=short)))
    with pytest.raises(RangeError, match="words in 3 pieces need 4 positions, demo has 3; ask for fewer pieces"):
        study.ask(dl.Twins(pieces=[2, 3]))


def test_models_are_compared_at_a_place_that_all_know(demo):
    early = dl.study("demo@0").ask(SHORT)
    said = SHORT.summarize_comparison({"early": early.tables, "late": demo.tables})
    assert said.startswith("Does the first layer write words, by the twin's rank after the attention? early no (")
    assert "; late no (carries the first piece, null " in said
    assert said.endswith("needs L0H1).")


def test_head_cards_say_what_a_cut_costs():
    study = Study(planted_layer())
    cards = study.ask(dl.Heads()).tables["heads"]
    rows = fewest_pieces(study.ask(dl.Twins()).tables["twins_by_condition"], "attention").rows
    for head, lost in cards.select("head", "rank_lost").iter_rows():
        assert lost == rows[f"cut_L0H{head}"]["rank_lost"]
    snapshot = Study(Layer(replace(study.layer.checkpoint, read_mlp=no_mlp)))  # holds its attention only
    again = snapshot.ask(dl.Heads()).tables["heads"]
    assert again.drop("twin_gain").equals(cards.drop("twin_gain")), "which is of the last place"
    without = Study(random_layer()).ask(dl.Heads()).tables["heads"]
    assert without["rank_lost"].null_count() == len(without)


def test_head_cards_say_why_no_cut_was_made(monkeypatch):
    monkeypatch.setattr("detoklens.model.checks.machine_memory", lambda: 40_000)
    answer = Study(planted_layer()).ask(dl.Heads())
    assert answer.tables["heads"]["rank_lost"].null_count() == 3
    assert any(
        note.startswith("rank_lost is unknown: 53 candidates of width 63 and the ablations of ")
        for note in answer.notes
    )
    assert not any("rank_lost" in note for note in Study(random_layer()).ask(dl.Heads()).notes)


def test_terms_are_added_in_their_own_order(monkeypatch):
    added = []
    attention = LastPlace.attention
    monkeypatch.setattr(LastPlace, "attention", lambda seen, terms=None: added.append(terms) or attention(seen, terms))
    Study(planted_layer()).ask(replace(SHORT, bootstrap=0, heads=[0]))
    own = ["ee", "pp", "pe", "ep", "e", "p"]
    left = [list(terms) for terms in added if terms is not None and len(terms) == len(own) - 1]
    expected = [[term for term in own if term != without] for without in own]
    assert left == 2 * [terms for terms in expected for _ in ("words", "null")], "at both places"


def test_another_mlp_is_another_provenance():
    layer = planted_layer()
    rest = layer.mlp_sublayer
    louder = replace(rest, feed_forward=replace(rest.feed_forward, down_weight=2 * rest.feed_forward.down_weight))
    checkpoints = [replace(layer.checkpoint, read_mlp=read) for read in (lambda: rest, lambda: louder, no_mlp)]
    for question in (SHORT, dl.Heads()):
        found = [Study(Layer(each)).provenance(question) for each in checkpoints]
        assert len({each.model_fingerprint for each in found}) == 1
        assert len({each.to_json() for each in found}) == 3
        assert found[2].options["rest_of_block"] is None
    assert "rest_of_block" not in Study(random_layer()).provenance(dl.Heads()).options
