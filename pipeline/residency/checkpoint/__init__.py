"""Checkpoints of sources: bases, written in turns, and restoring from them."""
