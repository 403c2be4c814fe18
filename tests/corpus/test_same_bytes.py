"""The real corpus gives the same bytes for any number of workers, batch size and engine."""

from pathlib import Path

import pytest

from detoklens.corpus.count import count_corpus
from detoklens.engines import open_engine
from detoklens.tokens import Vocabulary
from tests.corpus.plain_counting import folder_bytes

MB = 1 << 20


@pytest.fixture(scope="module")
def one_worker(
    gpt2_vocabulary: Vocabulary, corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """All sixteen shards, counted by one worker in batches of 1 MB."""
    out = tmp_path_factory.mktemp("one") / "counts"
    with open_engine("local", 1) as engine:
        counts = count_corpus([corpus_folder / "*.zst"], gpt2_vocabulary, out, batch=MB, engine=engine)
    assert counts.tokens.sum() == 47_174_330  # the corpus' README
    assert counts.manifest["totals"]["documents"] == 27_806
    assert counts.manifest["totals"]["text_bytes"] == 197_666_684
    assert counts.bigrams.counts.sum() == 47_174_330 - 27_806  # no document is empty
    return folder_bytes(out)


@pytest.mark.parametrize(
    ("engine_name", "workers", "batch", "memory"),
    [("local", 1, 32 * MB, None), ("local", 2, 32 * MB, 200 * MB), ("ray", 2, 32 * MB, None)],
)
def test_the_real_corpus_gives_the_same_bytes(
    engine_name: str,
    workers: int,
    batch: int,
    memory: int | None,
    one_worker: dict[str, bytes],
    gpt2_vocabulary: Vocabulary,
    corpus_folder: Path,
    tmp_path: Path,
) -> None:
    if engine_name == "ray":
        pytest.importorskip("ray", reason="Ray is not installed: the ray engine is NOT TESTED")
    with open_engine(engine_name, workers) as engine:
        count_corpus(
            [corpus_folder / "*.zst"], gpt2_vocabulary, tmp_path / "counts", batch=batch, memory=memory, engine=engine
        )
    assert folder_bytes(tmp_path / "counts") == one_worker
