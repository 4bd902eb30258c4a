"""The batches of one source in the order of their numbers: gaps, restarts, backlog, runs. No IO."""
