"""Count text files, or files of token ids: plan, count shards, merge, write. An interrupted run can be resumed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from detoklens.corpus.counts import Counts
from detoklens.corpus.counts_folder import (
    BIGRAMS,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    TOKENS,
    WHEN_FULL,
    JsonObject,
    OutputFolder,
    file_hash,
    json_text,
    open_output,
)
from detoklens.corpus.documents import (
    Shard,
    cut_into_shards,
    default_memory,
    group_pieces,
    sample_texts,
    shard_size,
    share_of,
)
from detoklens.corpus.encoding import COST, TOKENIZERS, choose_library
from detoklens.corpus.inputs import InputFile, describe, find_inputs
from detoklens.corpus.pairs import add_parts, row_groups, write_bigrams, write_tokens
from detoklens.corpus.reading import ReadingOptions, Tally, longest_document
from detoklens.corpus.tasks import CountTask, ImportTask, MergeTask, MergeTree, Node, ShardTask, Task, perform
from detoklens.corpus.token_files import ACCEPTED, PAIRS, RAW_TYPES, ImportOptions, pieces_of, recognize
from detoklens.engines import Engine, open_engine
from detoklens.errors import CorpusError
from detoklens.tokens import Vocabulary
from detoklens.writing import write_whole

Item = TypeVar("Item")
END = object()

DEFAULT_BATCH = 8 << 20
GROUPS_AHEAD = 2
"""Merged row groups that may wait to be written: 12 MB each, or 16."""


@dataclass
class Progress:
    """Progress of a run: approximate bytes of text done in this run and before it, and in total."""

    total_size: int = 0
    finished_before: int = 0
    finished: int = 0
    tally: Tally = field(default_factory=Tally)
    stage: str = "counting"
    notes: list[str] = field(default_factory=list)


CountWatcher = Callable[[Progress], None]


def count_corpus(
    inputs: Sequence[str | Path],
    vocabulary: Vocabulary,
    out: Path | str,
    *,
    reading: ReadingOptions | None = None,
    limit_documents: int | None = None,
    parse_special_tokens: bool = False,
    memory: int | None = None,
    batch: int = DEFAULT_BATCH,
    engine: Engine | None = None,
    watch: CountWatcher | None = None,
) -> Counts:
    """Count the tokens and bigrams of texts into the folder `out`; a run that was interrupted is continued.

    Bigrams are counted inside a document. No special token is added, and the text of one counts as text unless
    `parse_special_tokens`. The files are the same byte for byte for any engine, number of workers, memory and batch.
    """
    reading = reading or ReadingOptions()
    out = Path(os.path.abspath(out))
    files = find_inputs(inputs, apart_from=out)
    what = {"limit_documents": limit_documents, "parse_special_tokens": parse_special_tokens}
    plan = _plan(files, vocabulary, asdict(reading) | what, TOKENIZERS)
    with open_output(out) as output, nullcontext(engine) if engine else open_engine() as running:
        output.check_plan(plan)
        if not output.is_complete:
            share = share_of(memory or default_memory(), running.workers)
            shards, longest = cut_into_shards(files, reading, limit_documents), longest_document(share)
            run = CountingRun(output, vocabulary, shards, running, watch)
            sample = sample_texts(shards, reading, longest)
            library, reason, speed = choose_library(vocabulary, sample, parse_special_tokens)
            if library == TOKENIZERS:
                run.note_cost(reason, speed)
            package = library.split(" ")[0]
            plan |= {
                "tokenized_with": library,
                "not_gigatoken_because": reason,
                "tokenizing_takes": COST if library == TOKENIZERS else None,
                "versions": plan["versions"] | {package: version(package)},
            }
            output.check_plan(plan)
            task = partial(
                CountTask,
                vocabulary_size=vocabulary.size,
                memory=share,
                tokenizer=output.tokenizer,
                library=library,
                parse_special_tokens=parse_special_tokens,
                reading=reading,
                batch=min(batch, longest),
            )
            run.complete(plan, task)
    return Counts.open(out)


def _plan(inputs: Iterable[InputFile], vocabulary: Vocabulary, options: dict[str, Any], *libraries: str) -> JsonObject:
    """Everything that determines the counts except the tokenizer library, which is chosen from the input."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "inputs": [file.pin() for file in inputs],
        "tokenizer": {"fingerprint": vocabulary.fingerprint, "vocabulary_size": vocabulary.size},
        "options": options,
        "versions": {name: version(name) for name in ("detoklens", "numpy", "pyarrow", *libraries)},
    }


