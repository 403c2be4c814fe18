"""Which heads detokenize? AUROC of T^ee against pairs of tokens that belong together, with the controls it needs.

For a query token i, keys j with weight w_j > 0 are positives, all others negatives (weight 1), T^ee[i, j] the scores.

    AUROC_i = Σ_pos Σ_neg w_pos ( [s_pos > s_neg] + ½ [s_pos = s_neg] ) / ( Σ w_pos · number of negatives )
"""

from detoklens.analyses.auroc.answers import (
    auroc_by_head,
    auroc_by_token,
    controls_by_head,
    heads_at_a_glance,
    precision_by_head,
    precision_by_token,
)
from detoklens.analyses.auroc.curve import roc_points
from detoklens.analyses.auroc.measuring import Judging, Measures, measure_heads
from detoklens.analyses.auroc.pieces import word_internal
from detoklens.analyses.auroc.positives import (
    Positives,
    from_pairs,
    merged_pairs,
    more_than_chance,
    neighbouring_pieces,
    seen_pairs,
)

__all__ = [
    "Judging",
    "Measures",
    "Positives",
    "auroc_by_head",
    "auroc_by_token",
    "controls_by_head",
    "from_pairs",
    "heads_at_a_glance",
    "measure_heads",
    "merged_pairs",
    "more_than_chance",
    "neighbouring_pieces",
    "precision_by_head",
    "precision_by_token",
    "roc_points",
    "seen_pairs",
    "word_internal",
]
