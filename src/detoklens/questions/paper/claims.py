"""The claims of the paper as one table, each with the rule that judges it on a model.

A claim about GPT-2 small's own numbers, heads or tokens is judged on GPT-2 small only; for other models the number is
shown where there is one. A claim about the mechanism is judged on every model that has the parts in question, by a rule
that its text states. "Nearly every head" is at least 80 % of them, "most heads" more than half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import polars as pl

from detoklens.measures.frequency import spearman
from detoklens.measures.ranking import pair_ranks
from detoklens.questions.answer import Answer
from detoklens.questions.attention import Attention
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.frequency import Frequency
from detoklens.questions.paper.evidence import (
    DETOKENIZING,
    MISSING,
    NO_BIAS,
    SAME_TOKEN,
    Claim,
    Evidence,
    Finding,
    Inapplicable,
    paper_ranks,
)
from detoklens.questions.positions.question import Positions
from detoklens.questions.shape import Shape
from detoklens.questions.study import Study
from detoklens.questions.variance import Variance
from detoklens.scores.layer import Layer
from detoklens.tables.schema import Column, Schema
from detoklens.wording import head_name, listed_some, term_symbol

Outcome = Literal["agrees", "differs", "not applicable"]
NEARLY_EVERY, MOST = 0.8, 0.5
NEAR = 15  # tokens that count as nearby
NAMED = 4  # heads named in a remark
TEXTS = 20  # documents on which attention is computed without a term

PAPER_CLAIMS = Schema(
    "paper_claims",
    "The paper's claims and what this model shows",
    Column("where", "section, figure or table of the paper, or the authors' files", "String"),
    Column("claim", "the claim, with the rule that judges it", "String"),
    Column("verdict", "agrees, differs or not applicable", "String"),
    Column("found", "what this model shows; null if it can't be computed", "String"),
    Column("paper", "what the paper, or the source, says", "String"),
    Column("why", "why it differs or does not apply, or a remark", "String"),
    Column("number", "the number found, where the claim has one"),
    Column("paper_number", "the source's number"),
    Column("source", "the paper's text, or the authors' published files and notebook", "String"),
    Column("command", "the question that gives the evidence", "String"),
)

# the authors' published AUROC of heads 0 to 11, and attention from position 500 in head 7
AUTHORS_AUROC = (0.732, 0.404, 0.549, 0.634, 0.694, 0.286, 0.793, 0.876, 0.445, 0.401, 0.615, 0.806)
AUTHORS_MASSES = {"first": 0.000, "far": 0.007, "recent": 0.830, "self": 0.164}
# the authors' notebook: Tᵉᵉ of the query `iens` in head 7, with its bigram counts
AUTHORS_SCORES = {"Al": (41.4377, 2513), " sap": (41.0090, 9408), " Al": (38.2491, 0), " Sap": (29.0794, 1117)}
AUTHORS_SMALLEST = (" TY", -42.4261)
AUTHORS_TOTALS = {"documents": 8_013_769, "tokens": 9.03e9, "distinct_bigrams": 137e6}  # of OpenWebText

OTHER_CORPUS = "depends on the corpus: the paper counted OpenWebText"
ORDER_OF_IENS = "the caption puts ` sap` first, the authors' notebook `Al`"

# --- how findings are worded


def shown(value: float, digits: int = 2) -> str:
    """`−0.68`."""
    return f"{value:.{digits}f}".replace("-", "−")


def span(values: pl.Series, digits: int = 2) -> str:
    """`0.10 to 0.37`."""
    return f"{shown(values.to_numpy().min(), digits)} to {shown(values.to_numpy().max(), digits)}"


def interval(values: np.ndarray) -> str:
    """`(−47, 127)`."""
    return f"({shown(values.min(), 0)}, {shown(values.max(), 0)})"


def defined(value: float | None) -> float:
    if value is None or np.isnan(value):
        raise Inapplicable("it is undefined here")
    return float(value)


def of_number(found: float | None, paper: float, tolerance: float, digits: int = 2, why: str = "") -> Finding:
    """Whether a number is the paper's, up to a tolerance."""
    number = defined(found)
    return Finding(shown(number, digits), abs(number - paper) <= tolerance, why, number)


def of_gap(gap: float, why: str) -> Finding:
    """Whether two ways to compute the same agree; the difference is shown as a power of ten, as it is rounding."""
    return Finding(f"below 1e{np.ceil(np.log10(max(gap, 1e-12))):.0f}", bool(gap < 1e-4), why, float(gap))


def of_count(found: float, paper: float) -> Finding:
    """Whether a count is the authors', up to 1 %."""
    return Finding(f"{found:,.0f}", abs(found - paper) <= 0.01 * paper, OTHER_CORPUS, float(found))


