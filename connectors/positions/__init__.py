"""Where each source is in the log, so that a connector continues where the last one stopped."""
