"""How was each answer computed? The commands that give the same numbers, and the equations."""

from __future__ import annotations

from detoklens.figures.registry import GLUE, ODD, PARTNERS, POSITION, TERMS, TEXT
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
VARIANCES = "Var(pⱼ) over the features;  σ(x) = √(Var(x) + ε)"


def computed(question: str, subject: Subject) -> list[Computed]:
    """Commands and equations behind a question."""
    corpus, text = subject.counts is not None, bool(subject.documents)
    command = subject.command
    return {
        GLUE: [
            *([Computed(command("auroc", counts=True), RANKING)] if corpus else []),
            Computed(command("words"), "rank of the piece before among all keys by Tᵉᵉ, asked from the piece after"),
            Computed(command("heatmap"), AFFINITY),
            Computed(command("heads", counts=corpus), "one row a head from the analyses above"),
        ],
        PARTNERS: [
            Computed(command("lexicon", "--top", 1000, "--no-self", counts=corpus), AFFINITY),
            Computed(command("partners", "TOKEN", counts=corpus), AFFINITY),
        ],
        POSITION: [
            Computed(command("positions"), POSITIONS),
            Computed(command("shape"), "best line through Tᵖ; periodogram of Tᵖᵖ around its best line; softmax mass"),
        ],
        TEXT: [Computed(command("attention", text=True), ATTENTION)] if text else [],
        TERMS: [
            *([Computed(command("contributions", text=True), DIVERGENCE)] if text else []),
            *([Computed(command("frequency", counts=True), ASSERTION)] if corpus else []),
        ],
        ODD: [Computed(command("variance"), VARIANCES)],
    }[question]
