"""`detoklens auroc` as a user meets it."""

from __future__ import annotations

import json
import shlex
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

import detoklens
from detoklens.corpus.count import count_corpus
from detoklens.engines import open_engine
from detoklens.questions.auroc.compute import GLANCE
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.store import read_answer
from detoklens.questions.study import study
from detoklens.tables.files import Parts
from detoklens.tables.rendering import text_table
from detoklens.wording import column_cells
from tests.command_line import call, refuse, run
from tests.layers import random_first_layer, write_gpt2, write_tokenizer

VOCAB_SIZE = 700


def invented_words(seed: int) -> str:
    """Some thousand words of a few syllables, so that some hundred tokens follow many others."""
    random = np.random.default_rng(seed)
    syllables = np.array([consonant + vowel for consonant in "bcdfghklmnprstvwz" for vowel in "aeiou"])
    lengths = random.integers(1, 5, 3000)
    words = ["".join(random.choice(syllables, length)) for length in lengths]
    return " ".join(words) + " the lower tower and the flower" * 20


TEXT = invented_words(1)
TABLES = ("auroc", "auroc_by_token", "auroc_by_head", "auroc_controls", "precision_by_head", "precision_by_token")


def write_model(folder, text: str = TEXT):
    write_gpt2(folder, random_first_layer(n_heads=3, vocab_size=VOCAB_SIZE, dtype="float32", seed=1))
    return write_tokenizer(folder, [text], VOCAB_SIZE)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


def count(model, folder, text: str = TEXT):
    (folder / "text.txt").write_text(text, encoding="utf-8")
    with open_engine("local", 1) as engine:
        count_corpus([folder / "text.txt"], detoklens.load(model).vocabulary, folder / "counts", engine=engine)
    return folder / "counts"


@pytest.fixture(scope="module")
def counts(model, tmp_path_factory):
    return count(model, tmp_path_factory.mktemp("counts"))


def auroc(model, counts, *more):
    return run("auroc", model, "--counts", counts, "--workers", "1", "--bootstrap", "50", "--format", "json", *more)


def test_heads_are_printed_with_their_controls_and_tables_written(model, counts, tmp_path):
    result = auroc(model, counts, "--out", tmp_path)
    printed = json.loads(result.stdout)["rows"]
    assert [row["head"] for row in printed] == [0, 1, 2]
    for row in printed:
        assert row["seen_low"] <= row["seen"] <= row["seen_high"]
        assert all(0 <= row[name] <= 1 for name in ("shuffled_queries", "permuted_keys", "frequency", "weighted"))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{name}.{ending}" for name in TABLES for ending in ("csv", "parquet")
    )
    by_token = pl.read_parquet(tmp_path / "auroc_by_token.parquet")
    assert by_token.columns == ["head", "token_id", "token", "auroc", "positives", "bigrams"]
    assert len(by_token) == 3 * by_token["token_id"].n_unique()
    seen = by_token.group_by("head", maintain_order=True).agg(pl.col("auroc").mean())["auroc"].to_list()
    assert [row["seen"] for row in printed] == pytest.approx(seen)


def test_the_table_for_eyes_has_the_sentence_beside_it(model, counts):
    result = run("auroc", model, "--counts", counts, "--workers", "1", "--bootstrap", "50")
    assert "AUROC by head, with controls" in result.stdout
    assert "detokenize" in result.stderr or "Untestable" in result.stderr


def test_provenance_names_model_counts_and_options(model, counts, tmp_path):
    auroc(model, counts, "--out", tmp_path, "--pieces", "--seed", "3", "--negatives", "matched")
    provenance = read_answer(tmp_path).provenance
    assert provenance.command == "auroc"
    assert len(provenance.model_fingerprint) == len(provenance.counts_fingerprint) == 64
    assert provenance.options["seed"] == 3
    assert provenance.options["negatives"] == "matched"
    assert provenance.options["pieces"] is True


def test_the_command_line_and_python_give_the_same_answer(model, counts, tmp_path):
    asked = ("--tokens", "0-99", "--tokens", " the", "--truth", "counts", "--positives", "pmi")
    auroc(model, counts, *asked, "--heads", "2,0", "--k", "3", "--out", tmp_path)
    question = Auroc([*range(100), " the"], positives="pmi", heads=[2, 0], k=3, bootstrap=50)
    here, there = study(model, counts=counts, workers=1).ask(question), read_answer(tmp_path)
    assert here.question == there.question
    assert here.provenance == there.provenance
    for name in TABLES:
        assert here.tables[name].equals(there.tables[name]), name


