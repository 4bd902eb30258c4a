"""Checkpoints of sources: what changed, bases in turns, and the way back."""
