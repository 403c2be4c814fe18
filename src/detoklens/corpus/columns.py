"""Which columns do the files of finished counts have?"""

from __future__ import annotations

import pyarrow as pa

BIGRAM_SCHEMA = pa.schema([("suffix", pa.uint32()), ("prefix", pa.uint32()), ("count", pa.int64())])
TOKEN_SCHEMA = pa.schema([("token", pa.uint32()), ("count", pa.int64()), ("text", pa.string())])