def of_heads(which: Sequence[bool | None] | pl.Series, share: float, why: str = "", undefined: str = "") -> Finding:
    """Whether a claim holds in at least this share of heads; the others are named. Null everywhere: inapplicable."""
    if all(each is None for each in which):
        raise Inapplicable(undefined or "it is undefined here")
    holds = [bool(each) for each in which]
    others = [head_name(head) for head, each in enumerate(holds) if not each]
    named = f"not in {listed_some(others, NAMED)}" if 0 < len(others) < len(holds) else ""
    remark = "; ".join(part for part in (named, why) if part)
    enough = sum(holds) >= share * len(holds) if share > MOST else sum(holds) > share * len(holds)
    return Finding(f"{sum(holds)} of {len(holds)} heads", enough, remark, float(sum(holds)))


# --- section 3: the decomposition


def _folded(e: Evidence) -> Finding:
    output, folded = e.unfolded[2], e.layer.attention_output(e.random_text)
    largest = np.abs(output).max() or 1.0
    return of_gap(np.abs(output - folded).max() / largest, "relative to the largest entry of the output")


def _terms_add_up(e: Evidence) -> Finding:
    gap = np.abs(e.unfolded[0] - e.layer.terms(e.random_text).attention()).max()
    return of_gap(gap, "in attention, computed directly with the key bias")


def _key_bias(e: Evidence) -> Finding:
    bias = e.layer.weights.key_bias
    if not bias.any():
        raise Inapplicable("the model has no key bias")
    if e.layer.positions == "learned":
        attention, without = e.unfolded[:2]
        why = "it adds the same to all keys of a query, which the softmax cancels"
    else:
        weights = replace(e.layer.weights, key_bias=np.zeros_like(bias))
        unbiased = Layer(replace(e.layer.checkpoint, first_layer=weights))
        attention, without = (layer.terms(e.random_text).attention() for layer in (e.layer, unbiased))
        why = "rotary positions turn the key bias with the key, so it does not cancel"
    return of_gap(np.abs(attention - without).max(), why)


# --- section 4: token terms


def _ranks_of_iens(e: Evidence, keys: Sequence[str], head: int, why: str = "") -> Finding:
    wanted = np.array([e.token(key) for key in keys])
    queries = np.full(len(keys), e.token("iens"))
    ranks = pair_ranks(e.layer.token_affinity("mean", heads=[head]), queries, wanted[None])[0][0, 0].tolist()
    found = " and ".join(map(str, ranks))
    agrees = sorted(ranks) == [*range(1, len(keys) + 1)]
    return Finding(f"rank{'s' * (len(keys) > 1)} {found}", agrees, why, ranks[0])


def _table_1(e: Evidence) -> Finding:
    ranks = paper_ranks(e.layer)
    if ranks is None:
        raise Inapplicable("the model has none of its tokens and heads")
    known = ranks["difference"].drop_nulls()
    same, near = int((known == 0).sum()), int((known.abs() <= 1).sum())
    return Finding(f"{same} of {len(known)} equal, {near} within 1", near >= 32, "", near)


def _two_kinds(e: Evidence) -> Finding:
    number = int((e.sampled["self_match"] >= 2).sum())
    return Finding(f"{number} of {e.layer.n_heads} heads have one", 0 < number < e.layer.n_heads, "", number)


def _token_range(e: Evidence, head: int, ends: tuple[int, int], note: str = "") -> Finding:
    found = np.array([e.sampled[name][head] for name in ("minimum", "maximum")])
    return Finding(interval(found), bool((np.abs(found - ends) <= 2).all()), note)


def _diagonals(e: Evidence) -> Finding:
    one, seven = (float(e.sampled["self_match"][head]) for head in (SAME_TOKEN, DETOKENIZING))
    return Finding(f"self-match {shown(one, 1)} and {shown(seven, 1)}", one >= 2 > seven, "", one)


def _published_score(e: Evidence, key: str, score: float) -> Finding:
    return of_number(float(e.published_scores[e.token(key)]), score, 0.05, 4)


def _count_before_iens(e: Evidence, key: str, count: int) -> Finding:
    if e.study.counts is None:
        raise Inapplicable(MISSING["counts"])
    keys, counts = e.study.counts.predecessors(e.token("iens"))
    return of_count(int(counts[keys == e.token(key)].sum()), count)


def _smallest_score(e: Evidence) -> Finding:
    scores, (key, paper) = e.published_scores, AUTHORS_SMALLEST
    lowest, score = int(scores.argmin()), float(scores.min())
    agrees = lowest == e.token(key) and abs(score - paper) <= 0.05
    return Finding(f"`{e.layer.token(lowest)}`, {shown(score, 4)}", agrees, "", score)


