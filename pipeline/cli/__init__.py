"""The kvlens command line."""
