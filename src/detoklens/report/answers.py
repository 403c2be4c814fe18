"""What is the answer to each question, in one sentence with its number? Read off the tables."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from detoklens.figures.registry import GLUE, ODD, PARTNERS, POSITION, TERMS, TEXT
from detoklens.report.wording import head_name, listed, percent, token_shown

Tables = Mapping[str, pl.DataFrame]

NEAR = 0.5  # of the attention on the last five tokens makes a head a near one
NO_COUNTS = (
    "No corpus counts were given, so this is judged by a word list alone (--counts or --corpus adds the corpus)."
)
NO_TEXT = "No text was given, so attention was not measured: add --text with files, folders or a hub dataset."


def answer(question: str, tables: Tables) -> str:
    """One sentence for a question."""
    return {
        GLUE: which_heads_glue,
        PARTNERS: with_what,
        POSITION: how_position_pulls,
        TEXT: what_text_says,
        TERMS: which_term_matters,
        ODD: what_is_odd,
    }[question](tables)


def which_heads_glue(tables: Tables) -> str:
    if "auroc_controls" not in tables:
        return _glue_by_words(tables)
    judged = tables["auroc_controls"].drop_nulls(["auroc", "above_null"])
    if judged.is_empty():
        return "No query token of the corpus has both positives and negatives, so no head can be judged."
    best = judged.sort("above_null", descending=True).row(0, named=True)
    interval = tables["auroc_by_head"].filter(head=best["head"]).row(0, named=True)
    null, name = best["auroc"] - best["above_null"], head_name(best["head"])
    ends = "" if interval["seen_low"] is None else f" [{interval['seen_low']:.3f}, {interval['seen_high']:.3f}]"
    verdict = (
        f"{name} stands highest above its nulls"
        if best["above_null"] > 0.02
        else f"No head stands clearly above its nulls; the nearest is {name}"
    )
    return (
        f"{verdict}: its mean AUROC against corpus bigrams is {best['auroc']:.3f}{ends}, "
        f"its null {null:.3f}, and ranking keys by frequency alone gives {best['frequency']:.3f}."
    )


def _glue_by_words(tables: Tables) -> str:
    if "words_by_head" not in tables:
        return "There is neither a tokenizer nor a corpus to judge by: only the weights' own numbers are shown."
    best = tables["words_by_head"].sort("median_share").row(0, named=True)
    return (
        f"{head_name(best['head'])} finds a word's piece before best: median rank in the top "
        f"{100 * best['median_share']:.1f} % of the vocabulary over {best['pairs']:,} pairs (chance: 50 %). {NO_COUNTS}"
    )


def with_what(tables: Tables) -> str:
    if "lexicon_by_head" not in tables:
        return "Without a tokenizer the partners are known by their ids only."
    summary = tables["lexicon_by_head"]
    measure = "seen_share" if summary["seen_share"].is_not_null().any() else "word_share"
    if summary[measure].is_null().all():
        return f"The strongest pairs of each head are listed below; {NO_COUNTS[0].lower()}{NO_COUNTS[1:]}"
    best = summary.drop_nulls(measure).sort(measure, descending=True).row(0, named=True)
    pairs = tables["lexicon"].filter(head=best["head"]).head(4)["joined"].to_list()
    shares = {"seen_share": "occur in the corpus", "word_share": "join to a word"}
    said = [f"{percent(best[name])} {words}" for name, words in shares.items() if best[name] is not None]
    return (
        f"Of the {best['pairs']:,} strongest pairs of {head_name(best['head'])}, {listed(said)}; "
        f"the first are {listed([f'“{token_shown(pair)}”' for pair in pairs])}."
    )


def how_position_pulls(tables: Tables) -> str:
    shape = tables["shape"]
    middle = sorted(shape["query_position"].unique())[shape["query_position"].n_unique() // 2]
    there = shape.filter(query_position=middle)
    near = there.filter(pl.col("last_5") > NEAR)
    nearest = there.sort("last_5", descending=True).row(0, named=True)
    linear, waves = int(there["linear"].fill_null(False).sum()), int(there["sinusoidal"].fill_null(False).sum())
    return (
        f"By position alone {len(near)} of {len(there)} heads put most attention on the last five tokens "
        f"({head_name(nearest['head'])}: {percent(nearest['last_5'])} from position {middle}); "
        f"Tᵖ is a line in {linear} and Tᵖᵖ a wave in {waves} of them."
    )


def what_text_says(tables: Tables) -> str:
    if "attention_agreement" not in tables:
        return NO_TEXT
    agreement = tables["attention_agreement"].group_by("head").agg(pl.col("total_variation").mean()).sort("head")
    best = agreement.sort("total_variation").row(0, named=True)
    worst = agreement.sort("total_variation", descending=True).row(0, named=True)
    documents = int(tables["attention_agreement"]["documents"].max() or 0)  # type: ignore[arg-type]
    return (
        f"On {documents:,} documents attention is nearest to what position alone predicts in {head_name(best['head'])} "
        f"(total variation {best['total_variation']:.2f}; 0 is equal, 1 disjoint) and farthest in "
        f"{head_name(worst['head'])} ({worst['total_variation']:.2f})."
    )


def which_term_matters(tables: Tables) -> str:
    if "contributions_by_head" not in tables:
        return NO_TEXT
    terms = tables["contributions_by_head"].group_by("term").agg(pl.col("kl").mean()).sort("kl", descending=True)
    said = [f"T{_raised(term)} ({kl:.2f})" for term, kl in terms.iter_rows()]
    return (
        f"Taking a term away moves attention most for {listed(said[:3])}, in nats of KL divergence averaged over heads "
        f"and positions; the others are {listed(said[3:])}."
    )


def what_is_odd(tables: Tables) -> str:
    variance = tables["position_variance"]
    median = float(variance["variance"].median() or 0.0)  # type: ignore[arg-type]
    outliers = variance.filter(outlier=True)
    first = variance.row(0, named=True)
    ratio = "" if not median else f"; position 0's variance is {first['variance'] / median:.1f} times the median"
    if outliers.is_empty():
        return f"No position embedding stands out by its variance{ratio}."
    places = [str(place) for place in outliers["position"].head(6)]
    more = "" if len(outliers) <= 6 else f" and {len(outliers) - 6} more"
    return f"{len(outliers)} position embeddings stand out by their variance (positions {listed(places)}{more}){ratio}."


def _raised(term: str) -> str:
    return term.replace("e", "ᵉ").replace("p", "ᵖ")
