"""What every process has: compiled code, errors, health pages, readable logs, metrics, waiting, an end."""
