"""The tables of the demo's report and of its comparison hold the frozen numbers."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest

from tests.answers import draw_nothing
from tests.command_line import run
from tests.report.contents import differences, of_folder

KEPT = Path(__file__).parent.parent / "data" / "tables_of_demo.json"
COMMANDS = {"report": ["report", "demo"], "comparison": ["compare", "start=demo@0", "end=demo"]}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("shared_answers", "undrawn")
def test_the_tables_hold_what_they_held(name: str, tmp_path: Path) -> None:
    """A change on purpose is frozen by `python -m tests.report.test_table_contents`."""
    run(*COMMANDS[name], "--out", tmp_path)
    found, kept = of_folder(tmp_path / "tables"), json.loads(KEPT.read_text())[name]
    assert set(found) == set(kept)
    wrong = {table: differences(found[table], kept[table]) for table in kept}
    assert {table: said for table, said in wrong.items() if said} == {}


def freeze() -> None:
    """Tables that hold what they held keep their frozen digits, whose last ones depend on the processor."""
    kept, contents = json.loads(KEPT.read_text()), {}
    with TemporaryDirectory() as folder, patch("detoklens.report.drawing.draw_files", draw_nothing):
        for name, words in COMMANDS.items():
            run(*words, "--out", Path(folder, name))
            contents[name] = of_folder(Path(folder, name, "tables"))
            for table in contents[name].keys() & kept[name].keys():
                if not differences(contents[name][table], kept[name][table]):
                    contents[name][table] = kept[name][table]
    KEPT.write_text(json.dumps(contents, indent=1) + "\n")


if __name__ == "__main__":
    freeze()
