"""A study: a model plus corpus counts and documents, ready to answer questions."""

from __future__ import annotations

import shlex
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from detoklens import demo
from detoklens.corpus.counts import Counts
from detoklens.errors import INPUTS, CountsError, DetokLensError, MissingError, RangeError, as_path, errors_in_memory
from detoklens.loading import expand_revisions, load
from detoklens.measures.documents import digest
from detoklens.parallel import Runner, available_cores
from detoklens.progress import Watching, shown_steps, unwatched
from detoklens.questions.answer import Answer, Comparison, side_by_side
from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.parameters import Checked, Parameter, settings_of, to_cli_args
from detoklens.questions.store import Store
from detoklens.questions.texts import Texts, find_beginning, read_documents, texts_or_files
from detoklens.scores.layer import Layer
from detoklens.tables.files import Parts, Provenance
from detoklens.wording import listed, plural

if TYPE_CHECKING:
    from detoklens.explorer.explore import Explorer
    from detoklens.questions.base import Need

KEPT = 64  # answers that a study caches: a report asks dozens, and some ask others again


@dataclass(frozen=True)
class Work(Checked):
    """The number of threads."""

    workers: Annotated[int | None, Parameter("Number of threads. Default: one per core.", least=1)] = None


class Study:
    """A model's first layer with optional corpus counts and documents; make one with `detoklens.study`.

    Documents are read when a question first needs them.

    Parameters
    ----------
    layer
        The layer that `detoklens.load` returns.
    counts
        Corpus counts made with the same tokenizer.
    texts
        Where documents come from, and how many.
    seed
        Random seed.
    work
        The number of threads.
    model_words
        The model as written on the command line; the layer's name by default.

    Examples
    --------
    >>> import detoklens as dl
    >>> study = dl.study("demo")
    >>> study.ask(dl.Partners(["ion"], heads=[1], top=3)).sentence
    '“ion” scores highest in L0H1, with “␣interrupt”, “␣mot” and “␣nat”.'
    """

    def __init__(
        self,
        layer: Layer,
        counts: Counts | None = None,
        texts: Texts | None = None,
        seed: int = 0,
        work: Work | None = None,
        model_words: Sequence[str] | None = None,
    ) -> None:
        if type(seed) is not int or seed < 0:
            raise RangeError(f"the seed is a whole number of at least 0, not {seed!r}")
        self.layer = layer if counts is None else layer.with_frequencies(counts.tokens)
        self.counts, self.seed = counts, seed
        self.texts, self.work = texts or Texts(), work or Work()
        self.model_words = [layer.name] if model_words is None else list(model_words)
        self.notes: list[str] = list(layer.notes)
        self._document_notes: list[str] = []
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self.upcoming: Sequence[Question] = ()
        """Questions that will be asked next; one may compute for another."""
        self.prepared: dict[Question, Any] = {}
        """What was computed for them."""
        self._parts: Parts | None = None
        self._watching: Watching = shown_steps

    def __repr__(self) -> str:
        counts = "no counts" if self.counts is None else f"{int(self.counts.tokens.sum()):,} tokens counted"
        if not self.has("text"):
            text = "no text"
        elif "documents" in self.__dict__:
            text = f"{len(self.documents):,} documents"
        elif self.texts.given:
            text = f"{len(self.texts.given):,} texts"
        else:
            text = f"up to {self.texts.documents:,} documents from {', '.join(self.texts.text) or 'the demo'}"
        return f"Study of {self.layer!r}: {counts}, {text}, seed {self.seed}"

    def _repr_html_(self) -> str:
        """The inputs, and the questions that they allow, for a notebook."""
        layer, named = self.layer, [*QUESTIONS]
        lacking = {name: self.missing(QUESTIONS[name]) for name in named}
        rows = {
            "model": layer.name,
            "size": f"{layer.n_heads} heads, {layer.vocab_size:,} tokens, {layer.n_positions:,} positions",
            "inputs": repr(self).partition(f"{layer!r}: ")[2],
            "can answer": ", ".join(name for name in named if not lacking[name]),
        }
        for need in dict.fromkeys(need for needs in lacking.values() for need in needs):
            names = ", ".join(name for name in named if need in lacking[name])
            rows[f"needs {INPUTS[need].name.partition(',')[0]}"] = names
        rows |= {f"note {number}": note for number, note in enumerate(self.notes, 1)}
        lines = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{''.join(lines)}</table>"

    @cached_property
    def documents(self) -> list[np.ndarray]:
        """The token ids of the sampled documents."""
        return self.read()

    @cached_property
    def _bare_documents(self) -> list[np.ndarray]:
        if not self.has("text"):
            raise MissingError("text", "the study has no text")
        documents = read_documents(self.layer, self.texts, self.seed, self._document_notes.append)
        self.notes += self._document_notes
        return documents

    def read(self, prepend_bos: bool | None = None) -> list[np.ndarray]:
        """Return the sampled documents.

        Parameters
        ----------
        prepend_bos
            Whether each begins with the beginning-of-text token; None for the study's own setting.

        Returns
        -------
        list of numpy.ndarray
            Token ids.

        Raises
        ------
        MissingError
            The study has no text.
        """
        if not (self.texts.prepend_bos if prepend_bos is None else prepend_bos):
            return self._bare_documents
        first, length = find_beginning(self.layer).token_id, self.texts.length or self.layer.n_positions
        return [np.concatenate([[first], ids])[:length] for ids in self._bare_documents]

    @property
    def workers(self) -> int:
        """The number of threads."""
        return self.work.workers or available_cores()

    def has(self, need: Need) -> bool:
        """Tell whether the study has an input.

        Parameters
        ----------
        need
            ``"vocabulary"``, ``"counts"``, ``"text"``, ``"seed"``, ``"position_table"`` or ``"causal"``.

        Returns
        -------
        bool
            Whether it has the input.
        """
        return {
            "vocabulary": self.layer.has_vocabulary,
            "counts": self.counts is not None,
            "text": bool(self.texts.text or self.texts.given or demo.is_demo(self.layer.name)),
            "seed": True,
            "position_table": self.layer.positions == "learned",
            "causal": self.layer.is_causal,
        }[need]

    def missing(self, question: Question | type[Question]) -> list[Need]:
        """List the required inputs of a question that the study lacks.

        Parameters
        ----------
        question
            The question or its class.

        Returns
        -------
        list of str
            The missing inputs, named as in `has`.

        Examples
        --------
        >>> import detoklens as dl
        >>> dl.study("demo").missing(dl.Auroc)
        []
        """
        return sorted(need for need in question.needs if not self.has(need))

    def heads(self, heads: Sequence[int] | None) -> list[int]:
        """Return the given heads, each once.

        Parameters
        ----------
        heads
            Heads, from 0; None for all.

        Returns
        -------
        list of int
            The heads.

        Raises
        ------
        RangeError
            The list is empty or the model has no such head.
        """
        if heads is None:
            return list(range(self.layer.n_heads))
        if not heads:
            raise RangeError("heads is empty; pass at least one, e.g. 0, or omit it for all heads")
        self.layer.check(heads=heads)
        return list(dict.fromkeys(heads))

    def meaningful_tokens(self) -> np.ndarray:
        """Ids of the tokens that means, candidates and rankings are about; a note says how many are left out."""
        layer = self.layer
        untrained = int(layer.untrained.sum())
        impossible = int((layer.impossible & ~layer.untrained & ~layer.special).sum())
        left_out = [f"{plural(untrained, 'token')} that training barely changed"] * bool(untrained)
        left_out += [f"{plural(impossible, 'token')} that no text contains"] * bool(impossible)
        if left_out and len(layer.meaningful_tokens) < layer.vocab_size:
            are = "is" if untrained + impossible == 1 else "are"
            self.notes.append(
                f"{listed(left_out)} {are} left out of means, candidates and rankings (all_tokens includes them; "
                "`frequency --by untrained` lists them)"
            )
        return layer.meaningful_tokens

    def token_ids(self, tokens: Sequence[str | int]) -> list[int]:
        """Return the ids of tokens.

        Parameters
        ----------
        tokens
            Tokens, as text or ids.

        Returns
        -------
        list of int
            Their ids.

        Raises
        ------
        TokenError
            A text is not a single token, or the model has no such id.
        """
        return [self.layer.token_id(token) for token in tokens]

    def ask(
        self, question: Question, folder: str | Path | Store | None = None, watching: Watching | None = None
    ) -> Answer:
        """Answer a question.

        Parameters
        ----------
        question
            The question, e.g. ``dl.Auroc(pieces=True)``.
        folder
            Where to write the answer. An answer with unchanged inputs is read back instead of computed, and an
            interrupted question continues where it stopped.
        watching
            Receives progress; a progress bar by default.

        Returns
        -------
        Answer
            Summary, verdict, tables and figures.

        Raises
        ------
        MissingError
            The question needs counts, text or a tokenizer that the study lacks.
        RangeError
            A head, position or other parameter does not fit the model.

        Examples
        --------
        >>> import detoklens as dl
        >>> answer = dl.study("demo").ask(dl.Partners(["ion"], heads=[1], top=3))
        >>> answer.sentence
        '“ion” scores highest in L0H1, with “␣interrupt”, “␣mot” and “␣nat”.'
        """
        if not isinstance(question, Question):
            raise RangeError(f"{question!r} is not a question; pass one, e.g. dl.Auroc(pieces=True)")
        missing = self.missing(question)
        if missing:
            raise MissingError(missing[0], f"{type(question).__name__} needs {INPUTS[missing[0]].name}")
        provenance = self.provenance(question)
        if not (folder is None or isinstance(folder, Store)):
            folder = Store(as_path(folder, "the folder for an answer"))
        stored = None if folder is None else folder.find(question, provenance)
        key = provenance.to_json()
        answer = stored or self._answers.get(key) or self._computed(question, provenance, folder, watching)
        if folder is not None and stored is None:
            folder.keep(answer)
        self._answers[key] = answer
        self._answers.move_to_end(key)
        while len(self._answers) > KEPT:
            self._answers.popitem(last=False)
        return answer

    def is_answered(self, question: Question) -> bool:
        """Tell whether the answer is cached.

        Parameters
        ----------
        question
            The question.

        Returns
        -------
        bool
            Whether `ask` would return without computing.
        """
        return self.provenance(question).to_json() in self._answers

    def _computed(
        self, question: Question, provenance: Provenance, store: Store | None, watching: Watching | None
    ) -> Answer:
        """Compute an answer; the questions it asks in turn share its progress display and keep their parts in its."""
        outer, noted = (self._parts, self._watching), len(self.notes)
        if store is not None:
            self._parts = Parts.of_question(store.folder, provenance)
        elif self._parts is not None:
            self._parts = self._parts.of_nested(provenance)
        self._watching = watching or self._watching
        try:
            in_memory = self.layer.checkpoint.model is not None
            with errors_in_memory(in_memory), self._watching(question.progress_label) as watch:
                runner = Runner(self.workers, self._parts, watch or unwatched, self.notes.append)
                tables = dict(question.ask(self, runner))
        finally:
            self._parts, self._watching = outer
        document_notes = list(self._document_notes) if question.depends_on("text") else []
        with_bos = self.texts.prepend_bos if question.begins_with_bos is None else question.begins_with_bos
        if document_notes and with_bos:
            document_notes += find_beginning(self.layer).notes
        notes = tuple(dict.fromkeys([*self.layer.notes, *document_notes, *self.notes[noted:]]))
        return Answer(question, self.layer.name, tables, provenance, self.command(question), notes)

    def provenance(self, question: Question) -> Provenance:
        """Collect everything that determines the numbers of a question, and nothing else.

        Parameters
        ----------
        question
            The question.

        Returns
        -------
        Provenance
            Parameters and fingerprints of the inputs.
        """
        options = dict(question.settings(self))
        if self.layer.weights.token_embeddings.dtype != "float32":
            options["dtype"] = str(self.layer.weights.token_embeddings.dtype)
        if self.layer.all_tokens:
            options["all_tokens"] = True
        if self.layer.checkpoint.quantised:
            options.setdefault("dequantised_from", list(self.layer.checkpoint.quantised))  # a question may read more
        if question.depends_on("seed"):
            options["seed"] = self.seed
        if question.depends_on("text") and self.has("text"):
            options["documents_digest"] = digest(self.read(question.begins_with_bos))
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
        """Spell the command line that gives the same numbers.

        Parameters
        ----------
        question
            The question.

        Returns
        -------
        str
            The command; a Python call if a parameter has no option.

        Examples
        --------
        >>> import detoklens as dl
        >>> dl.study("demo").command(dl.Partners(["ion"], heads=[1]))
        'detoklens partners demo ion --heads 1'
        """
        set_in_python = any(
            getattr(question, setting.name) != setting.default
            for setting in settings_of(type(question))
            if not setting.cli and setting.name != "prepend_bos"  # that is an option of the texts
        )
        given_ids = question.depends_on("text") and not all(isinstance(text, str) for text in self.texts.given)
        if set_in_python or given_ids or not self.model_words:
            return f"study.ask(dl.{question!r})  # in Python, on the same study"
        words = ["detoklens", question.name(), *self.model_words, *question.cli_args(self)]
        words += self.counts_args if question.depends_on("counts") else []
        if question.depends_on("text") and self.has("text"):
            own, texts = question.begins_with_bos, self.texts.in_a_file()
            words += to_cli_args(texts if own is None else replace(texts, prepend_bos=own))
        sampled = question.depends_on("text") and not self.texts.given
        if self.seed and (question.depends_on("seed") or sampled):
            words += ["--seed", str(self.seed)]
        return shlex.join(words)

    @property
    def counts_args(self) -> list[str]:
        """The option for these counts; none for bundled ones."""
        bundled = demo.is_demo(self.layer.name) and self.counts is not None and self.counts.folder == demo.COUNTS
        return [] if self.counts is None or bundled else ["--counts", self.counts.place]

    def report(self, folder: str | Path = "report", **options: Any) -> Path:
        """Write a full report: one page with its tables and figures, as `detoklens report` does.

        Parameters
        ----------
        folder
            Output folder. An interrupted report continues where it stopped.
        **options
            ``width`` of figures, ``heads`` to draw large, ``layers`` of the real model to run.

        Returns
        -------
        Path
            The page, ``report.html``.

        Raises
        ------
        OutputError
            The folder contains something else or can't be written.

        Examples
        --------
        >>> import detoklens as dl
        >>> dl.study("demo").report("demo-report")  # doctest: +SKIP
        """
        from detoklens.report.report import make_report

        return make_report(self, as_path(folder, "the report's folder"), **options)

    def explore(self, port: int = 0) -> Explorer:
        """Explore the first layer, in a notebook's output cell or in the browser.

        Parameters
        ----------
        port
            Port on 127.0.0.1; 0 chooses a free one.

        Returns
        -------
        Explorer
            The running explorer; stop it with its ``close()``.

        Examples
        --------
        >>> import detoklens as dl
        >>> explorer = dl.study("demo").explore()  # doctest: +SKIP
        """
        from detoklens.explorer.explore import explore

        return explore(self, port)


