"""Counts from token ids and bigram counts that others have published."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path

from detoklens.corpus.count import CountWatcher, Run
from detoklens.corpus.counts import Counts
from detoklens.corpus.inputs import describe, find_inputs
from detoklens.corpus.manifest import FORMAT, FORMAT_VERSION, JsonObject
from detoklens.corpus.output import open_output
from detoklens.corpus.shards import group_pieces, shard_size
from detoklens.corpus.tasks import ImportTask
from detoklens.corpus.token_files import ACCEPTED, PAIRS, RAW_TYPES, ImportOptions, TokenFile, pieces_of, recognize
from detoklens.engines import Engine, open_engine
from detoklens.errors import CorpusError
from detoklens.tokens import Vocabulary


def import_counts(
    inputs: Sequence[str | Path],
    vocabulary: Vocabulary,
    out: Path | str,
    options: ImportOptions | None = None,
    memory: int | None = None,
    engine: Engine | None = None,
    watch: CountWatcher | None = None,
) -> Counts:
    """Count files of token ids, or add up tables of bigram counts, into the folder `out`.

    The counts are those of `count_corpus` on the same documents, in the same files; the manifest's `source` says what
    they were made from. `vocabulary` must be the tokenizer that the ids come from: only their range can be checked.
    """
    options = options or ImportOptions()
    if options.dtype not in (None, *RAW_TYPES):
        raise CorpusError(f"dtype {options.dtype!r} is not one of {', '.join(RAW_TYPES)}")
    out = Path(os.path.abspath(out))
    files = find_inputs(inputs, apart_from=out, accepted=ACCEPTED)
    found = [recognize(file, options, vocabulary.size) for file in files]
    kinds = sorted({file.kind for file in found})
    if len(kinds) > 1:
        raise CorpusError(
            f"the input has files of several kinds ({', '.join(kinds)}); import each kind into its own folder"
        )
    bounds = [describe(file.bounds, file.bounds) for file in found if file.bounds is not None]
    plan: JsonObject = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "inputs": [file.pin() for file in (*files, *bounds)],
        "tokenizer": {"fingerprint": vocabulary.fingerprint, "vocabulary_size": vocabulary.size},
        "options": asdict(options),
        "versions": {name: version(name) for name in ("detoklens", "numpy", "pyarrow")},
        "source": _describe_source(found, options),
    }
    target = shard_size(sum(file.size for file in files))
    shards = list(group_pieces((piece for file in found for piece in pieces_of(file, target)), target))
    with open_output(out) as output:
        output.check_plan(plan)
        if not output.is_complete:
            with nullcontext(engine) if engine else open_engine() as running:
                run = Run(output, vocabulary, memory, shards, running, watch)
                run.complete(plan, partial(ImportTask, vocabulary_size=vocabulary.size, memory=run.memory))
    return Counts.open(out)


def _describe_source(files: Sequence[TokenFile], options: ImportOptions) -> JsonObject:
    """What a reader of the counts must know of their origin."""
    is_table = files[0].kind == PAIRS
    crosses = options.separator is None and (options.packed or any(file.pairs_may_cross for file in files))
    return {
        "kind": files[0].kind,
        "pairs_may_cross_documents": is_table or crosses,
        "token_counts": "as the second token of a bigram" if is_table else "all tokens",
    }
