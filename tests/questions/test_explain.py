"""Why a text is attended to as it is, asked of a study."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from rich.cells import cell_len
from tokenizers import Tokenizer, models, processors

import detoklens as dl
from detoklens.errors import DetokLensError, RangeError, TokenError
from detoklens.loading import load
from detoklens.questions.explain.compute import explain, links_view
from detoklens.questions.explain.question import Explain
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer
from detoklens.scores.terms import Term, Terms
from detoklens.tables.rendering import text_table
from detoklens.tokens.vocabulary import Vocabulary
from detoklens.weights.checkpoint import Checkpoint
from tests.layers import random_first_layer, random_layer, write_gpt2
from tests.questions.asking import (
    TERMINAL,
    assert_command_gives_the_same,
    assert_kept_and_read_again,
    same_tables,
    shown_lines,
)
from tests.spelled import write_spelled

TEXT = "sapient wind in the"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return Study(load(write_spelled(tmp_path_factory.mktemp("spelled"))))


def nameless_study(**sizes) -> Study:
    return Study(random_layer(**sizes))


def test_the_tables_hold_what_the_explanation_holds(study):
    answer = study.ask(Explain(TEXT, heads=[2, 0], top=2))
    found = explain(study.layer, TEXT, [2, 0])
    pairs = answer.tables["explanation"]
    query, key = np.tril_indices(len(found.token_ids))
    for place, head in enumerate([2, 0]):
        rows = pairs.filter(head=head)
        np.testing.assert_array_equal(rows["attention"], found.attention[place][query, key].astype(np.float64))
        np.testing.assert_array_equal(rows["without_pp"], found.without["pp"][place][query, key].astype(np.float64))
    assert pairs["query_text"].unique(maintain_order=True).to_list() == list(
        dict.fromkeys(study.layer.token(int(token)) for token in found.token_ids)
    )
    assert answer.tables["links"]["head"].to_list() == [2, 2, 0, 0]
    assert [schema.names for schema in answer.schemas] == [table.columns for table in answer.tables.values()]


@pytest.mark.parametrize(
    "text", [TEXT, "-5 degrees", "--heads", "-", " \n\tto  in\r\n", "'$HOME' \"x\"", "a\0b", "é漢"]
)
def test_the_command_gives_the_same_whatever_the_text(study, tmp_path, text):
    assert_command_gives_the_same(study.ask(Explain(text)), tmp_path)


def test_the_command_gives_the_same_with_options(study, tmp_path):
    assert_command_gives_the_same(study.ask(Explain(TEXT, heads=[2], top=7, prepend_bos=True)), tmp_path / "text")
    assert_command_gives_the_same(study.ask(Explain([5, 6, 7], top=1)), tmp_path / "ids")


def test_an_answer_is_read_again(study, tmp_path):
    assert_kept_and_read_again(study, Explain(TEXT, heads=[1]), tmp_path / "text")
    assert_kept_and_read_again(study, Explain(token_ids=[1, 2]), tmp_path / "ids")


def test_ids_stand_in_for_a_text_in_any_sequence(study):
    ids = study.layer.vocabulary.encode(TEXT)
    by_text = study.ask(Explain(TEXT))
    for given in (ids, tuple(ids), np.array(ids), np.array(ids, np.uint16)):
        assert Explain(given) == Explain(token_ids=ids)
        assert same_tables(study.ask(Explain(given)), by_text)
    assert study.provenance(Explain(ids)) == study.provenance(Explain(TEXT)), "the ids decide"
    assert study.provenance(Explain(TEXT)).options == {"token_ids": ids, "heads": [0, 1, 2], "top": 3}


def test_bos_comes_from_the_config_without_a_tokenizer(tmp_path):
    layer = load(write_gpt2(tmp_path, random_first_layer(dtype="float32"), eos_token_id=7))
    answer = Study(layer).ask(Explain([1, 2], prepend_bos=True))
    assert answer.tables["explanation"]["query_token"].unique(maintain_order=True).to_list() == [7, 1, 2]
    assert answer.tables["explanation"]["query_text"][0] == "<id 7>"
    note = "texts begin with token 7, a fallback, its eos_token_id, because the checkpoint has no bos_token_id"
    assert note in answer.notes
    study = dl.study(layer, text=[[1, 2, 3]], prepend_bos=True)
    assert note in study.ask(dl.Contributions(query_positions=[2])).notes
    assert note not in dl.study(layer, text=[[1, 2, 3]]).ask(dl.Contributions(query_positions=[2])).notes
    with pytest.raises(TokenError, match="no beginning-of-text token"):
        nameless_study().ask(Explain([1, 2], prepend_bos=True))


NAMES = ("ee", "pp", "e")


def links(*rows: tuple[int, float, str | None], left: float = 0.25) -> dict[str, pl.DataFrame]:
    """Links of one query by head, attention and term, without which `left` is left; another key of each query."""
    frame = pl.DataFrame(
        [
            {
                "head": head, "query_text": " b", "key_text": "a", "query_position": 1, "key_position": 0,
                "attention": attention, "term": term, "without_term": None if term is None else left, "special": False,
                **{f"without_{name}": left if name == term else attention for name in NAMES},
                **dict.fromkeys([f"lift_{name}" for name in NAMES], 0.0),
            }
            for head, attention, term in rows
        ],
        schema_overrides={"term": pl.String, "without_term": pl.Float64},
    )  # fmt: skip
    lower = frame.with_columns(attention=pl.lit(-1.0))
    return {"links": frame, "explanation": pl.concat([frame, lower])}


def test_the_sentence_names_the_strongest_link_and_counts_the_terms():
    said = Explain(TEXT).summarize(links((0, 0.4, "pp"), (3, 0.9, "ee"), (1, 0.5, "e"), (1, 0.4, "pp"), (2, 0.0, None)))
    assert said == (
        "The strongest link is “␣b” to “a” in L0H3 (attention 0.90), explained by Tᵉᵉ: attention falls to 0.25 without "
        "it. Of the 5 strongest links, each term explains: Tᵖᵖ 2, Tᵉ 1 and Tᵉᵉ 1."
    )
    nothing = Explain("a").summarize(links((0, 0.9, None)))
    assert nothing.endswith("in L0H0 (attention 0.90); removing any one term lowers it by less than 0.1.")


def test_special_tokens_and_links_that_do_not_change_are_passed_over():
    tables = links((0, 1.0, None), (1, 0.9, "pp"), (2, 0.8, "ee"))
    assert (
        Explain(TEXT)
        .summarize(tables)
        .startswith(
            "The strongest link that depends on one term is “␣b” to “a” in L0H1 (attention 0.90), explained by Tᵖᵖ"
        )
    )
    special = {"explanation": tables["explanation"].with_columns(special=pl.col("head") < 2), "links": tables["links"]}
    assert (
        Explain(TEXT)
        .summarize(special)
        .startswith(
            "The strongest link between ordinary tokens is “␣b” to “a” in L0H2 (attention 0.80), explained by Tᵉᵉ"
        )
    )
    every = {name: table.with_columns(special=True) for name, table in tables.items()}
    assert Explain(TEXT).summarize(every) == (
        "Every link is from or to a special token. Of the 3 strongest links, each term explains: Tᵉᵉ 1 and Tᵖᵖ 1."
    )


def test_links_that_tie_are_counted():
    tables = links((0, 0.9, "pp"), (3, 0.9, "ee"), (1, 0.2, "e"))
    assert (
        Explain(TEXT)
        .summarize(tables)
        .startswith("2 links share the largest attention (0.90); the first is “␣b” to “a” in L0H0, explained by Tᵖᵖ")
    )
    below = Explain(TEXT).summarize(links((0, 1.0, None), (1, 0.9, "pp"), (2, 0.9, "ee")))
    assert below.startswith("2 links that depend on one term share the largest attention (0.90); the first is ")
    third = tables["explanation"].head(1).with_columns(pl.col("head") + 4)
    also = pl.concat([tables["explanation"], third, third.with_columns(attention=pl.lit(0.1))])
    said = Explain(TEXT, top=1).summarize(tables | {"explanation": also})
    assert said.startswith("3 links share the largest attention (0.90)")  # one is beyond the links that are listed


def test_an_encoder_reads_its_special_tokens():
    """BERT is never run without [CLS] and [SEP]; ids are taken as given."""
    words = {word: place for place, word in enumerate(["[CLS]", "[SEP]", "[UNK]", "wind", "##y"])}
    tokenizer = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    for is_causal, ids in ((False, [0, 3, 4, 1]), (True, [3, 4])):
        first = replace(random_first_layer(vocab_size=5), is_causal=is_causal)
        study = Study(Layer(Checkpoint("encoder", {}, first, Vocabulary(tokenizer), None)))
        assert study.provenance(Explain("windy")).options["token_ids"] == ids
        assert study.provenance(Explain("windy", prepend_bos=True)).options["token_ids"] == (
            [0, 3, 4] if is_causal else ids
        )
        assert study.provenance(Explain([3, 4])).options["token_ids"] == [3, 4]
        with pytest.raises(TokenError, match="the text is empty"):
            study.ask(Explain(""))
    pairs = study.ask(Explain([0, 3, 4])).tables["explanation"].filter(head=0)
    assert pairs.filter("special")[["query_token", "key_token"]].rows() == [(0, 0), (3, 0), (4, 0)]


@pytest.mark.parametrize("heads", [3, 12])
def test_a_terminal_of_80_columns_shows_links_whole(heads):
    """Steep scores, long texts and two-digit heads: the widest lines there are."""
    study = nameless_study(n_heads=heads, d_head=8, n_positions=1200, vocab_size=40_000, seed=2)
    ids = np.random.default_rng(0).integers(30_000, 40_000, 300)
    answer = study.ask(Explain(ids))
    lines = shown_lines(answer)
    assert max(map(len, lines)) <= TERMINAL
    heading = next(line for line in lines if "attends to" in line)
    assert heading.split("  ")[-1] == "lifts"
    assert sum("L0H" in line for line in lines) == heads
    first = answer.tables["links"].row(0, named=True)
    [line] = [line for line in lines if line.startswith("  L0H0 ")]
    assert f" {first['query_position']} " in line
    assert f" {first['attention']:.2f} " in line
    assert f"  {first['term']}  " in line


@pytest.mark.parametrize(
    "text", ["漢字" * 10, "é\u0301" * 20, "\u202e\x00\n" * 5, " " * 30, "[red]x[/red]", "a" * 60, ""]
)
def test_any_token_fits_its_column(text):
    longest = links((11, 0.9, "ee"))["links"].with_columns(
        pl.lit(text).alias("query_text"), query_position=1023, **{f"lift_{term}": pl.lit(-1234.5) for term in Term}
    )
    lines = text_table(links_view(longest).frame, "", TERMINAL).splitlines()
    assert "lifts" in lines[0]
    assert max(map(cell_len, lines)) <= TERMINAL
    assert " 1023 " in lines[2]
    assert lines[2].isprintable()


def test_a_legend_says_what_the_terms_stand_for_and_explain(study):
    answer = study.ask(Explain(TEXT))
    legend = answer.views[1].frame
    assert legend["term"].to_list() == [str(term) for term in Term]
    assert legend["reads as"][0] == "token compares itself with token"
    explained = [int(number.split()[0]) for number in legend["explains"]]
    assert sum(explained) == answer.tables["links"]["term"].drop_nulls().len()


def test_the_schemas_follow_the_terms_of_the_model(monkeypatch):
    """Other families bring other sets of terms."""
    whole = Layer.terms

    def two_terms(self, ids, mean=None):
        found = whole(self, ids, mean)
        return Terms({"ee": found.full("ee"), "p": found.without("ee")}, found.attention_scale)

    monkeypatch.setattr(Layer, "terms", two_terms)
    answer = nameless_study().ask(Explain([1, 2, 3]))
    assert [schema.names for schema in answer.schemas] == [table.columns for table in answer.tables.values()]
    assert "without_p" in answer.tables["explanation"].columns
    assert answer.views[1].frame["symbol"].to_list() == ["Tᵉᵉ", "Tᵖ"]
    assert re.search("Tᵉᵉ|Tᵖ", answer.sentence)
    assert answer.figure(width="column")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": 3.5}, "text is text or a list, each a whole number or None"),
        ({"text": [1.5]}, "text is text or a list"),
        ({"text": ["a"]}, "text is text or a list"),
        ({"text": b"ab"}, "text is text or a list"),
        ({"text": {"a": 1}}, "text is text or a list"),
        ({"text": [[1, 2], [3]]}, "text is text or a list"),
        ({"text": "a", "top": 0}, "at least 1 is needed"),
        ({"text": "a", "heads": "0,1"}, "heads is a list, each a whole number or None"),
    ],
)
def test_a_wrong_type_is_one_clear_line(given, said):
    with pytest.raises(RangeError) as refused:
        Explain(**given)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (Explain(), "pass either a text"),
        (Explain("a", token_ids=[1]), "pass either a text"),
        (Explain([1], token_ids=[1]), "pass either a text"),
        (Explain(""), "the text is empty"),
        (Explain([]), "the text is empty"),
        (Explain("a\udcff"), "not valid UTF-8 at character 1"),
        (Explain([-1]), "token id -1 does not exist"),
        (Explain([10**30]), "too large for any vocabulary"),
        (Explain("a " * 40), "is longer than the model's 11 positions"),
        (Explain("a", heads=[3]), "head 3 does not exist"),
        (Explain("a", heads=[]), "heads is empty"),
    ],
)
def test_what_cannot_be_explained_is_one_line(study, question, said):
    with pytest.raises(DetokLensError) as refused:
        study.ask(question)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
