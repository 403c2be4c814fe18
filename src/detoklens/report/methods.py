"""How was each answer computed? The commands that give the same numbers, and the equations."""

from __future__ import annotations

from detoklens.figures.registry import GLUE, ODD, PARTNERS, POSITION, TERMS, TEXT
from detoklens.report.asking import (
    DRAWN_TOKENS,
    EXAMPLES,
    LEXICON_PAIRS,
    SHOWN_PARTNERS,
    curve_tokens,
    places_looked_from,
)
from detoklens.report.choosing import example_tokens
from detoklens.report.content import Computed
from detoklens.report.subject import Subject

AFFINITY = "Tᵉᵉ[h, i, j] = (eᵢ W̃_Q)·(eⱼ W̃_K) / (σᵢ σⱼ),  W̃ = C diag(γ) W,  σ of a token averaged over positions"
RANKING = (
    "AUROCᵢ = Σ_pos Σ_neg w_pos ([s_pos > s_neg] + ½ [s_pos = s_neg]) / (Σ w_pos · number of negatives),  "
    "positives: tokens j with count(j, i) > 0, weighted by the count"
)
POSITIONS = "Tᵖ[h, j] = b̃_Q·(pⱼ W̃_K) / σⱼ,  Tᵖᵖ[h, i, j] = (pᵢ W̃_Q)·(pⱼ W̃_K) / (σᵢ σⱼ),  α = softmax((Tᵖ + Tᵖᵖ) / √d′)"
ATTENTION = "α[h, i, :] = softmax over j ≤ i of s[h, i, j] / √d′,  s = Tᵉᵉ + Tᵖᵖ + Tᵖᵉ + Tᵉᵖ + Tᵉ + Tᵖ"
DIVERGENCE = "c = D_KL(P ‖ Q),  P = softmax((s − T) / √d′),  Q = softmax(s / √d′), averaged over documents"
ASSERTION = "Tᵉ[h, j] = b̃_Q·(eⱼ W̃_K) / σⱼ;  Spearman's ρ with the token's count"
PIECES = "the same over the query tokens that begin with a letter and without a space: they go on with a word"
CURVE = "(share of negatives, share of the positives' weight) with Tᵉᵉ at least t, for every threshold t"
WORDS = "rank of the piece before among all keys by Tᵉᵉ, asked from the piece after"
SHAPE = "best line through Tᵖ; periodogram of Tᵖᵖ around its best line; softmax mass"
TOKEN_VARIANCE = "Var(e) of every token"
VARIANCES = "Var(pⱼ) over the features;  σ(x) = √(Var(x) + ε)"


def computed(question: str, subject: Subject) -> list[Computed]:
    """Commands and equations behind a question."""
    return {
        GLUE: _glue,
        PARTNERS: _partners,
        POSITION: _position,
        TEXT: _text,
        TERMS: _terms,
        ODD: _odd,
    }[question](subject)


def computed_for_the_paper(subject: Subject) -> list[Computed]:
    """Commands and equations behind the numbers that are set beside the paper's."""
    corpus = subject.counts is not None
    return [
        Computed(subject.command("words", "--paper"), WORDS),
        Computed(subject.command("heatmap", "--tokens", DRAWN_TOKENS, seed=True), AFFINITY),
        *([Computed(subject.command("auroc", counts=True, seed=True), RANKING)] if corpus else []),
        Computed(subject.command("frequency", counts=corpus), ASSERTION),
        Computed(subject.command("frequency", "--by", "model", counts=corpus), TOKEN_VARIANCE),
        Computed(subject.command("variance"), VARIANCES),
    ]


def _glue(subject: Subject) -> list[Computed]:
    command, corpus, spells = subject.command, subject.counts is not None, subject.layer.has_vocabulary
    size = min(DRAWN_TOKENS, subject.layer.vocab_size)
    ranked = [
        Computed(command("auroc", counts=True, seed=True), RANKING),
        *([Computed(command("auroc", "--pieces", counts=True, seed=True), PIECES)] if spells else []),
    ]
    curves = [
        Computed(command("auroc", "--roc", token, counts=True), CURVE)
        for token in (curve_tokens(subject) if corpus and spells else [])
    ]
    return [
        *(ranked if corpus else []),
        *curves,
        *([Computed(command("words"), WORDS)] if spells else []),
        Computed(command("heatmap", "--tokens", size, seed=True), AFFINITY),
        Computed(command("heads", counts=corpus), "one row a head from the analyses above"),
    ]


def _partners(subject: Subject) -> list[Computed]:
    if not subject.layer.has_vocabulary:
        return []
    corpus, top = subject.counts is not None, min(SHOWN_PARTNERS, subject.layer.vocab_size)
    examples = [word for token in example_tokens(subject, EXAMPLES) for word in ("--token-id", token)]
    return [
        Computed(subject.command("lexicon", "--top", LEXICON_PAIRS, "--no-self", counts=corpus), AFFINITY),
        Computed(subject.command("partners", *examples, "--top", top, counts=corpus), AFFINITY),
    ]


def _position(subject: Subject) -> list[Computed]:
    return [Computed(subject.command("positions"), POSITIONS), Computed(subject.command("shape"), SHAPE)]


def _text(subject: Subject) -> list[Computed]:
    return [Computed(subject.command("attention", text=True), ATTENTION)] if subject.documents else []


def _terms(subject: Subject) -> list[Computed]:
    made = []
    if subject.documents:
        places = ",".join(map(str, places_looked_from(subject)))
        made.append(Computed(subject.command("contributions", "--query-positions", places, text=True), DIVERGENCE))
    return [*made, Computed(subject.command("frequency", counts=subject.counts is not None), ASSERTION)]


def _odd(subject: Subject) -> list[Computed]:
    corpus = subject.counts is not None
    return [
        Computed(subject.command("variance"), VARIANCES),
        Computed(subject.command("frequency", "--by", "model", counts=corpus), TOKEN_VARIANCE),
    ]
