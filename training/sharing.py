"""Data-parallel training: several single-threaded processes take different windows and average their gradients.

On two cores this was faster than two OpenMP threads, which wait for each other on small matrices.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable

import torch
from torch import Tensor, distributed

RANK, MEETING_POINT = "RECIPE_RANK", "RECIPE_MEETING_POINT"


def is_follower() -> bool:
    """Whether another process of the team started this one."""
    return RANK in os.environ


class Team:
    """The processes that train one model together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rank = int(os.environ.get(RANK, 0))
        self.others: list[subprocess.Popen[bytes]] = []
        if size > 1:
            self._meet()

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def _meet(self) -> None:
        if self.rank == 0:
            self.folder = tempfile.TemporaryDirectory(prefix="recipe-")
            os.environ[MEETING_POINT] = os.path.join(self.folder.name, "meeting")
            self.others = [self._start(rank) for rank in range(1, self.size)]
        meeting = "file://" + os.environ[MEETING_POINT]
        distributed.init_process_group("gloo", init_method=meeting, rank=self.rank, world_size=self.size)

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, RANK: str(rank)})

    def follow(self, *numbers: float) -> list[float]:
        """The first process's progress and stop flag; all processes use them, so all stop at the same step."""
        shared = torch.tensor(numbers, dtype=torch.float64)
        if self.size > 1:
            distributed.broadcast(shared, src=0)
        return shared.tolist()

    def average(self, loss: Tensor, parameters: Iterable[Tensor]) -> float:
        """Average the gradients over the team in place and return the mean loss."""
        if self.size == 1:
            return loss.item()
        gradients = [parameter.grad for parameter in parameters]
        packed = torch.cat([loss.detach().reshape(1), *(gradient.reshape(-1) for gradient in gradients)])
        distributed.all_reduce(packed)
        packed /= self.size
        pieces = packed[1:].split([gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))
        return float(packed[0])

    def part(self) -> None:
        """Wait until all processes are done."""
        if self.size > 1:
            distributed.destroy_process_group()
        for other in self.others:
            other.wait()
        if self.others:
            self.folder.cleanup()
