"""What crosses a boundary: engine wire structs, Kafka records, ClickHouse rows, settings. No IO."""