def study(
    model: Any = demo.NAME,
    *,
    counts: str | Path | Counts | None = None,
    text: Any = (),
    documents: int = 1000,
    length: int | None = None,
    prepend_bos: bool = False,
    text_field: str = "text",
    document_per_line: bool = False,
    skip_bad: bool = False,
    seed: int = 0,
    workers: int | None = None,
    revision: str | None = None,
    tokenizer: Any = None,
    all_tokens: bool = False,
) -> Study:
    """Open a model plus optional corpus counts and documents; `demo` includes both.

    Parameters
    ----------
    model
        What `detoklens.load` takes, or a layer that it returned.
    counts
        Corpus counts: a folder written by ``detoklens count``, ``hf:USER/NAME`` for such a folder in a dataset on the
        hub, or `Counts`.
    text
        Files, folders, globs or a hub dataset as one string (or as one or several `pathlib.Path`), a list of texts, or
        token ids: lists, a tensor with a row per text, or what a transformers tokenizer returns.
    documents
        Number of documents, sampled from files by the hash of their text. A list of texts is used whole.
    length
        Truncate documents to this many tokens; None for the model's length.
    prepend_bos
        Prepend the beginning-of-text token to each document.
    text_field
        Field of a JSON line or column of a parquet file.
    document_per_line
        Treat each line of a .txt file as a document, not the whole file.
    skip_bad
        Skip records that are broken or lack the field.
    seed
        Random seed.
    workers
        Number of threads; None for one per core.
    revision
        Branch, tag or commit of a hub model.
    tokenizer
        The tokenizer of a model that comes without one; see `detoklens.load`.
    all_tokens
        Include special and untrained tokens, and those that no text contains, in means, candidates and rankings;
        see `detoklens.load`.

    Returns
    -------
    Study
        Ask it with `Study.ask`.

    Raises
    ------
    CheckpointError, UnsupportedModelError, HubError
        The model can't be read, is not supported, or can't be downloaded.
    CountsError
        The counts are damaged or belong to another tokenizer.
    RangeError
        An argument is out of range, or can't be changed for a layer that is already loaded.

    Examples
    --------
    >>> import detoklens as dl
    >>> study = dl.study("demo", text=["the priest was descending"])
    >>> study.ask(dl.Attention(query_positions=[5])).tables["attention_agreement"]["head"].to_list()
    [0, 1, 2, 3]
    >>> study = dl.study("gpt2", counts="counts", text="openwebtext/*.parquet")  # doctest: +SKIP
    """
    inputs, given = texts_or_files(text)
    texts = Texts(inputs, documents, length, prepend_bos, text_field, document_per_line, skip_bad, given=given)
    if not isinstance(model, Layer):
        layer = load(model, revision=revision, tokenizer=tokenizer, all_tokens=all_tokens)
    elif tokenizer is not None or all_tokens:
        option = "all_tokens" if tokenizer is None else "its tokenizer"
        raise RangeError(f"this layer is already loaded; pass {option} to load(model, …)")
    else:
        layer = model
    words = [str(model) if isinstance(model, str | Path) else layer.name]
    words += ["--revision", revision] if revision else []
    words += [] if tokenizer is None else ["--tokenizer", str(tokenizer)]
    words += ["--all-tokens"] * layer.all_tokens
    if layer.checkpoint.model is not None or not isinstance(tokenizer, str | Path | None):
        words = []  # no command opens this model
    return Study(layer, fitting_counts(counts, layer), texts, seed, Work(workers), words)


