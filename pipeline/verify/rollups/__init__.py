"""Compares minutes and hours with the ten-second rows."""
