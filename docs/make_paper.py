"""Write the generated parts of reproducing-the-paper.md: `python docs/make_paper.py FOLDER`.

FOLDER has GPT-2 small's position table, first attention layer and token norms, but no token embeddings. Claims that
need no token's direction are judged on it, with random directions of the real norms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from detoklens.questions.attention import Attention
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.contributions import Contributions
from detoklens.questions.frequency import Frequency
from detoklens.questions.heatmap import Heatmap
from detoklens.questions.paper.claims import CLAIMS, interval, judged, shown, span
from detoklens.questions.partners import Partners
from detoklens.questions.positions.question import Positions
from detoklens.questions.shape import Shape
from detoklens.questions.study import Study, study
from detoklens.questions.variance import Variance
from detoklens.questions.words import Words
from detoklens.wording import head_name, listed

PAGE = Path(__file__).parent / "reproducing-the-paper.md"
SHOWN = {"agrees": "agrees", "differs": "**differs**", "not applicable": "–"}
SINK_QUERIES = (1, 10, 50, 200, 500, 1000)


def _median_rank(demo: Study) -> str:
    row = demo.ask(Words()).tables["words_by_head"].filter(head=1).row(0, named=True)
    return (
        f"needs GPT-2's tokens; L0H1's median rank over {row['pairs']:,} pairs: top {100 * row['median_share']:.1f} %"
    )


def _partners(demo: Study) -> str:
    keys = demo.ask(Partners(["ing"])).tables["partners"].filter(head=1).sort("rank")["key_token"][:3]
    return f"the top three for `ing` in L0H1 are {', '.join(f'`{key}`' for key in keys)}"


def _heatmap(demo: Study) -> str:
    row = demo.ask(Heatmap()).tables["heatmap_by_head"].filter(head=1, layer_norm=True)
    both = row.select("minimum", "maximum").to_numpy()
    return f"{interval(both)} in L0H1; {'a' if row['self_match'][0] >= 2 else 'no'} diagonal"


def _roc(demo: Study) -> str:
    tokens = [demo.layer.token_id("ing")]
    auroc = demo.ask(Auroc(tokens=tokens, heads=[1], controls=False)).tables["auroc_by_token"]["auroc"][0]
    return f"AUROC {auroc:.2f} for `ing` in L0H1"


def _mean_auroc(demo: Study) -> str:
    best = demo.ask(Auroc()).tables["auroc_controls"].sort("auroc", descending=True).row(0, named=True)
    null = max(best["shuffled_queries"], best["permuted_keys"])
    return f"highest in {head_name(best['head'])}: {best['auroc']:.3f}, null {null:.3f}"


def _line(demo: Study) -> str:
    shape = demo.ask(Shape()).tables["shape"].unique("head").sort("head")
    r_squared = [f"{value:.2f}" for value in shape.filter("linear")["r_squared"]]
    return f"a line in {len(r_squared)} of {len(shape)} heads (R² {', '.join(r_squared)})"


def _wave(demo: Study) -> str:
    rows = demo.ask(Shape()).tables["shape"]
    assert not rows["sinusoidal"].fill_null(False).any()
    row = rows.filter(head=1, query_position=125).row(0, named=True)
    return (
        f"no detectable wave: in L0H1, a wave with a period of {row['period']:.0f} positions explains "
        f"{100 * row['wave_share']:.0f} % of it, from position 125"
    )


def _sum(demo: Study) -> str:
    rows = demo.ask(Positions()).tables["positions"].filter(quantity="p+pp", layer_norm=True, head=1)
    return f"{interval(rows.filter(query_position=125)['mean'].to_numpy())} in L0H1, from position 125"


def _softmax(demo: Study) -> str:
    near = demo.ask(Shape()).tables["shape"].filter(head=1, query_position=250)["last_5"][0]
    return f"{100 * near:.0f} % on the last five tokens in L0H1, from position 250"


def _text(demo: Study) -> str:
    by_head = demo.ask(Attention()).tables["attention_agreement"].group_by("head").mean()
    others = by_head.filter(pl.col("head") != 1)["total_variation"]
    one = by_head.filter(head=1)["total_variation"][0]
    return f"total variation {one:.2f} in L0H1, {span(others)} in the others, mean over query positions"


def _terms(demo: Study) -> str:
    kl = dict(
        demo.ask(Contributions(prepend_bos=True)).tables["contributions_by_head"].filter(head=1)["term", "kl"].rows()
    )
    largest = sorted(kl, key=lambda term: -kl[term])[:3]
    return f"largest in L0H1: {', '.join(f'{term} {kl[term]:.2f}' for term in largest)} nats"


def _assertion(demo: Study) -> str:
    found = demo.ask(Frequency()).tables["frequency_by_head"].sort("head")["spearman"]
    return f"{shown(found[1])} in L0H1, {span(found)} across heads"


def _tokens(demo: Study, column: str, digits: int = 2) -> str:
    return shown(demo.ask(Frequency()).tables["embedding_variance"][column][0], digits)


def _variance(demo: Study) -> str:
    found = demo.ask(Variance()).tables["position_variance"]
    ratio = found["variance"][0] / found["variance"].median()
    assert not found["outlier"][-1] or found["variance"][-1] > found["variance"].median()
    return f"position 0: {ratio:.0f} times the median; the last position is not small"


def _switch(demo: Study) -> str:
    found = demo.ask(Variance()).tables["switch"].sort("head")
    heads = found.filter((pl.col("first_without_norm") < 0) & (pl.col("jump") > 0))["head"]
    return f"in {listed([head_name(head) for head in heads])}"


def _last(demo: Study) -> str:
    return "undertrained" if demo.ask(Variance()).tables["undertrained"]["undertrained"].any() else "not undertrained"


# figure or table, what it shows, command, the paper's number for GPT-2 small, ours for the demo
SAME = "the same command"
TEXT = "--text 'openwebtext/*.parquet'"
Row = tuple[str, str, str, str, Callable[[Study], str]]
# fmt: off
FIGURES: tuple[Row, ...] = (
    ("Fig. 1", "overview", f"`detoklens report gpt2 --counts counts {TEXT} --out gpt2-report`", "no number",
        lambda _demo: "no number"),
    ("Fig. 2A, Table 1", "partners by Tᵉᵉ", "`detoklens paper gpt2 --by rank`", "34 ranks, listed next to ours",
        _median_rank),
    ("Fig. 2A", "partners of one token", '`detoklens partners gpt2 iens " Jackson"`',
        "the top two for `iens` in L0H7 are ` sap` and `Al`", _partners),
    ("Fig. 2B, appendix", "Tᵉᵉ heatmaps, with and without LN", "`detoklens heatmap gpt2`",
        "range (−47, 127) with a diagonal in L0H1, (−35, 31) in L0H7; randomly sampled tokens", _heatmap),
    ("Fig. 2C", "ROC of one query token", "`detoklens auroc gpt2 --counts counts --roc iens`", "a curve", _roc),
    ("Fig. 2D", "mean AUROC per head", "`detoklens auroc gpt2 --counts counts`",
        "highest in L0H7; column `all` is the published code's mean", _mean_auroc),
    ("Fig. 3A, appendix", "Tᵖ", "`detoklens positions gpt2`", "a rising line in nearly every head", _line),
    ("Fig. 3B, appendix", "Tᵖᵖ at 50, 500, 1000", "`detoklens positions gpt2 --query-positions 50,500,1000`", "waves",
        _wave),
    ("Fig. 3C", "Tᵖ + Tᵖᵖ", SAME, "high on nearby tokens", _sum),
    ("Fig. 3D, appendix", "softmax of the sum", SAME, "mass on nearby tokens", _softmax),
    ("Fig. 3, in numbers", "linearity, periodicity, locality", "`detoklens shape gpt2`", "not given",
        lambda _demo: "the rows of Figures 3A, B and D"),
    ("Fig. 3E", "attention on text at 500", f"`detoklens attention gpt2 {TEXT} --query-positions 500`",
        "L0H7 agrees with position alone, L0H1 attends to itself", _text),
    ("Fig. 4, eqs 12 to 15, appendix", "contributions of the six terms",
        f"`detoklens contributions gpt2 {TEXT} --prepend-bos`", "ee, p and pp are largest, e is fourth", _terms),
    ("Fig. 5, appendix", "Tᵉ against frequency", "`detoklens frequency gpt2 --counts counts`",
        "Spearman −0.68 in L0H7, −0.31 in L0H1", _assertion),
    ("Fig. 6 left", "Var(e) against frequency", "`detoklens frequency gpt2 --counts counts --by model`",
        "Spearman −0.63", lambda demo: _tokens(demo, "spearman")),
    ("§ 6.3", "variance of the norms, before and after division", SAME, "0.19, 0.00",
        lambda demo: f"{_tokens(demo, 'norm_variance', 3)}, {_tokens(demo, 'divided_norm_variance', 3)}"),
    ("§ 6.3, footnote", "mean Var(e) over mean abs. Cov(e, p)", SAME, "46",
        lambda demo: _tokens(demo, "variance_to_covariance", 0)),
    ("Fig. 6 right", "variance of all, the first ten and the last ten position embeddings", "`detoklens variance gpt2`",
        "position 0 exceptionally large, the last exceptionally small", _variance),
    ("§ 6.4", "position 0 as a switch", SAME, "a large σ turns a negative score into a high one", _switch),
    ("Fig. 7", "the undertrained last position", SAME, "Tᵖᵖ without LN is flat at 1023", _last),
)
# fmt: on


def figures_table(demo: Study) -> str:
    """One row per figure and table: its command, the paper's number and ours for the demo."""
    rows = [(*row[:-1], row[-1](demo)) for row in FIGURES]
    return _table(("paper", "what", "command", "paper's number for GPT-2 small", "ours for `demo`"), rows)