def _auroc_of(e: Evidence, token: str) -> list[float]:
    """AUROC of a query token in heads 1 and 7."""
    asked = Auroc(tokens=[e.token(token)], heads=[SAME_TOKEN, DETOKENIZING], controls=False)
    by_token = e.ask(asked)["auroc_by_token"].sort("head")
    return [defined(value) for value in by_token["auroc"]]


def _curves(e: Evidence, token: str) -> Finding:
    one, seven = _auroc_of(e, token)
    return Finding(f"AUROC {seven:.2f} and {one:.2f}", seven > one, OTHER_CORPUS, seven)


def of_verdict(answer: Answer) -> Finding:
    """The heads of a question's verdict, which names its controls."""
    verdict = answer.verdict
    if verdict is None or verdict.value == "untestable":
        raise Inapplicable("untestable: " + ("no verdict" if verdict is None else verdict.reason))
    return Finding(listed_some(verdict.heads, NAMED) or "no head", bool(verdict), verdict.reason, len(verdict.heads))


def _largest_auroc(e: Evidence) -> Finding:
    best = e.ask(Auroc())["auroc_by_head"].sort("all", descending=True).row(0, named=True)
    return Finding(f"{head_name(best['head'])} ({best['all']:.3f})", best["head"] == DETOKENIZING, "", best["head"])


def _all_aurocs(e: Evidence) -> Finding:
    found = e.ask(Auroc())["auroc_by_head"].sort("head")["all"].to_numpy()
    gap = float(np.abs(found - AUTHORS_AUROC).max())
    return Finding(_thousandths(found), gap <= 0.03, f"largest difference {gap:.3f}; {OTHER_CORPUS}", gap)


def _thousandths(values: Sequence[float] | np.ndarray) -> str:
    """`.732 .404`."""
    return " ".join(f"{value:.3f}".removeprefix("0") for value in values)


def _diagonal_heads(e: Evidence) -> Finding:
    by_head = e.ask(Auroc(pieces=True))["auroc_by_head"].sort("head")
    if e.layer.n_heads < 8 or by_head["seen"].null_count():
        raise Inapplicable("it needs at least eight heads with an AUROC")
    found = defined(spearman(e.sampled["self_match"], np.argsort(np.argsort(by_head["seen"].to_numpy()))))
    return Finding(f"ρ {shown(found)}", found < -0.5, "over heads", found)


def _corpus(e: Evidence, total: str) -> Finding:
    if e.study.counts is None:
        raise Inapplicable(MISSING["counts"])
    found = e.study.counts.manifest.get("totals", {}).get(total)
    if found is None:
        raise Inapplicable("the counts don't record it")
    return of_count(found, AUTHORS_TOTALS[total])


# --- section 5: position terms


def _rising(e: Evidence) -> Finding:
    known = e.shape_from(2)["monotone"]
    falling = [head_name(head) for head, value in enumerate(known) if value is not None and value <= -0.9]
    why = f"falls in {listed_some(falling, NAMED)}" if falling else ""
    return of_heads(known >= 0.9, NEARLY_EVERY, why, NO_BIAS)


def _like_alibi(e: Evidence) -> Finding:
    shape = e.shape_from(2)
    slopes = shape["alibi_slope"]
    holds = (slopes >= 2.0**-8) & (slopes <= 2.0 ** (-8 / e.layer.n_heads)) & shape["monotone"].is_not_null()
    if shape["monotone"].null_count() == len(shape):
        raise Inapplicable(NO_BIAS)
    return of_heads(holds, NEARLY_EVERY, f"slopes of {span(slopes, 4)}")


def _waves(e: Evidence) -> Finding:
    known = e.shape_from(2).select("sinusoidal", "period")
    found = known.filter("sinusoidal")
    why = f"periods of {span(found['period'], 0)} positions" if len(found) else ""
    return of_heads(known["sinusoidal"], MOST, why, "fewer than 48 keys or 1.5 periods are in view")


def _near_is_higher(e: Evidence, quantity: str) -> Finding:
    """Heads whose mean over the last 15 keys exceeds the mean over the others, from the middle query position."""
    rows = e.curve(quantity)
    query = rows["query_position"][0]
    near = pl.col("key_position") > query - NEAR
    visible = rows.filter(pl.col("key_position") <= query).group_by("head")
    means = visible.agg(higher=pl.col("mean").filter(near).mean() > pl.col("mean").filter(~near).mean())
    return of_heads(means.sort("head")["higher"], NEARLY_EVERY, "", f"fewer than {NEAR + 1} keys are in view")


def _local(e: Evidence) -> Finding:
    there = e.shape_from(1)
    holds = there["last_15"] > 0.5
    local = [head_name(head) for head, near in enumerate(holds) if near]
    why = f"from position {there['query_position'][0]}; only {listed_some(local, NAMED)}" if local else ""
    return of_heads(holds, MOST)._replace(why=why)


