"""`compare --engine ray` answers for one checkpoint per task, and shows what a comparison on one machine shows."""

from __future__ import annotations

import polars as pl
import pytest

from detoklens.cli import compare
from detoklens.engines import LocalEngine
from detoklens.questions.base import ReportEntry
from detoklens.questions.partners import Partners
from tests.command_line import run


class Noting(LocalEngine):
    """Stands for Ray, whose own engine is tested with the others: runs tasks here, and notes them."""

    tasks: list[object]

    def run(self, function, tasks):
        self.tasks = list(tasks)
        return super().run(function, self.tasks)


@pytest.fixture
def one_section(monkeypatch) -> None:
    """A whole comparison takes its time."""
    one = [ReportEntry(Partners(["ion"], top=3), compared=True)]
    monkeypatch.setattr("detoklens.report.folder.report_entries", lambda study, layers: one)


@pytest.mark.usefixtures("one_section", "only_svg")
def test_a_task_for_each_checkpoint(tmp_path, monkeypatch):
    asked = ["compare", "a=demo@0", "b=demo"]
    here = run(*asked, "--workers", "1", "--out", tmp_path / "here")
    cluster, started, open_engine = Noting(1), [], compare.open_engine

    def opened(name: str = "local", workers: int | None = None, address: str | None = None):
        started.append((name, address))
        return cluster if name == "ray" else open_engine("local", 1)

    monkeypatch.setattr(compare, "open_engine", opened)
    there = run(*asked, "--engine", "ray", "--ray-address", "auto", "--out", tmp_path / "there")
    assert started == [("ray", "auto"), ("local", None)]
    assert [task.label for task in cluster.tasks] == ["a", "b"]
    assert "Answer for 2 checkpoints on Ray" in there.stderr
    assert [("kept" in said.stderr) for said in (here, there)] == [False, True]
    tables = [pl.read_parquet(tmp_path / name / "tables" / "partners.parquet") for name in ("here", "there")]
    assert tables[0].equals(tables[1])
