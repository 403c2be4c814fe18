"""A model with what is known of text: what questions are asked of."""

from __future__ import annotations

import shlex
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from detoklens import demo
from detoklens.errors import CountsError, MissingError, RangeError, as_path
from detoklens.loading import load
from detoklens.measures.documents import digest
from detoklens.parallel import Runner, available_cores
from detoklens.progress import Watching, shown_steps
from detoklens.questions.answer import Answer, Store
from detoklens.questions.base import Question
from detoklens.questions.parameters import Parameter, check_settings, settings_of, to_cli_args
from detoklens.questions.texts import Texts, read_documents, texts_or_files
from detoklens.scores.layer import Layer
from detoklens.tables.files import Provenance

if TYPE_CHECKING:
    import numpy as np

    from detoklens.corpus.counts import Counts
    from detoklens.explorer.explore import Explorer
    from detoklens.questions.base import Need
    from detoklens.tables.parts import Parts

KEPT = 16  # answers that a study remembers: a question may be built on others


@dataclass(frozen=True)
class Work:
    """How many workers compute at a time."""

    workers: Annotated[int | None, Parameter("Number of threads. Default: one per core.", least=1)] = None

    def __post_init__(self) -> None:
        check_settings(self)


class Study:
    """A model's first layer, corpus counts and documents, as far as they are there; `ask` answers a question of them.

    Nothing is read before a question needs it.
    """

    def __init__(
        self,
        layer: Layer,
        counts: Counts | None = None,
        texts: Texts | None = None,
        seed: int = 0,
        work: Work | None = None,
        model_words: Sequence[str] = (),
    ) -> None:
        if type(seed) is not int or seed < 0:
            raise RangeError(f"the seed is a whole number from 0, not {seed!r}")
        self.layer = layer if counts is None else layer.with_frequencies(counts.tokens)
        self.counts, self.seed = counts, seed
        self.texts, self.work = texts or Texts(), work or Work()
        self.model_words = list(model_words) or [layer.name]
        self.notes: list[str] = list(layer.notes)
        self._said_of_documents: list[str] = []
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._store: Store | None = None
        self._parts: list[Parts] = []
        self._watching: Watching = shown_steps

    def __repr__(self) -> str:
        counts = "no counts" if self.counts is None else f"{int(self.counts.tokens.sum()):,} tokens counted"
        text = "no text" if not self.has("text") else self._text_shown()
        return f"Study of {self.layer!r}: {counts}, {text}, seed {self.seed}"

    def _text_shown(self) -> str:
        if "documents" in self.__dict__:
            return f"{len(self.documents):,} documents"
        if self.texts.given:
            return f"{len(self.texts.given):,} texts"
        named = ", ".join(self.texts.text) or "the demo's own"
        return f"up to {self.texts.documents:,} documents of {named}"

    @cached_property
    def documents(self) -> list[np.ndarray]:
        """Token ids of the sampled documents; an error where there is no text."""
        if not self.has("text"):
            raise MissingError("text", "no text to look at")
        documents = read_documents(self.layer, self.texts, self.seed, self._said_of_documents.append)
        self.notes += self._said_of_documents
        return documents

    @property
    def workers(self) -> int:
        """The number of threads that compute."""
        return self.work.workers or available_cores()

    def has(self, need: Need) -> bool:
        """Whether the study can give what a question needs."""
        return {
            "vocabulary": self.layer.has_vocabulary,
            "counts": self.counts is not None,
            "text": self.texts.exist_for(self.layer),
            "seed": True,
            "position_table": self.layer.positions == "learned",
            "causal": self.layer.is_causal,
        }[need]

    def missing(self, question: Question) -> list[Need]:
        """What of a question's needs the study does not have."""
        return sorted(need for need in question.needs if not self.has(need))

    def heads(self, asked: Sequence[int] | None) -> list[int]:
        """The heads asked for, each once; all of them where None."""
        if asked is None:
            return list(range(self.layer.n_heads))
        if not asked:
            raise RangeError("no head was given; name at least one, such as 0, or leave heads out for all")
        self.layer.check_heads(asked)
        return list(dict.fromkeys(asked))

    def token_ids(self, tokens: Sequence[str | int]) -> list[int]:
        """Tokens given as text or by their ids, as ids."""
        return [self.layer.token_id(token) for token in tokens]

    def ask(
        self, question: Question, folder: str | Path | Store | None = None, watching: Watching | None = None
    ) -> Answer:
        """The answer to a question.

        With a folder it is written there; finished work in it is taken up, so that an interrupted question goes on.
        """
        if not isinstance(question, Question):
            raise RangeError(f"{question!r} is no question; give one such as dl.Auroc(pieces=True)")
        self._check(question)
        provenance = self.provenance(question)
        store, begun = _store(folder), len(self._parts)
        kept = None if store is None else store.find(question, provenance)
        answer = kept or self._answers.get(provenance.to_json())
        if answer is None:
            answer = self._answered(question, provenance, store, watching)
        if store is not None and kept is None:
            store.keep(answer)
            self._finish(begun)
        return self._remembered(answer)

    def _finish(self, begun: int) -> None:
        """The answer is written: what was kept of it, and of what it asked in turn, goes."""
        for parts in self._parts[begun:]:
            parts.remove()
        del self._parts[begun:]

    def _answered(
        self, question: Question, provenance: Provenance, store: Store | None, watching: Watching | None
    ) -> Answer:
        """Compute an answer; what its question asks in turn is kept and watched where it is itself."""
        outer, told = (self._store, self._watching), len(self.notes)
        self._store, self._watching = store or self._store, watching or self._watching
        try:
            parts = None if self._store is None else self._store.parts(provenance)
            self._parts += [] if parts is None else [parts]
            with self._watching(question.progress_label) as watch:
                runner = Runner(self.workers, parts, watch, self.notes.append)
                tables = dict(question.ask(self, runner))
        finally:
            self._store, self._watching = outer
        of_documents = self._said_of_documents if question.depends_on("text") else []
        notes = tuple(dict.fromkeys([*self.layer.notes, *of_documents, *self.notes[told:]]))
        return Answer(question, self.layer.name, tables, provenance, self.command(question), notes)

    def _remembered(self, answer: Answer) -> Answer:
        self._answers[answer.provenance.to_json()] = answer
        while len(self._answers) > KEPT:
            self._answers.popitem(last=False)
        return answer

    def _check(self, question: Question) -> None:
        missing = self.missing(question)
        if missing:
            raise MissingError(missing[0], f"{type(question).__name__} needs {_NEEDED[missing[0]]}")

    def provenance(self, question: Question) -> Provenance:
        """What decides the numbers of a question, and nothing else."""
        options = dict(question.settings(self))
        if self.layer.weights.token_embeddings.dtype != "float32":
            options["dtype"] = str(self.layer.weights.token_embeddings.dtype)
        if self.layer.checkpoint.quantised:
            options.setdefault("dequantised_from", list(self.layer.checkpoint.quantised))  # a question may read more
        if question.depends_on("seed"):
            options["seed"] = self.seed
        if question.depends_on("text") and self.has("text"):
            options["documents_digest"] = digest(self.documents)
        tokenizer = question.depends_on("vocabulary")
        counts = self.counts if question.depends_on("counts") else None
        return Provenance(
            command=question.name(),
            model=self.layer.name,
            model_fingerprint=self.layer.fingerprint,
            tokenizer_fingerprint=self.layer.tokenizer_fingerprint if tokenizer else None,
            counts_fingerprint=None if counts is None else counts.fingerprint,
            options=options,
        )

    def command(self, question: Question) -> str:
        """The command line that gives the same numbers; the Python call where a parameter is not an option."""
        python_only = [setting for setting in settings_of(type(question)) if not setting.parameter.cli]
        if any(getattr(question, setting.name) != setting.default for setting in python_only):
            return f"study.ask(dl.{question!r})  # in Python, on the same study"
        words = ["detoklens", question.name(), *self.model_words, *question.cli_args(self)]
        if question.depends_on("counts") and self.counts is not None and not _is_own(self.counts, self.layer):
            words += ["--counts", str(self.counts.folder or "COUNTS")]
        if question.depends_on("text") and self.has("text"):
            words += to_cli_args(self.texts.in_a_file())
        sampled = question.depends_on("text") and not self.texts.given
        if self.seed and (question.depends_on("seed") or sampled):
            words += ["--seed", str(self.seed)]
        return shlex.join(words)

    def report(self, folder: str | Path = "report", **options: Any) -> Path:
        """The whole report as one page with its tables and figures, as `detoklens report` makes it."""
        from detoklens.report.report import make_report

        return make_report(self, as_path(folder, "the report's folder"), **options)

    def explore(self, port: int = 0) -> Explorer:
        """The first layer, live: in the output cell of a notebook, elsewhere in the browser; `close()` ends it."""
        from detoklens.explorer.explore import explore

        return explore(self, port)


