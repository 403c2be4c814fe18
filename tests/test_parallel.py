"""The thread map keeps the order, gives the same numbers for any number of workers, and computes no block twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from detoklens.errors import CorpusError
from detoklens.measures.attention import Measured, text_attention
from detoklens.measures.contributions import Divergences, contributions
from detoklens.measures.documents import block_size, digest, in_blocks
from detoklens.parallel import AHEAD, Runner, thread_map
from detoklens.tables import files
from detoklens.tables.files import Parts, Provenance
from tests.layers import random_layer

POSITIONS = [0, 3, 17, 39]


def small_layer():
    return random_layer(n_heads=3, d_head=5, n_positions=40, vocab_size=60, seed=11, dtype="float32")


def many_documents(number: int = 40) -> list[np.ndarray]:
    random = np.random.default_rng(4)
    return [random.integers(0, 60, random.integers(1, 41)) for _ in range(number)]


def test_results_are_in_order_whichever_is_ready_first():
    begun = threading.Event()

    def square(number: int) -> int:
        if number == 0:
            assert begun.wait(60)  # until a later item has begun
        if number == 1:
            begun.set()
        return number * number

    assert list(thread_map(square, range(20), 2)) == [number * number for number in range(20)]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_items_are_taken_only_as_workers_become_free(workers):
    taken = []

    def items() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    results = thread_map(abs, items(), workers)
    next(results)
    assert len(taken) <= AHEAD * workers
    assert list(results) == list(range(1, 50))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_an_item_is_the_error_of_the_map_and_nothing_more_is_begun(workers):
    begun = []

    def refuse(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise CorpusError("item 3 is bad")
        return number

    with pytest.raises(CorpusError, match=r"^item 3 is bad$"):
        list(thread_map(refuse, range(1000), workers))
    assert len(begun) <= 4 + AHEAD * workers
    assert not workers_alive()


def workers_alive() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("detoklens")]


@pytest.mark.parametrize("workers", [1, 2])
def test_matrix_products_run_on_one_core_while_items_are_computed_and_as_before_afterwards(workers):
    def blas_threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        assert set().union(*thread_map(lambda _: blas_threads(), range(6), workers)) == {1}
        assert blas_threads() == before == {2}


def test_ctrl_c_ends_the_map_and_keeps_the_finished_parts(tmp_path):
    """Also parts that were finished out of order."""
    parts, first, before = Parts(tmp_path), threading.Event(), signal.signal(signal.SIGINT, signal.default_int_handler)

    def compute(number: int) -> dict[str, np.ndarray]:
        if number == 0:
            assert first.wait(60)
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)
            first.set()
        return {"number": np.array([number])}

    try:
        with pytest.raises(KeyboardInterrupt):
            list(Runner(2, parts).run(compute, 500))
    finally:
        signal.signal(signal.SIGINT, before)
    kept = [number for number in range(500) if number in parts]
    assert kept[:3] == [0, 1, 2]
    assert len(kept) <= 10
    assert not workers_alive()


WORKERS = [2, 5]


@pytest.mark.parametrize("workers", WORKERS)
def test_contributions_are_the_same_bits_for_any_number_of_workers(workers):
    layer, documents = small_layer(), many_documents()
    here = contributions(layer, documents)
    there = contributions(layer, documents, runner=Runner(workers))
    assert same_bits(here, there)


@pytest.mark.parametrize("workers", WORKERS)
def test_attention_is_the_same_bits_for_any_number_of_workers(workers):
    layer, documents = small_layer(), many_documents()
    here = text_attention(layer, documents, POSITIONS)
    there = text_attention(layer, documents, POSITIONS, runner=Runner(workers))
    assert all(same_bits(*tables) for tables in zip(here, there, strict=True))


def same_bits(left: Divergences | Measured, right: Divergences | Measured) -> bool:
    """Equal in every bit: numpy takes −0.0 for 0.0."""
    pairs = zip(vars(left).values(), vars(right).values(), strict=True)
    return all(np.asarray(one).tobytes() == np.asarray(other).tobytes() for one, other in pairs)


@pytest.mark.parametrize("number", [1, 2, 15, 16, 17, 100, 511, 512, 513, 5000])
def test_blocks_hold_every_document_once_and_depend_on_their_number_alone(number):
    documents = [np.array([place]) for place in range(number)]
    blocks = in_blocks(documents)
    assert [int(ids[0]) for block in blocks for ids in block] == list(range(number))
    assert max(map(len, blocks)) == block_size(number) <= 32
    assert len(blocks) >= min(number, 9)


class Interrupted(Exception):
    pass


def stop_after(blocks: int):
    def watch(done: int, total: int) -> None:
        if done == blocks:
            raise Interrupted

    return watch


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, caplog):
    layer, documents = small_layer(), many_documents()
    parts = Parts(tmp_path / "parts")
    with pytest.raises(Interrupted):
        contributions(layer, documents, runner=Runner(parts=parts, watch=stop_after(4)))
    kept = {path.name: path.stat().st_mtime_ns for path in parts.folder.iterdir()}
    assert sorted(kept) == ["0.npz", "1.npz", "2.npz", "3.npz"]
    assert caplog.messages == []
    resumed = contributions(layer, documents, runner=Runner(parts=parts))
    (message,) = caplog.messages
    assert message.startswith("detoklens: continuing an interrupted run: 4 of ")
    assert all((parts.folder / name).stat().st_mtime_ns == time for name, time in kept.items())
    assert same_bits(resumed, contributions(layer, documents))


def test_attention_goes_on_where_it_stopped(tmp_path):
    layer, documents = small_layer(), many_documents()
    parts = Parts(tmp_path / "parts")
    with pytest.raises(Interrupted):
        text_attention(layer, documents, POSITIONS, runner=Runner(parts=parts, watch=stop_after(5)))
    assert 4 in parts
    assert 5 not in parts
    resumed = text_attention(layer, documents, POSITIONS, runner=Runner(parts=parts))
    assert all(same_bits(*pair) for pair in zip(resumed, text_attention(layer, documents, POSITIONS), strict=True))


def test_parts_are_used_and_not_computed_again(tmp_path):
    layer, documents = small_layer(), many_documents()
    parts = Parts(tmp_path / "parts")
    whole = contributions(layer, documents, runner=Runner(parts=parts))
    changed = parts.load(0)
    assert changed is not None
    changed["mean"] = changed["mean"] + 1000
    parts.save(0, changed)
    shifted = contributions(layer, documents, runner=Runner(parts=parts))
    assert (shifted.mean - whole.mean).max() > 50


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 no zip file", b"\x93NUMPY nor this"])
def test_a_damaged_part_is_computed_again(tmp_path, damage):
    layer, documents = small_layer(), many_documents()
    parts = Parts(tmp_path / "parts")
    whole = contributions(layer, documents, runner=Runner(parts=parts))
    (parts.folder / "2.npz").write_bytes(damage)
    assert same_bits(contributions(layer, documents, runner=Runner(parts=parts)), whole)
    assert parts.load(2) is not None


KILLED_AFTER_THREE_BLOCKS = """
import os, signal, sys
from pathlib import Path
from detoklens.parallel import Runner
from detoklens.measures.contributions import contributions
from detoklens.tables.files import Parts
from tests.test_parallel import many_documents, small_layer

