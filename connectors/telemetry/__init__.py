"""What the connector tells its operators: logs and metrics."""
