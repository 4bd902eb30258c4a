"""The engines' own counters, from their metrics pages."""
