"""Accessibility findings of axe-core on an open page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).parents[1] / "explorer-web/node_modules/axe-core/axe.min.js"
RUN = "async () => (await axe.run(document, {resultTypes: ['violations'], iframes: false})).violations"


def serious_findings(page: Any) -> list[str]:
    """What axe-core calls serious or critical, with the first element of each; skips if axe-core is not installed."""
    if not AXE.is_file():
        pytest.skip("ACCESSIBILITY NOT CHECKED: axe-core is missing; `make browser` installs it where npm is")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return [
        f"{found['id']} ({len(found['nodes'])}): {found['nodes'][0]['html'][:160]}"
        for found in page.evaluate(RUN)
        if found["impact"] in ("serious", "critical")
    ]
