"""Count text files: plan, count shards, merge, write. An interrupted run can be resumed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from detoklens.corpus.counts import Counts
from detoklens.corpus.encoding import COST, Choice, choose_library
from detoklens.corpus.inputs import find_inputs
from detoklens.corpus.manifest import (
    BIGRAMS,
    MANIFEST,
    TOKENS,
    JsonObject,
    file_hash,
    json_text,
    make_plan,
    with_library,
)
from detoklens.corpus.memory import default_memory, share_of
from detoklens.corpus.merging import MergeTree, Node
from detoklens.corpus.output import OutputFolder, open_output, row_groups, write_bigrams, write_text, write_tokens
from detoklens.corpus.parts import Part, merged_blocks, sum_of_tallies, sum_of_tokens
from detoklens.corpus.records import ReadingOptions, Tally
from detoklens.corpus.shards import Shard, cut_into_shards, sample_texts
from detoklens.corpus.tasks import CountTask, Done, MergeTask, longest_document, perform
from detoklens.engines import Engine, open_engine
from detoklens.errors import CorpusError
from detoklens.tokens import Vocabulary

Item = TypeVar("Item")
END = object()

DEFAULT_BATCH = 8 << 20
GROUPS_AHEAD = 2
"""Merged row groups that may wait to be written: 12 MB each, or 16."""


@dataclass(frozen=True)
class CountingOptions:
    """What is counted (the first three) and how the work is done, which changes no byte of the result."""

    reading: ReadingOptions = field(default_factory=ReadingOptions)
    limit_documents: int | None = None
    parse_special_tokens: bool = False
    memory: int | None = None
    batch: int = DEFAULT_BATCH


@dataclass
class Progress:
    """How far a run is: bytes of text (about) done in this run and before it, of all."""

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
    options: CountingOptions | None = None,
    engine: Engine | None = None,
    watch: CountWatcher | None = None,
) -> Counts:
    """Count the tokens and bigrams of texts into the folder `out`; a run that was interrupted is continued.

    Bigrams are counted inside a document. No special token is added, and the text of one counts as text unless
    `parse_special_tokens`. The files are the same byte for byte for any engine, number of workers, memory and batch.
    """
    options = options or CountingOptions()
    out = Path(os.path.abspath(out))
    files = find_inputs(inputs, apart_from=out)
    plan = make_plan(files, vocabulary, options.reading, options.limit_documents, options.parse_special_tokens)
    with open_output(out) as output:
        output.check_plan(plan)
        if not output.is_complete:
            with nullcontext(engine) if engine else open_engine() as running:
                shards = cut_into_shards(files, options.reading, options.limit_documents)
                _Run(output, vocabulary, options, shards, running, watch or _unwatched).complete(plan)
    return Counts.open(out)


def _unwatched(progress: Progress) -> None:
    """Nobody looks."""


class _Run:
    """One run of the counting: what its steps share."""

    def __init__(
        self,
        output: OutputFolder,
        vocabulary: Vocabulary,
        options: CountingOptions,
        shards: list[Shard],
        engine: Engine,
        watch: CountWatcher,
    ) -> None:
        self.output, self.vocabulary, self.options = output, vocabulary, options
        self.shards, self.engine, self.watch = shards, engine, watch
        self.memory = share_of(options.memory or default_memory(), engine.workers)
        self.progress = Progress(total_size=sum(shard.size for shard in shards))

    def complete(self, plan: JsonObject) -> None:
        """Count what is not counted yet, and write the artefact."""
        plan = self._settled(plan)
        tree = MergeTree(len(self.shards), self.output.parts)
        self._count(tree)
        parts = [Part(path) for path in tree.top()]
        tally = sum_of_tallies(parts)
        if tally.tokens == 0:
            self.output.forget_parts()
            raise CorpusError(f"the input holds no text ({tally.documents} documents, all empty); nothing was written")
        self.progress.stage = "writing"
        self.watch(self.progress)
        self._write(plan, parts, tally)

    def _settled(self, plan: JsonObject) -> JsonObject:
        """The plan with the tokenizing library, saved where a continued run will look for it."""
        sample = sample_texts(self.shards, self.options.reading, longest_document(self.memory))
        choice = choose_library(self.vocabulary, sample, self.options.parse_special_tokens)
        if choice.reason is not None:
            self.progress.notes.append(self._cost(choice))
        self.library = choice.library
        plan = with_library(plan, choice)
        self.output.check_plan(plan)
        self.output.save_plan(plan, self.vocabulary.to_json())
        return plan

    def _cost(self, choice: Choice) -> str:
        """Why the slow library is used, and what that costs."""
        note = f"tokenizing with tokenizers, which takes {COST}: {choice.reason}"
        if not choice.speed:
            return note
        minutes = self.progress.total_size / choice.speed / self.engine.workers / 60
        time = f"about {minutes:,.0f} minutes" if minutes >= 1 else "less than a minute"
        return f"{note} (here {choice.speed / 1e6:.1f} MB/s on a core: {time} for this input)"

    def _count(self, tree: MergeTree) -> None:
        open_shards = [self.shards[index] for index in tree.open_shards()]
        self.progress.finished_before = self.progress.total_size - sum(shard.size for shard in open_shards)
        self.watch(self.progress)
        merges = tree.ready_merges()
        waiting = iter(open_shards)
        while merges or open_shards:
            for done in self.engine.run(perform, self._tasks(tree, waiting, merges)):
                self._take_note(done)
                parent = tree.mark_done(_node_of(done))
                if parent is not None:
                    merges.append(parent)
            open_shards = []

    def _tasks(self, tree: MergeTree, shards: Iterator[Shard], merges: list[Node]) -> Iterator[CountTask | MergeTask]:
        """Merges as soon as they are possible, so that few parts lie about; else the next shard."""
        while True:
            if merges:
                node = merges.pop()
                sources = tuple(tree.path(child) for child in tree.children(node))
                yield MergeTask(node, sources, tree.path(node), self.vocabulary.size)
            elif (shard := next(shards, None)) is not None:
                yield self._count_task(shard, tree.path(Node(0, shard.index)))
            else:
                return

    def _count_task(self, shard: Shard, target: Path) -> CountTask:
        return CountTask(
            shard=shard,
            target=target,
            tokenizer=self.output.tokenizer,
            library=self.library,
            parse_special_tokens=self.options.parse_special_tokens,
            vocabulary_size=self.vocabulary.size,
            reading=self.options.reading,
            batch=min(self.options.batch, longest_document(self.memory)),
            memory=self.memory,
        )

    def _take_note(self, done: Done) -> None:
        if isinstance(done.task, CountTask):
            self.progress.finished += done.task.shard.size
            self.progress.tally.add(done.tally)
            self.watch(self.progress)

    def _write(self, plan: JsonObject, parts: list[Part], tally: Tally) -> None:
        """The manifest comes last: where it is, all is."""
        folder = self.output.folder
        size = self.vocabulary.size
        groups = row_groups(merged_blocks(parts))
        if self.engine.workers > 1:
            groups = prefetch(groups, GROUPS_AHEAD)
        distinct, bigrams = write_bigrams(folder / BIGRAMS, groups, size)
        tokens = sum_of_tokens(parts)
        tally.check_sums(folder, int(tokens.sum()), bigrams)
        write_tokens(folder / TOKENS, tokens, self.vocabulary.texts())
        totals = tally.as_dict() | {"bigrams": bigrams, "distinct_bigrams": distinct}
        files = {name: file_hash(folder / name) for name in (BIGRAMS, TOKENS)}
        write_text(folder / MANIFEST, json_text(plan | {"totals": totals, "files": files}))


def _node_of(done: Done) -> Node:
    return Node(0, done.task.shard.index) if isinstance(done.task, CountTask) else done.task.node


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
