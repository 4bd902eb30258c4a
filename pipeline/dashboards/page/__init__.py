"""The built-in page: the boards in a browser, for those without Grafana. Read-only."""
