"""Discards the agents' checkpoints and follows how workers compute everything again from the log."""