def import_counts(
    files: str | Path | Sequence[str | Path],
    vocabulary: Vocabulary,
    out: Path | str,
    *,
    ids_field: str = "input_ids",
    dtype: str | None = None,
    separator: int | None = None,
    packed: bool = False,
    memory: int | None = None,
    engine: Engine | None = None,
    watch: CountWatcher | None = None,
) -> Counts:
    """Make counts from published token ids or bigram counts; an interrupted run is continued.

    The counts are those of ``detoklens count`` on the same documents, in the same files. The manifest's ``source`` says
    what they were made from, and whether bigrams may cross documents.

    Parameters
    ----------
    files
        Files, folders, globs or a hub dataset: a .parquet of id0, id1, count; a .parquet or .arrow with a column of
        token ids; .npy or .bin files of token ids; Megatron's .bin with its .idx; infini-gram's tokenized.*.
    vocabulary
        The tokenizer that the ids come from. Only their range can be checked.
    out
        Output folder.
    ids_field
        Column of token ids.
    dtype
        Type of the ids in files without a header: uint16 or uint32.
    separator
        Token id between documents. It is not counted, nor are bigrams with it.
    packed
        Whether a row holds several documents, so that bigrams may cross documents.
    memory
        Bytes for all workers together. Default: a quarter of the machine's memory.
    engine
        Where the work runs. Default: all cores of this machine.
    watch
        Called with the progress of the run.

    Returns
    -------
    Counts
        The counts in `out`.

    Raises
    ------
    CorpusError, OutputError
        A file can't be read, or `out` contains other files.

    Examples
    --------
    >>> import detoklens as dl
    >>> vocabulary = dl.load_vocabulary("gpt2")  # doctest: +SKIP
    >>> dl.import_counts("tokens.npy", vocabulary, "counts", separator=50256)  # doctest: +SKIP
    """
    if dtype not in (None, *RAW_TYPES):
        raise CorpusError(f"dtype {dtype!r} is not supported; pass {' or '.join(RAW_TYPES)}")
    options = ImportOptions(ids_field, dtype, separator, packed)
    out = Path(os.path.abspath(out))
    inputs = find_inputs([files] if isinstance(files, str | Path) else files, apart_from=out, accepted=ACCEPTED)
    token_files = [recognize(file, options, vocabulary.size) for file in inputs]
    kinds = sorted({file.kind for file in token_files})
    if len(kinds) > 1:
        raise CorpusError(
            f"the input has files of several kinds ({', '.join(kinds)}); import each kind into its own folder"
        )
    bounds = [describe(file.bounds, file.bounds) for file in token_files if file.bounds is not None]
    crosses = (packed and separator is None) or any(file.pairs_may_cross for file in token_files)
    plan = _plan([*inputs, *bounds], vocabulary, asdict(options)) | {
        "source": {
            "kind": kinds[0],
            "pairs_may_cross_documents": crosses,
            "token_counts": "as the second token of a bigram" if kinds == [PAIRS] else "all tokens",
        }
    }
    target = shard_size(sum(file.size for file in inputs))
    shards = list(group_pieces((piece for file in token_files for piece in pieces_of(file, target)), target))
    with open_output(out) as output, nullcontext(engine) if engine else open_engine() as running:
        output.check_plan(plan)
        if not output.is_complete:
            share = share_of(memory or default_memory(), running.workers)
            task = partial(ImportTask, vocabulary_size=vocabulary.size, memory=share)
            CountingRun(output, vocabulary, shards, running, watch).complete(plan, task)
    return Counts.open(out)


