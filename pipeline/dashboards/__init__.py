"""Boards and alert rules: defined once, shown in Grafana and on the built-in page, run by the tests."""