@pytest.mark.parametrize(
    "question",
    [
        Auroc(["7", "t", 40, 41, 45], controls=False, bootstrap=0, centred=True),
        Auroc(pieces=True, negatives="matched", bootstrap=10),
        Auroc(roc=[" the", 401, 400]),
    ],
    ids=["tokens", "pieces", "roc"],
)
def test_the_words_of_an_answer_give_its_tables_again(model, counts, question, tmp_path):
    answer = study(model, counts=counts, seed=4, workers=1).ask(question)
    program, *words = shlex.split(answer.command)
    assert program == "detoklens"
    run(*words, "--workers", "1", "--out", tmp_path)
    again = read_answer(tmp_path)
    assert list(again.tables) == list(answer.tables)
    for name, frame in answer.tables.items():
        assert frame.equals(again.tables[name]), name
    assert again.sentence == answer.sentence
    assert ("--seed" in words) == (question.depends_on("seed"))


def test_a_token_of_digits_is_named_by_its_id(model):
    layer = detoklens.load(model)
    words = shlex.split(study(layer).command(Auroc(["7", " the"], truth="merges")))
    assert words[3:] == ["--tokens", str(layer.token_id("7")), "--tokens", " the", "--truth", "merges"]


def test_no_table_at_80_columns_breaks_a_number_or_a_token(model, counts):
    asked = study(model, counts=counts, workers=1)
    for question, shown in ((Auroc(bootstrap=20), list(GLANCE.names[:6])), (Auroc(roc=[" the"]), ["area", "token"])):
        [view] = asked.ask(question).views
        heading, _, *rows = text_table(view.frame, "", 80).splitlines()[: 2 + len(view.frame)]
        assert set(shown) <= set(heading.split())
        for name in shown:
            for line, cell in zip(rows, column_cells(view.frame[name].to_list()), strict=True):
                assert cell in line
                assert len(line) <= 80


def test_tokens_may_be_texts_ids_or_a_file(model, counts, tmp_path):
    (tmp_path / "tokens.txt").write_text("t\n40-41\n", encoding="utf-8")
    auroc(model, counts, "--tokens", " the", "--tokens", f"@{tmp_path / 'tokens.txt'}", "--out", tmp_path / "out")
    table = pl.read_parquet(tmp_path / "out" / "auroc_by_token.parquet").filter(head=0)
    assert {40, 41} < set(table["token_id"])
    assert {" the", "t"} < set(table["token"])
    assert len(table) == 4


def test_pieces_go_on_with_a_word(model, counts, tmp_path):
    auroc(model, counts, "--pieces", "--no-controls", "--out", tmp_path)
    texts = pl.read_parquet(tmp_path / "auroc_by_token.parquet")["token"].unique().to_list()
    assert "ower" in texts
    assert all(text[0].isalpha() for text in texts)
    controls = pl.read_parquet(tmp_path / "auroc_controls.parquet")
    assert controls["shuffled_queries"].null_count() == 3


def test_a_head_can_be_judged_without_a_corpus(model, tmp_path):
    (tmp_path / "words.txt").write_text("glower\nqglower\n# a note\n", encoding="utf-8")
    plain = ("--workers", "1", "--format", "json", "--bootstrap", "0", "--heads", "2")
    merges = json.loads(run("auroc", model, "--truth", "merges", *plain).stdout)["rows"]
    words = json.loads(run("auroc", model, "--truth", "words", "--words", tmp_path / "words.txt", *plain).stdout)[
        "rows"
    ]
    for [row] in (merges, words):
        assert row["head"] == 2
        assert row["seen"] is not None
        assert row["frequency"] is row["permuted_keys"] is row["seen_low"] is None


def test_options_change_the_answer(model, counts):
    plain = auroc(model, counts).stdout
    options = (["--centred"], ["--k", "3"])
    pairs = (["--negatives", "matched"], ["--positives", "pmi"])
    answers = {auroc(model, counts, *option).stdout for option in (*options, *pairs)}
    assert len(answers | {plain}) == 5


