"""What the index follows: partitions of the log, or all of it up to a moment, and the sources in them."""
