"""The fleet's figures for Prometheus."""
