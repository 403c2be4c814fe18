"""Tables: declared columns with their meaning, parquet files that say where they come from."""
