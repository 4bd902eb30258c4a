"""The only way in which rows leave a worker: into ClickHouse, to Kafka as figures, or both."""
