"""Check the paper's claims on a model: what agrees, what differs, what does not apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import polars as pl

from detoklens.parallel import Runner
from detoklens.questions.base import ByLabel, Frames, Question, View
from detoklens.questions.paper.claims import CLAIMS, PAPER_CLAIMS, Outcome, judged
from detoklens.questions.paper.evidence import PAPER_RANKS, paper_ranks
from detoklens.questions.study import Study
from detoklens.wording import listed, plural

LONGEST_CLAIM = 40


@dataclass(frozen=True, repr=False)
class Paper(Question):
    """Check each claim of the paper on a model.

    One row per claim of "Weight-based Analysis of Detokenization in Language Models" (Kamoda et al. 2025): where the
    paper makes it, what it says, what this model shows, whether the two agree, and why. Claims about single numbers,
    heads or tokens of GPT-2 small are checked on GPT-2 small only. Claims about frequency need --counts, claims about
    attention on text --text. Agreement is decided by the rule in the claim's text, not by a statistical test.

    Example: detoklens paper gpt2 --counts counts --text 'openwebtext/*.parquet'
    """

    progress_label = "checking the paper's claims"
    report_section = "The paper's claims"
    reported: ClassVar[Mapping[str, Any]] = {"headline": False}
    uses = frozenset({"vocabulary", "counts", "text", "seed"})
    parallel = True
    tables = (PAPER_CLAIMS, PAPER_RANKS)
    compared_tables = ("paper_claims",)
    by: ClassVar[Mapping[str, str]] = {"claim": "paper_claims", "rank": "paper_ranks"}
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "paper_ranks": ("head", "query_token", "key_token", "paper_rank", "rank", "difference", "score"),
    }
    equation = "each claim states its own rule; the question named with it gives the evidence"

    def ask(self, study: Study, runner: Runner) -> Frames:
        ranks = paper_ranks(study.layer) if study.has("vocabulary") else None
        return {"paper_claims": judged(study)} | ({} if ranks is None else {"paper_ranks": ranks})

    def summarize(self, tables: Frames) -> str:
        number = {verdict: int((tables["paper_claims"]["verdict"] == verdict).sum()) for verdict in get_args(Outcome)}
        papers = sum(claim.source == "paper" for claim in CLAIMS)
        judged = number["agrees"] + number["differs"]
        return (
            f"Of {plural(papers, 'claim')} of the paper and {plural(len(CLAIMS) - papers, 'number')} of its authors' "
            f"files, {judged} can be judged on this model: {number['agrees']} agree and {number['differs']} differ."
        )

    def summarize_comparison(self, by_label: ByLabel) -> str:
        clauses = []
        for label, tables in by_label.items():
            verdicts = tables["paper_claims"]["verdict"]
            clauses.append(f"{(verdicts == 'agrees').sum()} of {(verdicts != 'not applicable').sum()} in {label}")
        return f"Claims of the paper that agree, of those that can be judged: {listed(clauses)}."

    def views(self, tables: Frames) -> Sequence[View]:
        """The judged claims, those that differ first, and why the others do not apply."""
        claims = tables["paper_claims"]
        applicable = claims.filter(pl.col("verdict") != "not applicable").sort(
            "verdict", descending=True, maintain_order=True
        )
        claim, paper = pl.col("claim").str.split(":").list.first(), pl.col("paper")
        cut = pl.concat_str(claim.str.slice(0, LONGEST_CLAIM - 1).str.strip_chars_end(), pl.lit("…"))
        short = applicable.select(
            pl.when(claim.str.len_chars() > LONGEST_CLAIM).then(cut).otherwise(claim).alias("claim"),
            "verdict",
            "found",
            "where",
            pl.when(source="paper").then(paper).otherwise(paper + " (authors' files)").alias("paper"),
            "why",
        )
        others = (
            claims.filter(verdict="not applicable").group_by("why", maintain_order=True).agg(pl.len().alias("claims"))
        )
        views = [View(PAPER_CLAIMS.question, short)]
        return [*views, View("claims that can't be judged here", others)] if len(others) else views

    def page_views(self, tables: Frames) -> Sequence[View]:
        """All claims, and Table 1 where the model has its tokens."""
        shown = tables["paper_claims"].select("where", "claim", "paper", "found", "verdict", "why", "source")
        ranks = [self.view(tables, "paper_ranks")] if "paper_ranks" in tables else []
        return [View(PAPER_CLAIMS.question, shown), *ranks]
