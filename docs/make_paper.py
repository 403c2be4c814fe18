"""Write the claims of reproducing-the-paper.md, judged on two models: `python docs/make_paper.py FOLDER`.

FOLDER has GPT-2 small's position table, first attention layer and token norms, but no token embeddings. Claims that
need no token's direction are judged on it, with random directions of the real norms.
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from detoklens.questions.paper.compute import CLAIMS, judged
from detoklens.questions.study import Study, study
from detoklens.scores.layer import Layer

PAGE = Path(__file__).parent / "reproducing-the-paper.md"
BEGIN, END = "<!-- claims -->\n", "<!-- end of claims -->\n"
NEEDS_DIRECTIONS = "value vectors"
OF_POSITIONS = [
    claim
    for claim in CLAIMS
    if (claim.command in ("shape", "positions", "variance") and not claim.text.startswith(NEEDS_DIRECTIONS))
    or claim.text.startswith(("variance of the token norms", "the key bias"))
]
SHOWN = {"agrees": "agrees", "differs": "**differs**", "not applicable": "–"}


def demo_claims() -> pl.DataFrame:
    return judged(study("demo"))


def gpt2_claims(layer: Layer) -> pl.DataFrame:
    return judged(Study(layer), OF_POSITIONS)


def claims_table(demo: pl.DataFrame, gpt2: pl.DataFrame) -> str:
    """One row per claim: what the paper says, and what each model shows."""
    of_gpt2 = {row["claim"]: row for row in gpt2.iter_rows(named=True)}
    lines = ["| where | claim | source says | `demo` | GPT-2 small | question |", "|---|---|---|---|---|---|"]
    for row in demo.iter_rows(named=True):
        given = row["paper"] + (" (authors' files)" if row["source"] != "paper" else "")
        real = _found(of_gpt2[row["claim"]]) if row["claim"] in of_gpt2 else "needs its tokens"
        cells = (row["where"], row["claim"], given, _found(row), real, f"`{row['command']}`")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _found(row: dict[str, str | None]) -> str:
    parts = [row["found"], row["why"] if row["verdict"] == "differs" else None]
    said = "; ".join(part for part in parts if part)
    shown = SHOWN[str(row["verdict"])]
    return f"{shown}: {said}" if said else shown


if __name__ == "__main__":
    sys.path.insert(0, str(PAGE.parent.parent))
    from tests.gpt2_stand_in import VOCABULARY, gpt2_positions

    table = claims_table(demo_claims(), gpt2_claims(gpt2_positions(Path(sys.argv[1]), VOCABULARY)))
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + BEGIN + "\n" + table + "\n" + END + after, encoding="utf-8")
