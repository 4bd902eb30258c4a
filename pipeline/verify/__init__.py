"""Every table computed once more from the log, plainly, and compared with what ClickHouse holds."""