def _local_heads(e: Evidence) -> Finding:
    one, seven = (float(e.shape_from(1)["last_15"][head]) for head in (SAME_TOKEN, DETOKENIZING))
    return Finding(f"{one:.2f} and {seven:.2f}", min(one, seven) > 0.5, "", seven)


def _suppressed(e: Evidence) -> Finding:
    """From the last query position that has 1.5 periods of a wave in view."""
    known = e.ask(Shape())["shape"].drop_nulls("wave_effect")
    if known.is_empty():
        raise Inapplicable("fewer than 1.5 periods of the wave are in view")
    query = max(known["query_position"])
    effects = known.filter(query_position=query)["wave_effect"]
    why = f"from position {query}, {len(effects)} of {e.layer.n_heads} heads"
    return Finding(span(effects), int((effects <= 0.1).sum()) > len(effects) / 2, why, float(effects.to_numpy().max()))


def _position_range(e: Evidence) -> Finding:
    pp, both = (e.curve(quantity).filter(head=SAME_TOKEN)["mean"].to_numpy() for quantity in ("pp", "p+pp"))
    agrees = bool(abs(pp.min() + 40) <= 10 and abs(pp.max()) <= 10)
    return Finding(interval(pp), agrees, f"Tᵖ + Tᵖᵖ, the paper's Figure 3C, lies in {interval(both)}", float(pp.min()))


def _narrower(e: Evidence) -> Finding:
    pp = float(np.ptp(e.curve("pp").filter(head=SAME_TOKEN)["mean"].to_numpy()))
    ee = float(e.sampled["maximum"][SAME_TOKEN] - e.sampled["minimum"][SAME_TOKEN])
    return Finding(f"{pp:.0f} against {ee:.0f}", pp < ee, "Tᵖᵖ from the middle query position, Tᵉᵉ of 100 tokens", pp)


def _masses(e: Evidence) -> Finding:
    row = e.agreement(DETOKENIZING)
    found = [row[f"measured_{region}"] for region in AUTHORS_MASSES]
    agrees = bool((np.abs(np.subtract(found, [*AUTHORS_MASSES.values()])) <= 0.03).all())
    return Finding(_thousandths(found), agrees, OTHER_CORPUS, found[2])


def _token_pairs_dominate(e: Evidence) -> Finding:
    """Total variation from the prediction of positions, with and without Tᵉᵉ, in the head that departs most."""
    if not e.layer.is_causal:
        raise Inapplicable(MISSING["causal"])
    worst = e.agreement()
    head, query = worst["head"], worst["query_position"]
    keys = e.ask(Attention(prepend_bos=False))["attention"].filter(head=head, query_position=query)
    documents = [ids[: query + 1] for ids in e.study.read(False) if len(ids) > query][:TEXTS]
    terms = [e.layer.terms(ids) for ids in documents]
    predicted = keys.sort("key_position")["predicted"].to_numpy()
    whole, without = (
        float(np.abs(np.mean([row[head, query] for row in rows], axis=0) - predicted).sum() / 2)
        for rows in ([each.attention() for each in terms], [each.attention_without("ee") for each in terms])
    )
    why = f"{len(documents)} documents, from position {query}"
    return Finding(f"{head_name(head)}: {whole:.2f}, {without:.2f} without Tᵉᵉ", without < whole / 2, why, without)


# --- section 6: the other terms, LayerNorm and the ends of the position table


def _order_of_terms(e: Evidence) -> Finding:
    by_head = e.contributions("contributions_by_head")
    if by_head["term"].n_unique() < 6:
        raise Inapplicable("the model has fewer than six terms")
    means = by_head.group_by("term").agg(pl.col("kl").mean()).sort("kl", descending=True)
    order, kl = means["term"].to_list(), dict(means.iter_rows())
    agrees = set(order[:3]) == {"ee", "p", "pp"} and order[3] == "e"
    return Finding(" ".join(order), agrees, f"largest: {term_symbol(order[0])}, {kl[order[0]]:.2f} nats", kl[order[0]])


def _groups(e: Evidence) -> Finding:
    by_group = e.contributions("contributions_by_group").group_by("group").agg(pl.col("kl").mean())
    kl = dict(by_group.iter_rows())
    groups = ("position", "token", "mixed")
    if not kl.keys() >= set(groups):
        raise Inapplicable("the model has no such groups of terms")
    found = ", ".join(f"{group} {kl[group]:.2f}" for group in groups)
    return Finding(f"{found} nats", kl["mixed"] < min(kl["position"], kl["token"]), "", kl["position"])


