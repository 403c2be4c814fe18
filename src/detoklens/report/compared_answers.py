"""How do several checkpoints differ? One sentence with its numbers for each question."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from detoklens.figures.registry import GLUE, ODD, POSITION, TERMS
from detoklens.report.wording import head_name, listed, percent

Compared = Mapping[str, Mapping[str, pl.DataFrame]]
"""Table by name, then by the model's label."""


def compared_answer(question: str, compared: Compared) -> str:
    """One sentence for a question."""
    return {GLUE: gluing, POSITION: pulling, TERMS: mattering, ODD: odd}[question](compared)


def gluing(compared: Compared) -> str:
    for table, whom in (("auroc_pieces_controls", " over pieces of words"), ("auroc_controls", "")):
        best = {label: _best_above(frame) for label, frame in compared.get(table, {}).items()}
        known = {label: found for label, found in best.items() if found is not None}
        if known:
            said = [f"{_signed(above)} in {label} ({head_name(head)})" for label, (head, above) in known.items()]
            return f"How far the best head's AUROC{whom} stands above its nulls: {listed(said)}."
    words = {
        label: frame.sort("median_share", nulls_last=True).row(0, named=True)
        for label, frame in compared.get("words_by_head", {}).items()
    }
    if not words:
        return "There are neither words nor a corpus to judge by: only the weights' own numbers are shown."
    said = [f"{100 * row['median_share']:.1f} % in {label} ({head_name(row['head'])})" for label, row in words.items()]
    return f"Median rank of a word's piece before in the best head, as a share of the vocabulary: {listed(said)}."


def pulling(compared: Compared) -> str:
    nearest = {label: _nearest(frame) for label, frame in compared["shape"].items()}
    said = [f"{percent(share)} in {label} ({head_name(head)})" for label, (head, share) in nearest.items()]
    return f"By position alone the nearest-looking head puts on the last five tokens: {listed(said)}."


def mattering(compared: Compared) -> str:
    if "contributions_by_head" not in compared:
        return "No text was given, so contributions were not measured: add --text with files, folders or a hub dataset."
    said = []
    for label, frame in compared["contributions_by_head"].items():
        share = frame.filter(term="ee")["share"].mean()
        said.append(f"{'unknown' if share is None else percent(float(share))} in {label}")  # type: ignore[arg-type]
    return f"Tᵉᵉ's share of the terms' KL divergences, mean over heads: {listed(said)}."


def odd(compared: Compared) -> str:
    said = []
    for label, frame in compared["position_variance"].items():
        outliers = frame.filter(outlier=True).height
        said.append(f"{outliers} of {frame.height} in {label}")
    return f"Position embeddings that depart from their neighbours by variance: {listed(said)}."


def _signed(number: float) -> str:
    return f"{number:+.3f}".replace("-", "−")


def _best_above(controls: pl.DataFrame) -> tuple[int, float] | None:
    known = controls.drop_nulls("above_null").sort("above_null", descending=True, maintain_order=True)
    return None if known.is_empty() else (known["head"][0], known["above_null"][0])


def _nearest(shape: pl.DataFrame) -> tuple[int, float]:
    """From the middle one of the query positions, the head with most attention on the last five tokens."""
    places = shape["query_position"].unique().sort()
    there = shape.filter(query_position=places[len(places) // 2]).sort("last_5", descending=True, maintain_order=True)
    return there["head"][0], there["last_5"][0]
