"""Request traces: which publisher's form a file has, in which units, and its requests."""
