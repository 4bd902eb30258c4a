"""ClickHouse's engine in one process behind an HTTP front."""