def _biases(e: Evidence) -> Finding:
    rows = e.contributions("contributions_by_group").filter(group="self-assertion").sort("kl", descending=True)
    if rows.is_empty() or not e.layer.has_biases:
        raise Inapplicable("the model has no query bias")
    why = f"most in {head_name(rows['head'][0])}: {rows['kl'][0]:.2f} nats"
    return of_heads(rows.sort("head")["kl"] >= 0.1, MOST, why)


def _assertion(e: Evidence, head: int, paper: float) -> Finding:
    by_head = e.frequency().tables["frequency_by_head"]
    return of_number(by_head.filter(head=head)["spearman"][0], paper, 0.03, 2, OTHER_CORPUS)


def _several(e: Evidence) -> Finding:
    known = e.frequency().tables["frequency_by_head"].drop_nulls("spearman").sort("head")
    if known.is_empty():
        raise Inapplicable("Tᵉ is constant without a query bias")
    high = known.filter(pl.col("spearman").abs() >= 0.5)["head"]
    return Finding(f"{len(high)} of {len(known)} heads", len(high) >= 2, f"ρ from {span(known['spearman'])}", len(high))


def _rare(e: Evidence) -> Finding:
    found = defined(e.frequency().tables["embedding_variance"]["spearman"][0])
    if e.is_gpt2:
        return of_number(found, -0.63, 0.03, 2, OTHER_CORPUS)
    return Finding(shown(found), found < -0.3, "", found)


def _equalized(e: Evidence) -> Finding:
    row = e.ask(Frequency())["embedding_variance"].row(0, named=True)
    before, after = defined(row["norm_variance"]), defined(row["divided_norm_variance"])
    if not before:
        raise Inapplicable("all norms are equal")
    return Finding(f"{before:.3f} to {after:.3f}", after < before / 20, "", after)


def _covariance(e: Evidence) -> Finding:
    found = defined(e.ask(Frequency())["embedding_variance"]["variance_to_covariance"][0])
    return Finding(f"{found:.0f} times", abs(found - 46) <= 1 if e.is_gpt2 else found >= 10, "", found)


def _constant(e: Evidence) -> Finding:
    variance = e.variances()["variance"].to_numpy()
    median = float(np.median(variance))
    share = float((np.abs(variance - median) <= median / 4).mean()) if median else 0.0
    return Finding(f"{100 * share:.0f} %", share >= 0.9, f"median {median:.4g}", share)


def _end(e: Evidence, place: int) -> Finding:
    """Whether the first position is an outlier above the median, or the last one below it."""
    found = e.variances()
    value = found["variance"][place]
    ratio = value / float(np.median(found["variance"]))
    agrees = bool(found["outlier"][place]) and (ratio > 1 if place == 0 else ratio < 1)
    return Finding(f"{ratio:.2g} times the median", agrees, f"variance {value:.3g}", ratio)


def _step(e: Evidence) -> Finding:
    parts = {"constant": _constant(e), "first": _end(e, 0), "last": _end(e, -1)}
    found = [name for name, part in parts.items() if part.agrees]
    return Finding(f"{len(found)} of 3", len(found) == 3, f"holds: {listed_some(found, NAMED)}" if found else "")


def _overtaken(e: Evidence) -> Finding:
    rows = e.ask(Positions())["positions"].filter(quantity="p", layer_norm=True)
    if not rows["mean"].to_numpy().any():
        raise Inapplicable(NO_BIAS)
    last = e.shape_from(2)["query_position"][0]
    near = pl.col("key_position").is_between(last - NEAR + 1, last)
    first = pl.col("mean").filter(pl.col("key_position") == 0).first()
    by_head = rows.group_by("head").agg(higher=pl.col("mean").filter(near).mean() > first)
    return of_heads(by_head.sort("head")["higher"].fill_null(False), NEARLY_EVERY, f"from position {last}")


def _sink(e: Evidence) -> Finding:
    reach = e.ask(Shape())["reach"].filter(pl.col("query_position") > 0)
    if reach.is_empty():
        raise Inapplicable("there is one position")
    means = reach.group_by("head").mean().sort("head")
    own, usual = means["on_first"], means["on_first_usual_scale"]
    best = int((own - usual).arg_max() or 0)
    return of_heads(own > usual, NEARLY_EVERY, f"most in {head_name(best)}: {usual[best]:.3f} to {own[best]:.3f}")


def _values(e: Evidence) -> Finding:
    ratio = e.ask(Variance())["switch"].sort("head")["value_norm_ratio"]
    if ratio.null_count():
        raise Inapplicable("it is undefined here")
    found = of_heads(ratio < 1, NEARLY_EVERY, f"norm {span(ratio)} of theirs")
    return found._replace(number=float(np.median(1 / ratio.to_numpy())))


