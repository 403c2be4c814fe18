"""Which library tokenizes: the fast one where its ids are right, the true one where they are not."""

import json
import shutil
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from detoklens.corpus import documents, encoding
from detoklens.corpus.count import Progress, count_corpus
from detoklens.corpus.encoding import Encoded, GigatokenEncoder, TokenizersEncoder, choose_library
from detoklens.corpus.inputs import find_inputs
from detoklens.corpus.reading import ReadingOptions
from detoklens.engines import open_engine
from detoklens.errors import TokenError
from detoklens.tokens import Vocabulary
from tests.corpus.conftest import byte_level_vocabulary
from tests.corpus.plain_counting import write_jsonl


@pytest.fixture(params=[GigatokenEncoder, TokenizersEncoder])
def encoder(request: pytest.FixtureRequest) -> type[GigatokenEncoder]:
    return request.param  # type: ignore[no-any-return]


def test_documents_are_told_apart_by_their_offsets(
    encoder: type[GigatokenEncoder], small_vocabulary: Vocabulary
) -> None:
    texts = [b"", b"the", b"", b" and a", "🤦".encode(), b""]
    ids, offsets = encoder(small_vocabulary.to_json(), False).encode(texts)
    assert len(offsets) == len(texts) + 1
    for number, text in enumerate(texts):
        assert ids[offsets[number] : offsets[number + 1]].tolist() == small_vocabulary.encode(text.decode())


def test_the_text_of_a_special_token_is_text_unless_asked(
    encoder: type[GigatokenEncoder], gpt2_vocabulary: Vocabulary
) -> None:
    end = gpt2_vocabulary.id("<|endoftext|>")
    text = [b"one<|endoftext|> two"]
    as_text = encoder(gpt2_vocabulary.to_json(), False).encode(text).ids
    as_token = encoder(gpt2_vocabulary.to_json(), True).encode(text).ids
    assert end not in as_text
    assert gpt2_vocabulary.join(as_text.tolist()) == "one<|endoftext|> two"
    assert as_token.tolist() == [*gpt2_vocabulary.encode("one"), end, *gpt2_vocabulary.encode(" two")]


def test_the_option_reaches_the_counts(gpt2_vocabulary: Vocabulary, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "t.jsonl", ["one<|endoftext|> two"])
    end = gpt2_vocabulary.id("<|endoftext|>")
    for parse in (False, True):
        with open_engine("local", 1) as engine:
            out = tmp_path / str(parse)
            counts = count_corpus([source], gpt2_vocabulary, out, parse_special_tokens=parse, engine=engine)
        assert counts.tokens[end] == parse


def test_another_tokenizer_at_the_same_place_is_read_anew(small_vocabulary: Vocabulary, tmp_path: Path) -> None:
    """A folder that was counted into, deleted, and counted into again by the same process."""
    source, out = write_jsonl(tmp_path / "t.jsonl", ["abab a"]), tmp_path / "counts"
    for vocabulary in (byte_level_vocabulary(290), small_vocabulary):
        with open_engine("local", 1) as engine:
            counts = count_corpus([source], vocabulary, out, engine=engine)
        assert sorted(vocabulary.encode("abab a")) == np.repeat(range(vocabulary.size), counts.tokens).tolist()
        shutil.rmtree(out)


def test_the_fast_library_is_chosen_for_gpt2(gpt2_vocabulary: Vocabulary) -> None:
    assert choose_library(gpt2_vocabulary, [b"some text"], False) == ("gigatoken", None, None)


