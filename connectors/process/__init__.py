"""What every process has: compiled code, errors, health pages, limited logs, metrics, pauses, an end."""