def _flat(e: Evidence) -> Finding:
    found = e.ask(Variance())["undertrained"].sort("head")
    if found["undertrained"].null_count():
        raise Inapplicable("untestable: the rows before it are untrained or too few")
    why = f"{span(found['usual_size'] / found['size'], 0)} times smaller than from the four before"
    return of_heads(found["undertrained"], 1.0, why)


def _overlap(e: Evidence) -> Finding:
    found = e.ask(Variance())["undertrained"].sort("head")["usual_departure"]
    if found.null_count():
        raise Inapplicable("there are too few positions")
    return of_heads(found <= 0.1, 1.0, f"departures of {span(found)}")


def _open_question(_e: Evidence) -> Finding:
    raise Inapplicable("an open question in the paper; see detoklens lookback")


# --- the claims, in the paper's order

ONE, SEVEN = head_name(SAME_TOKEN), head_name(DETOKENIZING)
published = partial(Claim, only="gpt2", source="authors' files")
positional = partial(Claim, only="learned", tokens="norms")
of_weights = partial(Claim, only="learned", tokens="none")

# fmt: off
CLAIMS: tuple[Claim, ...] = (
    Claim("Abstract, § 6.1",
        "removing mixed effects (ep, pe) changes attention less than position (p, pp) or token (e, ee), mean of heads",
        "quantified", "contributions", _groups),
    of_weights("§ 3.2 to 3.4, eqs 2 to 10, app. B",
        "folding LayerNorm into the projections is exact: relative difference of the output below 1e-4", "equivalent",
        "verify", _folded),
    Claim("§ 3.4", "the key bias has no effect on attention: largest difference without it below 1e-4", "meaningless",
        "explain", _key_bias, tokens="none"),
    of_weights("§ 3.5, eq. 11", "the terms add up to the attention: largest difference below 1e-4", "exact", "explain",
        _terms_add_up),
    Claim("§ 4.1, Fig. 2A", "for `iens`, ` sap` has the largest Tᵉᵉ in L0H4", "rank 1", "partners",
        lambda e: _ranks_of_iens(e, [" sap"], 4), "gpt2", number=1),
    Claim("§ 4.1, Fig. 2A", f"for `iens`, ` sap` and `Al` have the two largest Tᵉᵉ in {SEVEN}", "ranks 1 and 2",
        "partners", lambda e: _ranks_of_iens(e, [" sap", "Al"], DETOKENIZING, ORDER_OF_IENS), "gpt2"),
    Claim("Table 1", "34 ranks of preceding tokens: at least 32 within 1 of the paper's", "34 ranks", "paper", _table_1,
        "gpt2 number", number=34),
    Claim("§ 4.2, Fig. 2B", "some heads have a diagonal (self-match of at least 2 standard deviations), some do not",
        "two kinds", "heatmap", _two_kinds),
    Claim("§ 4.2, Fig. 2B", f"{ONE} has a clear diagonal and {SEVEN} has none", "L0H1 only", "heatmap", _diagonals,
        "gpt2"),
    Claim("§ 4.2, Fig. 2B", f"range of Tᵉᵉ over the authors' 100 tokens in {ONE}, ends within 2", "(−47, 127)",
        "heatmap", lambda e: _token_range(e, SAME_TOKEN, (-47, 127), "§ 5.4 gives (−50, 100)"), "gpt2"),
    Claim("§ 4.2, Fig. 2B", f"range of Tᵉᵉ over the authors' 100 tokens in {SEVEN}, ends within 2", "(−35, 31)",
        "heatmap", lambda e: _token_range(e, DETOKENIZING, (-35, 31)), "gpt2"),
    *(published("notebook", f"Tᵉᵉ of `iens` and `{key}` in {SEVEN}, published σ, within 0.05", f"{score:.4f}",
        "partners", partial(_published_score, key=key, score=score),
        number=score)
        for key, (score, _) in AUTHORS_SCORES.items()),
    published("notebook", f"smallest Tᵉᵉ of `iens` in {SEVEN}, published σ, within 0.05", "` TY`, −42.4261", "partners",
        _smallest_score, number=AUTHORS_SMALLEST[1]),
    *(published("notebook", f"bigram count of `{key}` and `iens`, within 1 %", f"{count:,}", "auroc",
        partial(_count_before_iens, key=key, count=count), number=count)
        for key, (_, count) in AUTHORS_SCORES.items()),
    *(Claim("§ 4.2, Fig. 2C", f"the ROC curve of `{token}` is higher in {SEVEN} than in {ONE}: larger AUROC", "curves",
        "auroc", partial(_curves, token=token), "gpt2")
        for token in ("iens", " Jackson")),
    published("notebook, Fig. 2C", f"AUROC of `iens` in {SEVEN}, within 0.02", "0.90", "auroc",
        lambda e: of_number(_auroc_of(e, "iens")[1], 0.90, 0.02, 2, OTHER_CORPUS), number=0.90),
    Claim("§ 4.2, Fig. 2D", "some head ranks frequent bigrams high: lexical beyond its controls", "several heads",
        "auroc", lambda e: of_verdict(e.answer(Auroc(pieces=True)))),
    Claim("§ 4.2, Fig. 2D", f"{SEVEN} has the largest mean AUROC", SEVEN, "auroc", _largest_auroc, "gpt2",
        number=DETOKENIZING),
    published("published files, Fig. 2D", "mean AUROC of heads 0 to 11: largest difference at most 0.03",
        _thousandths(AUTHORS_AUROC), "auroc", _all_aurocs),
    Claim("§ 4.2", "heads with a diagonal detokenize less: rank correlation of self-match and AUROC below −0.5",
        "less likely", "heads", _diagonal_heads),
    *(published("published files, OpenWebText", f"{name.replace('_', ' ')} counted, within 1 %", f"{total:,.0f}",
        "count", partial(_corpus, total=name), number=total)
        for name, total in AUTHORS_TOTALS.items()),
    positional("§ 5.1, Fig. 3A", "Tᵖ rises along the keys in nearly every head: rank correlation at least 0.9",
        "monotone", "shape", _rising),
    positional("§ 5.1, Fig. 3A", "Tᵖ is a line in nearly every head: R² at least 0.9, above random walks", "linear",
        "shape",
        lambda e: of_heads(e.shape_from(2)["linear"], NEARLY_EVERY, "", "too few positions, or Tᵖ is constant")),
    positional("§ 1, § 2.2",
        "the line is like ALiBi's: slope / √d′ from 2⁻⁸ to 2^(−8 / heads), ALiBi's own range, in nearly every head",
        "similar", "shape", _like_alibi),
    positional("§ 5.2, Fig. 3B", "Tᵖᵖ is a wave in most heads: half of its power in one wave, above random walks",
        "undulating", "shape", _waves),
    positional("§ 5.2, Fig. 3B", "Tᵖᵖ is higher on the last 15 tokens than elsewhere in nearly every head",
        "close tokens", "positions", lambda e: _near_is_higher(e, "pp")),
    positional("§ 5.3, Fig. 3C", "Tᵖ + Tᵖᵖ is higher on the last 15 tokens than elsewhere in nearly every head",
        "nearby", "positions", lambda e: _near_is_higher(e, "p+pp")),
    Claim("§ 5.3, Fig. 3D", "by position alone, most heads attend to the last 15 tokens: more than half of the softmax",
        "concentrated on nearby tokens", "shape", _local, tokens="norms"),
    Claim("§ 5.3, Fig. 3D", f"{ONE} and {SEVEN} by position alone: more than half on the last 15 tokens", "both",
        "shape", _local_heads, "gpt2", "norms"),
    positional("§ 5.3, Fig. 3D",
        "the softmax suppresses the wave: total variation without it at most 0.1 in most heads", "almost entirely",
        "shape", _suppressed),
    Claim("§ 5.4, Fig. 3E", f"on text, {SEVEN} attends as positions predict: total variation at most 0.15", "similar",
        "attention", lambda e: of_number(e.agreement(DETOKENIZING)["total_variation"], 0, 0.15), "gpt2"),
    published("published files, Fig. 3E", f"{SEVEN} from 500 on [0 | 1–484 | 485–499 | itself], each within 0.03",
        _thousandths([*AUTHORS_MASSES.values()]), "attention", _masses),
    Claim("§ 5.4, Fig. 3E", f"on text, {ONE} attends mostly to itself: more than half", "predominantly", "attention",
        lambda e: of_number(e.agreement(SAME_TOKEN)["measured_self"], 1, 0.5), "gpt2"),
    Claim("§ 5.4",
        "in the head that departs most from positions alone on text, Tᵉᵉ is the cause: without it, the distance halves",
        "attributed to Tᵉᵉ", "attention", _token_pairs_dominate, "learned"),
    Claim("§ 5.4, Fig. 3B", f"Tᵖᵖ of {ONE} lies in (−40, 0) across positions, ends within 10", "(−40, 0)", "positions",
        _position_range, "gpt2", "norms"),
    Claim("§ 5.4", f"in {ONE}, Tᵖᵖ has a narrower range than Tᵉᵉ", "narrower", "heatmap", _narrower, "gpt2"),
    Claim("§ 6.1, Fig. 4", "ee, p and pp contribute most, then e, then pe and ep (mean over heads)",
        "ee p pp > e > pe ep", "contributions", _order_of_terms),
    Claim("§ 6.2, Fig. 5", f"Spearman of Tᵉ with frequency in {SEVEN}, within 0.03", "−0.68", "frequency",
        lambda e: _assertion(e, DETOKENIZING, -0.68), "gpt2", number=-0.68),
    Claim("§ 6.2, Fig. 5", f"Spearman of Tᵉ with frequency in {ONE}, within 0.03", "−0.31", "frequency",
        lambda e: _assertion(e, SAME_TOKEN, -0.31), "gpt2", number=-0.31),
    Claim("§ 6.2, Fig. 5", "several heads' Tᵉ has a high correlation with frequency: |ρ| at least 0.5 in two or more",
        "several heads", "frequency", _several),
    Claim("§ 6.3, Fig. 5",
        "frequency can be read after LayerNorm: some head's Tᵉ follows it beyond random query biases",
        "can be extracted", "frequency", lambda e: of_verdict(e.frequency())),
    Claim("§ 6.3, Fig. 6",
        "rare tokens have a high variance: Spearman of Var(e) with frequency below −0.3, in GPT-2 small within 0.03",
        "−0.63", "frequency", _rare, number=-0.63),
    Claim("§ 6.3", "variance of the token norms, within 0.005 in GPT-2 small", "0.19", "frequency",
        lambda e: of_number(e.ask(Frequency())["embedding_variance"]["norm_variance"][0], 0.19, 0.005, 3),
        "gpt2 number", "none", number=0.19),
    Claim("§ 6.3", "LayerNorm equalizes the norms: their variance falls to less than a twentieth", "0.19 to 0.00",
        "frequency", _equalized),
    Claim("§ 6.3, footnote", "Var(e) is at least ten times the mean |Cov(e, p)|, in GPT-2 small 45 to 47 times",
        "46 times", "frequency", _covariance, "learned", number=46),
    of_weights("§ 6.4, Fig. 6", "the variance of most positions is constant: 90 % within a quarter of the median",
        "constant", "variance", _constant),
    of_weights("§ 6.4, Fig. 6", "position 0 has an exceptionally high variance: an outlier above the median", "first",
        "variance", lambda e: _end(e, 0)),
    of_weights("§ 6.4, Fig. 6", "the last position has an exceptionally low variance: an outlier below the median",
        "last", "variance", lambda e: _end(e, -1)),
    of_weights("§ 6.4", "the variance is a step function: the three rows above hold", "step", "variance", _step),
    of_weights("§ 6.4", "Tᵖ at position 0 is negative without LayerNorm in nearly every head", "negative", "variance",
        lambda e: of_heads(e.switch()["first_without_norm"] < 0, NEARLY_EVERY)),
    positional("§ 6.4", "σ raises Tᵖ at position 0 above the next ten positions in nearly every head",
        "exceptionally high", "variance",
        lambda e: of_heads((e.switch()["by_scale"] > 0) & (e.switch()["jump"] > 0), NEARLY_EVERY)),
    positional("§ 6.4",
        "its σ raises the attention on position 0, by position alone, in nearly every head (mean over queries)",
        "amplified", "shape", _sink),
    positional("§ 6.4, Fig. 3D",
        "the sink fades with length: less than 5 % on position 0 from the middle in nearly every head", "suppressed",
        "shape", lambda e: of_heads(e.shape_from(1)["on_first"] < 0.05, NEARLY_EVERY)),
    positional("§ 6.4", "in a long text, Tᵖ of the last 15 tokens exceeds Tᵖ of position 0 in nearly every head",
        "exceed", "positions", _overtaken),
    Claim("§ 6.4", "value vectors at position 0 are shorter than at the next ten positions in nearly every head",
        "19.4 times (GPT-2 medium, Gurnee et al.)", "variance", _values, "learned"),
    of_weights("§ 6.4, Fig. 7",
        "Tᵖᵖ without LayerNorm is flat from the last position: it departs as if untrained in every head",
        "flat at 1023", "variance", _flat),
    of_weights("§ 6.4, Fig. 7",
        "Tᵖᵖ from the four positions before it overlaps: departures of at most 0.1 in every head", "overlap",
        "variance", _overlap),
    Claim("Limitations",
        "biases matter: removing self-assertion (e, p) changes attention by at least 0.1 nats in most heads",
        "raises the question", "contributions", _biases),
    Claim("Limitations", "where is the switch that turns detokenization off for single-token words?", "open",
        "lookback", _open_question),
)
# fmt: on


def judged(study: Study, claims: Sequence[Claim] = CLAIMS) -> pl.DataFrame:
    """One row per claim, as PAPER_CLAIMS."""
    evidence, rows = Evidence(study), []
    for claim in claims:
        found = evidence.judge(claim)
        verdict: Outcome = "not applicable" if found.agrees is None else "agrees" if found.agrees else "differs"
        row = (claim.where, claim.text, verdict, found.found or None, claim.says, found.why or None, found.number)
        rows.append((*row, claim.number, claim.source, claim.command))
    return PAPER_CLAIMS.of_rows(rows)