def claims_table(demo: Study, gpt2: Study) -> str:
    """One row per claim: what the paper says, and what each model shows."""
    of_gpt2 = [claim for claim in CLAIMS if claim.tokens != "directions"]
    found = dict(zip(of_gpt2, judged(gpt2, of_gpt2).iter_rows(named=True), strict=True))
    rows = []
    for claim, row in zip(CLAIMS, judged(demo).iter_rows(named=True), strict=True):
        given = claim.says + (" (authors' files)" if claim.source != "paper" else "")
        real = _found(found[claim], "≈ " * (claim.tokens == "norms")) if claim in found else "needs its tokens"
        rows.append((claim.where, claim.text, given, _found(row), real, f"`{claim.command}`"))
    return _table(("where", "claim", "source says", "`demo`", "GPT-2 small", "question"), rows)


def sink_table(gpt2: Study) -> str:
    """Attention on position 0 by position alone: with its own σ, and with its neighbours' in parentheses."""
    reach = gpt2.ask(Shape()).tables["reach"]
    rows = []
    for head in range(gpt2.layer.n_heads):
        of_head = reach.filter(head=head)
        cells = []
        for query in SINK_QUERIES:
            row = of_head.filter(query_position=query).row(0, named=True)
            cells.append(f"{row['on_first']:.3f} ({row['on_first_usual_scale']:.3f})")
        rows.append((head_name(head), *cells))
    return _table(("head", *(f"from {query}" for query in SINK_QUERIES)), rows)


def _found(row: dict[str, str | None], about: str = "") -> str:
    parts = [row["found"], row["why"] if row["verdict"] == "differs" else None]
    said = "; ".join(part for part in parts if part)
    verdict = SHOWN[str(row["verdict"])]
    return f"{verdict}: {about}{said}" if said else verdict


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def with_tables(page: str, tables: dict[str, str]) -> str:
    """The page with each table between its two comments."""
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        page = page.split(begin)[0] + begin + "\n" + table + "\n" + end + page.split(end)[1]
    return page


def tables(demo: Study, gpt2: Study) -> dict[str, str]:
    return {"figures": figures_table(demo), "claims": claims_table(demo, gpt2), "sink": sink_table(gpt2)}


if __name__ == "__main__":
    sys.path.insert(0, str(PAGE.parent.parent))
    from tests.gpt2_stand_in import VOCABULARY, gpt2_positions

    gpt2 = Study(gpt2_positions(Path(sys.argv[1]), VOCABULARY))
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), tables(study("demo"), gpt2)), encoding="utf-8")
