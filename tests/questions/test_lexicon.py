"""The lexicon's tables: pairs with their texts, words and counts, and what the heads' sums say."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import polars as pl
import pytest

from detoklens.corpus.counts import Counts
from detoklens.errors import DetokLensError, RangeError
from detoklens.loading import load
from detoklens.measures import ranking as top_pairs
from detoklens.measures.words import exchange_keys, in_list, joined_texts, known_to_wordfreq
from detoklens.questions.lexicon import Lexicon
from detoklens.questions.partners import Partners
from detoklens.questions.study import Study, Work
from tests.layers import random_layer
from tests.questions.faces import check_faces, check_kept, check_written, shown_columns
from tests.spelled import counts_of, spelled_layer, write_counts, write_spelled

ALONE = Work(workers=1)


@pytest.fixture(scope="module")
def spelled(tmp_path_factory):
    return spelled_layer(tmp_path_factory.mktemp("spelled"))


@pytest.fixture(scope="module")
def study(spelled):
    return Study(spelled, counts_of(spelled), work=ALONE)


def pairs_of(layer, **options):
    return Study(layer, work=ALONE).ask(Lexicon(**options)).tables["lexicon"]


def test_pairs_are_those_of_a_brute_force_search():
    layer = random_layer(n_heads=3, vocab_size=50, dtype="float32")
    found = pairs_of(layer, top=40, heads=[2, 0])
    assert found["head"].unique(maintain_order=True).to_list() == [2, 0]
    for head in (2, 0):
        scores = layer.token_affinity().scores(np.arange(50))[head]
        order = np.argsort(-scores, axis=None, kind="stable")[:40]
        rows = found.filter(head=head)
        assert rows["rank"].to_list() == list(range(1, 41))
        assert rows.select("query_token_id", "key_token_id").rows() == list(zip(*np.divmod(order, 50), strict=True))


def test_text_words_and_counts(spelled, study):
    tables = study.ask(Lexicon(400, no_self=True, heads=[1], words=["The", "in"])).tables
    found = tables["lexicon"]
    for row in found.sample(50, seed=1).iter_rows(named=True):
        assert row["joined"] == spelled.vocabulary.join([row["key_token_id"], row["query_token_id"]])
        assert row["is_word"] == (row["joined"].strip().lower() in ("the", "in"))
        before = study.counts.predecessors(row["query_token_id"])
        assert row["count"] == before.counts[before.prefixes == row["key_token_id"]].sum()
        assert row["key_token_id"] != row["query_token_id"]
    summary = tables["lexicon_by_head"].row(0, named=True)
    assert summary["seen_share"] == pytest.approx((found["count"] > 0).mean())
    assert summary["word_share"] == pytest.approx(found["is_word"].mean())
    assert (summary["identical_share"], summary["pairs"]) == (0, 400)


def test_without_list_counts_and_tokenizer_the_columns_are_null_or_absent(monkeypatch):
    monkeypatch.setattr("detoklens.measures.words.find_spec", lambda _name: None)
    answer = Study(random_layer(), work=ALONE).ask(Lexicon(5))
    found, summary = answer.tables["lexicon"], answer.tables["lexicon_by_head"]
    assert "count" not in found.columns
    assert found["is_word"].null_count() == found["joined"].null_count() == len(found) == 15
    assert summary["word_share"].null_count() == summary["seen_share"].null_count() == 3
    assert {"key_token_id", "query_token_id", "score"} <= set(shown_columns(answer.views[0].frame))
    best = summary.sort("largest_score", descending=True).row(0, named=True)
    first = found.filter(head=best["head"], rank=1).row(0, named=True)
    ids = f"ids {first['key_token_id']} and {first['query_token_id']}"
    assert answer.sentence.startswith(f"Of the 5 strongest pairs of L0H{best['head']} the first are {ids}, ")
    compared = Lexicon().summarize_comparison({"one": answer.tables, "two": answer.tables})
    assert compared.startswith(f"Largest Tᵉᵉ of a pair: {best['largest_score']:.3g} in one (L0H{best['head']}) and ")


def test_wordfreq_knows_words_and_only_words():
    pytest.importorskip("wordfreq", reason="wordfreq is not installed: its word check is NOT TESTED")
    check = known_to_wordfreq()
    assert [text for text in [" sapiens", "Tokyo", " don't"] if not check(text)] == []
    assert [text for text in ["iensiens", ",iens", " North Korea", "1999", " "] if check(text)] == []


@pytest.mark.parametrize("language", ["xx", "?"])
def test_a_language_without_words_is_refused_before_any_work(language, monkeypatch):
    pytest.importorskip("wordfreq", reason="wordfreq is not installed: its word check is NOT TESTED")
    monkeypatch.setattr(top_pairs, "search_block", None)
    with pytest.raises(DetokLensError, match="wordfreq has no language"):
        pairs_of(random_layer(), language=language)


def test_without_wordfreq_nothing_is_known(monkeypatch):
    monkeypatch.setattr("detoklens.measures.words.find_spec", lambda _name: None)
    assert known_to_wordfreq() is None


def test_no_pairs_too_many_and_heads_that_do_not_exist_are_refused():
    with pytest.raises(RangeError, match=r"Lexicon\(top=0\): at least 1 is needed"):
        Lexicon(0)
    with pytest.raises(RangeError, match=r"the top 30,000,000 pairs of 1 head are more than .* choose fewer pairs"):
        pairs_of(random_layer(vocab_size=6000), top=30_000_000, heads=[0])
    with pytest.raises(RangeError, match="head 5 does not exist"):
        pairs_of(random_layer(), heads=[5])
    with pytest.raises(DetokLensError, match=r"none\.txt: no such file"):
        pairs_of(random_layer(), words="none.txt")


def test_one_token_has_no_pair_with_another():
    answer = Study(random_layer(vocab_size=1), work=ALONE).ask(Lexicon(no_self=True))
    assert answer.sentence == "The vocabulary has no pairs of different tokens."
    assert Lexicon().summarize_comparison({"one": answer.tables}) == answer.sentence
    assert len(pairs_of(random_layer(vocab_size=1))) == 3


def test_scores_are_those_of_partners():
    study = Study(random_layer(dtype="float32"), work=ALONE)
    best = study.ask(Lexicon(1)).tables["lexicon"]
    for row in best.iter_rows(named=True):
        found = study.ask(Partners([row["query_token_id"]], top=1, heads=[row["head"]])).tables["partners"]
        assert found["key_token_id"][0] == row["key_token_id"]
        assert found["score"][0] == pytest.approx(row["score"], rel=1e-6)
    assert best["score"].dtype == pl.Float32


def test_the_same_tables_with_two_workers(spelled, study):
    with_two = Study(spelled, study.counts, work=Work(workers=2)).ask(Lexicon(100))
    assert all(with_two.tables[name].equals(frame) for name, frame in study.ask(Lexicon(100)).tables.items())


def test_an_interrupted_question_goes_on_where_it_stopped(study, spelled, tmp_path, monkeypatch):
    monkeypatch.setattr(top_pairs, "BLOCK_QUERIES", 102)
    searched = []
    search = top_pairs.search_block

    def interrupted(*block):
        searched.append(block)
        if len(searched) == 5:
            raise KeyboardInterrupt
        return search(*block)

    monkeypatch.setattr(top_pairs, "search_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Study(spelled, study.counts, work=ALONE).ask(Lexicon(50), tmp_path)
    answer = Study(spelled, study.counts, work=ALONE).ask(Lexicon(50), tmp_path)
    assert len(searched) == 5 + (3 * 4 - 4)
    assert answer.tables["lexicon"].equals(pairs_with(study, 50))
    check_written(answer, tmp_path)


def pairs_with(study, top):
    return Study(study.layer, study.counts, work=ALONE).ask(Lexicon(top)).tables["lexicon"]


def test_provenance_names_what_tells_a_word(study, tmp_path, monkeypatch):
    (tmp_path / "mine.txt").write_text("the\n", encoding="utf-8")
    assert study.provenance(Lexicon(words=["the"])) == study.provenance(
        Lexicon(words=tmp_path / "mine.txt", language="de")
    )
    assert study.provenance(Lexicon(words=["the"])) != study.provenance(Lexicon(words=["in"]))
    monkeypatch.setattr("detoklens.measures.words.find_spec", lambda _name: object())
    assert study.provenance(Lexicon(language="de")).options["words"] == f"wordfreq {version('wordfreq')} de"
    monkeypatch.setattr("detoklens.measures.words.find_spec", lambda _name: None)
    assert study.provenance(Lexicon()).options["words"] is None
    assert study.provenance(Lexicon()).counts_fingerprint == study.counts.fingerprint


def summary(**shares: list[float | None]) -> pl.DataFrame:
    names = ("seen_share", "seen_null", "word_share", "word_null")
    columns = {name: [None, None] for name in names} | {"largest_score": [2.0, 1.0]} | shares
    return pl.DataFrame({"head": [0, 1], "pairs": [1000, 1000], **columns})


def test_the_sentence_is_about_the_head_with_most_pairs_of_the_corpus():
    tokens = {"key_token": [" mag", " crit", "a\n"], "query_token": ["ic", "ic", "b"]}
    ids = {"key_token_id": [1] * 3, "query_token_id": [2] * 3}
    pairs = pl.DataFrame({"head": [1, 1, 1], "rank": [1, 2, 3], **tokens, **ids})
    seen = summary(seen_share=[0.3, 0.74], word_share=[0.9, 0.65], seen_null=[0.1, 0.25])
    assert Lexicon().summarize({"lexicon": pairs, "lexicon_by_head": seen}) == (
        "Of the 1,000 strongest pairs of L0H1, 74 % occur in the corpus (25 % with their keys shuffled) and "
        "65 % form a word; the first are “␣mag·ic”, “␣crit·ic” and “a\\n·b”."
    )
    said = Lexicon(no_self=True).summarize({"lexicon": pairs, "lexicon_by_head": seen})
    assert said.endswith("“a\\n·b”; pairs of a token with itself are left out.")
    (page,) = Lexicon().page_views({"lexicon": pairs})
    assert page.frame["L0H1"].to_list() == [" mag·ic", " crit·ic", "a\n·b"]
    words = summary(word_share=[0.25, 0.65])
    by_label = {"start": {"lexicon_by_head": words}, "end": {"lexicon_by_head": seen}}
    assert Lexicon().summarize_comparison(by_label) == (
        "Share of the best head's strongest pairs that form a word: 65 % in start (L0H1) and 65 % in end (L0H1)."
    )


def test_the_same_tokens_with_their_keys_exchanged_are_the_null(study):
    """Where just the pairs of a head are words, no exchanged pair is one unless it spells the same."""
    pairs = study.ask(Lexicon(100, heads=[1])).tables["lexicon"]
    words = [text.strip() for text in pairs["joined"]]
    found = study.ask(Lexicon(100, heads=[1], words=words)).tables["lexicon_by_head"].row(0, named=True)
    keys, queries = (pairs[f"{side}_token_id"].to_numpy() for side in ("key", "query"))
    dealt = exchange_keys(keys)
    assert sorted(dealt) == sorted(keys)
    own = set(zip(keys, queries, strict=True))
    others = [pair for pair in zip(dealt, queries, strict=True) if pair not in own and pair[0] != pair[1]]
    assert 30 <= len(others) < 100
    joined = joined_texts(study.layer, *np.array(others).T)
    assert found["word_null"] == pytest.approx(np.mean([in_list(words)(text) for text in joined]))
    assert found["word_null"] < 0.5 < found["word_share"] == 1
    before = {query: set(study.counts.predecessors(int(query)).prefixes.tolist()) for query in set(queries)}
    assert found["seen_null"] == pytest.approx(np.mean([key in before[query] for key, query in others]))


def test_few_pairs_have_no_null(study):
    (found,) = study.ask(Lexicon(20, heads=[0])).tables["lexicon_by_head"].iter_rows(named=True)
    assert (found["seen_null"], found["word_null"]) == (None, None)


def test_a_table_for_eyes_is_short_and_says_so(study):
    answer = study.ask(Lexicon(50))
    (view,) = answer.views
    assert view.frame["head"].value_counts(sort=True)["count"].to_list() == [20, 20, 20]
    assert view.title.endswith("by head: the first 20 of each head (150 in total)")
    assert {"head", "rank", "score", "count", "key_token", "query_token"} <= set(shown_columns(view.frame))
    (short,) = study.ask(Lexicon(20)).views
    assert len(short.frame) == 60
    assert "first 20" not in short.title


@pytest.mark.parametrize("question", [{"top": 30}, {"top": 25, "no_self": True, "centred": True, "heads": [1]}])
def test_python_command_line_folder_and_notebook_say_the_same(tmp_path, question):
    folder = write_spelled(tmp_path / "model")
    counts = Counts.open(write_counts(tmp_path / "corpus", folder))
    check_faces(Study(load(folder), counts, work=ALONE).ask(Lexicon(**question)), tmp_path)


def test_a_list_of_words_is_named_by_the_command(tmp_path):
    folder = write_spelled(tmp_path / "model")
    (tmp_path / "words.txt").write_text("the\n", encoding="utf-8")
    study = Study(load(folder), work=ALONE)
    answer = study.ask(Lexicon(30, words=tmp_path / "words.txt", language="de"))
    check_faces(answer, tmp_path)
    given = study.ask(Lexicon(30, words=["the"], heads=[0]))
    assert given.command.endswith("--top 30 --words WORDS.txt --heads 0")
    check_kept(given, tmp_path / "given")
