"""One example of every record."""
