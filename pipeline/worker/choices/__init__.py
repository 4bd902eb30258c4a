"""Routers' choices, from their topic into the table: no state, so nothing to save."""
