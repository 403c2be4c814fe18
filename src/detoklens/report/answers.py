"""What is the answer to each question, in one sentence with its number? Read off the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from detoklens.figures.registry import GLUE, ODD, PARTNERS, POSITION, TERMS, TEXT
from detoklens.report.choosing import gluing_head
from detoklens.report.wording import head_name, listed, percent, token_shown

Tables = Mapping[str, pl.DataFrame]

CLEARLY = 0.02  # above the nulls is more than they move by chance
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
    head = gluing_head(tables)
    over_all = _judgement("auroc_controls", "auroc_by_head", head, tables)
    over_pieces = _judgement("auroc_pieces_controls", "auroc_pieces_by_head", head, tables)
    deciding = over_pieces or over_all
    if head is None or deciding is None:
        return "No query token of the corpus has both positives and negatives, so no head can be judged."
    name = head_name(head)
    clear = f"{name} stands highest above its nulls"
    verdict = clear if deciding.above > CLEARLY else f"No head stands clearly above its nulls; the nearest is {name}"
    said = f"over all query tokens {over_all}" if over_all else ""
    if over_pieces is None:
        return f"{verdict}: {said}."
    return f"{verdict}: asked from pieces that go on with a word, {over_pieces}" + (f"; {said}." if said else ".")


@dataclass(frozen=True)
class Judgement:
    """What a head's AUROC is among one kind of query tokens."""

    row: Mapping[str, float | None]
    low: float | None
    high: float | None

    @property
    def above(self) -> float:
        return self.row["above_null"] or 0.0

    def __str__(self) -> str:
        auroc = self.row["auroc"] or 0.0
        interval = "" if self.low is None or self.high is None else f" [{self.low:.3f}, {self.high:.3f}]"
        frequency = self.row["frequency"]
        alone = "" if frequency is None else f" (frequency alone {frequency:.3f})"
        return (
            f"its mean AUROC against corpus bigrams is {auroc:.3f}{interval}, its null {auroc - self.above:.3f}{alone}"
        )


def _judgement(controls: str, by_head: str, head: int | None, tables: Tables) -> Judgement | None:
    if head is None or controls not in tables:
        return None
    judged = tables[controls].filter(head=head).drop_nulls(["auroc", "above_null"])
    ends = tables[by_head].filter(head=head)
    if judged.is_empty():
        return None
    return Judgement(judged.row(0, named=True), ends["seen_low"][0], ends["seen_high"][0])


def _glue_by_words(tables: Tables) -> str:
    if "words_by_head" not in tables or tables["words_by_head"].is_empty():
        return "There are neither words nor a corpus to judge by: only the weights' own numbers are shown."
    best = tables["words_by_head"].sort("median_share").row(0, named=True)
    return (
        f"{head_name(best['head'])} finds a word's piece before best: median rank in the top "
        f"{100 * best['median_share']:.1f} % of the vocabulary over {best['pairs']:,} pairs (chance: 50 %). {NO_COUNTS}"
    )


def with_what(tables: Tables) -> str:
    if "lexicon_by_head" not in tables:
        return "Without a tokenizer the partners are known by their ids only."
    head = gluing_head(tables)
    rows = tables["lexicon_by_head"].filter(head=0 if head is None else head)
    best = rows.row(0, named=True)
    pairs = tables["lexicon"].filter(head=best["head"]).sort("rank").head(4)["joined"].to_list()
    shares = {"seen_share": "occur in the corpus", "word_share": "join to a word"}
    said = [f"{percent(best[name])} {words}" for name, words in shares.items() if best[name] is not None]
    known = f", {listed(said)}" if said else ""
    shown = listed([f"“{token_shown(pair)}”" for pair in pairs if pair is not None])
    of = f"Of the {best['pairs']:,} strongest pairs of {head_name(best['head'])}{known}"
    return f"{of}; the first are {shown}." if said else f"{of} the first are {shown}."


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
        f"On {documents:,} document{'' if documents == 1 else 's'} attention is nearest to what position alone "
        f"predicts in {head_name(best['head'])} "
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
        return f"No position embedding departs from its neighbours by its variance{ratio}."
    places = [str(place) for place in outliers["position"].head(6)]
    others = [f"{len(outliers) - 6} more"] if len(outliers) > 6 else []
    number = "One position embedding departs" if len(outliers) == 1 else f"{len(outliers)} position embeddings depart"
    which = f"position{'' if len(outliers) == 1 else 's'} {listed([*places, *others])}"
    return f"{number} from {'its' if len(outliers) == 1 else 'their'} neighbours by variance ({which}){ratio}."


def _raised(term: str) -> str:
    return term.replace("e", "ᵉ").replace("p", "ᵖ")
