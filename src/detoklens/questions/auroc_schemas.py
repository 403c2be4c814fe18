"""What do the columns of `Auroc`'s tables mean?"""

from __future__ import annotations

from detoklens.tables.schema import HEAD, Column, Schema


def _with_interval(name: str, meaning: str) -> tuple[Column, Column, Column]:
    return (
        Column(name, "Float64", meaning),
        Column(
            f"{name}_low", "Float64", f"lower end of the 95 % interval of {name} over query tokens, for this vocabulary"
        ),
        Column(
            f"{name}_high",
            "Float64",
            f"upper end of the 95 % interval of {name} over query tokens, for this vocabulary",
        ),
    )


def _ends(*names: str) -> tuple[Column, ...]:
    return tuple(column for name in names for column in _with_interval(name, "")[1:])


TOKEN_ID = Column("token_id", "Int32", "id of the query token")
TOKEN = Column("token", "String", "text of the query token")

AUROC_BY_TOKEN = Schema(
    "auroc_by_token",
    "How well does a head rank the tokens that precede a token above all others?",
    (
        HEAD,
        TOKEN_ID,
        TOKEN,
        Column("auroc", "Float64", "weighted AUROC of the query token; null without positives or without negatives"),
        Column("positives", "Int64", "key tokens that count as positives"),
        Column("bigrams", "Int64", "total weight of the positives: with counts, how many bigrams end in the token"),
    ),
)

AUROC_BY_HEAD = Schema(
    "auroc_by_head",
    "Which heads detokenize: how high is a head's AUROC, averaged over query tokens?",
    (
        HEAD,
        *_with_interval("seen", "mean AUROC over the query tokens that have one"),
        *_with_interval("all", "mean over all query tokens, an undefined AUROC counted as 0: the paper's code"),
        *_with_interval("weighted", "mean over the query tokens that have one, weighted by their bigrams"),
        Column("tokens", "Int64", "query tokens asked about"),
        Column("tokens_seen", "Int64", "query tokens whose AUROC is defined"),
    ),
)

AUROC_CONTROLS = Schema(
    "auroc_controls",
    "How much of a head's AUROC remains when the query, or the key, is exchanged, or frequency alone ranks the keys?",
    (
        HEAD,
        Column("auroc", "Float64", "mean AUROC over the query tokens that have one: `seen` of auroc_by_head"),
        Column("shuffled_queries", "Float64", "the same with each token's positives scored by another token's row"),
        Column("permuted_keys", "Float64", "the same with key tokens permuted among tokens of equal frequency"),
        *_with_interval("within_class", "the same with a row of the same class and frequency, over 8 draws"),
        *_with_interval("above_within_class", "auroc minus within_class, over the query tokens that have both"),
        Column("within_class_tokens", "Int64", "query tokens that have both: a token alone in its class is left out"),
        Column("frequency", "Float64", "the same where a key's score is its corpus count: no head at all"),
        Column("above_null", "Float64", "auroc minus the larger of the two nulls"),
        Column("above_frequency", "Float64", "auroc minus the frequency baseline"),
        *_ends("auroc", "shuffled_queries", "permuted_keys", "frequency", "above_null", "above_frequency"),
        *_with_interval("matched", "auroc with frequency-matched negatives: keys of the positive's own stratum"),
        *_with_interval("matched_null", "the larger of shuffled_queries and ½, what permuted_keys gives, matched"),
        *_with_interval("matched_above_null", "matched minus matched_null"),
        *_with_interval("matched_frequency", "frequency with matched negatives: 0.5 where strata leave nothing of it"),
        Column("strata", "Int32", "strata of equally frequent tokens; those never seen are one of their own"),
    ),
)

PRECISION_BY_HEAD = Schema(
    "precision_by_head",
    "How many of the keys that a head ranks first are positives?",
    (
        HEAD,
        Column("average_precision", "Float64", "mean over seen query tokens of the weighted average precision"),
        Column("chance_average_precision", "Float64", "the same for a constant score: the positives' share of weight"),
        Column("k", "Int32", "how many of the first keys are looked at"),
        Column("precision_at_k", "Float64", "mean over seen query tokens of the positives' share of the first k keys"),
        Column("chance_precision_at_k", "Float64", "the same for a constant score: the positives' share of all keys"),
    ),
)

PRECISION_BY_TOKEN = Schema(
    "precision_by_token",
    "How many of the keys that a head ranks first are positives of this query token?",
    (
        HEAD,
        TOKEN_ID,
        TOKEN,
        Column("average_precision", "Float64", "weighted average precision; null where the AUROC is undefined"),
        Column("k", "Int32", "how many of the first keys are looked at"),
        Column("precision_at_k", "Float64", "positives among the first k keys, divided by k; ties in expectation"),
    ),
)

ROC_POINTS = Schema(
    "roc_points",
    "What share of the positives stands above each threshold, and what share of the negatives?",
    (
        HEAD,
        TOKEN_ID,
        TOKEN,
        Column("threshold", "Float32", "keys with at least this score count as found; null for none found"),
        Column("false_positive_rate", "Float64", "share of the negatives found"),
        Column("true_positive_rate", "Float64", "share of the positives' weight found"),
    ),
)

HEAD_OF_LAYER = Column("head", "Int32", "attention head of the layer asked about, from 0")
AUROC_VALIDITY = Schema(
    "auroc_validity",
    "Beyond layer 0: do predicted scores say what the real ones are?",
    (
        HEAD_OF_LAYER,
        Column("layer", "Int32", "the layer, from 0"),
        Column("correlation", "Float64", "rank correlation of Tᵉᵉ by closed-world inputs with real scores"),
        Column("links", "Int64", "links from a token of the text to the one asked about: by default the token before"),
        Column("pieces_correlation", "Float64", "the same over the links of tokens that go on with a word"),
        Column("pieces_links", "Int64", "those links"),
    ),
)
OF_HEADS = (AUROC_BY_HEAD, AUROC_CONTROLS, PRECISION_BY_HEAD)
_SHOWN = ["head", "seen", "seen_low", "seen_high", "shuffled_queries", "permuted_keys"]
_SHOWN += ["within_class", "frequency", "matched"]
_SHOWN += [
    "matched_low",
    "matched_high",
    "matched_null",
    "matched_frequency",
    "all",
    "weighted",
    "average_precision",
    "k",
]
_SHOWN += ["precision_at_k", "tokens_seen"]
_COLUMNS = {column.name: column for schema in OF_HEADS for column in schema.columns}
GLANCE = Schema("auroc", "Which heads rank the right keys first?", tuple(_COLUMNS[name] for name in _SHOWN))
