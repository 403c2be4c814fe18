"""200 random questions asked of the page and of the package: the same partners, terms and attention."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from detoklens.measures.positions import position_curves
from detoklens.scores.layer import Layer
from tests.explorer.kinds import KINDS

HALF = 2.0**-11  # what half precision may be off, of each number
QUERIES = {**dict.fromkeys(KINDS, 20), "demo": 60}  # 200 in all
ASK = """async (asked) => {
  await window.detoklens.ready;
  const found = [];
  for (const each of asked) {
    const partners = await window.detoklens.partners(each.affinity);
    const terms = await window.detoklens.terms(each.text);
    const attention = await window.detoklens.attention(each.text);
    const without = await window.detoklens.attention({ ...each.text, off: each.off });
    found.push({ partners, terms, attention, without });
  }
  return found;
}"""

ENCODE = "async (text) => (await window.detoklens.ready, window.detoklens.encode(text))"


@pytest.fixture(scope="module")
def studies(bundles, demo):
    return {kind: study for kind, (study, _) in bundles.items()} | {"demo": demo}


def drawn(layer: Layer, said: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Random questions; a text never has the token that takes no position."""
    random = np.random.default_rng(0)
    tokens = [token for token in range(layer.vocab_size) if token != layer.weights.padding_token_id]
    first = 0 if layer.is_causal else 1 - layer.n_positions
    asked = []
    for _ in range(number):
        split = said["splits"][int(random.integers(len(said["splits"])))]
        head, ids = int(random.integers(layer.n_heads)), random.choice(tokens, random.integers(1, 30)).tolist()
        affinity = {
            "head": head,
            "token": int(random.integers(layer.vocab_size)),
            "way": str(random.choice(["looks", "looked"])),
            "centred": bool(random.integers(2)),
            "offset": int(random.integers(first, layer.n_positions)) if layer.positions == "rotary" else 1,
            "split": split["name"],
            "top": 10,
        }
        off = [str(random.choice([term["name"] for term in split["terms"]]))]
        asked.append({"affinity": affinity, "text": {"head": head, "ids": ids, "split": split["name"]}, "off": off})
    return asked


@pytest.mark.parametrize("kind", QUERIES)
def test_the_pages_numbers_are_the_packages(opened, studies, said_of, kind):
    study, name = studies[kind], kind.replace(" ", "-")
    asked = drawn(study.layer, said_of(name), QUERIES[kind])
    with opened(f"{name}/#/token") as page:
        for question, found in zip(asked, page.evaluate(ASK, asked), strict=True):
            check_partners(study, question["affinity"], found["partners"])
            check_text(study.layer, question, found)


def check_partners(study: Any, asked: dict[str, Any], found: dict[str, Any]) -> None:
    """The same partners in the same order, up to ties within half precision's error."""
    layer, token, looks = study.layer, asked["token"], asked["way"] == "looks"
    mean = None if asked["split"] == "biases" else "vocabulary"
    centred = asked["centred"] and mean is None  # the page takes off one mean
    factors = layer.token_affinity("mean", centred, [asked["head"]], offset=asked["offset"], mean=mean)
    query, key = factors.query[0].astype(np.float64), factors.key[0].astype(np.float64)
    exact = key @ query[token] if looks else query @ key[token]
    # Centring and the mean take away what was rounded with the rest, so the error is that of the whole.
    whole = layer.token_affinity("mean", False, [asked["head"]], offset=asked["offset"])
    lengths = np.linalg.norm(whole.query[0], axis=1), np.linalg.norm(whole.key[0], axis=1)
    error = 4 * HALF * (lengths[0][token] * lengths[1] if looks else lengths[0] * lengths[1][token]) + 1e-6
    for side, sign in (("top", 1), ("bottom", -1)):
        ids = [partner["id"] for partner in found[side]]
        scores = np.array([partner["score"] for partner in found[side]])
        assert len(set(ids)) == min(10, len(layer.meaningful_tokens))
        assert np.isin(ids, layer.meaningful_tokens).all()
        assert (np.abs(scores - exact[ids]) <= error[ids]).all()
        rows = sign * exact
        last = np.sort(rows[layer.meaningful_tokens])[-len(ids)]
        assert (rows[ids] >= last - 2 * error[ids].max()).all()
        assert (np.diff(rows[ids]) <= error[ids[1:]] + error[ids[:-1]]).all()
    check_words(study, token, looks, found["top"])


@cache
def ids_by_text(layer: Layer) -> dict[str, int]:
    return {layer.token(each): each for each in reversed(range(layer.vocab_size))}


