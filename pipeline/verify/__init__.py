"""Recounts every table from the log, in plain code, and compares the result with ClickHouse."""
