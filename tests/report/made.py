"""Small reports to look at: a model that spells, one whose vocabulary is hostile, and the folders they live in."""

from __future__ import annotations

import json
from pathlib import Path

from tests.command_line import run
from tests.layers import random_first_layer, write_gpt2
from tests.spelled import LINES

HOSTILE = [
    "</script><script>window.injected = 1</script>",
    '<img src=x onerror="window.injected = 2">',
    "</template><script>window.injected = 3</script>",
    "</style><svg onload=window.injected=4>",
    "\"'><b>bold</b>",
    "' onmouseover='window.injected=5",
    "]]>",
    "-->",
    "<!--",
    "{{ 7 * 7 }}{% raw %}",
    "\u202eright to left\u2066",
    "\u0000\u0007\u001b[31m",
    "&lt;script&gt;&amp;",
    "\\u003cscript\\u003e",
    "ing",
    "ion",
    " the",
]


def write_hostile(folder: Path) -> Path:
    """A byte-level tokenizer of every byte and the hostile tokens, and a checkpoint of its size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = [byte_level.pre_tokenize_str(text)[0][0] for text in HOSTILE]
    names = [*pre_tokenizers.ByteLevel.alphabet(), *spelled]
    tokenizer = Tokenizer(models.BPE({name: number for number, name in enumerate(sorted(set(names)))}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    layer = random_first_layer(n_heads=2, d_head=3, vocab_size=len(set(names)), n_positions=24, dtype="float32")
    return write_gpt2(folder, layer)


def write_texts(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def documents(folder: Path) -> Path:
    """Ten documents of a few words."""
    words = " ".join(LINES).split()
    return write_texts(folder / "documents.jsonl", [" ".join(words[place : place + 14]) for place in range(10)])


def report(model: Path, out: Path, *options: object) -> Path:
    """Make a report in this process."""
    run("report", model, "--out", out, "--workers", "1", *options)
    return out
