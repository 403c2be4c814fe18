"""Where is the page? Built from `explorer-web/` and part of the package."""

from __future__ import annotations

import shutil
from pathlib import Path

from detoklens.errors import OutputError

PAGE = Path(__file__).parent / "page"


def copy_page(folder: Path) -> None:
    """Put the built page into a bundle."""
    if not (PAGE / "index.html").is_file():
        raise OutputError(f"{PAGE}: the explorer's page is not there; install the package again, or build explorer-web")
    shutil.copytree(PAGE, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
