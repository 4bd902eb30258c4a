"""The way from the Kafka log to ClickHouse, the tools around it and the command line."""
