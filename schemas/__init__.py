"""What crosses a boundary: Kafka records, ClickHouse rows, settings, topics, metrics, reasons. No IO."""
