"""What is each head like? One row a head, to sort by."""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema

HEADS = Schema(
    "heads",
    "What is each head like?",
    (
        HEAD,
        Column("auroc", pl.Float64, "mean AUROC of T^ee against corpus bigrams over seen query tokens; needs counts"),
        Column("auroc_null", pl.Float64, "the larger of its two nulls: query tokens shuffled, key tokens permuted"),
        Column("above_null", pl.Float64, "auroc less auroc_null: what the head knows of the query"),
        Column("word_share", pl.Float64, "median rank, as a share of the vocabulary, of a word's piece before"),
        Column("word_null", pl.Float64, "the same for a piece of another word; both need a tokenizer"),
        Column("self_match", pl.Float64, "mean over tokens of the z-score of T^ee[i, i] in row i of all keys"),
        Column("position_class", pl.String, "where position alone looks from the middle: see the table shape"),
        Column("on_previous", pl.Float64, "attention of position alone, from the middle, on the token before"),
        Column("frequency_spearman", pl.Float64, "Spearman correlation of T^e with the token's count; needs counts"),
        Column("frequency_slope", pl.Float64, "slope of T^e over log10(count + 1); needs counts"),
        Column("symmetric_share", pl.Float64, "|S|² / |W_QK|² of the symmetric part S, Frobenius norms"),
        Column("antisymmetric_share", pl.Float64, "|A|² / |W_QK|² of the antisymmetric part A"),
        Column("effective_rank", pl.Float64, "exp of the entropy of W_QK's singular values, taken as shares"),
        Column("participation_ratio", pl.Float64, "(Σ s²)² / Σ s⁴ of W_QK's singular values s"),
        Column("spectral_norm", pl.Float64, "largest singular value of W_QK"),
    ),
)
