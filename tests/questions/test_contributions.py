"""What each term contributes on text, asked of a study."""

from __future__ import annotations

import polars as pl
import pytest

from detoklens.errors import MissingError, RangeError
from detoklens.questions.contributions import Contributions, contributions_by_head
from detoklens.questions.study import Study
from tests.layers import random_layer
from tests.measures.plain_contributions import TERMS
from tests.questions.asking import (
    TERMINAL,
    assert_command_gives_the_same,
    assert_kept_and_read_again,
    shown_lines,
    text_study,
    write_study,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def study(files):
    return text_study(*files)


def by_head(*heads: list[float]) -> dict[str, pl.DataFrame]:
    """The six divergences of some heads, in the order of TERMS."""
    rows = [
        {"head": head, "query_position": 0, "term": term, "kl": float(kl), "top_changed": 0.0}
        for head, of_head in enumerate(heads)
        for term, kl in zip(TERMS, of_head, strict=True)
    ]
    table = contributions_by_head(pl.DataFrame(rows))
    return {"contributions_by_head": table.with_columns(pl.col("share").fill_nan(None))}


def test_python_and_command_line_give_the_same(study, tmp_path):
    asked = Contributions([3, 20], heads=[1], formula="published", scaling="scaled", reduction="sum")
    assert_command_gives_the_same(study.ask(asked), tmp_path / "some")
    assert_command_gives_the_same(study.ask(Contributions(direction="whole")), tmp_path / "all")


def test_an_answer_is_read_again(study, tmp_path):
    assert_kept_and_read_again(study, Contributions([4], heads=[1]), tmp_path)


def test_the_same_formula_in_other_words_is_the_same_question(study):
    published = study.provenance(Contributions(formula="published"))
    spelled = Contributions(direction="whole", scaling="unscaled", reduction="mean")
    assert study.provenance(spelled) == published
    assert set(published.options) == {"heads", "query_positions", "formula", "documents_digest"}
    assert study.provenance(Contributions()) != published


def test_an_interrupted_question_goes_on_where_a_folder_is_named(study, tmp_path, monkeypatch):
    from detoklens.tables.files import Parts

    whole, save = study.ask(Contributions([4])), Parts.save

    def stop_at_three(self, number, arrays):
        if number == 3:
            raise KeyboardInterrupt
        save(self, number, arrays)

    study._answers.clear()
    with monkeypatch.context() as patched:
        patched.setattr(Parts, "save", stop_at_three)
        with pytest.raises(KeyboardInterrupt):
            study.ask(Contributions([4]), tmp_path)
    [left] = tmp_path.iterdir()
    assert sorted(path.name for path in left.glob("*.npz")) == ["0.npz", "1.npz", "2.npz"]
    again = study.ask(Contributions([4]), tmp_path)
    assert again.tables["contributions"].equals(whole.tables["contributions"])
    assert not left.exists()


def test_the_sentence_names_the_head_that_changes_most_its_terms_and_the_next_head():
    said = Contributions().summarize(
        by_head(
            [0.4, 0.1, 0.0, 0.03, 0.02, 0.3],
            [0.2, 0.1, 0.0, 0.01, 0.02, 20.0],
            [0.5, 0.1, 0.0, 0.01, 0.02, 0.0],
            [0.001, 0.0, 0.0, 0.0, 0.0, 0.0],
        )
    )
    assert said == (
        "Removing Tᵖ changes L0H1's attention most (KL 20.00 nats), then Tᵉᵉ (0.20) and Tᵖᵖ (0.10); other heads change "
        "by at most 0.50 nats (L0H2, Tᵉᵉ)."
    )


def test_a_model_that_hardly_cares_is_not_ranked_by_zeros():
    said = Contributions().summarize(by_head([0.0001, 0.0003, 0, 0, 0, 0]))
    assert said == "Removing any one term barely changes attention: KL 0.0003 nats at most (L0H0, Tᵖᵖ)."


def test_models_are_compared_by_the_share_of_token_pairs():
    models = {"start": by_head([1, 1, 1, 1, 0, 0]), "end": by_head([6, 1, 1, 1, 1, 0]), "void": by_head([0] * 6)}
    said = Contributions().summarize_comparison(models)
    assert said.endswith("mean over heads: 25 % in start, 60 % in end and unknown in void.")


def test_a_terminal_shows_heads_and_terms_whole(study):
    answer = study.ask(Contributions([5]))
    lines = shown_lines(answer)
    assert max(map(len, lines)) <= TERMINAL
    assert lines[1].split() == answer.tables["contributions_by_head"].columns
    assert len(lines) == 3 + 3 * 6 + 3 + 3 * 4


def test_every_figure_can_be_drawn_of_the_answer(study):
    answer = study.ask(Contributions([4, 20]))
    assert list(answer.figures) == ["contributions", "group_contributions", "contribution_shares"]
    for name in answer.figures:
        assert answer.figure(name, heads=[2, 0], width="column").get_size_inches()[0] == 3.3


def test_bad_questions_are_one_line(files, study):
    with pytest.raises(MissingError, match="Contributions needs text: study"):
        Study(random_layer()).ask(Contributions())
    with pytest.raises(RangeError, match="formula is one of 'paper', 'published'"):
        Contributions(formula="theirs")
    with pytest.raises(RangeError, match="head 3 does not exist"):
        study.ask(Contributions(heads=[3]))
    with pytest.raises(RangeError, match="no query position was given"):
        study.ask(Contributions([]))
    with pytest.raises(RangeError, match="query position 9 is beyond documents truncated to 8 tokens"):
        text_study(*files, length=8).ask(Contributions([9]))
