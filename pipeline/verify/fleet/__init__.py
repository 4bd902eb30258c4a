"""The tables of the fleet computed once more from the residency topic, by docs/figures.md."""
