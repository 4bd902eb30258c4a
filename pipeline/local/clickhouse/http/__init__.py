"""ClickHouse's HTTP interface: requests, compression and replies."""
