"""Alert rules for Prometheus: the same that Grafana asks of the tables, and those of the processes."""
