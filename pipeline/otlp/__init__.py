"""The fleet's figures for OpenTelemetry."""
