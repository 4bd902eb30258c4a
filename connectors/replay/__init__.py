"""Ask engines again for batches that were missed."""
