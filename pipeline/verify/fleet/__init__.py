"""Recounts the tables of the fleet from the residency topic, by docs/figures.md."""
