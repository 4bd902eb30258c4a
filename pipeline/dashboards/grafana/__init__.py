"""Boards and alert rules compiled to what Grafana provisions from files."""
