"""The fast counts are those of a plain Counter, for any documents and vocabularies of 7, 50,257 and 256,000 tokens."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.corpus.count import count_corpus
from detoklens.corpus.counts import Counts
from detoklens.corpus.documents import Shard
from detoklens.corpus.encoding import choose_library
from detoklens.corpus.inputs import describe
from detoklens.corpus.pairs import Spills, add_parts, read_runs
from detoklens.corpus.reading import Piece, ReadingOptions
from detoklens.corpus.tasks import CountTask
from detoklens.engines import open_engine
from detoklens.tokens import Vocabulary
from tests.corpus.conftest import SIZES
from tests.corpus.plain_counting import as_counters, plain_counts, without_special_parsing, write_jsonl

TEXTS = st.one_of(
    st.just(""),
    st.sampled_from(
        ["a", " a", "the", "<|endoftext|>", "\ud83d", "x\udc00y", "\ud83d\ude00", "\ufffd", "\x00", "\u2028"]
    ),
    st.text(st.characters(exclude_categories=()), max_size=40),
    st.text(alphabet="ab \n", max_size=60),
    st.builds(lambda text, times: text * times, st.sampled_from(["the and ", "🤦🏽‍♂️ ", "aba b"]), st.integers(1, 3000)),
)


@pytest.fixture(scope="module")
def tokenizer_files(
    vocabularies: dict[int, Vocabulary], tmp_path_factory: pytest.TempPathFactory
) -> dict[int, tuple[Path, str]]:
    """Each vocabulary's file, and the library that would be chosen for it."""
    folder = tmp_path_factory.mktemp("tokenizers")
    found = {}
    for size, vocabulary in vocabularies.items():
        path = folder / f"{size}.json"
        path.write_text(vocabulary.to_json(), encoding="utf-8")
        found[size] = path, choose_library(vocabulary, [b"the sample"], False).library
    return found


@pytest.mark.parametrize("size", SIZES)
def test_any_documents_give_the_counts_of_a_counter(
    size: int, vocabularies: dict[int, Vocabulary], tokenizer_files: dict[int, tuple[Path, str]]
) -> None:
    vocabulary = vocabularies[size]
    tokenizer = without_special_parsing(vocabulary)
    path, library = tokenizer_files[size]

    @settings(max_examples=25, deadline=None)
    @given(
        texts=st.lists(TEXTS, max_size=8),
        batch=st.sampled_from([1, 100, 1 << 20]),
        memory=st.integers(4_000_000, 9_000_000),
    )
    def check(texts: list[str], batch: int, memory: int) -> None:
        with tempfile.TemporaryDirectory() as name:
            part = count(Path(name), texts, batch, memory)
            expected_tokens, expected_bigrams = plain_counts(texts, tokenizer)
            _, tokens, tally = add_parts([part])
            assert {int(t): int(tokens[t]) for t in np.flatnonzero(tokens)} == expected_tokens
            assert pairs_of(part) == expected_bigrams
            assert tally.documents == len(texts)
            assert tally.tokens == expected_tokens.total()
            assert list(Path(name).glob("*.arrow*")) == [part]

    def count(folder: Path, texts: list[str], batch: int, memory: int) -> Path:
        source = write_jsonl(folder / "texts.jsonl", texts)
        shard = Shard(0, (Piece(describe(str(source), str(source))),), 0)
        target = folder / "part.arrow"
        CountTask(shard, target, size, memory, path, library, False, ReadingOptions(), batch).run()
        return target

    def pairs_of(part: Path) -> Counter[tuple[int, int]]:
        found: Counter[tuple[int, int]] = Counter()
        for run in read_runs(part):
            assert run.keys.dtype == (np.uint32 if size**2 < 2**32 else np.uint64)
            for key, occurrences in zip(run.keys.tolist(), run.counts.tolist(), strict=True):
                assert divmod(key, size) not in found
                found[divmod(key, size)] = occurrences
        return found

    check()


@pytest.mark.parametrize("size", SIZES)
def test_a_whole_run_gives_the_counts_of_a_counter(
    size: int, vocabularies: dict[int, Vocabulary], tmp_path: Path
) -> None:
    texts = [
        "",
        "a",
        "aba b" * 500,
        "the and " * 700,
        "🤦🏽‍♂️ \ud83d x",
        "<|endoftext|> in the text",
        "in a\x00\r\n\u2028z",
    ]
    source = write_jsonl(tmp_path / "texts.jsonl", texts)
    with open_engine("local", 1) as engine:
        counts = count_corpus([source], vocabularies[size], tmp_path / "counts", engine=engine)
    assert as_counters(counts) == plain_counts(texts, without_special_parsing(vocabularies[size]))
    assert counts.vocabulary_size == size
    assert as_counters(Counts.open(tmp_path / "counts")) == as_counters(counts)


def test_the_tiny_corpus_has_the_counts_of_a_counter(
    gpt2_vocabulary: Vocabulary, tiny_text: Path, tmp_path: Path
) -> None:
    with open_engine("local", 1) as engine:
        counts = count_corpus([tiny_text], gpt2_vocabulary, tmp_path / "counts", engine=engine)
    tokenizer = without_special_parsing(gpt2_vocabulary)
    assert as_counters(counts) == plain_counts([tiny_text.read_text(encoding="utf-8")], tokenizer)
    assert counts.manifest["tokenized_with"] == "gigatoken"
    assert counts.tokens.sum() == 46_738  # the corpus' README


def test_memory_too_small_for_all_pairs_changes_nothing(
    small_vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are put away to files and merged at the end."""
    generator = np.random.default_rng(5)
    texts = ["".join(map(chr, generator.integers(32, 127, 2000))) for _ in range(10)]
    source = write_jsonl(tmp_path / "texts.jsonl", texts)
    path = tmp_path / "tokenizer.json"
    path.write_text(small_vocabulary.to_json(), encoding="utf-8")
    put_away: list[int] = []
    put = Spills.put_away
    monkeypatch.setattr(Spills, "put_away", lambda self, run: (put_away.append(len(run.keys)), put(self, run))[1])
    shard = Shard(0, (Piece(describe(str(source), str(source))),), 0)
    target = tmp_path / "part.arrow"
    CountTask(shard, target, 300, 40_000, path, "tokenizers", False, ReadingOptions(), 2_000).run()
    assert len(put_away) > 3
    runs = [zip(run.keys.tolist(), run.counts.tolist(), strict=True) for run in read_runs(target)]
    found = {divmod(key, 300): occurrences for run in runs for key, occurrences in run}
    assert found == plain_counts(texts, without_special_parsing(small_vocabulary))[1]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["part.arrow", "texts.jsonl", "tokenizer.json"]