def watch(done, total):
    if done == 3:
        os.kill(os.getpid(), signal.SIGKILL)

contributions(small_layer(), many_documents(), runner=Runner(parts=Parts(Path(sys.argv[1])), watch=watch))
"""


def test_a_killed_run_is_continued(tmp_path):
    root = Path(__file__).resolve().parents[1]
    killed = subprocess.run([sys.executable, "-c", KILLED_AFTER_THREE_BLOCKS, str(tmp_path)], cwd=root, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.npz", "1.npz", "2.npz"]
    resumed = contributions(small_layer(), many_documents(), runner=Runner(parts=Parts(tmp_path)))
    assert same_bits(resumed, contributions(small_layer(), many_documents()))


def test_another_question_has_parts_of_its_own(tmp_path):
    questions = [Provenance("contributions", "m", "0", options={"documents": number}) for number in (5, 6)]
    first, second = (Parts.of_question(tmp_path, question) for question in questions)
    first.save(0, {"mean": np.ones(3)})
    assert 0 not in second
    assert 0 in Parts.of_question(tmp_path, questions[0])
    second.save(0, {"mean": np.ones(3)})
    first.remove()
    assert [path.name for path in tmp_path.iterdir()] == [second.folder.name]


def test_parts_of_another_format_are_left_alone(tmp_path, monkeypatch):
    question = Provenance("contributions", "m", "0")
    Parts.of_question(tmp_path, question).save(0, {"mean": np.ones(3)})
    monkeypatch.setattr(files, "PARTS_FORMAT", files.PARTS_FORMAT + 1)
    assert 0 not in Parts.of_question(tmp_path, question)


def test_the_digest_tells_documents_and_their_borders_apart():
    one, two, three = np.array([1]), np.array([2]), np.array([1, 2])
    digests = {digest([one, two]), digest([two, one]), digest([three]), digest([one]), digest([])}
    assert len(digests) == 5
    assert digest([one, two]) == digest([one.astype(np.int32), two])