def compare(models: Mapping[str, Any] | str, question: Question, **options: Any) -> Comparison:
    """Ask several models the same question.

    Parameters
    ----------
    models
        Studies, or what `study` takes, by label; or the training steps of one model, such as
        ``"EleutherAI/pythia-70m@step1000..step143000:8"``.
    question
        The question, e.g. ``dl.Heads()``.
    **options
        Arguments of `study` for the models that are not studies yet.

    Returns
    -------
    Comparison
        The joined answer; its tables have a column ``model``.

    Raises
    ------
    DetokLensError
        Fewer than two models, or a model can't answer the question.

    Examples
    --------
    >>> import detoklens as dl
    >>> compared = dl.compare({"start": "demo@0", "end": "demo"}, dl.Variance())
    >>> compared.labels
    ('start', 'end')
    """
    if isinstance(models, str):
        models = {name.rpartition("@")[2]: name for name in expand_revisions(models)}
    if not isinstance(models, Mapping):
        raise DetokLensError('models is not a mapping; pass models by label, e.g. {"start": "demo@0", "end": "demo"}')
    if len(models) < 2:
        raise DetokLensError(f"{plural(len(models), 'model')} to compare; pass at least two")
    studies = {label: model if isinstance(model, Study) else study(model, **options) for label, model in models.items()}
    return side_by_side(question, {label: each.ask(question) for label, each in studies.items()})


def fitting_counts(counts: str | Path | Counts | None, layer: Layer) -> Counts | None:
    """The counts, refused if another tokenizer made them; the bundled ones by default for the demo model."""
    if counts is None and demo.is_demo(layer.name):
        counts = demo.COUNTS
    if counts is None:
        return None
    fingerprint = layer.vocabulary.fingerprint if layer.has_vocabulary else None
    if not isinstance(counts, Counts):
        counts = Counts.open(counts, fingerprint)
    elif fingerprint is not None:
        counts.check(fingerprint)
    if counts.vocabulary_size != layer.vocab_size:
        raise CountsError(
            f"{counts.folder or 'these counts'}: the vocabulary has {counts.vocabulary_size} tokens, that of "
            f"{layer.name} {layer.vocab_size}; count with this model's tokenizer"
        )
    return counts