@dataclass
class CountingRun:
    """One run: counts shards into parts, merges them, and writes the counts."""

    output: OutputFolder
    vocabulary: Vocabulary
    shards: Sequence[Shard[Any]]
    engine: Engine
    watch: CountWatcher | None

    def __post_init__(self) -> None:
        self.progress = Progress(total_size=sum(shard.size for shard in self.shards))

    def note_cost(self, reason: str | None, speed: float | None) -> None:
        """Note why the slow library is used, and how long it takes."""
        note = f"tokenizing with tokenizers, which takes {COST}: {reason}"
        if speed:
            minutes = self.progress.total_size / speed / self.engine.workers / 60
            time = f"about {minutes:,.0f} minutes" if minutes >= 1 else "less than a minute"
            note += f" (here {speed / 1e6:.1f} MB/s on a core: {time} for this input)"
        self.progress.notes.append(note)

    def complete(self, plan: JsonObject, make_task: Callable[..., ShardTask]) -> None:
        """Count what is missing and write the counts, the manifest last."""
        self.output.save_plan(plan, self.vocabulary.to_json())
        tree = MergeTree(len(self.shards), self.output.parts)
        self._make_parts(tree, make_task)
        runs, tokens, tally = add_parts(tree.top())
        if tally.tokens == 0:
            self.output.forget_parts()
            raise CorpusError(f"the input has no tokens ({tally.documents} documents, all empty); nothing was written")
        self.progress.stage = "writing"
        self._report()
        folder = self.output.folder
        groups = row_groups(runs)
        if self.engine.workers > 1:
            groups = prefetch(groups, GROUPS_AHEAD)
        distinct, bigrams = write_bigrams(folder / BIGRAMS, groups, self.vocabulary.size)
        tally.check_sums(folder, int(tokens.sum()), bigrams)
        write_tokens(folder / TOKENS, tokens, self.vocabulary.texts())
        totals = vars(tally) | {"bigrams": bigrams, "distinct_bigrams": distinct}
        files = {name: file_hash(folder / name) for name in (BIGRAMS, TOKENS)}
        manifest = json_text(plan | {"totals": totals, "files": files})
        write_whole(folder / MANIFEST, manifest.encode(), WHEN_FULL)

    def _make_parts(self, tree: MergeTree, make_task: Callable[..., ShardTask]) -> None:
        total = self.progress.total_size
        left = sum(self.shards[node.index].size for node in tree.ready if node.level == 0)
        self.progress.finished_before = total - left
        if left < total:
            self.progress.notes.append(
                f"resuming: {(total - left) / 1e6:,.1f} of {total / 1e6:,.1f} MB were counted before"
            )
        self._report()

        def task_of(node: Node) -> Task:
            if node.level > 0:
                return MergeTask(node, tuple(tree.children(node)), tree.path(node), self.vocabulary.size)
            return make_task(shard=self.shards[node.index], target=tree.path(node))

        while tree.ready:  # again where the last shards were being counted when no merge was possible yet
            for task, tally in self.engine.run(perform, map(task_of, tree.take())):
                if isinstance(task, ShardTask):
                    self.progress.finished += task.shard.size
                    self.progress.tally.add(tally)
                    self._report()
                tree.mark_done(task.node)

    def _report(self) -> None:
        if self.watch:
            self.watch(self.progress)


def prefetch(items: Iterable[Item], size: int) -> Iterator[Item]:
    """Yield the same items in the same order, computed in a thread up to `size` items ahead.

    This helps where producing and consuming an item both release the GIL, as compiled loops and file writers do.
    """
    source = iter(items)
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, source, END) for _ in range(size))
        while (item := waiting.popleft().result()) is not END:
            waiting.append(thread.submit(next, source, END))
            yield item  # type: ignore[misc]
