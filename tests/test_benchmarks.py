"""Run every benchmark at its smallest size, so that none breaks unnoticed between the rare manual runs."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import zstandard

from detoklens.corpus.encoding import choose_library
from detoklens.loading import load_vocabulary
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.base import ReportEntry
from detoklens.questions.heads.question import Heads
from detoklens.tokens import Vocabulary
from tests.weights.families.tiny import tiny
from tests.weights.gguf_files import QUANTISED, write_gguf

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
SMALL = "--vocabulary 300 --heads 2 --d-head 8"
SMALLEST = {
    "anatomy": f"{SMALL} --workers 1",
    "auroc": f"{SMALL} --bigrams 2000 --sklearn-tokens 2 --seconds-of-products 0.05",
    "lookback": f"{SMALL} --documents 2 --workers 1",
    "lexicon": f"{SMALL} --top 20 --baseline-queries 300 --seconds-of-products 0.05",
    "twins": f"{SMALL} --words 40 --threads 2 --seconds-of-products 0.05",
    "explorer": f"{SMALL} --positions 256 --changes 2",
    "layers": "--width 24 --heads 2 --key-heads 1 --mlp 16 --blocks 3 --up-to 2 --triples 30 --workers 1",
    "report": f"{SMALL} --bigrams 500 --documents 8 --length 32 --twice",
}


def run(name: str, *options: str) -> str:
    """What a benchmark prints; it runs in this process, since importing takes longer than the smallest size."""
    script, printed = str(FOLDER / f"{name}.py"), io.StringIO()
    with (
        patch.object(sys, "argv", [script, *options]),
        patch.object(sys, "path", [str(FOLDER), *sys.path]),
        contextlib.redirect_stdout(printed),
    ):
        runpy.run_path(script, run_name="__main__")
    return printed.getvalue()


@pytest.mark.parametrize("name", ["auroc", "lexicon", "twins"])
def test_ratios_are_printed_and_agree_with_the_baseline(name):
    found = json.loads(run(name, *SMALLEST[name].split()))
    assert found["times_the_product"] > 0
    (difference,) = [value for what, value in found.items() if what.startswith("largest_difference")]
    assert difference < 1e-5


@pytest.mark.parametrize("name", ["anatomy", "lookback"])
def test_heads_are_compared_with_projecting_the_vocabulary(name):
    found = json.loads(run(name, *SMALLEST[name].split()))
    assert set(found) == {"gpt2", "llama"}
    assert all(each["times_the_projection"] > 0 for each in found.values())


def test_each_pass_of_layers_is_timed():
    found = json.loads(run("layers", *SMALLEST["layers"].split()))
    assert found["steps"]["words with each component ablated"]["passes"] == 2 * 3
    assert found["times_the_product"] > 0


@pytest.mark.usefixtures("only_svg")
def test_each_step_of_a_report_is_timed(monkeypatch):
    two = [ReportEntry(Auroc()), ReportEntry(Heads())]
    monkeypatch.setattr("detoklens.report.folder.report_entries", lambda study, layers=None: two)
    printed = run("report", *SMALLEST["report"].split())
    assert re.search(r"CPU s.*times the products.* GB  auroc\n", printed)
    assert "page and figures take" in printed


def test_the_explorers_page_is_measured(browser):
    script = [sys.executable, FOLDER / "explorer.py", *SMALLEST["explorer"].split()]  # it has a browser of its own
    done = subprocess.run(script, capture_output=True, text=True)  # a busy machine may exceed a limit of time
    found = json.loads(done.stdout)
    assert (done.returncode, "above the limit" in done.stderr) in ((0, False), (1, True)), done.stderr
    assert found["token_change_milliseconds"] > 0
    assert 0 < found["first_view_megabytes"] < found["bundle_megabytes"]
    assert found["tab_megabytes_must_be_below"] == 300


def test_counting_is_compared_with_the_published_way(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    counting = importlib.import_module("counting")
    count, counted = counting.count, {}

    def count_once(shards, tokenizer, folder, workers, cores):
        if workers not in counted:
            counted[workers] = count(shards, tokenizer, folder, workers, cores)
        return counted[workers]

    monkeypatch.setattr(counting, "count", count_once)
    lines = b"\n".join(json.dumps({"text": f"word {n} of the text"}).encode() for n in range(50))
    (tmp_path / "shard.jsonl.zst").write_bytes(zstandard.compress(lines))
    (tmp_path / "demo.json.zst").write_bytes(zstandard.compress(load_vocabulary("demo").to_json().encode()))
    options = ["--tokenizer", "demo", "--copies", "2", "--tokenizers", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["counting.py", str(tmp_path), *options])
    counting.main()
    printed = capsys.readouterr().out
    assert "published relative to ours:" in printed
    assert "two workers" in printed
    assert re.search(r"  demo +gigatoken: .* times; ids equal", printed)
    refused = dict(counting.refused_tokenizers("demo", ["some words of a text", "and others"] * 5))
    assert refused.keys() == {"BLOOM's regex", "StarCoder's", "Falcon's", "Unigram"}
    for tokenizer_json in refused.values():
        assert choose_library(Vocabulary.from_json(tokenizer_json), [], False).library == "tokenizers word by word"


def test_the_memory_of_a_large_model_is_measured():
    sizes = "--vocabulary 300 --width 64 --heads 4 --key-heads 2 --inner 96 --layers 3 --bigrams 2000 --queries 20"
    printed = run("large_model", *sizes.split(), "--workers", "1")
    assert re.search(r"partners of one head: 0\.\d+ GB peak", printed)
    assert re.search(r"auroc of one head: 0\.\d+ GB peak", printed)


def test_partners_of_a_gguf_file_are_compared_with_dequantising_it(tmp_path):
    model = tiny("llama", hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40)
    path = write_gguf(tmp_path / "m.gguf", model, "llama", {"token_embd.weight": QUANTISED.Q8_0})
    found = json.loads(run("quantised", str(path)))
    assert found["times_dequantising"] > 0


def test_the_coverage_of_intervals_is_counted():
    found = json.loads(run("auroc_coverage", "--vocabularies", "2"))
    assert all(0 <= counted["this_vocabulary"] <= counted["of"] == 2 for counted in found.values())


def test_hops_are_counted():
    printed = run("hops", "shape", "demo", "--heads", "1")
    assert re.fullmatch(r"shape demo --heads 1: \d\d+ functions in \d+ modules, \d+ package changes\n", printed)


def test_the_one_of_fixed_size_has_all_that_it_imports():
    others = {path.stem for path in FOLDER.glob("*.py")} - {*SMALLEST, "counting", "large_model", "quantised"}
    assert others == {"auroc_coverage", "contributions", "hops"}
    runpy.run_path(str(FOLDER / "contributions.py"))
