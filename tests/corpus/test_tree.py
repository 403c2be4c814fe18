"""The merge tree: each shard ends in the top exactly once, wherever a run was cut off."""

import random
from pathlib import Path

import pytest

from detoklens.corpus.pairs import FAN
from detoklens.corpus.tasks import MergeTree, Node


class Files:
    """A folder in which a part's content is the set of shards that it stands for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, tree: MergeTree, node: Node) -> None:
        if node.level == 0:
            content = {node.index}
        else:
            parts = [child.read_text().split() for child in tree.children(node)]
            content = {int(shard) for part in parts for shard in part}
            assert len(content) == sum(map(len, parts))
        tree.path(node).write_text(" ".join(map(str, content)))
        tree.mark_done(node)


@pytest.mark.parametrize("shards", [1, 2, FAN, FAN + 1, 3 * FAN, FAN * FAN, FAN * FAN + 5])
def test_every_shard_ends_in_the_top_once(shards: int, tmp_path: Path) -> None:
    generator = random.Random(shards)
    tree, files = MergeTree(shards, tmp_path), Files(tmp_path)
    steps = 0
    while tree.ready:
        assert len(set(tree.ready)) == len(tree.ready)
        files.make(tree, tree.ready.pop(generator.randrange(len(tree.ready))))
        steps += 1
        if generator.random() < 0.05:
            tree = MergeTree(shards, tmp_path)  # as after a kill
    top = [path.read_text().split() for path in tree.top()]
    assert sorted(int(shard) for part in top for shard in part) == list(range(shards))
    assert len(top) <= FAN
    assert sorted(tmp_path.iterdir()) == sorted(tree.top())
    assert steps >= shards


def test_children_left_beside_their_parent_are_removed(tmp_path: Path) -> None:
    tree, files = MergeTree(FAN + 1, tmp_path), Files(tmp_path)
    for index in range(FAN):
        files.make(tree, Node(0, index))
    tree.path(Node(1, 0)).write_text(" ".join(map(str, range(FAN))))  # merged, then killed before removing
    again = MergeTree(FAN + 1, tmp_path)
    assert again.ready == [Node(0, FAN)]
    assert [path.name for path in tmp_path.iterdir()] == [again.path(Node(1, 0)).name]


def test_a_merge_is_offered_once_if_parts_exist_before_they_are_reported(tmp_path: Path) -> None:
    tree = MergeTree(FAN + 1, tmp_path)
    for index in range(FAN):
        tree.path(Node(0, index)).write_text(str(index))
    tree.ready = [Node(0, FAN)]
    for index in reversed(range(FAN)):
        tree.mark_done(Node(0, index))
    assert tree.ready == [Node(0, FAN), Node(1, 0)]


def test_disk_is_given_back_while_counting(tmp_path: Path) -> None:
    shards = FAN * FAN * 2
    tree, files = MergeTree(shards, tmp_path), Files(tmp_path)
    most = 0
    for node in tree.take():
        files.make(tree, node)
        most = max(most, len(list(tmp_path.iterdir())))
    assert most <= 3 * FAN + 1


def test_merges_come_before_shards_and_shards_in_order(tmp_path: Path) -> None:
    tree, files, taken = MergeTree(FAN + 1, tmp_path), Files(tmp_path), []
    for node in tree.take():
        taken.append(node)
        files.make(tree, node)
    shards = [Node(0, index) for index in range(FAN + 1)]
    assert taken == [*shards[:FAN], Node(1, 0), shards[FAN], Node(1, 1)]
