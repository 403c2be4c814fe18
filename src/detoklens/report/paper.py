"""For GPT-2 small: each number of the paper beside ours, with the difference, and whether it depends on the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from detoklens.report.content import Cell, Grid, Part

Tables = Mapping[str, pl.DataFrame]
Row = tuple[str, float | None, float | None, str]

CORPUS = "yes: the paper counted OpenWebText"
WEIGHTS = "no: weights alone"
SAMPLE = "no, but the paper's sample of tokens is not known"
MATCHING_HEAD, GLUING_HEAD = 1, 7  # the heads that the paper speaks of


def numbers_of_the_paper(tables: Tables, documents: int | None = None) -> Part:
    """What sets the paper's numbers beside ours; `documents` is how many the corpus has, where that is known."""
    numbers = list(_numbers(tables, documents))
    return Part(f"{len(numbers)} numbers of the paper's text are set beside ours.", grids=[_number_grid(numbers)])


def _numbers(tables: Tables, documents: int | None) -> Iterator[Row]:
    yield from _heatmap_ranges(tables)
    if "auroc_by_head" in tables:
        best = tables["auroc_by_head"].sort("seen", descending=True)["head"][0]
        yield ("head with the largest mean AUROC", GLUING_HEAD, best, CORPUS)
    by_head = tables["frequency_by_head"]
    for head, paper in ((GLUING_HEAD, -0.68), (MATCHING_HEAD, -0.31)):
        ours = by_head.filter(head=head)["spearman"][0]
        yield (f"Spearman of Tᵉ with token frequency, L0H{head}", paper, ours, CORPUS)
    variance = tables["embedding_variance"].row(0, named=True)
    yield ("Spearman of Var(e) with token frequency", -0.63, variance["spearman"], CORPUS)
    yield ("variance of the token embeddings' norms", 0.19, variance["norm_variance"], WEIGHTS)
    yield ("the same after division by the standard deviation", 0.0, variance["divided_norm_variance"], WEIGHTS)
    yield ("mean Var(e) over mean |Cov(e, p)|", 46, variance["variance_to_covariance"], WEIGHTS)
    yield from _position_variances(tables)
    yield from _corpus_sizes(tables, documents)


def _position_variances(tables: Tables) -> Iterator[Row]:
    """The paper says of these in words what they are."""
    found = tables["position_variance"].sort("position")["variance"]
    median = float(found.median() or 0.0)  # type: ignore[arg-type]
    for name, value in (("first: exceptionally large", found[0]), ("last: exceptionally small", found[-1])):
        yield (f"Var(p) over its median, {name} in the paper", None, value / median if median else None, WEIGHTS)


def _corpus_sizes(tables: Tables, documents: int | None) -> Iterator[Row]:
    if "auroc_by_token" not in tables:
        return
    tokens = int(tables["frequency_by_token"]["count"].sum())
    bigrams = int(tables["auroc_by_token"].filter(head=0)["positives"].sum())
    yield ("documents counted", 8_013_769, documents, CORPUS)
    yield ("tokens counted", 9.03e9, tokens, CORPUS)
    yield ("distinct bigrams counted", 137e6, bigrams, CORPUS)


def _heatmap_ranges(tables: Tables) -> Iterator[Row]:
    summary = tables["heatmap_by_head"].filter(layer_norm=True)
    for head, (low, high) in ((MATCHING_HEAD, (-47, 127)), (GLUING_HEAD, (-35, 31))):
        row = summary.filter(head=head).row(0, named=True)
        yield (f"smallest Tᵉᵉ of drawn tokens, L0H{head}", low, row["minimum"], SAMPLE)
        yield (f"largest Tᵉᵉ of drawn tokens, L0H{head}", high, row["maximum"], SAMPLE)


def _number_grid(numbers: list[Row]) -> Grid:
    columns = [
        ("number", "what is compared"),
        ("paper", "as the paper prints it"),
        ("here", "computed here"),
        ("difference", "here less paper"),
        ("depends on the corpus", "whether other text would give another number"),
    ]
    rows: list[tuple[Cell, ...]] = [
        (name, paper, ours, None if ours is None or paper is None else ours - paper, depends)
        for name, paper, ours, depends in numbers
    ]
    return Grid("Numbers of the paper's text", columns, rows)
