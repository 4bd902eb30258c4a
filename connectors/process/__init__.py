"""What every process needs: compiled code, errors, health pages, logs, metrics, waiting and stopping."""