@pytest.fixture
def words() -> Vocabulary:
    """A vocabulary of whole words, which gigatoken does not read, and whose texts are not cut."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "the ": 1, "sand": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return Vocabulary(tokenizer)


def test_a_tokenizer_that_the_fast_library_can_not_read(words: Vocabulary, tmp_path: Path) -> None:
    notes: list[str] = []

    def watch(progress: Progress) -> None:
        notes.extend(progress.notes)
        progress.notes.clear()

    source = write_jsonl(tmp_path / "t.jsonl", ["the sand", "the sea"])
    with open_engine("local", 1) as engine:
        counts = count_corpus([source], words, tmp_path / "counts", engine=engine, watch=watch)
    assert counts.tokens.tolist() == [1, 2, 1]
    assert counts.manifest["tokenized_with"] == "tokenizers"
    assert "can't read this tokenizer" in counts.manifest["not_gigatoken_because"]
    assert counts.manifest["tokenizing_takes"] == encoding.COST
    assert len(notes) == 1
    assert f"tokenizing with tokenizers, which takes {encoding.COST}: gigatoken can't read" in notes[0]
    assert notes[0].endswith("MB/s on a core: less than a minute for this input)")


def test_a_fast_library_with_other_ids_is_not_used(
    small_vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(GigatokenEncoder):
        def encode(self, texts: Sequence[bytes]) -> Encoded:
            ids, offsets = super().encode(texts)
            wrong = ids.copy()
            wrong[: b"".join(texts).count(b"rare")] = 0
            return Encoded(wrong, offsets)

    monkeypatch.setattr(encoding, "GigatokenEncoder", Wrong)
    fresh = lru_cache(encoding._load_encoder.__wrapped__)  # other tests' encoders are kept under the same names
    monkeypatch.setattr(encoding, "_load_encoder", fresh)
    monkeypatch.setattr(encoding, "_read_encoder", lru_cache(encoding._read_encoder.__wrapped__))
    assert choose_library(small_vocabulary, [b"common"], False).library == "gigatoken"
    source = write_jsonl(tmp_path / "t.jsonl", ["common"] * 10 + ["rare"])
    with open_engine("local", 1) as engine:
        counts = count_corpus([source], small_vocabulary, tmp_path / "counts", engine=engine)
    assert "differ from those of tokenizers on a sample" in counts.manifest["not_gigatoken_because"]
    rare = small_vocabulary.encode("rare")
    assert np.all(counts.tokens[rare] > 0)


def test_the_sample_is_spread_over_the_whole_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SMALLEST", 2000)
    path = write_jsonl(tmp_path / "t.jsonl", [f"number {number} " + "é" * 300 for number in range(4000)])
    with path.open("a") as file:
        file.write("broken\n")
    cut = documents.cut_into_shards(find_inputs([path]), ReadingOptions())
    sample = documents.sample_texts(cut, ReadingOptions(), 1 << 20)
    assert 100 <= len(sample) <= 200
    numbers = [int(text.split()[1]) for text in sample]
    assert min(numbers) == 0
    assert max(numbers) > 3500
    assert sample == documents.sample_texts(cut, ReadingOptions(), 1 << 20)


def test_a_long_document_is_cut_between_characters(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("x" + "é" * 50_000, encoding="utf-8")
    (text,) = documents.sample_texts(
        documents.cut_into_shards(find_inputs([path]), ReadingOptions()), ReadingOptions(), 1 << 20
    )
    assert len(text) == (4 << 10) - 1
    assert set(text.decode()) == {"x", "é"}


def test_a_tokenizer_whose_merges_are_of_no_token_is_one_clear_line() -> None:
    """Two tokens with one id end so, once the tokenizer was written and is read again by a worker."""
    described = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]},
    }
    with pytest.raises(TokenError, match=r"contradicts itself: .*; download it again"):
        TokenizersEncoder(json.dumps(described), parse_special_tokens=False)


def test_a_tokenizer_that_fails_on_a_text_is_one_clear_line() -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}
    described = {"version": "1.0", "added_tokens": [], "model": model}
    with pytest.raises(TokenError, match="can't read the text"):
        TokenizersEncoder(json.dumps(described), parse_special_tokens=False).encode([b"b"])
    with pytest.raises(TokenError, match="can't read 'b'"):
        Vocabulary.from_json(json.dumps(described)).encode("b")


def breaking_at_q(small_vocabulary: Vocabulary) -> Vocabulary:
    """A tokenizer whose library panics at the letter q alone: it is cut into pieces of no length there."""
    described = json.loads(small_vocabulary.to_json())
    described["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "[^q]+"}, "behavior": "Removed", "invert": False},
            {"type": "FixedLength", "length": 0},
        ],
    }
    return Vocabulary.from_json(json.dumps(described))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_panic_while_counting_is_one_clear_line(small_vocabulary: Vocabulary, tmp_path: Path, workers: int) -> None:
    """Beyond the sample that is compared at the start: the last of many documents."""
    source = write_jsonl(tmp_path / "t.jsonl", ["a"] * 500 + ["q"])
    with open_engine("local", workers) as engine, pytest.raises(TokenError, match="can't read the text: chunk size"):
        count_corpus([source], breaking_at_q(small_vocabulary), tmp_path / "counts", engine=engine)


@pytest.mark.parametrize("special", [True, False])
def test_a_token_of_many_characters_is_not_for_the_fast_library(small_vocabulary: Vocabulary, special: bool) -> None:
    tokenizer = Tokenizer.from_str(small_vocabulary.to_json())
    tokenizer.add_tokens([AddedToken("z" * 1_001, special=special)])
    library, reason, _ = choose_library(Vocabulary(tokenizer), [b"some text"], False)
    assert library == "tokenizers word by word"
    assert reason is not None
    assert "a token of 1,001 characters" in reason


def test_a_fast_library_that_breaks_on_the_sample_is_not_used(
    small_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        """As the libraries' own: no Exception."""

    class Breaking:
        @classmethod
        def from_json(cls, _description: str) -> "Breaking":
            return cls()

        def encode_batch(self, _texts: list[bytes], parallel: bool) -> None:
            raise PanicException("index out of bounds")

    monkeypatch.setattr("gigatoken.Tokenizer", Breaking)
    described = json.loads(small_vocabulary.to_json()) | {"version": "1.0"}
    library, reason, _ = choose_library(Vocabulary.from_json(json.dumps(described)), [b"another text"], True)
    assert (library, reason) == ("tokenizers word by word", "gigatoken fails on a sample of the input")


def test_what_gigatoken_imports_while_it_encodes_is_there_before(
    small_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the midst of that import would be swallowed, and the ids come in another form."""

    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "awkward":
                raise KeyboardInterrupt

    for name in [name for name in sys.modules if name.split(".")[0] == "awkward"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(KeyboardInterrupt):
        GigatokenEncoder(small_vocabulary.to_json(), parse_special_tokens=False)