def check_words(study: Any, token: int, looks: bool, partners: list[dict[str, Any]]) -> None:
    """Counts, joined texts and whether they are tokens."""
    texts = ids_by_text(study.layer)
    for partner in partners:
        key, query = (partner["id"], token) if looks else (token, partner["id"])
        joined = study.layer.vocabulary.join([key, query])
        assert partner["joined"] == joined
        assert partner["is_token"] == texts.get(joined)
        prefixes, occurrences = study.counts.predecessors(query)
        assert partner["count"] == int(occurrences[prefixes == key].sum())


def check_text(layer: Layer, asked: dict[str, Any], found: dict[str, Any]) -> None:
    head, ids, split = asked["text"]["head"], asked["text"]["ids"], asked["text"]["split"]
    terms = layer.terms(ids, None if split == "biases" else "vocabulary")
    assert found["terms"]["names"] == list(terms.names)
    for name in terms.names:
        theirs = terms.full(name)[head]
        ours = np.reshape(found["terms"]["values"][name], theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=2e-3 * np.abs(theirs).max(), err_msg=name)
    attention = np.reshape(found["attention"], theirs.shape)
    np.testing.assert_allclose(attention, terms.attention()[head], atol=1e-3)
    without = np.reshape(found["without"], theirs.shape)
    np.testing.assert_allclose(without, terms.attention_without(asked["off"][0])[head], atol=1e-3)


def test_positions_are_the_packages(opened, demo):
    curves = position_curves(demo.layer, [100])
    with opened() as page:
        for head in range(demo.layer.n_heads):
            for with_norm in (True, False):
                found = page.evaluate(
                    "async (asked) => (await window.detoklens.ready, window.detoklens.positions(asked))",
                    {"head": head, "query": 100, "ln": with_norm},
                )
                assert found["first"] == 0
                theirs = {curve.quantity: curve.mean[head] for curve in curves if curve.layer_norm == with_norm}
                for quantity, name in (("p", "p"), ("pp", "pp"), ("p+pp", "sum"), ("attention", "attention")):
                    if quantity in theirs:
                        expected = theirs[quantity][: len(found[name])]
                        size = np.abs(theirs[quantity]).max()
                        np.testing.assert_allclose(found[name], expected, atol=1e-4 * size, err_msg=name)
                np.testing.assert_allclose(sum(found["attention"]), 1)
                np.testing.assert_allclose(np.add(found["p"], found["pp"])[:101], found["sum"][:101], atol=1e-3)


@pytest.mark.parametrize("kind", ["rotary", "rotary without biases", "alibi"])
def test_the_kernel_is_the_packages(opened, studies, kind):
    layer, offsets = studies[kind].layer, [0, 1, 2, 17, 39]
    with opened(f"{kind.replace(' ', '-')}/#/token") as page:
        for head in range(layer.n_heads):
            asked = {"head": head, "offsets": offsets, "split": "vocabulary"}
            found = page.evaluate(
                "async (asked) => (await window.detoklens.ready, window.detoklens.kernel(asked))", asked
            )
            np.testing.assert_allclose(found, layer.kernel(offsets)[head], atol=1e-4)


def test_texts_are_read_by_the_models_own_tokenizer(opened, demo):
    texts = ["The magician's café cost 1,234 €.", " leading", "tabs\tand\nlines", "東京 🤦", "<|endoftext|> x", ""]
    with opened() as page:
        for text in texts:
            assert page.evaluate(ENCODE, text) == demo.layer.vocabulary.encode(text)


@pytest.mark.parametrize("folder", ["stories_folder", "minilm_folder", "whisper_folder"])
def test_other_tokenizers_are_read_alike(opened, site, folder, request):
    """The page's library must agree with `tokenizers` on byte fallback, WordPiece and GPT-2's pieces."""
    from detoklens.loading import load_vocabulary

    path = request.getfixturevalue(folder)
    vocabulary = load_vocabulary(path)
    texts = ["Once upon a time, there was 1 little girl.", "Ünïcödé  two  spaces", "don't re-enter\n\n\tok", "東京 🤦"]
    with opened() as page:
        page.route("**/tokenizer.json", lambda route: route.fulfill(body=vocabulary.to_json()))
        for text in texts:
            assert page.evaluate(ENCODE, text) == vocabulary.encode(text)


def test_an_encoder_reads_its_special_tokens(opened, minilm_folder):
    from detoklens.loading import load_vocabulary

    vocabulary = load_vocabulary(minilm_folder)
    with opened("learned-both-ways/#/token") as page:
        page.route("**/tokenizer.json", lambda route: route.fulfill(body=vocabulary.to_json()))
        ids = page.evaluate(ENCODE, "dwelling")
        assert [vocabulary.raw(each) for each in ids] == ["[CLS]", "dwelling", "[SEP]"]
        assert ids == vocabulary.encode("dwelling", special_tokens=True)
        assert page.evaluate(ENCODE, "") == []
