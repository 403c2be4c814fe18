"""Every question of every family: answered with the numbers of the real model, or refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import log_softmax, softmax

import detoklens as dl
from detoklens.errors import MissingError, RangeError
from detoklens.questions.answer import side_by_side
from detoklens.questions.auroc.compute import AUROC_CONTROLS
from detoklens.questions.catalogue import QUESTIONS
from tests.command_line import refuse, run
from tests.layers import as_layer, random_first_layer
from tests.weights.families.tiny import real, tiny

pytestmark = pytest.mark.usefixtures("few_words")

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
WORDS = ["the little girl went to the park", "Once upon a time there was a big dog who liked to play"]
SPLIT_WORDS = ["embedding", "tokenizers", "unbelievably", "photosynthesis"]
CHOSEN = {
    "partners": dl.Partners([5], top=3),
    "words": dl.Words(SPLIT_WORDS, heads=[0]),
    "heatmap": dl.Heatmap(tokens=5, heads=[0]),
    "lexicon": dl.Lexicon(top=5, heads=[0]),
    "auroc": dl.Auroc(truth="words", words=SPLIT_WORDS, bootstrap=0, heads=[0]),
    "heads": dl.Heads(heads=[0]),
    "anatomy": dl.Anatomy(heads=[0]),
    "twins": dl.Twins(pieces=[2], triples=50, candidates=300, bootstrap=20),
    "attention": dl.Attention(query_positions=[2]),
    "contributions": dl.Contributions(query_positions=[2]),
    "explain": dl.Explain(token_ids=IDS),
}
"""Small questions, and those with a required argument; any other question is asked as its first example."""
ELSEWHERE = {"layers", "lookback"}
"""They need the real model and counts: see test_layers.py and test_lookback.py."""
ASKED = {
    name: CHOSEN[name] if name in CHOSEN else question.examples()[0]
    for name, question in QUESTIONS.items()
    if name not in ELSEWHERE
}


def random_rotary(**more: object):
    """Rotary positions on part of each head, two heads to a key, biases, and whatever else is asked for."""
    plain = random_first_layer(n_heads=4, d_head=6, vocab_size=30)
    return replace(
        plain,
        position_embeddings=plain.position_embeddings[:0],
        longest_text=40,
        rotary_frequencies=np.array([1.0, 0.3]),
        key_weight=plain.key_weight[:, :2],
        key_bias=plain.key_bias[:2],
        value_weight=plain.value_weight[:, :2],
        value_bias=plain.value_bias[:2],
        **more,
    )


def random_families():
    plain = random_first_layer(n_heads=4, d_head=6, vocab_size=30, n_positions=40)
    no_table = {"position_embeddings": plain.position_embeddings[:0], "longest_text": 40}
    return {
        "learned with a window": replace(plain, window=4),
        "encoder": replace(plain, is_causal=False),
        "rotary": random_rotary(),
        "rotary without biases": random_rotary(norm_bias=np.zeros(24), query_bias=np.zeros((4, 6))),
        "rotary, capped, with a window": random_rotary(softcap=3.0, window=4),
        "alibi": replace(plain, **no_table, alibi_slopes=np.array([0.5, 0.25, 0.1, 0.02])),
    }


FAMILIES = {name: as_layer(layer, name) for name, layer in random_families().items()}
SPLITS = [(name, mean) for name in FAMILIES for mean in ("none", "vocabulary")]


def study_of(layer, texts: tuple[list[int], ...] = (IDS, IDS[::-1])):
    study = dl.study(layer, workers=1)
    study.__dict__["_bare_documents"] = [np.array(ids) for ids in texts]  # there is no tokenizer to make them
    study.texts = replace(study.texts, given=("texts",))
    return study


def split(question, mean: str, layer):
    """The question with a mean, where that has a part."""
    return question if layer.positions == "learned" else replace(question, mean=mean)


def seen(layer, query: int, n_keys: int) -> np.ndarray:
    """The keys that a query sees, said once more."""
    keys = np.arange(n_keys)
    window = layer.weights.window or n_keys
    return keys[(np.abs(query - keys) < window) & ((keys <= query) | (not layer.is_causal))]


@pytest.mark.parametrize(("name", "mean"), SPLITS)
def test_contributions_are_divergences_of_the_terms(name, mean):
    layer = FAMILIES[name]
    asked = split(dl.Contributions(), mean, layer)
    table = study_of(layer, (IDS,)).ask(asked).tables["contributions"]
    terms = layer.terms(IDS, mean=asked.split_off(study_of(layer)))
    assert set(table["term"]) == set(terms.names)
    for head, query, term, kl, *_ in table.iter_rows():
        keys = seen(layer, query, len(IDS))
        whole, without = (capped(layer, scores[head, query, keys]) for scores in (terms.total(), terms.without(term)))
        expected = np.sum(softmax(without) * (log_softmax(without) - log_softmax(whole)))
        assert kl == pytest.approx(expected, abs=1e-9 * (1 + expected)), (head, query, term)


def capped(layer, scores: np.ndarray) -> np.ndarray:
    scaled = scores * layer.attention_scale
    cap = layer.weights.softcap
    return scaled if cap is None else cap * np.tanh(scaled / cap)


@pytest.mark.parametrize(("name", "mean"), SPLITS)
def test_measured_attention_is_the_models_and_the_prediction_that_of_positions(name, mean):
    layer = FAMILIES[name]
    asked = split(dl.Attention([1, 7]), mean, layer)
    found = study_of(layer).ask(asked).tables
    both = [layer.terms(ids).attention() for ids in (IDS, IDS[::-1])]
    positions = positions_alone(layer, asked.split_off(study_of(layer)))
    for (head, query), rows in found["attention"].sort("key_position").group_by("head", "query_position"):
        keys = rows["key_position"].to_numpy()
        assert keys.tolist() == list(range(query + 1 if layer.is_causal else len(IDS)))
        expected = np.mean([attention[head, query, keys] for attention in both], axis=0)
        np.testing.assert_allclose(rows["mean"], expected, atol=1e-6)
        np.testing.assert_allclose(rows["predicted"], positions[head, query, keys], atol=1e-9)
    regions = [column for column in found["attention_agreement"].columns if column.startswith("measured_")]
    assert ("measured_next" in regions) == (not layer.is_causal)
    np.testing.assert_allclose(found["attention_agreement"].select(pl.sum_horizontal(regions)).to_series(), 1.0)


def positions_alone(layer, mean) -> np.ndarray:
    """softmax of what positions add to the score of ten tokens, from the definition."""
    places = np.arange(len(IDS))
    if layer.positions == "learned":
        inverse = 1 / layer.scales.mean_over_tokens()[: len(IDS)]
        table = layer.weights.position_embeddings[: len(IDS)]
        query, key = (np.einsum("pd,hdk->hpk", table, w) for w in (layer.folded.query_weight, layer.folded.key_weight))
        asked = query * inverse[:, None] + layer.folded.query_bias[:, None]
        scores = asked @ (key * inverse[:, None]).transpose(0, 2, 1)
    else:
        terms = layer.terms(IDS, mean=mean)
        scores = terms.full("p") if "p" in terms.names else np.zeros((layer.n_heads, len(IDS), len(IDS)))
    attention = np.zeros_like(scores)
    for query in places:
        keys = seen(layer, query, len(IDS))
        attention[:, query, keys] = softmax(capped(layer, scores[:, query, keys]), axis=-1)
    return attention


@pytest.mark.parametrize(("name", "mean"), SPLITS)
def test_explanations_hold_the_terms_and_what_is_left_without_each(name, mean):
    layer = FAMILIES[name]
    asked = split(dl.Explain(token_ids=IDS), mean, layer)
    answer = study_of(layer).ask(asked)
    terms = layer.terms(IDS, mean=asked.split_off(study_of(layer)))
    table = answer.tables["explanation"].filter(head=2)
    assert len(table) == sum(len(seen(layer, query, len(IDS))) for query in range(len(IDS)))
    places = 2, table["query_position"].to_numpy(), table["key_position"].to_numpy()
    np.testing.assert_allclose(table["attention"], terms.attention()[places], atol=1e-12)
    for term in terms.names:
        np.testing.assert_allclose(table[term], terms.full(term)[places], atol=1e-12)
        np.testing.assert_allclose(table[f"without_{term}"], terms.attention_without(term)[places], atol=1e-12)
    meanings = answer.views[1].frame["reads as"].to_list()
    assert meanings == [layer.term_meanings[term] for term in terms.names]
    assert answer.figure()


@pytest.mark.parametrize("name", [name for name in FAMILIES if FAMILIES[name].positions != "learned"])
def test_positions_show_the_kernel_and_its_softmax_by_offset(name):
    layer = FAMILIES[name]
    table = study_of(layer).ask(dl.Positions([3, 9])).tables["positions_by_offset"]
    kernel = table.filter(quantity="p").sort("head", "offset")
    wanted = layer.terms(IDS, mean="vocabulary").full("p")
    np.testing.assert_allclose(kernel["value"].to_numpy().reshape(4, 10), wanted[:, 9, ::-1], atol=1e-9)
    alone = positions_alone(layer, "vocabulary")
    for (head, query), rows in table.filter(quantity="attention").group_by("head", "query_position"):
        keys = query - rows["offset"].to_numpy()
        assert sorted(keys) == seen(layer, query, 10).tolist()
        np.testing.assert_allclose(rows["value"], alone[head, query, keys], atol=1e-9)


def test_the_slope_of_alibi_is_found_again_and_a_single_angle_makes_every_rotary_kernel_a_wave():
    layer = FAMILIES["alibi"]
    shape = study_of(layer).ask(dl.Shape([39])).tables["shape"].sort("head")
    np.testing.assert_allclose(shape["alibi_slope"], layer.weights.alibi_slopes, rtol=1e-9)
    assert shape["linear"].all()
    wave = replace(random_rotary(), rotary_frequencies=np.array([0.7]), longest_text=200)
    found = study_of(as_layer(wave)).ask(dl.Shape([180])).tables["shape"]
    np.testing.assert_allclose(found["period"], 2 * np.pi / 0.7, rtol=1e-3)
    np.testing.assert_allclose(found["wave_share"], 1, atol=1e-6)
    assert found["wave_p"].min() > 0.02
    assert not found["sinusoidal"].any(), "random mean vectors give a wave, too"


def test_a_model_that_looks_both_ways_is_seen_from_both_sides():
    layer = FAMILIES["encoder"]
    shape = study_of(layer).ask(dl.Shape([5])).tables["shape"].sort("head")
    positions = study_of(layer).ask(dl.Positions([5])).tables["positions"].filter(quantity="attention")
    rows = positions.sort("head", "key_position")["mean"].to_numpy().reshape(4, 40)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    np.testing.assert_allclose(shape["last_5"], rows[:, 1:6].sum(axis=1))
    np.testing.assert_allclose(shape["next_5"], rows[:, 6:11].sum(axis=1))
    short = study_of(layer).ask(dl.Positions([5], length=10)).tables["positions"].filter(quantity="attention")
    alone = positions_alone(layer, None)[:, 5]
    np.testing.assert_allclose(short.sort("head", "key_position")["mean"].to_numpy().reshape(4, 10), alone, atol=1e-9)
    assert "next_5" not in study_of(FAMILIES["learned with a window"]).ask(dl.Shape([5])).tables["shape"].columns


@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize("mean", ["none", "vocabulary"])
def test_partners_are_the_largest_scores_of_a_text_at_that_offset(offset, mean):
    layer = FAMILIES["rotary"]
    asked = dl.Partners([5], top=30, offset=offset, mean=mean)
    table = study_of(layer).ask(asked).tables["partners"]
    for head, _, _, _, key, _, score, *_ in table.filter(pl.col("rank") <= 3).iter_rows():
        text = [key, 7, 8, 9][: offset + 1] if offset else [5]
        text[-1] = 5
        if offset or key == 5:
            terms = layer.terms(text, mean=asked.split_off(study_of(layer)))
            assert score == pytest.approx(terms.ee[head, -1, 0], rel=1e-4)
    assert table.filter(head=0)["score"].is_sorted(descending=True)


def test_the_form_of_a_head_is_that_at_the_offset():
    layer = FAMILIES["rotary"]
    one, three = (study_of(layer).ask(dl.Heads(offset=offset)).tables["heads"] for offset in (0, 3))
    folded = layer.folded
    product = folded.query_weight[3] @ folded.key_weight[1].T
    assert one["spectral_norm"][3] == pytest.approx(np.linalg.norm(product, 2))
    assert not np.allclose(one["symmetric_share"], three["symmetric_share"])


def test_frequency_is_what_tokens_assert_to_the_mean_query():
    layer = FAMILIES["rotary without biases"]
    for mean in ("none", "vocabulary"):
        table = study_of(layer).ask(dl.Frequency(mean=mean, offset=2)).tables["self_assertion"]
        score = table.filter(head=1, token_id=4)["score"][0]
        terms = layer.terms([4, 0, 7], mean=dl.Frequency(mean=mean).split_off(study_of(layer)))
        assert score == pytest.approx(terms.e[1, 2, 0] if mean == "vocabulary" else 0.0, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "question", "said"),
    [
        ("encoder", dl.Partners([5], offset=2), "the same at every offset because positions are not rotary"),
        ("alibi", dl.Partners([5], offset=2), "the same at every offset because positions are not rotary"),
        ("encoder", dl.Lexicon(mean="vocabulary"), "learned positions have no mean to split off"),
        ("encoder", dl.Contributions(mean="none"), "learned positions have no mean to split off"),
        ("rotary", dl.Partners([5], direction="ahead"), "a causal model does not attend to later keys"),
        ("rotary", dl.Positions(average="mean-of-ratio"), "does not depend on σ"),
        ("rotary without biases", dl.Positions(mean="none"), "only have a kernel if a mean is split off"),
        ("rotary without biases", dl.Shape(mean="none"), "only have a kernel if a mean is split off"),
        ("rotary", dl.Shape(length=5), "does not depend on the text's length"),
        ("encoder", dl.Shape([7], length=5), "query position 7 is beyond documents truncated to 5 tokens"),
        ("rotary", dl.Partners([5], offset=40), "offsets go from 0 to 39"),
    ],
)
def test_an_option_without_a_part_is_refused(name, question, said):
    with pytest.raises(RangeError, match=said):
        study_of(FAMILIES[name]).ask(question)


@pytest.mark.parametrize(
    ("usual", "mean", "said"),
    [
        (dl.Partners([5]), "vocabulary", " (offset 2, means split off)"),
        (dl.Frequency(), "none", " (offset 2, no mean split off)"),
        (dl.Heatmap(tokens=5), "vocabulary", " (offset 2, means split off)"),
        (dl.Lexicon(top=5), "vocabulary", " (offset 2, means split off)"),
    ],
)
def test_sentences_say_how_they_were_asked(usual, mean, said):
    study = study_of(FAMILIES["rotary"])
    for asked, is_said in ((usual, False), (replace(usual, offset=2, mean=mean), True)):
        answer = study.ask(asked)
        assert (said in answer.sentence) == is_said
        assert (said in side_by_side(asked, {"one": answer, "two": answer}).sentence) == is_said
        assert ("split off" in answer.sentence) == is_said


def test_compared_words_and_aurocs_say_how_they_were_asked():
    found = {"head": 0, "median_share": 0.1, "null_median_share": 0.4, "pairs": 100}
    by_label = {label: {"words_by_head": pl.DataFrame([found])} for label in ("one", "two")}
    assert "in the best head (offset 2), as a share" in dl.Words(offset=2).summarize_comparison(by_label)
    assert "in the best head, as a share" in dl.Words().summarize_comparison(by_label)
    assert "following piece in the best head (keys after the query), as" in dl.Words(
        direction="ahead"
    ).summarize_comparison(by_label)
    controls = {"one": {"auroc_controls": _controls()}}
    assert "detokenize on all tokens (keys after the query): " in dl.Auroc(direction="ahead").summarize_comparison(
        controls
    )
    assert "detokenize on all tokens (offset 2): " in dl.Auroc(offset=2).summarize_comparison(controls)
    assert dl.Auroc().summarize_comparison(controls).startswith("Heads that detokenize on all tokens: ")


def _controls() -> pl.DataFrame:
    names = [column.name for column in AUROC_CONTROLS.columns]
    known = {"head": 0, "auroc": 0.9, "shuffled_queries": 0.5, "permuted_keys": 0.5, "above_null": 0.4}
    return AUROC_CONTROLS.frame({name: [known.get(name)] for name in names})


def test_a_mean_by_frequency_needs_counts():
    for question in (dl.Partners([5], mean="frequency"), dl.Explain(token_ids=IDS, mean="frequency")):
        with pytest.raises(MissingError, match="a mean weighted by frequency needs corpus counts"):
            study_of(FAMILIES["rotary"]).ask(question)


def test_what_has_no_part_does_not_enter_the_provenance_nor_the_command():
    learned, rotary = (study_of(FAMILIES[name]) for name in ("learned with a window", "rotary"))
    asked = dl.Partners([5])
    assert not {"offset", "mean", "direction"} & set(learned.provenance(asked).options)
    assert rotary.provenance(asked).options["offset"] == 1
    assert "direction" not in rotary.provenance(asked).options
    assert "--offset" not in rotary.command(asked)
    assert learned.provenance(dl.Positions(band=0.5)).options["band"] == 0.5
    assert rotary.provenance(dl.Positions(band=0.5)) == rotary.provenance(dl.Positions())
    moved = dl.Partners([5], offset=2, mean="vocabulary")
    assert rotary.command(moved).endswith("--mean vocabulary --offset 2")
    assert rotary.provenance(moved) != rotary.provenance(asked)


@pytest.mark.parametrize("name", ASKED)
def test_a_real_rotary_model_answers_or_says_why_not(name, stories):
    if "position_table" not in ASKED[name].needs:
        assert stories.ask(ASKED[name]).sentence.endswith(".")
        return
    with pytest.raises(MissingError, match="needs learned position embeddings"):
        stories.ask(ASKED[name])


@pytest.mark.parametrize("name", ASKED)
def test_a_real_model_that_looks_both_ways_answers(name, minilm):
    assert minilm.ask(ASKED[name]).sentence.endswith(".")


@pytest.fixture(scope="module")
def stories(stories_folder: Path):
    return dl.study(stories_folder, text=WORDS, workers=1)


@pytest.fixture(scope="module")
def minilm(minilm_folder: Path):
    return dl.study(minilm_folder, text=WORDS, workers=1)


@pytest.mark.parametrize(
    "model",
    [
        tiny("bloom", vocab_size=40, hidden_size=24, n_head=3, n_layer=1),
        tiny(
            "gpt_neox", vocab_size=40, hidden_size=24, num_attention_heads=3, num_hidden_layers=1,
            intermediate_size=20, max_position_embeddings=32, rotary_pct=0.5,
        ),
    ],
    ids=["bloom", "pythia"],
)  # fmt: skip
def test_attention_on_a_text_is_transformers_own(model):
    layer = dl.load(model, dtype="float64")
    theirs = real(model, layer, IDS, "float64").attention
    study = study_of(layer, (IDS,))
    for (head, query), rows in study.ask(dl.Attention([4, 9])).tables["attention"].group_by("head", "query_position"):
        ours = rows.sort("key_position")["mean"]
        np.testing.assert_allclose(ours, theirs[head, query, : query + 1], atol=1e-6)
    explained = study.ask(dl.Explain(token_ids=IDS)).tables["explanation"]
    places = (explained[column].to_numpy() for column in ("head", "query_position", "key_position"))
    np.testing.assert_allclose(explained["attention"], theirs[tuple(places)], atol=1e-10)
    assert set(explained.columns) >= set(layer.term_meanings)


def test_pieces_are_asked_back_and_ahead_with_the_same_pairs(minilm):
    asked = dl.Auroc(truth="words", bootstrap=0, controls=False, words=["embedding", "tokenizer", "unbelievable"])
    back, ahead = (
        minilm.ask(replace(asked, pieces=True, direction=direction)).tables["auroc_by_token"].filter(head=0)
        for direction in ("back", "ahead")
    )
    assert back["positives"].sum() == ahead["positives"].sum() == 3
    layer = minilm.layer
    pieces = layer.vocabulary.encode("embedding")
    row = ahead.filter(token_id=pieces[0]).row(0, named=True)
    scores = layer.affinity([pieces[0]])[0, 0]
    assert row["auroc"] == pytest.approx((scores < scores[pieces[1]]).sum() / (len(scores) - 1), abs=1e-6)


def test_words_are_asked_ahead_from_the_piece_before(minilm):
    back, ahead = (
        minilm.ask(dl.Words(["embedding"], direction=direction)).tables["word_ranks"] for direction in ("back", "ahead")
    )
    assert back.select("key_token", "query_token").rows() == ahead.select("query_token", "key_token").rows()
    assert "following piece" in minilm.ask(dl.Words(["embedding", "tokenizer"], direction="ahead")).sentence


def test_families_are_set_side_by_side(stories, minilm):
    for question in (dl.Shape([5]), dl.Positions([5]), dl.Contributions([2]), dl.Frequency(), ASKED["words"]):
        answers = {"stories": stories.ask(question), "minilm": minilm.ask(question)}
        both = side_by_side(question, answers)
        assert {"stories", "minilm"} <= {label for frame in both.tables.values() for label in frame["model"].unique()}
        assert all(label in both.sentence for label in answers)
        assert all(both.figure(name) for name in both.figures)


def test_the_command_line_takes_and_refuses_in_one_line(stories_folder):
    shown = run("partners", stories_folder, " girl", "--offset", "2", "--mean", "vocabulary", "--top", "1").stdout
    assert shown.count("girl") >= 6
    assert refuse("variance", stories_folder) == (
        "detoklens: Variance needs learned position embeddings, which rotary and ALiBi models don't have; Frequency "
        "measures the variance of their token embeddings"
    )
    assert refuse("partners", "demo", "--token-id", "5", "--offset", "2") == (
        "detoklens: demo: Tᵉᵉ is the same at every offset because positions are not rotary; leave offset out"
    )


def test_a_rotary_model_has_a_report_that_says_what_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("detoklens.report.drawing.FORMATS", ("svg",))
    page = study_of(FAMILIES["rotary"]).report(tmp_path / "out").read_text(encoding="utf-8")
    assert "the model has no position embeddings" in page
    for figure in ("kernel", "heatmap_split", "contributions"):
        assert f'id="figure-{figure}' in page, figure