def test_the_curve_of_one_token(model, counts, tmp_path):
    points = json.loads(auroc(model, counts, "--roc", " the", "--out", tmp_path).stdout)["rows"]
    first, last = points[0], [point for point in points if point["head"] == 0][-1]
    assert (first["false_positive_rate"], first["true_positive_rate"], first["threshold"]) == (0, 0, None)
    assert (last["false_positive_rate"], last["true_positive_rate"]) == (1, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["roc_points.csv", "roc_points.parquet"]


def test_several_curves_are_one_table(model, counts):
    both = json.loads(auroc(model, counts, "--roc", " the", "--roc", "401,400").stdout)["rows"]
    assert list(dict.fromkeys(row["token_id"] for row in both))[1:] == [401, 400]
    assert both[0]["token"] == " the"
    alone = json.loads(auroc(model, counts, "--roc", "400").stdout)["rows"]
    assert [row for row in both if row["token_id"] == 400] == alone


def test_workers_change_no_byte_of_a_table(model, counts, tmp_path):
    for workers in (1, 2):
        run(
            "auroc",
            model,
            "--counts",
            counts,
            "--workers",
            workers,
            "--bootstrap",
            20,
            "--out",
            tmp_path / str(workers),
        )
    for name in TABLES:
        first, second = ((tmp_path / workers / f"{name}.parquet").read_bytes() for workers in "12")
        assert first == second, name


def test_ctrl_c_leaves_no_table_and_the_same_command_goes_on(model, counts, tmp_path):
    saved = []
    keep = Parts.save

    def keep_one(parts, number, arrays):
        if saved:
            raise KeyboardInterrupt
        saved.append(number)
        keep(parts, number, arrays)

    asked = ("auroc", model, "--counts", counts, "--workers", "1", "--bootstrap", "20", "--format", "csv", "--out")
    with patch.object(Parts, "save", keep_one):
        assert call(*asked, tmp_path / "out").exit_code != 0
    assert [path for path in (tmp_path / "out").iterdir() if not path.name.endswith(".parts")] == []
    assert run(*asked, tmp_path / "out").stdout == run(*asked, tmp_path / "whole").stdout
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "whole").iterdir())


def test_what_can_not_be_asked_is_one_line(model, counts, tmp_path):
    plain = ("auroc", model, "--out", tmp_path / "out")
    asked = (*plain, "--counts", counts)
    assert "add --counts COUNTS" in refuse(*plain)
    assert "no such folder" in refuse(*plain, "--counts", tmp_path / "nowhere")
    assert "heads go from 0 to 2" in refuse(*asked, "--heads", "3")
    assert "token ids go from 0 to 699" in refuse(*asked, "--tokens", "700")
    assert "is 3 tokens" in refuse(*asked, "--tokens", "qqq")
    assert "so no ROC curve" in refuse(*asked, "--roc", "0")
    assert "needs the truth 'words', not 'counts'" in refuse(*asked, "--words", "words.txt")
    assert "need the truth 'counts', not 'merges'" in refuse(*plain, "--truth", "merges", "--positives", "pmi")
    assert "matched negatives need token frequencies" in refuse(*plain, "--truth", "merges", "--negatives", "matched")
    (tmp_path / "words.txt").write_text("the\n", encoding="utf-8")
    assert "splits none of the 1 words" in refuse(*plain, "--truth", "words", "--words", tmp_path / "words.txt")
    assert "use all tokens instead" in refuse(*asked, "--tokens", " the", "--pieces")
    assert "all other keys as negatives" in refuse(*asked, "--roc", " the", "--negatives", "matched")
    (tmp_path / "tokens.txt").write_text("\n", encoding="utf-8")
    assert "has no tokens" in refuse(*asked, "--tokens", f"@{tmp_path / 'tokens.txt'}")
    (tmp_path / "tokens.txt").write_text(f"@{tmp_path / 'tokens.txt'}\n", encoding="utf-8")
    assert "tokens:" in refuse(*asked, "--tokens", f"@{tmp_path / 'tokens.txt'}")
    assert not (tmp_path / "out").exists()


def test_counts_of_another_tokenizer_are_refused(model, tmp_path):
    (tmp_path / "other").mkdir()
    other = write_model(tmp_path / "other", invented_words(2))
    foreign = count(other, tmp_path)
    assert "made with another tokenizer" in refuse("auroc", model, "--counts", foreign)
