"""Sentences about single ROC curves, and about the validity of scores beyond layer 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detoklens.wording import head_name, listed, token_shown

if TYPE_CHECKING:
    import polars as pl

FEWEST_LINKS = 200
HOLDS = 0.5  # rank correlation of predicted and real scores
SAID_CURVES = 4  # query tokens that the sentence about curves names


def curves_said(points: pl.DataFrame, layer: int = 0, manner: str = "") -> str:
    """The head with the largest area for each of the first query tokens."""
    from detoklens.questions.auroc_tables import areas_under

    tokens = points["token_id"].unique(maintain_order=True)
    areas = areas_under(points).sort("area", descending=True, maintain_order=True)
    said = []
    for token in tokens.head(SAID_CURVES):
        best = areas.filter(token_id=token).row(0, named=True)
        shown = f"id {token}" if best["token"] is None else f"“{token_shown(best['token'])}”"
        said.append(f"{best['area']:.3f} for {shown} ({head_name(best['head'], layer)})")
    first = f" of the first {SAID_CURVES} of {len(tokens)} query tokens" if len(tokens) > SAID_CURVES else ""
    return f"Largest areas under the ROC curves{first}{manner}: {listed(said)}; 0.5 is chance."


def validity_said(validity: pl.DataFrame, pieces: bool, back: int = 1) -> str:
    """For which heads do predicted scores say what the real ones are? By all links, or by those of pieces."""
    column = "pieces_correlation" if pieces else "correlation"
    layer, rows = int(validity["layer"][0]), validity.sort(column, descending=True, nulls_last=True)
    counted, best = validity["pieces_links" if pieces else "links"][0], rows[column][0]
    links = f"{counted:,} links of the text to {_linked_to(back)}"
    if counted < FEWEST_LINKS:
        return f"Whether it holds can't be told: {links} are too few."
    if best is None:
        return f"Whether it holds can't be told: on {links} no head's predicted and real scores both vary."
    held = [
        f"{head_name(head, layer)} ({found:.2f})"
        for head, found in rows.select("head", column).iter_rows()
        if found is not None and found >= HOLDS
    ]
    how = f"rank correlation of predicted and real scores at least {HOLDS}, on {links}"
    if held:
        return f"It holds for {listed(held)} ({how}), for no other head."
    nearest = f"; the nearest is {head_name(rows['head'][0], layer)} with {best:.2f}"
    return f"But it does not hold for any head ({how}{nearest}): this says nothing of what layer {layer} does on text."


def _linked_to(back: int) -> str:
    """Where the key stands that a link goes to."""
    if back == 0:
        return "the token itself"
    side = "before" if back > 0 else "after"
    return f"the token {side}" if abs(back) == 1 else f"the token {abs(back)} places {side}"
