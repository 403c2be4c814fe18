"""Tables: schemas, parquet and CSV files with provenance and checksums, display."""
