"""Which key tokens does a query token look for?"""

from __future__ import annotations

from detoklens.tables.schema import HEAD, Schema
from detoklens.tables.tokens import (
    BIGRAM_COUNT,
    JOINED,
    KEY_TOKEN,
    KEY_TOKEN_ID,
    QUERY_TOKEN,
    QUERY_TOKEN_ID,
    RANK,
    SCORE,
)

PARTNERS = Schema(
    "partners",
    "Which key tokens have the largest T^ee with a query token, in every head?",
    (HEAD, QUERY_TOKEN_ID, QUERY_TOKEN, RANK, KEY_TOKEN_ID, KEY_TOKEN, SCORE, JOINED, BIGRAM_COUNT),
)
