"""Recounts minutes and hours from the ten-second rows."""
