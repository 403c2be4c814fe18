"""The paper's Table 1 beside ours."""

from __future__ import annotations

import pytest

from detoklens.errors import TokenError
from detoklens.loading import load
from detoklens.questions.study import Study
from detoklens.questions.words.question import PAPER_TABLE, Words
from tests.questions.faces import check_faces, shown_columns
from tests.spelled import spelled_layer, write_spelled


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Eight heads and some of the paper's tokens."""
    return Study(load(write_spelled(tmp_path_factory.mktemp("papers"), vocab_size=400, n_heads=8)))


def test_the_papers_table_has_34_rows_and_its_misprint_is_mended():
    assert len(PAPER_TABLE) == 34
    assert PAPER_TABLE[-1] == (7, " century", " twentieth", 6)


def test_paper_ranks_on_a_model_with_gpt2s_vocabulary(whisper_folder):
    layer = load(whisper_folder)
    found = Study(layer).ask(Words(paper=True)).tables["paper_ranks"]
    absent = found["head"] >= layer.n_heads
    assert (found["rank"].is_null() == absent).all()
    row = found.row(0, named=True)
    scores = layer.affinity([layer.token_id("yo")])[3, 0]
    assert row["rank"] == 1 + (scores > scores[layer.token_id("Tok")]).sum()
    assert row["difference"] == row["rank"] - 1


def test_the_sentence_counts_the_rows_that_are_found_again(study, tmp_path):
    answer = study.ask(Words(paper=True))
    found = answer.tables["paper_ranks"].drop_nulls("difference")
    assert found.select("head", "key_token").rows()[:2] == [(4, " North"), (7, " North")]
    same, near = (found["difference"] == 0).sum(), (found["difference"].abs() <= 1).sum()
    assert answer.sentence == (
        f"This model has 8 of the 34 rows of the paper's Table 1; {same} have the paper's rank, "
        f"{near} are within 1 of it."
    )
    assert Words(paper=True).summarize_comparison({"one": answer.tables}) == f"one: {answer.sentence}"
    wanted = ["head", "query_token", "key_token", "paper_rank", "rank", "difference"]
    assert shown_columns(answer.views[0].frame)[:6] == wanted
    check_faces(answer, tmp_path)


def test_other_heads_rows_stay_without_a_rank(study):
    found = study.ask(Words(paper=True, heads=[7])).tables["paper_ranks"]
    assert len(found) == 34
    assert set(found.drop_nulls("rank")["head"]) == {7}


def test_paper_ranks_need_some_of_its_tokens(tmp_path):
    with pytest.raises(TokenError, match="none of the heads and tokens of the paper's Table 1"):
        Study(spelled_layer(tmp_path)).ask(Words(paper=True))
