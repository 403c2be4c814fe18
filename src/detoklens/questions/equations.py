"""Equations that several questions share, as a page writes them."""

AFFINITY = (
    "Tᵉᵉ[h, i, j] = (eᵢ W̃_Q)·(eⱼ W̃_K) / (σᵢ σⱼ),  W̃ = C diag(γ) W,  σ of a token averaged over positions;  "
    "with rotary positions the query is turned by the offset"
)
