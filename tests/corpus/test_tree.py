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

    def step(self, tree: MergeTree, node: Node) -> Node | None:
        if node.level == 0:
            content = {node.index}
        else:
            parts = [child.read_text().split() for child in tree.children(node)]
            content = {int(shard) for part in parts for shard in part}
            assert len(content) == sum(map(len, parts))
        tree.path(node).write_text(" ".join(map(str, content)))
        return tree.mark_done(node)


@pytest.mark.parametrize("shards", [1, 2, FAN, FAN + 1, 3 * FAN, FAN * FAN, FAN * FAN + 5])
def test_every_shard_ends_in_the_top_once(shards: int, tmp_path: Path) -> None:
    generator = random.Random(shards)
    tree, files = MergeTree(shards, tmp_path), Files(tmp_path)
    steps = 0
    while waiting := [Node(0, index) for index in tree.open_shards()] + tree.ready_merges():
        parent = files.step(tree, generator.choice(waiting))
        assert parent is None or parent in tree.ready_merges()
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
        files.step(tree, Node(0, index))
    tree.path(Node(1, 0)).write_text(" ".join(map(str, range(FAN))))  # merged, then killed before removing
    again = MergeTree(FAN + 1, tmp_path)
    assert again.open_shards() == [FAN]
    assert [path.name for path in tmp_path.iterdir()] == [again.path(Node(1, 0)).name]


def test_disk_is_given_back_while_counting(tmp_path: Path) -> None:
    shards = FAN * FAN * 2
    tree, files = MergeTree(shards, tmp_path), Files(tmp_path)
    most = 0
    for index in range(shards):
        node: Node | None = Node(0, index)
        while node is not None:
            node = files.step(tree, node)
            most = max(most, len(list(tmp_path.iterdir())))
    assert most <= 3 * FAN + 1
