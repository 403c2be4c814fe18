"""The tables of the demo's report and of its comparison hold the numbers that they have always held."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import run
from tests.report.contents import differences, of_folder

KEPT = json.loads((Path(__file__).parent.parent / "data" / "tables_of_demo.json").read_text())
# Announced too: a pair that ends in a line feed is no word of the lexicon (is_word, word_share).
# Written anew on purpose: auroc_controls, auroc_pieces_controls and heads, since keys are exchanged anew for each query
# token (permuted_keys, and with it auroc_null and above_null), and intervals and matched negatives stand beside them.
ADDED: dict[str, set[str]] = {
    # tables that came later, whole answers where a report once kept a part of them
    "report": {"auroc_pieces_by_token", "auroc_pieces_precision_by_head", "auroc_pieces_precision_by_token"}
    | {"precision_by_token", "word_pieces", "auroc", "auroc_pieces", "trained_range"}
    | {"twins", "twins_by_condition", "contributions_by_group", "scorecard", "paper_claims"}
    | {"lookback_by_threshold", "lookback_by_token", "lookback_by_position", "lookback_prediction"}
    | {"anatomy_by_head", "lookback_by_head", "lookback_by_term", "lookback_text"},
    "comparison": {"twins_by_condition", "anatomy_by_head", "scorecard"}
    | {"lookback_by_head", "lookback_by_term", "lookback_text"},
}
WITHIN_GROUPS = ["within_class_tokens", "within_cluster_tokens"] + [
    above + name + end
    for name in ("within_class", "within_cluster")
    for above in ("", "above_")
    for end in ("", "_low", "_high")
]
JUDGED = ("auroc", "above_null", "matched", "matched_null", "matched_above_null", "matched_frequency")
ON_CONTINUATION_TOKENS = ["auroc_null", "frequency", *(name + end for name in JUDGED for end in ("", "_low", "_high"))]
ADDED_COLUMNS = {
    "heatmap_by_head": ["same_keys"],
    "heads": ["word_pairs", "rank_lost", "query_tokens", *WITHIN_GROUPS, *ON_CONTINUATION_TOKENS],
    "auroc_controls": WITHIN_GROUPS,
    "auroc_pieces_controls": WITHIN_GROUPS,
    "lexicon_by_head": ["word_null", "seen_null"],
}


@pytest.mark.parametrize("name", ["report", "comparison"])
@pytest.mark.usefixtures("only_svg")
def test_the_tables_hold_what_they_held(name: str, tmp_path: Path) -> None:
    words = {"report": ["report", "demo"], "comparison": ["compare"]}[name]
    run(*words, "--out", tmp_path / "out")
    found = of_folder(tmp_path / "out" / "tables", ADDED_COLUMNS)
    assert set(found) - set(KEPT[name]) == ADDED[name]
    wrong = {table: differences(found[table], kept) for table, kept in KEPT[name].items()}
    assert {table: said for table, said in wrong.items() if said} == {}
