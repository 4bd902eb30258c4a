"""What the connector reports to its operators: logs and metrics."""
