"""Recounts every table from the log, plainly, and compares it with what ClickHouse holds."""
