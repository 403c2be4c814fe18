"""Columns of tokens and of pairs of tokens, worded once for every table that has them."""

from __future__ import annotations

from detoklens.tables.schema import Column

TOKEN_ID = Column("token_id", "Int32", "id of the token")
TOKEN = Column("token", "String", "text of the token; null without a tokenizer")
QUERY_TOKEN_ID = Column("query_token_id", "Int32", "id of the token that attends")
QUERY_TOKEN = Column("query_token", "String", "text of the token that attends; null without a tokenizer")
KEY_TOKEN_ID = Column("key_token_id", "Int32", "id of the token attended to")
KEY_TOKEN = Column("key_token", "String", "text of the token attended to; null without a tokenizer")
SCORE = Column("score", "Float32", "Tᵉᵉ of the pair; with centring, less the key's mean over all query tokens")
RANK = Column("rank", "Int32", "place of the key among all key tokens by score, 1 is the largest; ties by token id")
JOINED = Column("joined", "String", "text of the key followed by the query, as they stand in running text")
BIGRAM_COUNT = Column("count", "Int64", "how often the key is followed by the query in the corpus")