def _store(folder: str | Path | Store | None) -> Store | None:
    if folder is None or isinstance(folder, Store):
        return folder
    return Store(as_path(folder, "the folder for an answer"))


_NEEDED = {
    "vocabulary": "a tokenizer",
    "counts": "corpus counts",
    "text": "text",
    "seed": "a seed",
    "position_table": "a table of learned positions, which rotary and ALiBi models do not have; Frequency has the "
    "variance of their token embeddings",
    "causal": "attention that looks back only, and this model looks both ways",
}


def _is_own(counts: Counts, layer: Layer) -> bool:
    """Whether these are the counts that come with the demo model, which nobody has to name."""
    return demo.is_demo(layer.name) and counts.folder == demo.COUNTS


def study(
    model: Any = demo.NAME,
    *,
    counts: str | Path | Counts | None = None,
    text: str | Path | Sequence[str | Path] = (),
    documents: int = 1000,
    length: int | None = None,
    prepend_bos: bool = False,
    text_field: str = "text",
    document_per_line: bool = False,
    skip_bad: bool = False,
    seed: int = 0,
    workers: int | None = None,
    revision: str | None = None,
) -> Study:
    """A model with what is known of text; the demo model brings counts and documents of its own.

    `model` is what `detoklens.load` takes, or a layer that it returned. `text` names files, folders, globs or a hub
    dataset by one string (or by pathlib.Path, also several), or is a list of texts themselves. Texts in files are
    sampled: the `documents` whose texts have the smallest hashes.
    """
    inputs, given = texts_or_files(text)
    texts = Texts(inputs, documents, length, prepend_bos, text_field, document_per_line, skip_bad, given=given)
    layer = _layer(model, revision)
    named = str(model) if isinstance(model, str | Path) else layer.name
    words = [named, *(["--revision", revision] if revision else [])]
    return Study(layer, fitting_counts(counts, layer), texts, seed, Work(workers), words)


def _layer(model: Any, revision: str | None) -> Layer:
    return model if isinstance(model, Layer) else load(model, revision=revision)


def fitting_counts(counts: str | Path | Counts | None, layer: Layer) -> Counts | None:
    """The counts, refused where they were made with another tokenizer; the demo model brings its own."""
    from detoklens.corpus.counts import Counts

    if counts is None and demo.is_demo(layer.name):
        counts = demo.COUNTS
    if counts is None:
        return None
    fingerprint = layer.vocabulary.fingerprint if layer.has_vocabulary else None
    opened = counts if isinstance(counts, Counts) else Counts.open(counts, fingerprint)
    if isinstance(counts, Counts) and fingerprint is not None:
        counts.check(fingerprint)
    if opened.vocabulary_size != layer.vocab_size:
        raise CountsError(
            f"{opened.folder or 'these counts'}: a vocabulary of {opened.vocabulary_size} tokens was counted, "
            f"{layer.name} has {layer.vocab_size}; count with this model's tokenizer"
        )
    return opened
