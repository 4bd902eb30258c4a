"""The one way on which rows leave a worker: into ClickHouse, to Kafka as figures, or both."""
