"""AUROC of Tᵉᵉ against pairs of tokens that belong together, with its controls.

For a query token i, keys j with weight w_j > 0 are positives, all others negatives (weight 1); Tᵉᵉ[i, j] is the score.

    AUROC_i = Σ_pos Σ_neg w_pos ( [s_pos > s_neg] + ½ [s_pos = s_neg] ) / ( Σ w_pos · number of negatives )
"""

from detoklens.measures.auroc.classes import predecessor_clusters
from detoklens.measures.auroc.controls import beside_controls, roc_curves
from detoklens.measures.auroc.means import head_means, mean_over_seen
from detoklens.measures.auroc.measuring import Judging, Measures, measure_heads
from detoklens.measures.auroc.positives import Positives, from_pairs, more_than_chance, seen_pairs

__all__ = [
    "Judging",
    "Measures",
    "Positives",
    "beside_controls",
    "from_pairs",
    "head_means",
    "mean_over_seen",
    "measure_heads",
    "more_than_chance",
    "predecessor_clusters",
    "roc_curves",
    "seen_pairs",
]
