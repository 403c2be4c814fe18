"""Whole reports from the command line: what they leave behind, and models and inputs that lack something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.command_line import call, refuse, run
from tests.layers import random_first_layer, write_gpt2
from tests.report.made import report, write_texts
from tests.spelled import LINES, write_spelled

pytestmark = pytest.mark.usefixtures("few_words")


def sections(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_a_report_has_its_tables_figures_and_provenance(whole):
    tables = {path.stem for path in (whole / "tables").glob("*.parquet")}
    assert tables == {path.stem for path in (whole / "tables").glob("*.csv")}
    assert {"heads", "auroc_pieces_controls", "lexicon", "contributions_by_head", "undertrained"} <= tables
    guide = (whole / "tables" / "README.md").read_text(encoding="utf-8")
    assert all(f"## {name}\n" in guide for name in tables)
    drawn = {path.stem.removesuffix(".phone") for path in (whole / "figures").glob("*.svg")}
    for ending in ("pdf", "png"):
        assert {path.stem for path in (whole / "figures").glob(f"*.{ending}")} == drawn
    record = json.loads((whole / "provenance.json").read_text(encoding="utf-8"))
    assert record["finished"] is True
    assert record["command"][:2] == ["detoklens", "report"]
    assert {"numpy", "polars", "python"} <= set(record["versions"])
    assert record["models"][0]["counts_sha256"]
    assert all(step.keys() == {"step", "missing"} for step in record["steps"]), "times would differ between two runs"
    assert not list(whole.rglob("*.partial")) + list(whole.rglob(".*.partial"))


def test_the_commands_on_the_page_run_and_give_the_same_numbers(whole, tmp_path):
    import html
    import re
    import shlex

    commands = [
        html.unescape(each)
        for each in re.findall(r"<pre tabindex=\"0\"><code>(.*?)</code></pre>", sections(whole), re.DOTALL)
    ]
    assert len(commands) >= 10
    compared = set()
    for place, command in enumerate(commands):
        words = shlex.split(command)[1:]
        out = tmp_path / str(place)
        run(*words, "--out", out, *(["--workers", "1"] if words[0] in ("auroc", "lexicon") else []))
        for path in out.glob("*.parquet"):
            name = path.stem.replace("auroc", "auroc_pieces", 1) if "--pieces" in words else path.stem
            if "--pieces" in words and not name.startswith("auroc_pieces"):
                name = f"auroc_pieces_{name}"
            ours = whole / "tables" / f"{name}.parquet"
            if not ours.is_file():
                continue
            mine, theirs = pl.read_parquet(ours), pl.read_parquet(path)
            assert theirs.select(mine.columns).equals(mine), (name, command)
            compared.add(name)
    tables = {path.stem for path in (whole / "tables").glob("*.parquet")}
    assert tables == compared


def test_without_counts_and_text_the_page_says_so_and_the_rest_is_there(spelling, tmp_path, undrawn):
    page = sections(report(spelling, tmp_path / "out"))
    assert "Not answered (no corpus counts): " in page
    assert (
        "Not answered (no text to measure attention on): attention; contributions. Run <code>detoklens report" in page
    )
    assert 'id="figure-position_alone"' in page
    assert 'id="figure-auroc"' not in page
    assert 'id="figure-partners"' in page


@pytest.mark.parametrize("lacking", ["biases", "heads", "positions", "tokenizer"])
def test_a_model_that_lacks_something_still_has_a_report(lacking, tmp_path, only_svg):
    sizes = {"n_heads": 1} if lacking == "heads" else {"n_positions": 4} if lacking == "positions" else {}
    layer = random_first_layer(**sizes, dtype="float32")
    if lacking == "biases":
        layer = replace(
            layer,
            norm_bias=np.zeros_like(layer.norm_bias),
            **{f"{part}_bias": np.zeros_like(getattr(layer, f"{part}_bias")) for part in ("query", "key", "value")},
        )
    model = write_gpt2(tmp_path / "model", layer)
    page = sections(report(model, tmp_path / "out", "--figure-width", "column"))
    assert page.count('<dt><a href="#') >= 4
    assert 'id="figure-head_cards"' in page


def test_a_corpus_is_counted_once_into_the_report(spelling, tmp_path, undrawn):
    corpus = write_texts(tmp_path / "corpus.jsonl", LINES)
    out = report(spelling, tmp_path / "out", "--corpus", corpus)
    written = (out / "counts" / "manifest.json").stat().st_mtime_ns
    result = run("report", spelling, "--corpus", corpus, "--out", out, "--workers", "1")
    assert (out / "counts" / "manifest.json").stat().st_mtime_ns == written
    assert "kept  auroc\n" in result.stderr
    assert 'id="figure-auroc"' in sections(out)


def test_a_refused_report_writes_nothing(spelling, tmp_path):
    out = tmp_path / "out"
    for options in (
        ["--heads", "9"],
        ["--figure-width", "1"],
        ["--counts", tmp_path],
        ["--counts", "a", "--corpus", "b"],
    ):
        refuse("report", spelling, "--out", out, *options)
        assert not out.exists()
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    assert "is not overwritten" in refuse("report", spelling, "--out", tmp_path)


def test_ctrl_c_ends_with_130_and_the_same_command_continues(spelling, tmp_path, undrawn, monkeypatch):
    from detoklens.report import report as making

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(making, "render_page", interrupted)
        ended = call("report", spelling, "--out", tmp_path / "out", "--workers", "1")
    assert ended.exit_code == 130
    assert ended.stderr.endswith("\nStopped; run the same command to continue.\n")
    assert not (tmp_path / "out" / "report.html").exists()
    assert not list((tmp_path / "out").rglob(".*partial"))
    result = run("report", spelling, "--out", tmp_path / "out", "--workers", "1")
    assert "kept  heads\n" in result.stderr
    assert (tmp_path / "out" / "report.html").is_file()


def test_checkpoints_of_different_sizes_are_compared(spelling, counted, tmp_path, only_svg):
    other = write_spelled(tmp_path / "other", vocab_size=310, n_heads=2, seed=5)
    result = run(
        "compare",
        f"a={spelling}",
        f"</script>={other}",
        "--counts",
        counted,
        "--out",
        tmp_path / "out",
        "--workers",
        "1",
    )
    assert "without counts" in result.stderr
    cards = pl.read_parquet(tmp_path / "out" / "tables" / "heads.parquet")
    assert cards["model"].to_list() == ["a"] * 3 + ["</script>"] * 2
    assert cards.filter(model="</script>")["auroc"].null_count() == 2
    page = sections(tmp_path / "out")
    assert page.count("</script>") == 1
    assert 'id="figure-compare_heads"' in page
    assert "Heads that detokenize" in page
    assert "holds a comparison" in refuse("report", spelling, "--out", tmp_path / "out")


def test_a_comparison_needs_two_models_of_different_labels(spelling, tmp_path):
    assert "at least two" in refuse("compare", spelling, "--out", tmp_path / "out")
    assert "same label" in refuse("compare", f"a={spelling}", f"a={spelling}", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
